//! Views and Mango queries of users of databases with access, against the same documents filtered by
//! hand: rows, ranges, keys, pages and reductions, while documents and their access change.

use std::collections::BTreeMap;
use std::sync::Arc;

use database::{
    Caller, CreateOptions, Database, DatabaseAs, Databases, DefaultAccess, Design, Durability,
    EditMode, FindLimits, GroupLevel, Grouping, Options, Outcome, Requester, ViewAt, ViewIndex,
    ViewQuery,
};
use document::parse_document;
use mango::{AggregateLimits, Defaults, Find, Limits};
use serde_json::{Value, json};

/// More than one block of rows for each principal.
const DOCS: usize = 900;
const ROUNDS: usize = 4;
const EDITS: usize = 120;
const KEYS: u32 = 7;

const PRINCIPALS: [&str; 6] = [
    "alice",
    "bob",
    "role:nurse",
    "role:doctor",
    "role:_users",
    "*",
];

/// Users and their roles. The last one sees only documents of `*`.
const USERS: [(Option<&str>, &[&str]); 5] = [
    (Some("alice"), &["nurse"]),
    (Some("bob"), &[]),
    (Some("carol"), &["nurse", "doctor"]),
    (Some("dora"), &["doctor", "none"]),
    (None, &[]),
];

fn caller(name: Option<&str>, roles: &[&str]) -> Caller {
    Caller {
        name: name.map(str::to_owned),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        ..Caller::default()
    }
}

fn may_read((name, roles): (Option<&str>, &[&str]), principals: &[&'static str]) -> bool {
    principals.iter().any(|principal| match *principal {
        "*" => true,
        "role:_users" => name.is_some(),
        other => match other.strip_prefix("role:") {
            Some(role) => roles.contains(&role),
            None => name == Some(other),
        },
    })
}

struct Document {
    rev: String,
    key: u32,
    principals: Vec<&'static str>,
}

struct World {
    db: Arc<Database>,
    design: Arc<Design>,
    index: Arc<ViewIndex>,
    at: ViewAt,
    docs: BTreeMap<String, Document>,
    random: fastrand::Rng,
}

impl World {
    async fn new(databases: &Arc<Databases>, seed: u64) -> World {
        let options = CreateOptions {
            q: Some(2),
            access: Some(DefaultAccess::None),
            ..CreateOptions::default()
        };
        let db = databases.create("db", options).await.unwrap();
        let design = r#"{"_id":"_design/d","language":"query","views":{"v":{
            "map":{"fields":{"a":"asc"}},"reduce":"_count","options":{"def":{"fields":["a"]}}}}}"#;
        let design = parse_document(design.as_bytes()).unwrap();
        let written = db.update(vec![design], EditMode::Interactive, Durability::Delayed);
        written.await.unwrap();
        let design = db.design("_design/d").unwrap();
        World {
            index: db.view_index(&design).unwrap(),
            at: design.view("v").unwrap(),
            design,
            db,
            docs: BTreeMap::new(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Most documents are of one user or role, as in an app.
    fn principals(&mut self) -> Vec<&'static str> {
        let one = PRINCIPALS[self.random.usize(..PRINCIPALS.len())];
        match self.random.u8(..4) {
            0 => vec![],
            1 => {
                let random = &mut self.random;
                let some = PRINCIPALS.into_iter().filter(|_| random.u8(..4) == 0);
                some.collect()
            }
            _ => vec![one],
        }
    }

    /// Writes documents, or deletes some.
    async fn write(&mut self, ids: Vec<String>) {
        let mut edits = vec![];
        let mut written = vec![];
        for id in ids {
            let before = self.docs.remove(&id);
            let deletes = before.is_some() && self.random.u8(..4) == 0;
            let document = Document {
                rev: String::new(),
                key: self.random.u32(..KEYS),
                principals: self.principals(),
            };
            let mut body = json!({"_id": id, "a": document.key, "_access": document.principals});
            if let Some(before) = before {
                body["_rev"] = before.rev.into();
            }
            if deletes {
                body["_deleted"] = true.into();
            }
            edits.push(parse_document(body.to_string().as_bytes()).unwrap());
            written.push((id, (!deletes).then_some(document)));
        }
        let done = self
            .db
            .update(edits, EditMode::Interactive, Durability::Delayed);
        for (outcome, (id, document)) in done.await.unwrap().0.into_iter().zip(written) {
            let Outcome::Ok { rev } = outcome else {
                panic!("{id}: {outcome:?}");
            };
            if let Some(document) = document {
                let rev = rev.to_string();
                self.docs.insert(id, Document { rev, ..document });
            }
        }
    }

    async fn edit_some(&mut self) {
        let mut ids: Vec<String> = (0..DOCS).map(id).collect();
        self.random.shuffle(&mut ids);
        ids.truncate(EDITS);
        self.write(ids).await;
    }

    async fn update(&self) {
        let built = self.db.update_view(&self.index, &Requester::Background);
        built.await.unwrap();
    }

    /// The keys and ids that a user finds, in order.
    fn visible(&self, user: (Option<&str>, &[&str])) -> Vec<(u32, String)> {
        let docs = self.docs.iter();
        let docs = docs.filter(|(_, doc)| may_read(user, &doc.principals));
        let mut rows: Vec<_> = docs.map(|(id, doc)| (doc.key, id.clone())).collect();
        rows.sort_unstable();
        rows
    }

    fn read(&self, seen: &DatabaseAs, query: ViewQuery, bytes: usize) -> Vec<Value> {
        let rows = seen.view_rows(&self.design, &self.index, self.at, query);
        let mut rows = rows.unwrap();
        let mut out = b"[".to_vec();
        while rows.next_chunk(&mut out, bytes).unwrap() {}
        assert_eq!((rows.total_rows, rows.offset), (None, None));
        out.push(b']');
        serde_json::from_slice(&out).unwrap()
    }
}

fn id(n: usize) -> String {
    format!("d{n:04}")
}

fn text(key: u32) -> Vec<u8> {
    format!("[{key}]").into_bytes()
}

fn rows_of(rows: &[Value]) -> Vec<(u32, String)> {
    let key = |row: &Value| row["key"][0].as_u64().unwrap() as u32;
    let row = |row: &Value| (key(row), row["id"].as_str().unwrap().to_owned());
    rows.iter().map(row).collect()
}

/// Compares rows with those of all visible documents, by several queries.
fn check_rows(world: &World, seen: &DatabaseAs, visible: &[(u32, String)], bytes: usize) {
    let plain = || ViewQuery {
        reduce: Some(false),
        update_seq: true,
        ..ViewQuery::default()
    };
    assert_eq!(rows_of(&world.read(seen, plain(), bytes)), visible);
    let descending = ViewQuery {
        descending: true,
        ..plain()
    };
    let mut reversed = visible.to_vec();
    reversed.reverse();
    assert_eq!(rows_of(&world.read(seen, descending, bytes)), reversed);
    let range = ViewQuery {
        start: Some(text(2)),
        end: Some(text(4)),
        skip: 3,
        limit: Some(50),
        ..plain()
    };
    let within = visible.iter().filter(|(key, _)| (2..=4).contains(key));
    let within: Vec<_> = within.skip(3).take(50).cloned().collect();
    assert_eq!(rows_of(&world.read(seen, range, bytes)), within);
    let keys = ViewQuery {
        keys: Some(
            [5, 1, 9]
                .map(|key| format!("[{key}]"))
                .into_iter()
                .collect(),
        ),
        include_docs: true,
        ..plain()
    };
    let of = |wanted: u32| visible.iter().filter(move |(key, _)| *key == wanted);
    let of_keys: Vec<_> = of(5).chain(of(1)).cloned().collect();
    let found = world.read(seen, keys, bytes);
    assert_eq!(rows_of(&found), of_keys);
    assert!(found.iter().all(|row| row["doc"]["_id"] == row["id"]));
}

/// Compares reductions with counts of the visible documents.
fn check_reductions(world: &World, seen: &DatabaseAs, visible: &[(u32, String)], bytes: usize) {
    for descending in [false, true] {
        let whole = ViewQuery {
            descending,
            ..ViewQuery::default()
        };
        let expected = match visible.len() {
            0 => json!([]),
            count => json!([{"key": null, "value": count}]),
        };
        assert_eq!(Value::Array(world.read(seen, whole, bytes)), expected);
        let groups = ViewQuery {
            descending,
            grouping: Grouping::By(GroupLevel::Exact),
            start: descending.then(|| text(5)),
            end: (!descending).then(|| text(5)),
            ..ViewQuery::default()
        };
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for (key, _) in visible.iter().filter(|(key, _)| *key <= 5) {
            *counts.entry(*key).or_default() += 1;
        }
        let row = |(key, count): (&u32, &usize)| json!({"key": [key], "value": count});
        let mut expected: Vec<Value> = counts.iter().map(row).collect();
        if descending {
            expected.reverse();
        }
        assert_eq!(world.read(seen, groups, bytes), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_show_each_user_the_rows_of_visible_documents() {
    for seed in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let databases = Databases::open(dir.path(), Options::default()).unwrap();
        let mut world = World::new(&databases, seed).await;
        world.write((0..DOCS).map(id).collect()).await;
        for round in 0..ROUNDS {
            world.update().await;
            for (name, roles) in USERS {
                let seen = world.db.seen_by(|| caller(name, roles));
                let visible = world.visible((name, roles));
                let bytes = [1, 500, 1 << 20][round % 3];
                check_rows(&world, &seen, &visible, bytes);
                check_reductions(&world, &seen, &visible, bytes);
            }
            world.edit_some().await;
        }
        let admin = world.db.seen_by(|| caller(Some("root"), &["_admin"]));
        world.update().await;
        let all = ViewQuery::default();
        let rows = admin.view_rows(&world.design, &world.index, world.at, all);
        let mut rows = rows.unwrap();
        let mut out = vec![];
        while rows.next_chunk(&mut out, 1 << 20).unwrap() {}
        let row: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(row["value"], world.docs.len());
        databases.close();
    }
}

/// Returns the documents, or groups, that a query finds for a user.
async fn find(seen: &DatabaseAs, query: &Value, bytes: usize) -> (Vec<Value>, Option<Value>) {
    let defaults = Defaults {
        limit: 10_000,
        limits: Limits::default(),
    };
    let limits = FindLimits {
        // The number of all documents is more.
        scan_limit: 10,
        scan_warning_threshold: 0,
        aggregate: AggregateLimits {
            groups_max: 100,
            values_max: 100,
            bytes_max: 1 << 20,
            user: None,
        },
    };
    let query = document::normalise(query.to_string().as_bytes()).unwrap();
    let find = Find::parse(&query, &defaults).unwrap();
    let indexes = seen.find_indexes().unwrap();
    let plan = seen.plan_find(find, &limits, &indexes).unwrap();
    let mut answer = seen.find(plan, limits).await.unwrap();
    let mut out = b"[".to_vec();
    match answer.is_aggregate() {
        true => while answer.next_groups(&mut out, bytes).unwrap() {},
        false => while answer.next_chunk(&mut out, bytes).unwrap() {},
    }
    out.push(b']');
    (
        serde_json::from_slice(&out).unwrap(),
        answer.execution_stats(),
    )
}

fn found_ids(found: &[Value]) -> Vec<String> {
    let id = |doc: &Value| doc["_id"].as_str().unwrap().to_owned();
    found.iter().map(id).collect()
}

/// Compares the results of Mango queries with the visible documents.
async fn check_finds(seen: &DatabaseAs, visible: &[(u32, String)], bytes: usize) {
    let within = visible.iter().filter(|(key, _)| (2..5).contains(key));
    let within: Vec<String> = within.map(|(_, id)| id.clone()).collect();
    let selector = json!({"a": {"$gte": 2, "$lt": 5}});
    for (fields, sort) in [
        (json!(["_id", "a"]), "asc"),
        (json!(["_id", "_access"]), "desc"),
    ] {
        let query = json!({"selector": selector, "fields": fields, "sort": [{"a": sort}], "execution_stats": true});
        let (found, stats) = find(seen, &query, bytes).await;
        let mut expected = within.clone();
        if sort == "desc" {
            expected.reverse();
        }
        assert_eq!(found_ids(&found), expected);
        let stats = stats.unwrap();
        assert_eq!(stats["results_returned"], expected.len());
    }
    let mut sorted = within.clone();
    sorted.sort_unstable();
    for selector in [
        json!({"a": {"$gte": 2, "$lt": 5}, "_id": {"$gt": null}}),
        json!({"a": {"$in": [2, 3, 4]}, "_id": {"$lt": "e"}}),
    ] {
        let query = json!({"selector": selector, "sort": ["_id"], "execution_stats": true});
        let (found, stats) = find(seen, &query, bytes).await;
        assert_eq!(found_ids(&found), sorted);
        let examined = stats.unwrap()["total_docs_examined"].as_u64().unwrap();
        assert!(examined <= visible.len() as u64, "{examined}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_find_the_visible_documents_of_each_user() {
    for seed in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        let databases = Databases::open(dir.path(), Options::default()).unwrap();
        let mut world = World::new(&databases, seed).await;
        world.write((0..DOCS).map(id).collect()).await;
        for bytes in [1 << 20, 1] {
            for (name, roles) in USERS {
                let seen = world.db.seen_by(|| caller(name, roles));
                let visible = world.visible((name, roles));
                check_finds(&seen, &visible, bytes).await;
            }
            world.edit_some().await;
        }
        databases.close();
    }
}
