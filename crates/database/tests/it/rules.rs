//! Rules of system databases: they are called for every write and read of a caller.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use database::{
    Bound, Caller, CallerContext, ChangesQuery, CreateOptions, DatabaseAs, Databases, Durability,
    EditMode, Error, Filter, Framing, Listing, Options, Outcome, PriorDocument, Read, ReadOptions,
    Refusal, RevSelection, RowsQuery, Since, Style, SystemRules, Visibility,
};
use document::{DocId, EditDoc, parse_document};
use functions::Requester;

/// Records the writer and the previous document; hides, censors and forbids by id.
#[derive(Default)]
struct Rules {
    changed: AtomicUsize,
}

impl SystemRules for Rules {
    fn concerns(&self, db: &str) -> bool {
        db.starts_with('_')
    }

    fn before_write(
        &self,
        context: &CallerContext<'_>,
        before: PriorDocument<'_>,
        edit: EditDoc,
    ) -> Result<EditDoc, Refusal> {
        if context.caller.name.is_none() {
            return Err(Refusal {
                error: "forbidden".into(),
                reason: "nobody writes here".to_owned(),
            });
        }
        let before = match before {
            PriorDocument::Nothing => "nothing",
            PriorDocument::Was(_) => "was",
            PriorDocument::Conflict => "conflict",
        };
        let body = serde_json::json!({"by": context.caller.name, "before": before});
        Ok(edit
            .with_body(body.to_string().as_bytes())
            .expect("an object"))
    }

    fn shows_all(&self, context: &CallerContext<'_>) -> bool {
        context.caller.is_server_admin()
    }

    fn after_read(&self, context: &CallerContext<'_>, id: &str, json: &[u8]) -> Visibility {
        assert!(json.starts_with(b"{\"_id\":") && json.ends_with(b"}"));
        match id {
            _ if context.caller.is_server_admin() => panic!("an admin is shown all"),
            "censored" => Visibility::Instead(b"{\"censored\":true}".to_vec()),
            "forbidden" => Visibility::Forbidden("not for you"),
            _ => Visibility::Hidden,
        }
    }

    fn changed(&self, _db: &str) {
        self.changed.fetch_add(1, Ordering::Relaxed);
    }
}

struct Scene {
    databases: Arc<Databases>,
    rules: Arc<Rules>,
    _dir: tempfile::TempDir,
}

async fn scene() -> Scene {
    let dir = tempfile::tempdir().expect("a directory");
    let databases = Databases::open(dir.path(), Options::default()).expect("databases");
    let rules = Arc::new(Rules::default());
    create(&databases, "_users").await;
    databases.add_rules(rules.clone());
    create(&databases, "_replicator").await;
    create(&databases, "plain").await;
    Scene {
        databases,
        rules,
        _dir: dir,
    }
}

async fn create(databases: &Arc<Databases>, name: &str) {
    let options = CreateOptions {
        q: Some(2),
        ..CreateOptions::default()
    };
    databases.create(name, options).await.expect("a database");
}

fn caller(name: Option<&str>, roles: &[&str]) -> Caller {
    Caller {
        name: name.map(str::to_owned),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        ..Caller::default()
    }
}

impl Scene {
    fn seen(&self, db: &str, roles: &[&str]) -> DatabaseAs {
        let db = self.databases.get(db).expect("a database");
        db.seen_by(|| caller(Some("anna"), roles))
    }

    async fn write(
        &self,
        db: &str,
        by: Option<&str>,
        mode: EditMode,
        docs: &[&str],
    ) -> Vec<Outcome> {
        let docs = docs
            .iter()
            .map(|doc| parse_document(doc.as_bytes()).expect("a document"))
            .collect();
        let db = self.databases.get(db).expect("a database");
        let done = db.update_as(caller(by, &[]), docs, mode, Durability::Delayed);
        done.await.expect("outcomes").0
    }
}

fn text(db: &DatabaseAs, id: &str) -> String {
    let id = DocId::new(id).expect("an id");
    match db.read(&id, &ReadOptions::default()) {
        Ok(Read::Found(doc)) => String::from_utf8(doc.json).expect("UTF-8"),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn writes_are_rewritten_or_refused_in_databases_of_the_rules_alone() {
    let scene = scene().await;
    for db in ["_users", "_replicator"] {
        let anna = Some("anna");
        let done = scene
            .write(
                db,
                anna,
                EditMode::Interactive,
                &[r#"{"_id":"a","x":1}"#, r#"{"_id":"_local/l","x":1}"#],
            )
            .await;
        assert!(
            done.iter().all(|o| matches!(o, Outcome::Ok { .. })),
            "{done:?}"
        );
        let admin = scene.seen(db, &["_admin"]);
        assert!(text(&admin, "a").ends_with(r#""by":"anna","before":"nothing"}"#));
        assert!(text(&admin, "_local/l").ends_with(r#""by":"anna","before":"nothing"}"#));
        let done = scene
            .write(db, anna, EditMode::Interactive, &[r#"{"_id":"a"}"#])
            .await;
        assert!(matches!(done[..], [Outcome::Conflict]), "{done:?}");
        let done = scene
            .write(
                db,
                anna,
                EditMode::Replicated,
                &[r#"{"_id":"r","_rev":"3-aa","x":1}"#],
            )
            .await;
        assert!(matches!(&done[..], [Outcome::Ok { rev }] if rev.to_string() == "3-aa"));
        assert!(text(&admin, "r").ends_with(r#""by":"anna","before":"nothing"}"#));
        let done = scene
            .write(
                db,
                None,
                EditMode::Interactive,
                &[r#"{"_id":"a"}"#, r#"{"_id":"b"}"#],
            )
            .await;
        let refused = |o: &Outcome| matches!(o, Outcome::Refused(e, r) if e == "forbidden" && r == "nobody writes here");
        assert!(
            done.iter().all(refused),
            "refusals come before conflicts: {done:?}"
        );
    }
    let done = scene
        .write(
            "plain",
            None,
            EditMode::Interactive,
            &[r#"{"_id":"a","x":1}"#],
        )
        .await;
    assert!(matches!(done[..], [Outcome::Ok { .. }]));
    assert!(text(&scene.seen("plain", &[]), "a").ends_with(r#""x":1}"#));
}

/// Rules for which each edit is slow; those of the user `many` wait until they may pass.
#[derive(Default)]
struct SlowRules {
    waiting: AtomicUsize,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl SystemRules for SlowRules {
    fn concerns(&self, db: &str) -> bool {
        db == "_users"
    }

    fn before_write(
        &self,
        context: &CallerContext<'_>,
        _: PriorDocument<'_>,
        edit: EditDoc,
    ) -> Result<EditDoc, Refusal> {
        if context.caller.name.as_deref() == Some("many") {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let is_open = self.is_open.lock().expect("the lock");
            let wait = self.opened.wait_while(is_open, |is_open| !*is_open);
            drop(wait.expect("the lock"));
        }
        Ok(edit)
    }

    fn is_slow(&self, _: &EditDoc) -> bool {
        true
    }

    fn shows_all(&self, _: &CallerContext<'_>) -> bool {
        true
    }

    fn after_read(&self, _: &CallerContext<'_>, _: &str, _: &[u8]) -> Visibility {
        Visibility::Whole
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admins_and_other_users_write_while_slow_edits_of_a_user_are_checked() {
    let dir = tempfile::tempdir().expect("a directory");
    let databases = Databases::open(dir.path(), Options::default()).expect("databases");
    let rules = Arc::new(SlowRules::default());
    databases.add_rules(rules.clone());
    create(&databases, "_users").await;
    let db = databases.get("_users").expect("a database");
    let write = |requester: Requester, id: &str| {
        let name = match &requester {
            Requester::Client(_) => id.split('-').next(),
            Requester::Admin | Requester::Background => None,
        };
        let caller = Caller {
            requester,
            ..caller(name, &[])
        };
        let doc = parse_document(format!(r#"{{"_id":"{id}"}}"#).as_bytes()).expect("a document");
        let db = db.clone();
        async move {
            let mode = EditMode::Interactive;
            let done = db.update_as(caller, vec![doc], mode, Durability::Delayed);
            done.await.expect("outcomes").0
        }
    };
    let many: Vec<_> = (0..4)
        .map(|n| tokio::spawn(write(Requester::user("many"), &format!("many-{n}"))))
        .collect();
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let turns = (processors / 2).clamp(1, 2);
    while rules.waiting.load(Ordering::Relaxed) < turns {
        tokio::task::yield_now().await;
    }
    for (requester, id) in [
        (Requester::user("other"), "other-1"),
        (Requester::Admin, "admin"),
    ] {
        let done = write(requester, id).await;
        assert!(matches!(done[..], [Outcome::Ok { .. }]), "{id}: {done:?}");
    }
    // The others of this user wait for their turns.
    assert_eq!(rules.waiting.load(Ordering::Relaxed), turns);
    *rules.is_open.lock().expect("the lock") = true;
    rules.opened.notify_all();
    for done in many {
        let done = done.await.expect("no panic");
        assert!(matches!(done[..], [Outcome::Ok { .. }]), "{done:?}");
    }
}

#[tokio::test]
async fn reads_show_what_the_rules_allow() {
    let scene = scene().await;
    let docs = [
        r#"{"_id":"censored"}"#,
        r#"{"_id":"forbidden"}"#,
        r#"{"_id":"hidden"}"#,
    ];
    scene
        .write("_users", Some("anna"), EditMode::Interactive, &docs)
        .await;
    let (anna, admin) = (scene.seen("_users", &[]), scene.seen("_users", &["_admin"]));
    assert_eq!(text(&anna, "censored"), r#"{"censored":true}"#);
    assert_eq!(text(&anna, "hidden"), "Ok(Missing)");
    let id = DocId::new("forbidden").expect("an id");
    assert!(matches!(
        anna.read(&id, &ReadOptions::default()),
        Err(Error::Forbidden("not for you"))
    ));
    let leaves = anna.open_revs(&id, &RevSelection::All, &ReadOptions::default());
    assert!(leaves.expect("leaves").is_none());
    for (db, shown) in [
        (&anna, [r#""doc":{"censored":true}}"#, r#""doc":null}"#]),
        (&admin, [r#""by":"anna""#; 2]),
    ] {
        let listed = listed(db);
        let fed = fed(db, Filter::None);
        for text in [listed, fed] {
            assert!(shown.iter().all(|part| text.contains(part)), "{text}");
            assert_eq!(text.contains("\"by\""), shown[0].contains("by"), "{text}");
        }
    }
}

#[tokio::test]
async fn filters_see_no_more_than_their_caller() {
    struct HasBy;
    impl database::ChangeFilter for HasBy {
        fn needs_doc(&self) -> bool {
            true
        }
        fn matches(&self, _id: &str, _deleted: bool, doc: Option<&[u8]>) -> bool {
            doc.is_some_and(|doc| String::from_utf8_lossy(doc).contains("\"by\""))
        }
    }
    let scene = scene().await;
    scene
        .write(
            "_users",
            Some("anna"),
            EditMode::Interactive,
            &[r#"{"_id":"hidden"}"#],
        )
        .await;
    let filter = Filter::Custom(Arc::new(HasBy));
    assert_eq!(fed(&scene.seen("_users", &[]), filter.clone()), "");
    assert!(fed(&scene.seen("_users", &["_admin"]), filter).contains("hidden"));
}

#[tokio::test]
async fn rules_are_told_of_writes_creation_and_deletion() {
    let scene = scene().await;
    let told = || scene.rules.changed.load(Ordering::Relaxed);
    let before = told();
    scene
        .write("plain", None, EditMode::Interactive, &["{\"_id\":\"a\"}"])
        .await;
    assert_eq!(told(), before);
    scene
        .write(
            "_users",
            Some("a"),
            EditMode::Interactive,
            &["{\"_id\":\"a\"}"],
        )
        .await;
    let after_write = told();
    assert!(after_write > before);
    scene.databases.delete("_users").await.expect("deleted");
    let after_delete = told();
    assert!(after_delete > after_write);
    create(&scene.databases, "_users").await;
    assert!(told() > after_delete);
    assert!(
        scene
            .write("_users", None, EditMode::Interactive, &["{\"_id\":\"a\"}"])
            .await
            .iter()
            .all(|o| matches!(o, Outcome::Refused(..)))
    );
}

fn listed(db: &DatabaseAs) -> String {
    let query = RowsQuery {
        listing: Listing::AllDocs,
        start: None::<Bound>,
        end: None,
        inclusive_end: true,
        keys: None,
        limit: None,
        skip: 0,
        descending: false,
        include_docs: true,
        conflicts: false,
        attachments: Default::default(),
        update_seq: false,
    };
    let mut out = vec![];
    let mut rows = db.rows(query).expect("rows");
    while rows.next_chunk(&mut out, 1 << 16).expect("rows") {}
    String::from_utf8(out).expect("UTF-8")
}

fn fed(db: &DatabaseAs, filter: Filter) -> String {
    let query = ChangesQuery {
        since: Since::Start,
        descending: false,
        limit: None,
        style: Style::MainOnly,
        include_docs: true,
        conflicts: false,
        attachments: Default::default(),
        filter,
        seq_interval: None,
    };
    let mut out = vec![];
    let mut changes = db.changes(query).expect("changes");
    while changes
        .next_chunk(Framing::Lines, &mut out, 1 << 16)
        .expect("changes")
    {}
    String::from_utf8(out).expect("UTF-8")
}
