//! `validate_doc_update` functions and the check of design documents, without HTTP.

use std::sync::Arc;

use database::{
    Caller, CreateOptions, Database, Databases, Durability, EditMode, Options, Outcome,
};
use document::parse_document;
use functions::Functions;

struct Scene {
    db: Arc<Database>,
    // Dropped after the database, and before its directory.
    _databases: Arc<Databases>,
    _dir: tempfile::TempDir,
}

async fn scene() -> Scene {
    let dir = tempfile::tempdir().expect("a directory");
    let languages = Functions::new(Default::default(), Default::default()).expect("functions");
    let options = Options {
        languages,
        ..Options::default()
    };
    let databases = Databases::open(dir.path(), options).expect("databases");
    let create = CreateOptions {
        q: Some(3),
        n: None,
        partitioned: false,
        spread: false,
        access: None,
        security: r#"{"admins":{"names":["anna"]}}"#.to_owned(),
    };
    let db = databases.create("db", create).await.expect("a database");
    Scene {
        db,
        _databases: databases,
        _dir: dir,
    }
}

impl Scene {
    async fn write(&self, mode: EditMode, docs: &[&str]) -> Vec<String> {
        let docs = docs
            .iter()
            .map(|d| parse_document(d.as_bytes()).expect("a document"))
            .collect();
        let caller = Caller {
            name: Some("bob".to_owned()),
            roles: vec!["writer".to_owned()],
            ..Caller::default()
        };
        let done = self.db.update_as(caller, docs, mode, Durability::Delayed);
        let (outcomes, _) = done.await.expect("outcomes");
        outcomes
            .into_iter()
            .map(|outcome| match outcome {
                Outcome::Ok { rev } => format!("ok {}", rev.generation),
                Outcome::Conflict => "conflict".to_owned(),
                Outcome::Refused(error, reason) => format!("{error}: {reason}"),
            })
            .collect()
    }

    async fn edit(&self, docs: &[&str]) -> Vec<String> {
        self.write(EditMode::Interactive, docs).await
    }

    /// The revision of a document.
    fn rev(&self, id: &str) -> String {
        let id = document::DocId::new(id).expect("an id");
        match self.db.read(&id, &database::ReadOptions::default()) {
            Ok(database::Read::Found(doc)) => doc.rev.to_string(),
            other => panic!("{other:?}"),
        }
    }
}

/// A design document whose function throws its arguments, unless a document has `ok`.
const SHOW: &str = r#"{"_id":"_design/show","validate_doc_update":"function(n, o, u, s) { if (!n.ok) throw({forbidden: JSON.stringify([n, o, u, s])}); }"}"#;

#[tokio::test]
async fn a_function_sees_both_documents_the_user_and_the_security_object() {
    let scene = scene().await;
    assert_eq!(
        scene.edit(&[SHOW, r#"{"_id":"a","ok":1}"#]).await,
        ["ok 1", "ok 1"]
    );
    let rev = scene.rev("a");
    let (_, hash) = rev.split_once('-').expect("a revision");
    let user = r#"{"db":"db","name":"bob","roles":["writer"]},{"admins":{"names":["anna"]}}"#;
    let revisions = format!(r#""_revisions":{{"start":1,"ids":["{hash}"]}}"#);
    let edit = format!(r#"{{"_id":"a","_rev":"{rev}","_deleted":true,"x":1}}"#);
    assert_eq!(
        scene.edit(&[r#"{"_id":"b","x":1}"#, &edit]).await,
        [
            format!(r#"forbidden: [{{"_id":"b","x":1}},null,{user}]"#),
            format!(
                r#"forbidden: [{{"_id":"a","_rev":"{rev}","x":1,"_deleted":true,{revisions}}},{{"_id":"a","_rev":"{rev}","ok":1,{revisions}}},{user}]"#
            ),
        ]
    );
}

#[tokio::test]
async fn a_conflict_comes_before_a_refusal_and_the_rest_is_written() {
    let scene = scene().await;
    scene.edit(&[SHOW, r#"{"_id":"a","ok":1}"#]).await;
    let done = scene
        .edit(&[
            r#"{"_id":"a","_rev":"1-00"}"#,
            r#"{"_id":"a"}"#,
            r#"{"_id":"b","ok":1}"#,
            r#"{"_id":"_local/l"}"#,
            r#"{"_id":"_design/other"}"#,
        ])
        .await;
    assert_eq!(done, ["conflict", "conflict", "ok 1", "ok 0", "ok 1"]);
}

#[tokio::test]
async fn a_replicated_revision_is_compared_with_its_nearest_ancestor() {
    let scene = scene().await;
    let old = r#""_revisions":{"start":1,"ids":["aa"]}"#;
    let first = format!(r#"{{"_id":"a","n":1,{old}}}"#);
    scene.write(EditMode::Replicated, &[&first]).await;
    let function = "function(n, o) { throw({forbidden: (o && o._rev) + ' ' + n._rev}); }";
    let design = format!(r#"{{"_id":"_design/d","validate_doc_update":"{function}"}}"#);
    scene.edit(&[&design]).await;
    let docs = [
        r#"{"_id":"a","_revisions":{"start":3,"ids":["cc","bb","aa"]}}"#,
        r#"{"_id":"a","_rev":"3-cc"}"#,
        r#"{"_id":"b","_rev":"1-aa"}"#,
        first.as_str(),
    ];
    assert_eq!(
        scene.write(EditMode::Replicated, &docs).await,
        [
            "forbidden: 1-aa 3-cc",
            "forbidden: null 3-cc",
            "forbidden: null 1-aa",
            "ok 1"
        ]
    );
}

#[tokio::test]
async fn a_function_counts_as_soon_as_its_design_document_is_written_and_until_it_is_deleted() {
    let scene = scene().await;
    let refusing = r#"{"_id":"_design/d","validate_doc_update":"function() { throw({unauthorized: 'no'}); }"}"#;
    for id in ["a", "b", "c"] {
        let doc = format!(r#"{{"_id":"{id}"}}"#);
        assert_eq!(scene.edit(&[&doc]).await, ["ok 1"]);
        // Deleted design documents are revived, so that the generations grow.
        assert!(scene.edit(&[refusing]).await[0].starts_with("ok"));
        assert_eq!(scene.edit(&[r#"{"_id":"x"}"#]).await, ["unauthorized: no"]);
        let rev = scene.rev("_design/d");
        let deleted = format!(r#"{{"_id":"_design/d","_rev":"{rev}","_deleted":true}}"#);
        assert!(scene.edit(&[&deleted]).await[0].starts_with("ok"));
    }
}

#[tokio::test]
async fn functions_that_fail_refuse() {
    let scene = scene().await;
    let broken = |function: &str| {
        format!(r#"{{"_id":"_design/d","_rev":"REV","validate_doc_update":"{function}"}}"#)
    };
    let mut rev = String::new();
    for (function, error) in [
        ("function(", "compilation_error"),
        ("function() { nothing_here; }", "ReferenceError"),
        ("function() { throw('plain'); }", "unknown_error: plain"),
    ] {
        let design = match rev.as_str() {
            "" => broken(function).replace(r#""_rev":"REV","#, ""),
            rev => broken(function).replace("REV", rev),
        };
        assert!(
            scene.edit(&[&design]).await[0].starts_with("ok"),
            "{function}"
        );
        rev = scene.rev("_design/d");
        let done = scene.edit(&[r#"{"_id":"a"}"#]).await;
        assert!(done[0].contains(error), "{function}: {done:?}");
    }
}

#[tokio::test]
async fn a_design_document_that_is_none_is_refused_however_it_comes() {
    let scene = scene().await;
    let bad = r#"{"_id":"_design/d","_rev":"1-aa","views":{"v":{"map":"function(doc) {"}}}"#;
    let done = scene.write(EditMode::Replicated, &[bad]).await;
    assert!(
        done[0].starts_with(
            "compilation_error: Compilation of the map function in the 'v' view failed: "
        ),
        "{done:?}"
    );
    let bad = r#"{"_id":"_design/d","views":{"v":{"map":"function(doc) {}","reduce":"_nope"}}}"#;
    assert_eq!(
        scene.edit(&[bad]).await,
        ["invalid_design_doc: `_nope` is not a supported reduce function."]
    );
    let unknown = r#"{"_id":"_design/d","language":"cobol","views":{"v":{"map":"MOVE"}}}"#;
    assert_eq!(scene.edit(&[unknown]).await, ["ok 1"]);
}

#[tokio::test]
async fn design_documents_that_are_not_kept_in_memory_validate_too() {
    let scene = scene().await;
    // More than a database keeps of texts of design documents.
    let long = "x".repeat(3 << 20);
    for name in ["a", "b", "c", "d"] {
        let function = format!("function(n) {{ if (n.{name}) throw({{forbidden: '{name}'}}); }}");
        let design = format!(
            r#"{{"_id":"_design/{name}","validate_doc_update":"{function}","x":"{long}"}}"#
        );
        assert_eq!(scene.edit(&[&design]).await, ["ok 1"]);
    }
    // More than it keeps of selectors.
    let values: Vec<String> = (0..200_000).map(|n| format!("\"v{n}\"")).collect();
    let selector = format!(r#"{{"newDoc.e":{{"$nin":[{}]}}}}"#, values.join(","));
    let design =
        format!(r#"{{"_id":"_design/e","language":"query","validate_doc_update":{selector}}}"#);
    assert_eq!(scene.edit(&[&design]).await, ["ok 1"]);
    for round in 0..2 {
        let names = ["a", "b", "c", "d"];
        let docs = names.map(|name| format!(r#"{{"_id":"{name}","{name}":1}}"#));
        let mut docs: Vec<&str> = docs.iter().map(String::as_str).collect();
        let bad = format!(r#"{{"_id":"bad{round}","e":"v7"}}"#);
        let good = format!(r#"{{"_id":"good{round}","e":"v"}}"#);
        docs.extend([bad.as_str(), good.as_str()]);
        let refused = names.map(|name| format!("forbidden: {name}"));
        let done = scene.edit(&docs).await;
        assert_eq!(done[..4], refused);
        assert_eq!(done[4..], ["forbidden: document is not valid", "ok 1"]);
    }
    // One that is replaced, and one that is deleted.
    let design = r#"{"_id":"_design/a","_rev":"REV"}"#.replace("REV", &scene.rev("_design/a"));
    let gone = r#"{"_id":"_design/b","_rev":"REV","_deleted":true}"#;
    let gone = gone.replace("REV", &scene.rev("_design/b"));
    scene.edit(&[&design, &gone]).await;
    let docs = [r#"{"_id":"f","a":1,"b":1,"e":"x"}"#, r#"{"_id":"g","c":1}"#];
    assert_eq!(scene.edit(&docs).await, ["ok 1", "forbidden: c"]);
}
