//! Replication between databases on one server, without HTTP.
use crate::support;

use serde_json::{Value, json};
use support::{Node, admin, leaves, until, write};

use replicator::{Error, ReplicateResult};

const TANGLE: [&str; 6] = [
    r#"{"_id":"a","_rev":"1-11111111111111111111111111111111","x":1}"#,
    r#"{"_id":"a","_revisions":{"start":3,"ids":["33","22","aa"]},"y":[1.5,{"z":null}]}"#,
    r#"{"_id":"b","_rev":"1-bb","_deleted":true,"left":"behind"}"#,
    r#"{"_id":"é/\"","_rev":"1-cc","text":"\u0001"}"#,
    r#"{"_id":"_design/d","_rev":"1-dd","language":"x"}"#,
    r#"{"_id":"c","_revisions":{"start":2,"ids":["ee","ff"]},"_deleted":true}"#,
];

#[tokio::test(flavor = "multi_thread")]
async fn every_leaf_arrives_with_its_ancestors() {
    let node = Node::new();
    let (one, two) = (node.create("one").await, node.create("two").await);
    write(&one, &TANGLE).await;
    write(&two, &[r#"{"_id":"a","of":"two"}"#]).await;
    let answer = node
        .completed(json!({"source": "one", "target": "two"}))
        .await;
    assert_eq!(answer["history"][0]["docs_written"], 6);
    assert_eq!(answer["history"][0]["doc_write_failures"], 0);
    node.completed(json!({"source": "two", "target": "one"}))
        .await;
    assert_eq!(leaves(&one), leaves(&two));
    assert_eq!(leaves(&one)["a"].len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_where_the_last_one_ended() {
    let node = Node::new();
    let (one, two) = (node.create("one").await, node.create("two").await);
    write(&one, &[r#"{"_id":"a"}"#, r#"{"_id":"b"}"#]).await;
    let request = || json!({"source": "one", "target": "two"});
    let first = node.completed(request()).await;
    assert_eq!(node.completed(request()).await["no_changes"], true);
    write(&one, &[r#"{"_id":"c"}"#]).await;
    let third = node.completed(request()).await;
    // Restarting from the beginning would check three, and find one missing.
    assert_eq!(third["history"][0]["missing_checked"], 3);
    assert_eq!(third["history"][0]["missing_found"], 3);
    assert_eq!(third["history"][1]["session_id"], first["session_id"]);
    assert_eq!(leaves(&one), leaves(&two));
    let unrecorded = json!({"source": "one", "target": "two", "use_checkpoints": false});
    assert_eq!(
        node.completed(unrecorded).await,
        json!({"use_checkpoints": false})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_by_many_workers_miss_nothing() {
    let node = Node::new();
    let (one, two) = (node.create("one").await, node.create("two").await);
    let docs: Vec<String> = (0..1000)
        .map(|n| format!("{{\"_id\":\"d{n}\",\"n\":{n}}}"))
        .collect();
    write(&one, &docs.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let request =
        json!({"source": "one", "target": "two", "worker_batch_size": 7, "worker_processes": 9});
    assert_eq!(
        node.completed(request).await["history"][0]["docs_written"],
        1000
    );
    assert_eq!(leaves(&one), leaves(&two));
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_the_target_refuses_are_counted() {
    let node = Node::new();
    let one = node.create("one").await;
    node.create("two").await;
    let large = format!("{{\"_id\":\"large\",\"x\":\"{}\"}}", "y".repeat(20_000));
    write(&one, &[&large, r#"{"_id":"small"}"#]).await;
    let answer = node
        .completed(json!({"source": "one", "target": "two"}))
        .await;
    assert_eq!(answer["history"][0]["docs_written"], 1);
    assert_eq!(answer["history"][0]["doc_write_failures"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_begin_says_why() {
    let node = Node::new();
    node.create("one").await;
    let failed = node
        .replicate(json!({"source": "no", "target": "one"}))
        .await;
    assert!(matches!(failed, Err(Error::NoDatabase(name)) if name == "no"));
    let failed = node
        .replicate(json!({"source": "one", "target": "no"}))
        .await;
    assert!(matches!(failed, Err(Error::NoDatabase(_))));
    let failed = node.replicate(json!({"target": "one"})).await;
    assert!(matches!(failed, Err(Error::MissingEndpoint)));
    let failed = node.replicate(json!({"cancel": true, "id": "no"})).await;
    assert!(matches!(failed, Err(Error::NoJob)));
    assert_eq!(node.replicator.job_counts().total(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_continuous_job_runs_until_it_is_cancelled_by_whom_it_belongs_to() {
    let node = Node::new();
    let (one, two) = (node.create("one").await, node.create("two").await);
    let ReplicateResult::Continuous(id) = node
        .replicate(json!({"source": "one", "target": "two", "continuous": true}))
        .await
        .unwrap()
    else {
        panic!("it goes on")
    };
    for n in 0..5 {
        write(&one, &[&format!("{{\"_id\":\"d{n}\"}}")]).await;
        until("a change arrives", || leaves(&two).len() == n + 1).await;
    }
    let job = node.replicator.job(&id).unwrap();
    assert_eq!(job["user"], "admin");
    // A document is there before its write is answered and counted.
    until("they are counted", || {
        node.replicator.tasks()[0]["docs_written"] == 5
    })
    .await;
    let Value::Object(cancel) = json!({"cancel": true, "id": id}) else {
        panic!("an object")
    };
    let mut other = admin();
    other.name = Some("other".into());
    other.roles.clear();
    let refused = node.replicator.replicate(cancel.clone(), other, ()).await;
    assert!(matches!(refused, Err(Error::NotAdmin)));
    let cancelled = node.replicator.replicate(cancel, admin(), ()).await;
    assert!(matches!(cancelled, Ok(ReplicateResult::Cancelled(_))));
    assert_eq!(node.replicator.job_counts().total(), 0);
    // Its progress was recorded.
    let again = node
        .completed(json!({"source": "one", "target": "two"}))
        .await;
    assert_eq!(again["no_changes"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_deleted_ends_its_job() {
    let node = Node::new();
    node.create("one").await;
    node.create("two").await;
    node.replicate(
        json!({"source": "one", "target": "two", "continuous": true, "retries_per_request": 0}),
    )
    .await
    .unwrap();
    until("it runs", || node.replicator.job_counts().running == 1).await;
    node.databases.delete("one").await.unwrap();
    until("it ended", || node.replicator.job_counts().total() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_document_is_told_that_it_failed() {
    let node = Node::new();
    let db = node.create("_replicator").await;
    write(&db, &[r#"{"_id":"bad","source":"x","target":"y"}"#]).await;
    let state = || {
        let doc = node.replicator.doc("_replicator", "bad").unwrap().unwrap();
        doc["state"].clone()
    };
    until("it failed", || state() == "failed").await;
    let doc = node.replicator.doc("_replicator", "bad").unwrap().unwrap();
    assert_eq!(doc["info"]["error"], "local_endpoints_not_supported");
    node.databases.delete("_replicator").await.unwrap();
}
