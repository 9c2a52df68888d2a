//! Databases with access against a naive model that filters everything by hand: random users edit
//! documents, and each of them sees exactly the documents that the model shows, by every way to read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use database::{
    Caller, ChangesQuery, CreateOptions, Database, DatabaseAs, Databases, DefaultAccess,
    Durability, EditMode, Filter, Framing, Listing, Options, Outcome, Read, ReadOptions,
    RevSelection, RowsQuery, Since, Style,
};
use document::{DocId, Rev, RevHash, parse_document};
use serde_json::{Value, json};
use storage::Keyspace;

const IDS: [&str; 3] = ["a", "b", "shared list"];
const STEPS: usize = 70;

/// Users and their roles. The last one is an admin of the server.
const USERS: [(Option<&str>, &[&str]); 5] = [
    (Some("alice"), &["nurse"]),
    (Some("bob"), &[]),
    (Some("carol"), &["nurse", "doctor"]),
    (None, &[]),
    (Some("root"), &["_admin"]),
];
const ADMIN: usize = 4;

fn caller(user: usize) -> Caller {
    let (name, roles) = USERS[user];
    Caller {
        name: name.map(str::to_owned),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        ..Caller::default()
    }
}

/// A revision, as the model knows it.
struct ModelRev {
    rev: Rev,
    parent: Option<Rev>,
    deleted: bool,
    principals: BTreeSet<&'static str>,
}

#[derive(Default)]
struct ModelDoc(Vec<ModelRev>);

fn matches(user: usize, principals: &BTreeSet<&'static str>) -> bool {
    is_one_of(USERS[user], principals)
}

fn is_one_of((name, roles): (Option<&str>, &[&str]), principals: &BTreeSet<&'static str>) -> bool {
    principals.iter().any(|principal| match *principal {
        "*" => true,
        "role:_users" => name.is_some(),
        other => match other.strip_prefix("role:") {
            Some(role) => roles.contains(&role),
            None => name == Some(other),
        },
    })
}

impl ModelDoc {
    /// Leaves, winner first.
    fn leaves(&self) -> Vec<&ModelRev> {
        let is_leaf = |one: &&ModelRev| !self.0.iter().any(|r| r.parent.as_ref() == Some(&one.rev));
        let mut leaves: Vec<&ModelRev> = self.0.iter().filter(is_leaf).collect();
        leaves.sort_by(|a, b| (!b.deleted, &b.rev).cmp(&(!a.deleted, &a.rev)));
        leaves
    }

    /// Leaves that a user sees; none if the winner is hidden.
    fn visible(&self, user: usize) -> Vec<&ModelRev> {
        let may_read = |leaf: &ModelRev| user == ADMIN || matches(user, &leaf.principals);
        let leaves = self.leaves();
        match leaves.first() {
            Some(winner) if may_read(winner) => {
                leaves.into_iter().filter(|leaf| may_read(leaf)).collect()
            }
            _ => vec![],
        }
    }

    /// Revisions that a user may know: the visible leaves and their ancestors.
    fn known(&self, user: usize) -> BTreeSet<Rev> {
        let mut known = BTreeSet::new();
        for leaf in self.visible(user) {
            let mut at = Some(leaf);
            while let Some(one) = at {
                known.insert(one.rev.clone());
                let parent = one.parent.as_ref();
                at = parent.and_then(|parent| self.0.iter().find(|r| r.rev == *parent));
            }
        }
        known
    }
}

/// A random edit.
struct Edit {
    id: &'static str,
    user: usize,
    mode: EditMode,
    parent: Option<Rev>,
    deleted: bool,
    principals: BTreeSet<&'static str>,
}

#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Ok,
    Conflict,
    Forbidden,
}

fn random_edit(model: &BTreeMap<&'static str, ModelDoc>, random: &mut fastrand::Rng) -> Edit {
    let id = IDS[random.usize(..IDS.len())];
    let leaves = model[id].leaves();
    let extends = !leaves.is_empty() && random.u8(..5) > 0;
    let parent = extends.then(|| leaves[random.usize(..leaves.len())].rev.clone());
    let all = [
        "alice",
        "bob",
        "role:nurse",
        "role:doctor",
        "role:_users",
        "*",
    ];
    let principals = all.into_iter().filter(|_| random.u8(..4) == 0).collect();
    let mode = match random.u8(..4) {
        0 => EditMode::Replicated,
        _ => EditMode::Interactive,
    };
    Edit {
        id,
        user: random.usize(..USERS.len()),
        mode,
        deleted: parent.is_some() && random.u8(..5) == 0,
        parent,
        principals,
    }
}

/// Returns the outcome of an edit, and the revision that it extends or, for a branch, that has to be
/// written.
fn expected<'a>(doc: &'a ModelDoc, edit: &Edit) -> (Expected, Option<&'a ModelRev>) {
    let leaves = doc.leaves();
    let winner = leaves.first().copied();
    let is_interactive = edit.mode == EditMode::Interactive;
    let base = match &edit.parent {
        Some(parent) => leaves.iter().copied().find(|leaf| leaf.rev == *parent),
        None if is_interactive && winner.is_some_and(|winner| !winner.deleted) => {
            return (Expected::Conflict, None);
        }
        None => winner,
    };
    if edit.user != ADMIN {
        let may = |principals| matches(edit.user, principals);
        if [base, winner]
            .into_iter()
            .flatten()
            .any(|leaf| !may(&leaf.principals))
        {
            let outcome = match is_interactive {
                true => Expected::Conflict,
                false => Expected::Forbidden,
            };
            return (outcome, base);
        }
        let removes = edit.deleted && base.is_some();
        if !removes && !may(&edit.principals) {
            return (Expected::Forbidden, base);
        }
    }
    let is_dead = winner.is_some_and(|winner| winner.deleted);
    if is_interactive && is_dead && edit.parent.is_some() {
        return (Expected::Conflict, base);
    }
    (Expected::Ok, base)
}

async fn apply(
    db: &Arc<Database>,
    model: &mut BTreeMap<&'static str, ModelDoc>,
    edit: Edit,
    random: &mut fastrand::Rng,
) {
    let principals: Vec<&str> = edit.principals.iter().copied().collect();
    let mut body = json!({"_id": edit.id, "n": random.u32(..), "_access": principals});
    if edit.deleted {
        body["_deleted"] = true.into();
    }
    let new_hash = format!("{:032x}", random.u128(..));
    match (edit.mode, &edit.parent) {
        (EditMode::Interactive, Some(parent)) => body["_rev"] = parent.to_string().into(),
        (EditMode::Interactive, None) => {}
        (EditMode::Replicated, Some(parent)) => {
            let ids = [new_hash, parent.hash.to_string()];
            body["_revisions"] = json!({"start": parent.generation + 1, "ids": ids});
        }
        (EditMode::Replicated, None) => {
            body["_revisions"] = json!({"start": random.u64(1..4), "ids": [new_hash]});
        }
    }
    let doc = parse_document(body.to_string().as_bytes()).unwrap();
    let seen = db.seen_by(|| caller(edit.user));
    let done = seen.update_as(caller(edit.user), vec![doc], edit.mode, Durability::Delayed);
    let outcome = done.await.unwrap().0.remove(0);
    let (expected, base) = expected(&model[edit.id], &edit);
    let base = base.map(|base| (base.rev.clone(), base.principals.clone()));
    let rev = match (&outcome, &expected) {
        (Outcome::Ok { rev }, Expected::Ok) => rev.clone(),
        (Outcome::Conflict, Expected::Conflict) => return,
        (Outcome::Refused(error, _), Expected::Forbidden) if error == "forbidden" => return,
        _ => panic!("{outcome:?}, expected {expected:?}, for {body}"),
    };
    let is_new_branch = edit.mode == EditMode::Replicated && edit.parent.is_none();
    let parent = match (&base, is_new_branch) {
        (Some((rev, _)), false) => Some(rev.clone()),
        _ => None,
    };
    let principals = match base {
        Some((_, principals)) if edit.deleted => principals,
        _ => edit.principals,
    };
    model.get_mut(edit.id).unwrap().0.push(ModelRev {
        rev,
        parent,
        deleted: edit.deleted,
        principals,
    });
}

fn listing() -> RowsQuery {
    RowsQuery {
        listing: Listing::AllDocs,
        start: None,
        end: None,
        inclusive_end: true,
        keys: None,
        limit: None,
        skip: 0,
        descending: false,
        include_docs: true,
        conflicts: true,
        attachments: Default::default(),
        update_seq: true,
    }
}

fn feed(since: Since) -> ChangesQuery {
    ChangesQuery {
        since,
        descending: false,
        limit: None,
        style: Style::AllDocs,
        include_docs: false,
        conflicts: false,
        attachments: Default::default(),
        filter: Filter::None,
        seq_interval: None,
    }
}

fn listed(seen: &DatabaseAs) -> BTreeMap<String, Value> {
    let mut rows = seen.rows(listing()).unwrap();
    let mut text = b"[".to_vec();
    while rows.next_chunk(&mut text, 1 << 20).unwrap() {}
    text.push(b']');
    let rows: Vec<Value> = serde_json::from_slice(&text).unwrap();
    let of_row = |row: Value| (row["id"].as_str().unwrap().to_owned(), row["doc"].clone());
    rows.into_iter().map(of_row).collect()
}

/// Returns the rows of a feed, and its last seq.
fn changes(seen: &DatabaseAs, since: Since) -> (Vec<Value>, String) {
    some_changes(seen, since, None)
}

/// Returns some rows of a feed, and the last seq.
fn some_changes(seen: &DatabaseAs, since: Since, limit: Option<u64>) -> (Vec<Value>, String) {
    let query = ChangesQuery {
        limit,
        ..feed(since)
    };
    let mut changes = seen.changes(query).unwrap();
    let mut text = vec![];
    while changes
        .next_chunk(Framing::Lines, &mut text, 1 << 20)
        .unwrap()
    {}
    let lines = text.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    let rows = lines.map(|line| serde_json::from_slice(line).unwrap());
    (rows.collect(), changes.last_seq())
}

fn named(row: &Value) -> Vec<Rev> {
    let revs = row["changes"].as_array().unwrap().iter();
    revs.map(|change| Rev::parse(change["rev"].as_str().unwrap()).unwrap())
        .collect()
}

/// Compares what a user sees of a document with the model.
fn check_document(seen: &DatabaseAs, user: usize, id: &str, doc: &ModelDoc) {
    let visible = doc.visible(user);
    let doc_id = DocId::new(id).unwrap();
    let read = seen.read(&doc_id, &ReadOptions::default()).unwrap();
    match (visible.first(), read) {
        (None, Read::Missing) => {}
        (Some(winner), Read::Deleted) => assert!(winner.deleted),
        (Some(winner), Read::Found(found)) => {
            assert!(!winner.deleted);
            assert_eq!(found.rev, winner.rev);
        }
        (winner, read) => panic!("{read:?} for {:?}", winner.map(|winner| &winner.rev)),
    }
    let options = ReadOptions::default();
    let opened = seen.open_revs(&doc_id, &RevSelection::All, &options);
    let opened = opened
        .unwrap()
        .map_or(vec![], |opened| opened.all().unwrap());
    let opened: BTreeSet<Rev> = opened.into_iter().map(|rev| rev.unwrap().rev).collect();
    let leaves: BTreeSet<Rev> = visible.iter().map(|leaf| leaf.rev.clone()).collect();
    assert_eq!(opened, leaves);
    let all: Vec<Rev> = doc.0.iter().map(|rev| rev.rev.clone()).collect();
    let missing = seen.revs_diff(id, &all).unwrap();
    let missing: BTreeSet<Rev> = missing
        .map_or(vec![], |diff| diff.missing)
        .into_iter()
        .collect();
    let known = doc.known(user);
    let expected: BTreeSet<Rev> = all.iter().filter(|r| !known.contains(r)).cloned().collect();
    assert_eq!(missing, expected);
    for rev in &all {
        let options = ReadOptions {
            rev: Some(rev.clone()),
            ..ReadOptions::default()
        };
        let read = seen.read(&doc_id, &options).unwrap();
        if !known.contains(rev) {
            assert!(matches!(read, Read::Missing), "{rev}");
        } else if leaves.contains(rev) {
            assert!(matches!(read, Read::Found(_)), "{rev}");
        }
    }
}

fn check_user(db: &Arc<Database>, user: usize, model: &BTreeMap<&'static str, ModelDoc>) {
    let seen = db.seen_by(|| caller(user));
    let mut ids = BTreeSet::new();
    let mut all = BTreeSet::new();
    for (id, doc) in model {
        check_document(&seen, user, id, doc);
        let visible = doc.visible(user);
        if let Some(winner) = visible.first() {
            all.insert((*id).to_owned());
            if !winner.deleted {
                ids.insert((*id).to_owned());
            }
        }
    }
    let listed = listed(&seen);
    assert_eq!(listed.keys().cloned().collect::<BTreeSet<_>>(), ids);
    for (id, doc) in &listed {
        let visible = model[id.as_str()].visible(user);
        let others = visible[1..].iter().filter(|leaf| !leaf.deleted).count();
        assert_eq!(doc["_conflicts"].as_array().map_or(0, Vec::len), others);
    }
    let (rows, _) = changes(&seen, Since::Start);
    let mut shown = BTreeSet::new();
    for row in rows {
        let id = row["id"].as_str().unwrap().to_owned();
        if row.get("removed").is_some() {
            assert!(!all.contains(&id), "{row}");
            continue;
        }
        let named: BTreeSet<Rev> = named(&row).into_iter().collect();
        for leaf in model[id.as_str()].visible(user) {
            assert!(named.contains(&leaf.rev), "{row}");
        }
        assert!(shown.insert(id), "{row}");
    }
    assert_eq!(shown, all);
}

/// The device of a user: its leaves that are not deleted, by document.
#[derive(Default)]
struct Device {
    since: Option<String>,
    revs: BTreeMap<String, BTreeMap<Rev, (Option<Rev>, bool)>>,
}

impl Device {
    fn pull(&mut self, seen: &DatabaseAs) {
        self.pull_some(seen, None);
    }

    /// Returns the number of rows.
    fn pull_some(&mut self, seen: &DatabaseAs, limit: Option<u64>) -> usize {
        let since = self.since.take().map_or(Since::Start, Since::Seq);
        let (rows, last) = some_changes(seen, since, limit);
        let count = rows.len();
        self.since = Some(last);
        for row in rows {
            let id = DocId::new(row["id"].as_str().unwrap()).unwrap();
            let revs = self.revs.entry(id.as_str().to_owned()).or_default();
            let options = ReadOptions {
                revs: true,
                ..ReadOptions::default()
            };
            let which = RevSelection::List(named(&row));
            let found = seen.open_revs(&id, &which, &options).unwrap().unwrap();
            for doc in found.all().unwrap() {
                let doc = doc.expect("a revision that a feed names can be read");
                let text: Value = serde_json::from_slice(&doc.json).unwrap();
                let mut ids = text["_revisions"]["ids"].as_array().unwrap().iter();
                let mut generation = doc.rev.generation;
                let mut deleted = doc.deleted;
                let next = |generation, hash: &Value| Rev {
                    generation,
                    hash: RevHash::parse(hash.as_str().unwrap()),
                };
                let mut at = next(generation, ids.next().unwrap());
                for hash in ids {
                    generation -= 1;
                    let parent = next(generation, hash);
                    revs.entry(at).or_insert((Some(parent.clone()), deleted));
                    (at, deleted) = (parent, false);
                }
                revs.entry(at).or_insert((None, deleted));
            }
        }
        count
    }

    fn live(&self, id: &str) -> BTreeSet<Rev> {
        let Some(revs) = self.revs.get(id) else {
            return BTreeSet::new();
        };
        let is_parent = |rev: &Rev| {
            revs.values()
                .any(|(parent, _)| parent.as_ref() == Some(rev))
        };
        let leaves = revs.iter().filter(|(rev, _)| !is_parent(rev));
        let live = leaves.filter(|(_, (_, deleted))| !deleted);
        live.map(|(rev, _)| rev.clone()).collect()
    }
}

async fn open(dir: &tempfile::TempDir) -> (Arc<Databases>, Arc<Database>) {
    let databases = Databases::open(dir.path(), Options::default()).unwrap();
    let options = CreateOptions {
        q: Some(2),
        access: Some(DefaultAccess::None),
        ..CreateOptions::default()
    };
    let db = databases.create("db", options).await.unwrap();
    (databases, db)
}

#[tokio::test]
async fn each_user_sees_what_the_model_says() {
    for seed in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let (databases, mut db) = open(&dir).await;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model: BTreeMap<_, _> = IDS.map(|id| (id, ModelDoc::default())).into();
        let mut devices: [Device; 5] = Default::default();
        for step in 0..STEPS {
            let edit = random_edit(&model, &mut random);
            apply(&db, &mut model, edit, &mut random).await;
            for (user, device) in devices.iter_mut().enumerate() {
                check_user(&db, user, &model);
                if user == ADMIN {
                    continue;
                }
                let seen = db.seen_by(|| caller(user));
                device.pull(&seen);
                for id in IDS {
                    let visible = model[id].visible(user);
                    let visible: BTreeSet<Rev> = visible.iter().map(|l| l.rev.clone()).collect();
                    let kept = device.live(id);
                    assert!(kept.is_subset(&visible), "{seed} {step} {user} {id}");
                }
            }
            if step == STEPS / 2 {
                db.compact().unwrap();
                db = databases.get("db").unwrap();
            }
        }
        databases.close();
    }
}

#[tokio::test]
async fn a_seq_of_others_is_the_beginning_and_one_of_fewer_roles_brings_the_new_ones() {
    let dir = tempfile::tempdir().unwrap();
    let (databases, db) = open(&dir).await;
    let admin = db.seen_by(|| caller(ADMIN));
    let docs = [
        r#"{"_id":"a","_access":["alice","bob"]}"#,
        r#"{"_id":"b","_access":["role:nurse"]}"#,
    ];
    let docs = docs.map(|doc| parse_document(doc.as_bytes()).unwrap());
    let done = admin.update_as(
        caller(ADMIN),
        docs.into(),
        EditMode::Interactive,
        Durability::Delayed,
    );
    done.await.unwrap();
    let seen_with = |name: &str, roles: &[&str]| {
        let caller = Caller {
            name: Some(name.to_owned()),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            ..Caller::default()
        };
        db.seen_by(|| caller.clone())
    };
    let alice = seen_with("alice", &[]);
    let (rows, last) = changes(&alice, Since::Start);
    assert_eq!(rows.len(), 1);
    let after = |seen: &DatabaseAs, seq: &str| changes(seen, Since::Seq(seq.to_owned())).0.len();
    assert_eq!(after(&alice, &last), 0);
    // A new role brings what is older than the seq, and nothing else; the seq after it has the role.
    let nurse = seen_with("alice", &["nurse"]);
    let (rows, with_role) = changes(&nurse, Since::Seq(last.clone()));
    assert_eq!((rows.len(), &rows[0]["id"]), (1, &json!("b")));
    assert_eq!(after(&nurse, &with_role), 0);
    assert_eq!(after(&nurse, rows[0]["seq"].as_str().unwrap()), 0);
    // With fewer roles it continues.
    assert_eq!(after(&alice, &with_role), 0);
    assert_eq!(after(&seen_with("bob", &[]), &last), 1);
    let (seq, _) = last.rsplit_once('~').unwrap();
    assert_eq!(after(&alice, seq), 1, "an unsigned one");
    assert_eq!(after(&alice, &format!("{seq}~00")), 1, "a forged one");
    // A name that looks like a role is none.
    let (rows, _) = changes(&seen_with("role:nurse", &[]), Since::Start);
    assert!(rows.is_empty());
    databases.close();
}

/// Writes a new revision of a document, or deletes it, as an admin; returns its revision if it is not
/// deleted.
async fn write_next(
    db: &Arc<Database>,
    id: &str,
    rev: Option<&Rev>,
    (principals, deletes): (&BTreeSet<&'static str>, bool),
) -> Option<Rev> {
    let mut body = json!({"_id": id, "_access": principals});
    if let Some(rev) = rev {
        body["_rev"] = rev.to_string().into();
    }
    let deletes = deletes && rev.is_some();
    if deletes {
        body["_deleted"] = true.into();
    }
    let doc = parse_document(body.to_string().as_bytes()).unwrap();
    let done = db.update(vec![doc], EditMode::Interactive, Durability::Delayed);
    match done.await.unwrap().0.remove(0) {
        Outcome::Ok { rev } => (!deletes).then_some(rev),
        outcome => panic!("{outcome:?} for {body}"),
    }
}

#[tokio::test]
async fn a_device_whose_users_roles_change_has_all_that_the_user_may_read() {
    const DOCS: usize = 12;
    for seed in 0..8 {
        let dir = tempfile::tempdir().unwrap();
        let (databases, db) = open(&dir).await;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut docs: BTreeMap<String, (Option<Rev>, BTreeSet<&'static str>)> = BTreeMap::new();
        let mut device = Device::default();
        for step in 0..60 {
            for _ in 0..random.usize(..4) {
                let id = format!("d{}", random.usize(..DOCS));
                let all = ["alice", "bob", "role:nurse", "role:doctor"];
                let principals = all.into_iter().filter(|_| random.u8(..3) == 0).collect();
                let (rev, _) = docs.remove(&id).unwrap_or_default();
                let deletes = random.u8(..6) == 0;
                let rev = write_next(&db, &id, rev.as_ref(), (&principals, deletes)).await;
                docs.insert(id, (rev, principals));
            }
            let roles = ["nurse", "doctor"].into_iter().filter(|_| random.bool());
            let roles: Vec<&str> = roles.collect();
            let caller = Caller {
                name: Some("alice".to_owned()),
                roles: roles.iter().map(|role| (*role).to_owned()).collect(),
                ..Caller::default()
            };
            let seen = db.seen_by(|| caller.clone());
            // Also in the middle of what a new role brings.
            device.pull_some(&seen, Some(random.u64(1..5)));
            if random.bool() {
                continue;
            }
            device.pull(&seen);
            for (id, (rev, principals)) in &docs {
                let may_read = is_one_of((Some("alice"), &roles), principals);
                if let Some(rev) = rev.as_ref().filter(|_| may_read) {
                    let live = device.live(id);
                    assert!(
                        live.contains(rev),
                        "{seed} {step} {id}: {rev} not in {live:?}"
                    );
                }
            }
            assert_eq!(device.pull_some(&seen, None), 0);
        }
        databases.close();
    }
}

#[tokio::test]
async fn local_documents_are_their_users_own() {
    let dir = tempfile::tempdir().unwrap();
    let (databases, db) = open(&dir).await;
    let id = DocId::new("_local/checkpoint").unwrap();
    for user in [0, 1, ADMIN] {
        let seen = db.seen_by(|| caller(user));
        let read = seen.read(&id, &ReadOptions::default()).unwrap();
        assert!(matches!(read, Read::Missing));
        let doc = json!({"_id": "_local/checkpoint", "user": user});
        let doc = parse_document(doc.to_string().as_bytes()).unwrap();
        let mode = EditMode::Interactive;
        let done = seen.update_as(caller(user), vec![doc], mode, Durability::Delayed);
        let outcome = done.await.unwrap().0.remove(0);
        assert!(matches!(outcome, Outcome::Ok { .. }));
        let Read::Found(doc) = seen.read(&id, &ReadOptions::default()).unwrap() else {
            panic!("it was written");
        };
        let doc: Value = serde_json::from_slice(&doc.json).unwrap();
        assert_eq!(doc["_id"], "_local/checkpoint");
        assert_eq!(doc["user"], user);
    }
    databases.close();
}

fn format(databases: &Databases) -> String {
    let stored = databases.store().engine().get(Keyspace::Meta, b"f");
    String::from_utf8(stored.unwrap().unwrap().to_vec()).unwrap()
}

/// Closes the databases, and waits until their store can be opened again.
fn close(databases: Arc<Databases>) {
    let held = databases.store().held();
    databases.close();
    drop(databases);
    while held.strong_count() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Versions without access by document open stores of the format `settee 1` alone.
#[tokio::test]
async fn versions_without_access_open_stores_without_such_databases_alone() {
    let dir = tempfile::tempdir().unwrap();
    let opened = || Databases::open(dir.path(), Options::default()).unwrap();
    let with_access = || CreateOptions {
        access: Some(DefaultAccess::None),
        ..CreateOptions::default()
    };
    let mut databases = opened();
    let plain = CreateOptions::default();
    databases.create("plain", plain).await.unwrap();
    assert_eq!(format(&databases), "settee 1");
    for name in ["first", "second"] {
        databases.create(name, with_access()).await.unwrap();
        assert_eq!(format(&databases), "settee 2");
    }
    for (deleted, then) in [("first", "settee 2"), ("second", "settee 1")] {
        databases.delete(deleted).await.unwrap();
        close(databases);
        databases = opened();
        assert_eq!(format(&databases), then);
    }
    databases.create("third", with_access()).await.unwrap();
    assert_eq!(format(&databases), "settee 2");
    databases.close();
}

#[test]
fn a_repaired_store_keeps_access_and_its_format() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let databases = Databases::open(&from, Options::default()).unwrap();
    let options = CreateOptions {
        access: Some(DefaultAccess::Owner),
        ..CreateOptions::default()
    };
    let db = runtime.block_on(databases.create("db", options)).unwrap();
    let doc = parse_document(br#"{"_id":"a","_access":["alice"]}"#).unwrap();
    let written = db.update(vec![doc], EditMode::Interactive, Durability::Synced);
    runtime.block_on(written).unwrap();
    drop(db);
    close(databases);
    let hooks = database::repair::RepairHooks {
        lost: &mut |loss| panic!("{loss:?}"),
        progress: &|_, _| {},
        note: &mut |_| {},
    };
    database::repair::repair(&from, &to, &dir.path().join("scratch"), hooks).unwrap();
    let databases = Databases::open(&to, Options::default()).unwrap();
    assert_eq!(format(&databases), "settee 2");
    let db = databases.get("db").unwrap();
    for (user, visible) in [(0, true), (1, false)] {
        let seen = db.seen_by(|| caller(user));
        assert_eq!(listed(&seen).contains_key("a"), visible);
    }
    databases.close();
}

/// Writes a document as a user, and returns its revision.
async fn write(db: &Arc<Database>, user: usize, mode: EditMode, doc: Value) -> Rev {
    let doc = parse_document(doc.to_string().as_bytes()).unwrap();
    let seen = db.seen_by(|| caller(user));
    let done = seen.update_as(caller(user), vec![doc], mode, Durability::Delayed);
    match done.await.unwrap().0.remove(0) {
        Outcome::Ok { rev } => rev,
        other => panic!("{other:?}"),
    }
}

/// The tombstone follows the revision on the device also where the server does not know it any more.
#[tokio::test]
async fn a_device_loses_a_document_whose_last_visible_revision_was_stemmed() {
    let dir = tempfile::tempdir().unwrap();
    let (databases, db) = open(&dir).await;
    db.set_revs_limit(1).await.unwrap();
    let (alice, bob) = (0, 1);
    let shared = json!({"_id": "a", "_access": ["alice", "bob"]});
    let first = write(&db, alice, EditMode::Interactive, shared).await;
    let seen = db.seen_by(|| caller(bob));
    let mut device = Device::default();
    device.pull(&seen);
    assert_eq!(device.live("a"), BTreeSet::from([first.clone()]));
    let mut last = first;
    for n in 0..2 {
        let own = json!({"_id": "a", "_rev": last.to_string(), "_access": ["alice"], "n": n});
        last = write(&db, alice, EditMode::Interactive, own).await;
    }
    device.pull(&seen);
    assert_eq!(device.live("a"), BTreeSet::new());
    databases.close();
}

/// An admin who replicates from the device of a user deletes nothing for others.
#[tokio::test]
async fn removal_revisions_that_an_admin_brings_back_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (databases, db) = open(&dir).await;
    let (alice, bob) = (0, 1);
    let shared = json!({"_id": "a", "_access": ["alice", "bob"]});
    let first = write(&db, alice, EditMode::Interactive, shared).await;
    let own = json!({"_id": "a", "_rev": first.to_string(), "_access": ["alice"]});
    let second = write(&db, alice, EditMode::Interactive, own).await;
    let (rows, _) = changes(&db.seen_by(|| caller(bob)), Since::Start);
    let removal = named(&rows[0]).remove(0);
    let ids = [removal.hash.to_string(), first.hash.to_string()];
    let path = json!({"start": removal.generation, "ids": ids});
    let tombstone = json!({"_id": "a", "_revisions": path, "_deleted": true});
    for user in [bob, ADMIN] {
        let accepted = write(&db, user, EditMode::Replicated, tombstone.clone()).await;
        assert_eq!(accepted, removal);
    }
    let admin = db.seen_by(|| caller(ADMIN));
    let (id, options) = (DocId::new("a").unwrap(), ReadOptions::default());
    let opened = admin.open_revs(&id, &RevSelection::All, &options);
    let opened = opened.unwrap().unwrap().all().unwrap();
    let leaves: Vec<Rev> = opened.into_iter().map(|doc| doc.unwrap().rev).collect();
    assert_eq!(leaves, [second]);
    databases.close();
}
