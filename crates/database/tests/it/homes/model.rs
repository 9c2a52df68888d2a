//! Attachments of few documents and contents, whatever is done to them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use database::{Database, Outcome, ShownAttachments};
use document::{DocId, Rev};
use proptest::prelude::*;
use serde_json::Value;

use crate::homes::disk::{Form, Kept, NAME, content, content_id, created, kept};
use crate::homes::docs::{
    apply, base64, bytes_of, edit_of, files_of, found, id_of, upload, written,
};
use crate::homes::support::{
    all_docs, changes_of, compact, doc, feed, open, rounds, rows_of, runtime, with_shards,
};

/// Changes of the documents `d0`, `d1`, …
#[derive(Clone, Debug)]
pub enum Step {
    /// Uploaded for `for_doc`, and becomes an attachment of `doc`, instead of or in addition to
    /// those that it has.
    Upload {
        doc: usize,
        for_doc: usize,
        content: usize,
        keep: bool,
    },
    /// Documents in one request, each with these contents inline.
    Inline {
        docs: Vec<usize>,
        contents: Vec<usize>,
    },
    /// `to` gets the attachments of `from`.
    Copy {
        from: usize,
        to: usize,
    },
    /// The document is replaced; its attachments stay by their stubs.
    Stubs(usize),
    Delete(usize),
    Purge(usize),
    /// An upload that becomes nothing.
    Abandon {
        doc: usize,
        content: usize,
    },
    Compact,
    CloseIdle,
    Restart,
}

pub const DOCS: usize = 9;
pub const CONTENTS: usize = 7;

pub fn step() -> impl Strategy<Value = Step> {
    let one = 0..DOCS;
    prop_oneof![
        4 => (one.clone(), 0..DOCS, 0..CONTENTS, any::<bool>(), any::<bool>()).prop_map(
            |(doc, other, content, right, keep)| Step::Upload {
                doc, for_doc: if right { doc } else { other }, content, keep
            }),
        3 => (prop::collection::btree_set(0..DOCS, 1..4), prop::collection::btree_set(0..CONTENTS, 1..3))
            .prop_map(|(docs, contents)| Step::Inline {
                docs: docs.into_iter().collect(), contents: contents.into_iter().collect()
            }),
        5 => (one.clone(), one.clone()).prop_map(|(from, to)| Step::Copy { from, to }),
        2 => one.clone().prop_map(Step::Stubs),
        3 => one.clone().prop_map(Step::Delete),
        1 => one.clone().prop_map(Step::Purge),
        1 => (one, 0..CONTENTS).prop_map(|(doc, content)| Step::Abandon { doc, content }),
        2 => Just(Step::Compact),
        1 => Just(Step::CloseIdle),
        1 => Just(Step::Restart),
    ]
}

/// Contents of each document's attachments, by name.
pub type Model = BTreeMap<usize, BTreeMap<String, usize>>;

pub async fn take(db: &Arc<Database>, model: &mut Model, step: &Step) {
    match step {
        Step::Upload {
            doc,
            for_doc,
            content: n,
            keep,
        } => {
            let uploaded = upload(db, &id_of(*for_doc), &content(*n)).await;
            let name = format!("f{n}");
            let mut edit = edit_of(db, &id_of(*doc));
            if *keep {
                edit.files = files_of(db, *doc);
                edit.files.retain(|file| file.name != name);
            } else {
                model.remove(doc);
            }
            edit.files
                .push(uploaded.attachment(&name, "image/png", None));
            written(db, edit).await;
            model.entry(*doc).or_default().insert(name, *n);
        }
        Step::Inline { docs, contents } => write_inline(db, model, docs, contents).await,
        Step::Copy { from, to } => {
            let Some(source) = model.get(from).cloned() else {
                return;
            };
            let mut edit = edit_of(db, &id_of(*to));
            edit.files = files_of(db, *from);
            written(db, edit).await;
            model.insert(*to, source);
        }
        Step::Stubs(n) if model.contains_key(n) => {
            let rev = found(db, &id_of(*n)).unwrap().rev;
            let stub = serde_json::json!({ "stub": true });
            let stubs = model[n].keys().map(|name| (name.clone(), stub.clone()));
            let stubs: serde_json::Map<String, Value> = stubs.collect();
            let body = serde_json::json!({ "_id": id_of(*n), "_rev": rev.to_string(), "_attachments": stubs });
            written(db, doc(&body.to_string())).await;
        }
        Step::Delete(n) if model.contains_key(n) => {
            let mut edit = edit_of(db, &id_of(*n));
            edit.deleted = true;
            written(db, edit).await;
            model.remove(n);
        }
        Step::Purge(n) if model.contains_key(n) => {
            let rev: Rev = found(db, &id_of(*n)).unwrap().rev;
            let id = DocId::new(&id_of(*n)).unwrap();
            let purged = db.purge(vec![(id, vec![rev.clone()])]).await.unwrap();
            assert_eq!(purged.removed[0].1, [rev]);
            model.remove(n);
        }
        Step::Abandon { doc, content: n } => drop(upload(db, &id_of(*doc), &content(*n)).await),
        Step::Compact => compact(db),
        Step::CloseIdle | Step::Restart | Step::Stubs(_) | Step::Delete(_) | Step::Purge(_) => {}
    }
}

async fn write_inline(db: &Arc<Database>, model: &mut Model, docs: &[usize], contents: &[usize]) {
    let entry = |n: &usize| {
        let data = base64(&content(*n));
        let name = format!("i{n}");
        (
            name,
            serde_json::json!({ "content_type": "image/png", "data": data }),
        )
    };
    let all: serde_json::Map<String, Value> = contents.iter().map(entry).collect();
    let edits = docs.iter().map(|n| {
        let mut body = serde_json::json!({ "_id": id_of(*n), "_attachments": all });
        if let Some(doc) = found(db, &id_of(*n)) {
            body["_rev"] = doc.rev.to_string().into();
        }
        doc(&body.to_string())
    });
    let outcomes = apply(db, edits.collect()).await;
    assert!(
        outcomes.iter().all(|o| matches!(o, Outcome::Ok { .. })),
        "{outcomes:?}"
    );
    for n in docs {
        let names = contents.iter().map(|n| (format!("i{n}"), *n));
        model.insert(*n, names.collect());
    }
}

/// Everything that the documents' attachments can be read by.
pub fn agree(db: &Arc<Database>, model: &Model) {
    let data_of = |doc: &Value| -> BTreeMap<String, String> {
        let all = doc["_attachments"].as_object().cloned().unwrap_or_default();
        let data = |value: &Value| value["data"].as_str().unwrap().to_owned();
        all.iter()
            .map(|(name, value)| (name.clone(), data(value)))
            .collect()
    };
    let expected: BTreeMap<String, BTreeMap<String, String>> = model
        .iter()
        .map(|(n, files)| {
            let data = |(name, n): (&String, &usize)| (name.clone(), base64(&content(*n)));
            (id_of(*n), files.iter().map(data).collect())
        })
        .collect();
    let shown = ShownAttachments {
        bytes: true,
        encoding_info: false,
    };
    let mut query = all_docs();
    (query.include_docs, query.attachments) = (true, shown);
    let rows = rows_of(&mut db.rows(query).unwrap(), 100_000);
    let by_id = |doc: &Value| (doc["_id"].as_str().unwrap().to_owned(), data_of(doc));
    let listed: BTreeMap<_, _> = rows.iter().map(|row| by_id(&row["doc"])).collect();
    assert!(listed == expected, "_all_docs");
    let mut query = feed(database::Since::Start);
    (query.include_docs, query.attachments) = (true, shown);
    let changes = changes_of(&mut db.changes(query).unwrap(), 100_000);
    let live = changes.iter().filter(|row| row["deleted"] != true);
    let fed: BTreeMap<_, _> = live.map(|row| by_id(&row["doc"])).collect();
    assert!(fed == expected, "_changes");
    let mut external = 0;
    for (n, files) in model {
        let read = found(db, &id_of(*n)).unwrap();
        let json = db.json_with_bytes(&read, false).unwrap();
        let json: Value = serde_json::from_slice(&json).unwrap();
        assert!(data_of(&json) == expected[&id_of(*n)], "GET {n}");
        for read in &read.attachments {
            let bytes = content(files[&read.attachment.name]);
            assert!(bytes_of(db, &id_of(*n), &read.attachment) == bytes);
            external += bytes.len() as u64;
        }
        external += 2;
    }
    let deleted = db.info().unwrap().doc_del_count;
    assert_eq!(db.info().unwrap().external_bytes, external + 2 * deleted);
}

/// The index of the shard of each document.
pub fn shards_of(db: &Database) -> Vec<usize> {
    let ranges: Vec<String> = db.shards().into_iter().map(|s| s.range).collect();
    (0..DOCS)
        .map(|n| db.shard_of(&DocId::new(&id_of(n)).unwrap()).range)
        .map(|of| ranges.iter().position(|range| *range == of).unwrap())
        .collect()
}

/// After a compaction there is what leaves name, where it should be, and nothing else.
pub fn assert_kept(dir: &Path, form: Form, model: &Model, shards_of: &[usize]) {
    let (kept, shards) = kept(dir);
    let mut expected = Kept::default();
    for (n, files) in model {
        let shard = shards[shards_of[*n]];
        let home = if form == Form::Old { shards[0] } else { shard };
        for n in files.values() {
            if expected.places.insert((home, content_id(*n))) && !content(*n).is_empty() {
                *expected.bytes.entry(home).or_default() += content(*n).len() as u64;
            }
            expected.references.insert((home, content_id(*n), shard));
        }
    }
    assert_eq!(kept, expected);
}

pub fn run(form: Form, q: u32, steps: &[Step]) {
    let dir = tempfile::tempdir().unwrap();
    created(dir.path(), form, with_shards(q));
    let mut databases = open(dir.path());
    let mut model = Model::new();
    let shards_of = shards_of(&databases.get(NAME).unwrap());
    let runtime = runtime();
    for step in steps {
        match step {
            Step::Restart => {
                databases.close();
                drop(databases);
                databases = open(dir.path());
            }
            Step::CloseIdle => drop(databases.close_idle()),
            _ => runtime.block_on(take(&databases.get(NAME).unwrap(), &mut model, step)),
        }
        agree(&databases.get(NAME).unwrap(), &model);
    }
    compact(&databases.get(NAME).unwrap());
    agree(&databases.get(NAME).unwrap(), &model);
    databases.close();
    drop(databases);
    assert_kept(dir.path(), form, &model, &shards_of);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(6, 16), max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn attachments_are_where_their_documents_are_whatever_happens(
        steps in prop::collection::vec(step(), 1..25),
        q in prop::sample::select(vec![1, 2, 5]),
        old in any::<bool>(),
    ) {
        run(if old { Form::Old } else { Form::New }, q, &steps);
    }
}
