//! Documents with many revisions: what a record of the log rewrites in the store is bounded.

use database::Outcome;

use super::nodes::{Nodes, SLOTS};
use crate::placement::slot_of;

/// Together the records of the documents have more bytes than one record of the log may rewrite.
const DOCUMENTS: usize = 300;
const REVISIONS: usize = 1000;

/// A document with a history.
fn long(n: usize) -> String {
    let ids = (0..REVISIONS).map(|age| format!("\"{n:016x}{age:016x}\""));
    let ids = ids.collect::<Vec<_>>().join(",");
    format!(r#"{{"_id":"doc-{n}","_revisions":{{"start":{REVISIONS},"ids":[{ids}]}}}}"#)
}

/// The next edit of the document, which is short.
fn edited(n: usize) -> String {
    format!(
        r#"{{"_id":"doc-{n}","_rev":"{REVISIONS}-{n:016x}{:016x}"}}"#,
        0
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_edits_of_many_long_records_are_several_records_of_the_log() {
    let nodes = Nodes::three().await;
    nodes.create(1, "a", 1).await;
    let docs: Vec<String> = (0..DOCUMENTS).map(long).collect();
    nodes.replicate(1, "a", &docs).await;
    nodes.agree(&[1, 2, 3]).await;
    let db = nodes.node(1).databases.get("a").unwrap();
    let slot = slot_of(db.uuid(), 0, SLOTS);
    let end = || {
        let replica = nodes.node(1).replicas.get(slot).unwrap();
        replica.status().position.next_offset
    };
    let before = end();
    let docs: Vec<String> = (0..DOCUMENTS).map(edited).collect();
    let written = nodes.write(1, "a", &docs).await;
    assert!(written.iter().all(|of| matches!(of, Outcome::Ok { .. })));
    nodes.agree(&[1, 2, 3]).await;
    assert!(end() >= before + 2, "{} after {before}", end());
}
