//! Attachments through the embedded API: uploads, stubs, what an edit may name, and reading back.

use crate::support;

use std::sync::Arc;

use bytes::Bytes;
use database::{
    AttachmentSelection, ChangesQuery, ContentPlacement, Database, Durability, EditMode, Error,
    Framing, Outcome, Read, ReadDoc, ReadOptions, ShownAttachments, Since, SinkOptions,
    UploadedContent,
};
use document::{Attachment, DocId, EditDoc, Encoding};
use support::{compact, doc, feed, open, runtime, with_shards};

async fn upload(
    db: &Database,
    id: &str,
    content_type: &str,
    bytes: &[u8],
    options: SinkOptions,
) -> Result<UploadedContent, Error> {
    let mut sink = db.attachment_sink(&DocId::new(id).unwrap(), content_type, options);
    for piece in bytes.chunks(10_007) {
        sink.write(Bytes::copy_from_slice(piece)).await?;
    }
    sink.finish().await
}

async fn edit(db: &Arc<Database>, edit: EditDoc, mode: EditMode) -> Outcome {
    let (mut outcomes, _) = db
        .update(vec![edit], mode, Durability::Delayed)
        .await
        .unwrap();
    outcomes.remove(0)
}

async fn written(db: &Arc<Database>, doc: EditDoc) -> String {
    match edit(db, doc, EditMode::Interactive).await {
        Outcome::Ok { rev } => rev.to_string(),
        other => panic!("not written: {other:?}"),
    }
}

fn read(db: &Database, id: &str, options: &ReadOptions) -> ReadDoc {
    match db.read(&DocId::new(id).unwrap(), options).unwrap() {
        Read::Found(doc) => doc,
        other => panic!("not found: {other:?}"),
    }
}

fn attachments(db: &Database, id: &str) -> Vec<Attachment> {
    let doc = read(db, id, &ReadOptions::default());
    doc.attachments
        .into_iter()
        .map(|read| read.attachment)
        .collect()
}

fn bytes_of(
    db: &Database,
    id: &str,
    attachment: &Attachment,
    range: Option<std::ops::Range<u64>>,
    decode: bool,
) -> Vec<u8> {
    let mut reader = db
        .attachment_reader(&DocId::new(id).unwrap(), attachment, range, decode)
        .unwrap();
    let mut bytes = vec![];
    while let Some(piece) = reader.next_piece().unwrap() {
        bytes.extend_from_slice(&piece);
    }
    bytes
}

fn text(length: usize) -> Vec<u8> {
    let numbers = (0..).flat_map(|n: u64| format!("{n} ").into_bytes());
    numbers.take(length).collect()
}

#[test]
fn an_upload_becomes_an_attachment_and_its_bytes_come_back_whole_and_in_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("a", with_shards(2)).await.unwrap();
        let bytes = text(700_000);
        for (content_type, encoding) in [
            ("image/png", Encoding::Identity),
            ("text/plain", Encoding::Gzip),
        ] {
            let id = content_type.replace('/', "-");
            let uploaded = upload(&db, &id, content_type, &bytes, SinkOptions::default())
                .await
                .unwrap();
            assert_eq!((uploaded.length, uploaded.encoding), (700_000, encoding));
            let mut edit = doc(&format!(r#"{{"_id":"{id}"}}"#));
            edit.files
                .push(uploaded.attachment("f", content_type, None));
            written(&db, edit).await;
            let attachment = attachments(&db, &id).remove(0);
            assert_eq!(attachment.revpos, Some(1));
            assert!(bytes_of(&db, &id, &attachment, None, true) == bytes);
            for range in [
                0..1,
                131_071..131_073,
                699_999..900_000,
                5..5,
                800_000..800_001,
            ] {
                let expected =
                    &bytes[(range.start as usize).min(700_000)..(range.end as usize).min(700_000)];
                assert!(
                    bytes_of(&db, &id, &attachment, Some(range.clone()), true) == expected,
                    "{range:?}"
                );
            }
            let stored = bytes_of(&db, &id, &attachment, None, false);
            assert_eq!(stored.len() as u64, attachment.stored_length);
            assert_eq!(
                bytes_of(&db, &id, &attachment, Some(3..9), false),
                stored[3..9]
            );
        }
    });
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
    std::io::Write::write_all(&mut gzip, bytes).unwrap();
    gzip.finish().unwrap()
}

#[test]
fn an_upload_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("a", with_shards(1)).await.unwrap();
        let wrong = SinkOptions {
            md5: Some([0; 16]),
            ..SinkOptions::default()
        };
        for content_type in ["image/png", "text/plain"] {
            let refused = upload(&db, "f", content_type, b"hello", wrong.clone()).await;
            assert!(matches!(refused, Err(Error::DigestMismatch)));
        }
        let small = SinkOptions {
            bytes_max: Some(20_000),
            ..SinkOptions::default()
        };
        assert!(
            upload(&db, "f", "image/png", &text(20_000), small.clone())
                .await
                .is_ok()
        );
        let refused = upload(&db, "f", "image/png", &text(20_001), small).await;
        assert!(matches!(refused, Err(Error::AttachmentTooLarge)));
    });
}

#[test]
fn stated_lengths_of_gzipped_bytes_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("a", with_shards(1)).await.unwrap();
        let whole = gzip(&text(300_000));
        let encoded = |length| SinkOptions {
            encoded: true,
            length: Some(length),
            ..SinkOptions::default()
        };
        for bytes in [b"text".as_slice(), &whole[..whole.len() - 1], b""] {
            let uploaded = upload(&db, "f", "text/plain", bytes, encoded(300_000))
                .await
                .unwrap();
            let attachment = uploaded.attachment("f", "text/plain", None);
            assert_eq!(attachment.encoding, Encoding::Gzip);
            assert_eq!(
                (attachment.length, attachment.length_unsure),
                (300_000, true)
            );
            assert_eq!(bytes_of(&db, "f", &attachment, None, true), bytes);
        }
        for (length, is_unsure) in [(300_000, false), (7, true)] {
            let uploaded = upload(&db, "f", "text/plain", &whole, encoded(length))
                .await
                .unwrap();
            let attachment = uploaded.attachment("f", "text/plain", None);
            assert_eq!(attachment.encoding, Encoding::Gzip);
            assert_eq!(
                (attachment.length, attachment.length_unsure),
                (length, is_unsure)
            );
        }
        let small = SinkOptions {
            bytes_max: Some(299_999),
            ..encoded(300_000)
        };
        let refused = upload(&db, "f", "text/plain", &whole, small).await;
        assert!(matches!(refused, Err(Error::AttachmentTooLarge)));
    });
}

#[test]
fn what_a_client_gzipped_is_checked_and_goes_when_nobody_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("a", with_shards(1)).await.unwrap();
        let encoded = SinkOptions {
            encoded: true,
            ..SinkOptions::default()
        };
        let refused = upload(&db, "f", "text/plain", b"not gzip", encoded.clone()).await;
        assert!(matches!(refused, Err(Error::BadRequest(_))));
        // RFC 1952: a file may have several members.
        let members = [gzip(b"hello "), gzip(b""), gzip(&text(100_000))].concat();
        for cut in [1, 9, gzip(&text(100_000)).len() - 1] {
            let torn = &members[..members.len() - cut];
            let refused = upload(&db, "f", "text/plain", torn, encoded.clone()).await;
            assert!(
                matches!(refused, Err(Error::BadRequest(_))),
                "less {cut} bytes"
            );
        }
        let trailing = [&members[..], b"more"].concat();
        let refused = upload(&db, "f", "text/plain", &trailing, encoded.clone()).await;
        assert!(matches!(refused, Err(Error::BadRequest(_))));
        let uploaded = upload(&db, "f", "text/plain", &members, encoded)
            .await
            .unwrap();
        // The decompressed contents are not checked, as in CouchDB.
        assert_eq!(uploaded.length, members.len() as u64);
        drop(uploaded);
        let gzipped = upload(
            &db,
            "f",
            "text/plain",
            &text(100_000),
            SinkOptions::default(),
        )
        .await
        .unwrap();
        let attachment = gzipped.attachment("f", "text/plain", None);
        drop(gzipped);
        let mut edit = doc(r#"{"_id":"f"}"#);
        edit.files.push(attachment);
        // The content is not referenced any more: it was removed.
        let refused = self::edit(&db, edit, EditMode::Interactive).await;
        assert!(matches!(refused, Outcome::Refused(error, _) if error == "missing_stub"));
        assert_eq!(db.info().unwrap().file_bytes, 0);
    });
}

/// Gzip of a short text, of more empty members than one step decodes, and of `end`. Members of 20
/// bytes begin at different places of chunks, by the length of the text.
fn with_empty_members(length: usize) -> (Vec<u8>, Vec<u8>) {
    let empty = gzip(b"").repeat(70_000);
    let text = text(length);
    let members = [gzip(&text), empty, gzip(b"end")].concat();
    (members, [&text[..], b"end"].concat())
}

#[test]
fn gzip_of_empty_members_is_decoded_in_steps() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("a", with_shards(1)).await.unwrap();
        for length in (0..20).step_by(3) {
            let (members, decoded) = with_empty_members(length);
            // Not stated, stated wrongly, and stated as it is.
            for stated in [None, Some(1), Some(decoded.len() as u64)] {
                let options = SinkOptions {
                    encoded: true,
                    length: stated,
                    ..SinkOptions::default()
                };
                let uploaded = upload(&db, "f", "text/plain", &members, options)
                    .await
                    .unwrap();
                let attachment = uploaded.attachment("f", "text/plain", None);
                assert!(!attachment.is_short(32 << 10));
                let id = DocId::new("f").unwrap();
                let mut reader = db.attachment_reader(&id, &attachment, None, true).unwrap();
                let mut bytes = reader.next_piece().unwrap().unwrap().to_vec();
                assert!(reader.is_slow(), "all in one step");
                while let Some(piece) = reader.next_piece().unwrap() {
                    bytes.extend_from_slice(&piece);
                }
                assert_eq!(bytes, decoded);
                assert!(!reader.is_slow());
                let last = decoded.len() as u64 - 2..decoded.len() as u64;
                assert_eq!(bytes_of(&db, "f", &attachment, Some(last), true), b"nd");
                let mut base64 = db.base64_reader(&id, &attachment).unwrap();
                let mut text = String::new();
                while let Some(piece) = base64.next_piece().unwrap() {
                    text.push_str(std::str::from_utf8(&piece).unwrap());
                }
                assert_eq!(text, data_encoding::BASE64.encode(&decoded));
            }
        }
    });
}

#[test]
fn gzip_of_empty_members_is_too_long_for_a_row_with_contents() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("a", with_shards(1)).await.unwrap();
        let (members, decoded) = with_empty_members(0);
        let options = SinkOptions {
            encoded: true,
            length: Some(decoded.len() as u64),
            ..SinkOptions::default()
        };
        let uploaded = upload(&db, "f", "text/plain", &members, options)
            .await
            .unwrap();
        let mut edit = doc(r#"{"_id":"f"}"#);
        edit.files
            .push(uploaded.attachment("f", "text/plain", None));
        written(&db, edit).await;
        for (bytes_max, is_refused) in [(100_000, true), (1_000_000, false)] {
            let query = ChangesQuery {
                include_docs: true,
                attachments: ShownAttachments {
                    bytes: true,
                    encoding_info: false,
                },
                ..feed(Since::Start)
            };
            let mut changes = db.changes(query).unwrap();
            changes.place_contents(ContentPlacement::Whole { bytes_max });
            let read = changes.next_chunk(Framing::Array, &mut vec![], 1 << 20);
            match is_refused {
                true => assert!(matches!(read, Err(Error::RowTooLong(100_000)))),
                false => assert!(read.is_ok()),
            }
        }
    });
}

#[test]
fn stubs_keep_the_parents_attachments_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("a", with_shards(1)).await.unwrap();
        let first = doc(r#"{"_id":"d","_attachments":{"a":{"data":"aGVsbG8="},"b":{"data":"eA==","content_type":"image/png"}}}"#);
        let first = written(&db, first).await;
        let second = doc(&format!(r#"{{"_id":"d","_rev":"{first}","_attachments":{{"b":{{"stub":true}},"c":{{"data":"eQ=="}}}}}}"#));
        let second = written(&db, second).await;
        let now = attachments(&db, "d");
        let now: Vec<_> = now.iter().map(|a| (a.name.as_str(), a.revpos)).collect();
        assert_eq!(now, [("b", Some(1)), ("c", Some(2))]);
        for stub in [r#""a":{"stub":true}"#, r#""b":{"stub":true,"revpos":2}"#, r#""b":{"stub":true,"revpos":"x"}"#] {
            let edit = doc(&format!(r#"{{"_id":"d","_rev":"{second}","_attachments":{{{stub}}}}}"#));
            let refused = self::edit(&db, edit, EditMode::Interactive).await;
            assert!(matches!(&refused, Outcome::Refused(error, _) if error == "missing_stub"), "{refused:?}");
        }
        let stale = doc(&format!(r#"{{"_id":"d","_rev":"{first}","_attachments":{{"a":{{"stub":true}}}}}}"#));
        assert!(matches!(edit(&db, stale, EditMode::Interactive).await, Outcome::Conflict));
        // A revision from elsewhere has what its nearest ancestor here has.
        let hash = &second[2..];
        let path = format!(r#""_revisions":{{"start":4,"ids":["aa","bb","{hash}"]}}"#);
        let replicated = doc(&format!(r#"{{"_id":"d",{path},"_attachments":{{"c":{{"stub":true,"revpos":2}}}}}}"#));
        let done = edit(&db, replicated.clone(), EditMode::Replicated).await;
        assert!(matches!(done, Outcome::Ok { .. }), "{done:?}");
        let again = edit(&db, replicated, EditMode::Replicated).await;
        assert!(matches!(again, Outcome::Ok { .. }), "{again:?}");
        assert_eq!(attachments(&db, "d")[0].revpos, Some(2));
    });
}

#[test]
fn documents_are_read_with_the_bytes_that_are_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("a", with_shards(1)).await.unwrap();
        let rev = written(&db, doc(r#"{"_id":"d","_attachments":{"a":{"data":"aGVsbG8=","content_type":"text/plain"}}}"#)).await;
        let edit = format!(r#"{{"_id":"d","_rev":"{rev}","_attachments":{{"a":{{"stub":true}},"b":{{"data":"eA=="}}}}}}"#);
        written(&db, doc(&edit)).await;
        let json = |attachments, att_encoding_info| {
            let options = ReadOptions { attachments, att_encoding_info, ..ReadOptions::default() };
            let doc = read(&db, "d", &options);
            let json = match options.attachments {
                AttachmentSelection::None => doc.json,
                _ => db.json_with_bytes(&doc, att_encoding_info).unwrap(),
            };
            let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
            json["_attachments"].clone()
        };
        let stubs = json(AttachmentSelection::None, true);
        assert_eq!((&stubs["a"]["stub"], &stubs["a"]["encoding"], &stubs["a"]["length"]), (&true.into(), &"gzip".into(), &5.into()));
        let all = json(AttachmentSelection::All, false);
        assert_eq!((&all["a"]["data"], &all["b"]["data"]), (&"aGVsbG8=".into(), &"eA==".into()));
        let since = json(AttachmentSelection::Since(Arc::new([document::Rev::parse(&rev).unwrap()].into())), false);
        assert_eq!((&since["a"]["stub"], &since["b"]["data"]), (&true.into(), &"eA==".into()));
        let unknown = AttachmentSelection::Since(Arc::new([document::Rev::parse("7-abc").unwrap()].into()));
        assert_eq!(json(unknown, false), all);
    });
}

#[test]
fn compaction_keeps_what_leaves_name_over_all_shards_and_removes_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("a", with_shards(4)).await.unwrap();
        let bytes = text(300_000);
        for n in 0..8 {
            let id = format!("d{n}");
            let same = upload(&db, &id, "image/png", &bytes, SinkOptions::default())
                .await
                .unwrap();
            let own = upload(
                &db,
                &id,
                "image/png",
                format!("own {n}").as_bytes(),
                SinkOptions::default(),
            )
            .await
            .unwrap();
            let mut edit = doc(&format!(r#"{{"_id":"{id}"}}"#));
            edit.files = vec![
                same.attachment("same", "image/png", None),
                own.attachment("own", "image/png", None),
            ];
            written(&db, edit).await;
        }
        compact(&db);
        assert!(bytes_of(&db, "d0", &attachments(&db, "d0")[0], None, true) == bytes);
        for n in 0..7 {
            let rev = read(&db, &format!("d{n}"), &ReadOptions::default()).rev;
            written(
                &db,
                doc(&format!(
                    r#"{{"_id":"d{n}","_rev":"{rev}","_deleted":true}}"#
                )),
            )
            .await;
        }
        compact(&db);
        let left = attachments(&db, "d7");
        assert!(bytes_of(&db, "d7", &left[0], None, true) == bytes);
        assert_eq!(bytes_of(&db, "d7", &left[1], None, true), b"own 7");
        let rev = read(&db, "d7", &ReadOptions::default()).rev;
        written(&db, doc(&format!(r#"{{"_id":"d7","_rev":"{rev}"}}"#))).await;
        compact(&db);
        assert!(
            db.attachment_reader(&DocId::new("d7").unwrap(), &left[0], None, true)
                .is_err()
        );
    });
}
