//! Updates of text indexes.

use functions::Requester;

use crate::{CreateOptions, Databases, Durability, EditMode, Options, Outcome};

const DOCS: u64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purges_that_are_not_remembered_are_found_without_mapping_documents_again() {
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::open(folder.path(), Options::default()).unwrap();
    let options = CreateOptions {
        q: Some(1),
        ..CreateOptions::default()
    };
    let db = databases.create("db", options).await.unwrap();
    db.set_purged_infos_limit(1).await.unwrap();
    let text = br#"{"type":"text","index":{}}"#;
    let text = mango::NewIndex::parse(text, &mango::Limits::default()).unwrap();
    let mut members = text.add_to(None).unwrap().unwrap();
    members.push(("autoupdate".to_owned(), b"false".to_vec()));
    let text = mango::index::write_design(&text.ddoc, None, Some(members));
    let write = async |docs: Vec<Vec<u8>>| {
        let docs = docs
            .iter()
            .map(|doc| document::parse_document(doc).unwrap());
        let written = db.update(docs.collect(), EditMode::Interactive, Durability::Synced);
        written.await.unwrap().0
    };
    let doc = |n: u64| format!(r#"{{"_id":"{n}","a":"word"}}"#).into_bytes();
    write(vec![text]).await;
    let written = write((0..DOCS).map(doc).collect()).await;
    let design = db.all_designs().unwrap().remove(0);
    let (flavour, name) = design.text_names().next().unwrap();
    let index = db.text_index(&design, flavour, name).unwrap();
    db.update_text(&index, &Requester::Background)
        .await
        .unwrap();
    assert_eq!(db.text_info(&index).unwrap().docs, DOCS);
    let mapped = || index.shards[0].map_counts.mapped();
    let before = mapped();
    assert!(before >= DOCS);

    // One of them comes back.
    for (n, outcome) in written.into_iter().enumerate().take(10) {
        let Outcome::Ok { rev } = outcome else {
            panic!("{outcome:?}");
        };
        let id = document::DocId::new(&n.to_string()).unwrap();
        db.purge(vec![(id, vec![rev])]).await.unwrap();
    }
    write(vec![doc(3), doc(DOCS)]).await;
    db.update_text(&index, &Requester::Background)
        .await
        .unwrap();
    assert_eq!(db.text_info(&index).unwrap().docs, DOCS - 10 + 2);
    assert!(mapped() <= before + 2);
    databases.close();
}
