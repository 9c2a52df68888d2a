//! Where the contents of attachments are stored: each shard has those of its own documents; in old
//! databases the first shard has them all. Only the files on disk show the difference.

mod disk;
mod docs;
mod model;
use crate::support;

use std::sync::Arc;

use bytes::Bytes;
use database::{
    CreateOptions, Database, Databases, Durability, EditMode, Listing, Outcome, SinkOptions,
};
use document::{Attachment, DocId};

use disk::{Form, Kept, NAME, content, created, kept, raw};
use docs::{apply, base64, bytes_of, edit_of, files_of, found, id_of, upload, written};
use model::{CONTENTS, DOCS, Model, agree, assert_kept, shards_of};
use support::{all_docs, compact, doc, open, rows_of, runtime, with_shards};

/// Two documents of different shards, and one more of the first one's.
fn apart(db: &Database) -> [String; 3] {
    let shard = |n: usize| db.shard_of(&DocId::new(&id_of(n)).unwrap()).range;
    let other = (1..).find(|n| shard(*n) != shard(0)).unwrap();
    let same = (1..).find(|n| shard(*n) == shard(0)).unwrap();
    [0, other, same].map(id_of)
}

#[test]
fn a_copy_in_another_shard_outlives_what_it_was_copied_from() {
    for form in [Form::New, Form::Old] {
        let dir = tempfile::tempdir().unwrap();
        created(dir.path(), form, with_shards(3));
        let databases = open(dir.path());
        // Longer than contents that go through the log.
        let long: Vec<u8> = (0..(16 << 20) + 70_000).map(|n| (n / 997) as u8).collect();
        runtime().block_on(async {
            let db = databases.get(NAME).unwrap();
            let [from, to, same] = apart(&db);
            let mut edit = edit_of(&db, &from);
            let uploaded = upload(&db, &from, &long).await;
            edit.files.push(uploaded.attachment("f", "image/png", None));
            written(&db, edit).await;
            drop(uploaded);
            for id in [&to, &same] {
                let mut edit = edit_of(&db, id);
                edit.files = files_of(&db, 0);
                written(&db, edit).await;
            }
            for id in [&from, &same] {
                let mut edit = edit_of(&db, id);
                edit.deleted = true;
                written(&db, edit).await;
            }
            compact(&db);
            let left = found(&db, &to).unwrap().attachments.remove(0).attachment;
            assert!(bytes_of(&db, &to, &left) == long);
            // A content that does not exist is not copied.
            let id = DocId::new(&from).unwrap();
            let gone = db.attachment_reader(&id, &left, None, true);
            assert_eq!(gone.is_err(), form == Form::New);
            let mut edit = edit_of(&db, &from);
            edit.files = vec![Attachment {
                content: [1; 32],
                ..left
            }];
            let refused = apply(&db, vec![edit]).await;
            assert!(matches!(&refused[0], Outcome::Refused(error, _) if error == "missing_stub"));
        });
        databases.close();
        drop(databases);
        let (kept, _) = kept(dir.path());
        assert_eq!(
            (kept.places.len(), kept.references.len()),
            (1, 1),
            "{form:?}"
        );
        assert_eq!(kept.bytes.into_values().sum::<u64>(), long.len() as u64);
    }
}

#[test]
fn a_copy_is_made_while_its_source_goes() {
    let dir = tempfile::tempdir().unwrap();
    created(dir.path(), Form::New, with_shards(2));
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.get(NAME).unwrap();
        let [from, to, _] = apart(&db);
        let bytes = content(4);
        let uploaded = upload(&db, &from, &bytes).await;
        // The holder of an upload can make it an attachment of any document, with nothing at the
        // first one's.
        let mut edit = edit_of(&db, &to);
        edit.files.push(uploaded.attachment("f", "image/png", None));
        written(&db, edit).await;
        drop(uploaded);
        let attachment = found(&db, &to).unwrap().attachments.remove(0).attachment;
        assert!(bytes_of(&db, &to, &attachment) == bytes);
    });
    databases.close();
    drop(databases);
    let (kept, shards) = kept(dir.path());
    assert_eq!((kept.places.len(), kept.references.len()), (1, 1));
    assert_eq!((kept.unfinished, kept.removed), (0, 1));
    assert_eq!(shards.len(), 2);
}

/// One of several tasks that change the same documents, `times` times.
async fn change_at_random(db: &Arc<Database>, seed: u64, times: usize) {
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..times {
        let (from, to) = (rng.usize(..DOCS), rng.usize(..DOCS));
        let mut edit = edit_of(db, &id_of(to));
        let mut held = None;
        match rng.u8(..10) {
            0..4 => {
                let n = rng.usize(..CONTENTS);
                let for_doc = if rng.bool() { to } else { from };
                let uploaded = upload(db, &id_of(for_doc), &content(n)).await;
                let name = format!("f{n}");
                edit.files
                    .push(uploaded.attachment(&name, "image/png", None));
                held = Some(uploaded);
            }
            4..8 => edit.files = files_of(db, from),
            _ => edit.deleted = true,
        }
        let copies = held.is_none();
        match apply(db, vec![edit]).await.remove(0) {
            Outcome::Ok { .. } | Outcome::Conflict => {}
            // A content that is not held may have been removed since it was read.
            Outcome::Refused(error, _) if copies && error == "missing_stub" => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn documents_are_copied_to_and_fro_while_contents_go() {
    for form in [Form::New, Form::Old] {
        let dir = tempfile::tempdir().unwrap();
        created(dir.path(), form, with_shards(4));
        let databases = open(dir.path());
        let db = databases.get(NAME).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let tasks: Vec<_> = (0..4)
            .map(|seed| {
                let db = db.clone();
                runtime.spawn(async move { change_at_random(&db, seed, 120).await })
            })
            .collect();
        while tasks.iter().any(|task| !task.is_finished()) {
            compact(&db);
        }
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        compact(&db);
        let mut model = Model::new();
        for n in (0..DOCS).filter(|n| found(&db, &id_of(*n)).is_some()) {
            let names = files_of(&db, n).into_iter().map(|file| {
                let of = file.name[1..].parse().unwrap();
                (file.name, of)
            });
            model.insert(n, names.collect());
        }
        agree(&db, &model);
        let shards_of = shards_of(&db);
        drop((db, runtime));
        databases.close();
        drop(databases);
        assert_kept(dir.path(), form, &model, &shards_of);
    }
}

#[test]
fn listings_of_partitions_show_attachments_of_each_shard() {
    for form in [Form::New, Form::Old] {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions {
            partitioned: true,
            ..with_shards(4)
        };
        created(dir.path(), form, options);
        let databases = open(dir.path());
        runtime().block_on(async {
            let db = databases.get(NAME).unwrap();
            for n in 0..12 {
                let data = base64(format!("of {}", n % 2).as_bytes());
                let attachments = serde_json::json!({ "f": { "data": data } });
                let body =
                    serde_json::json!({ "_id": format!("p{n}:x"), "_attachments": attachments });
                written(&db, doc(&body.to_string())).await;
            }
            let design = format!(
                r#"{{"_id":"_design/x","_attachments":{{"f":{{"data":"{}"}}}}}}"#,
                base64(b"of 0")
            );
            written(&db, doc(&design)).await;
            for n in 0..12 {
                let mut query = all_docs();
                query.listing = Listing::Partition(format!("p{n}"));
                query.include_docs = true;
                query.attachments.bytes = true;
                let rows = rows_of(&mut db.rows(query).unwrap(), 1000);
                let data = &rows[0]["doc"]["_attachments"]["f"]["data"];
                assert_eq!(*data, *base64(format!("of {}", n % 2).as_bytes()));
            }
            compact(&db);
            let design = found(&db, "_design/x").unwrap().attachments.remove(0);
            assert_eq!(bytes_of(&db, "_design/x", &design.attachment), b"of 0");
        });
        databases.close();
    }
}

#[test]
fn a_deleted_database_leaves_no_contents_under_any_shard() {
    let dir = tempfile::tempdir().unwrap();
    created(dir.path(), Form::New, with_shards(4));
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.get(NAME).unwrap();
        let mut held = vec![];
        for n in 0..20 {
            let uploaded = upload(&db, &id_of(n), &content(n)).await;
            let mut edit = edit_of(&db, &id_of(n));
            edit.files.push(uploaded.attachment("f", "image/png", None));
            written(&db, edit).await;
            held.push(upload(&db, &id_of(n), b"nobody's").await);
        }
        let mut begun = db.attachment_sink(
            &DocId::new("d3").unwrap(),
            "image/png",
            SinkOptions::default(),
        );
        begun.write(Bytes::from(content(4))).await.unwrap();
        databases.delete(NAME).await.unwrap();
        assert!(begun.finish().await.is_err());
        drop(held);
    });
    databases.close();
    drop(databases);
    let store = raw(dir.path());
    store.reap().unwrap();
    store.close();
    drop(store);
    assert_eq!(kept(dir.path()), (Kept::default(), vec![]));
}

#[test]
fn documents_of_several_shards_are_replicated_with_their_attachments_into_another_form() {
    let dir = tempfile::tempdir().unwrap();
    created(dir.path(), Form::Old, with_shards(3));
    let databases = open(dir.path());
    runtime().block_on(async {
        let source = databases.get(NAME).unwrap();
        let target = databases.create("b", with_shards(4)).await.unwrap();
        for n in 0..8 {
            let uploaded = upload(&source, &id_of(n), &content(n % 2 + 3)).await;
            let mut edit = edit_of(&source, &id_of(n));
            edit.files.push(uploaded.attachment("f", "image/png", None));
            written(&source, edit).await;
            let id = DocId::new(&id_of(n)).unwrap();
            let rev = found(&source, &id_of(n)).unwrap().rev;
            let edit = source.replicas(&id, &[rev]).unwrap().remove(0);
            // The contents that it names are not here yet.
            let done = target.update(
                vec![edit.clone()],
                EditMode::Replicated,
                Durability::Delayed,
            );
            let (outcomes, _) = done.await.unwrap();
            assert!(
                matches!(&outcomes[0], Outcome::Refused(error, _) if error == "missing_stub")
                    || n >= 2
            );
            if n < 2 {
                let uploaded = upload(&target, &id_of(n), &content(n % 2 + 3)).await;
                let done = target.update(vec![edit], EditMode::Replicated, Durability::Delayed);
                let (outcomes, _) = done.await.unwrap();
                assert!(matches!(&outcomes[0], Outcome::Ok { .. }), "{outcomes:?}");
                drop(uploaded);
            }
            let copy = found(&target, &id_of(n))
                .unwrap()
                .attachments
                .remove(0)
                .attachment;
            assert!(bytes_of(&target, &id_of(n), &copy) == content(n % 2 + 3));
        }
    });
    databases.close();
}

#[test]
fn what_is_idle_is_closed_with_all_its_contents() {
    let dir = tempfile::tempdir().unwrap();
    created(dir.path(), Form::New, with_shards(3));
    let databases: Arc<Databases> = open(dir.path());
    runtime().block_on(async {
        let [from, ..] = {
            let db = databases.get(NAME).unwrap();
            apart(&db)
        };
        let uploaded = upload(&databases.get(NAME).unwrap(), &from, &content(3)).await;
        assert_eq!(databases.close_idle(), 0, "somebody holds a content");
        drop(uploaded);
        assert_eq!(databases.close_idle(), 1);
    });
    databases.close();
}
