//! A piece of a listing ends when its time is over, which is checked after few bytes of rows.

use document::parse_document;
use serde_json::json;

use super::*;
use crate::EditMode;
use crate::fixture::Fixture;

fn local_docs() -> RowsQuery {
    RowsQuery {
        listing: Listing::LocalDocs,
        start: None,
        end: None,
        inclusive_end: true,
        keys: None,
        limit: None,
        skip: 0,
        descending: false,
        include_docs: false,
        conflicts: false,
        attachments: ShownAttachments::default(),
        update_seq: false,
    }
}

/// The number of rows in each piece, when the time of every piece is over.
fn rows_of_pieces(rows: &mut Rows) -> Vec<usize> {
    let mut counts = vec![];
    loop {
        let mut out = vec![];
        let more = rows.write_piece(&mut Turn::over(), &mut out, 1 << 20);
        counts.push(memchr::memmem::find_iter(&out, b"{\"id\":").count());
        if !more.unwrap() {
            return counts;
        }
    }
}

#[test]
fn long_rows_are_listed_in_short_pieces() {
    for (name, count, bytes, pieces) in [
        ("short", 70, 10, vec![64, 6]),
        ("long", 4, 300 << 10, vec![1, 1, 1, 1, 0]),
    ] {
        let fixture = Fixture::new(None);
        let text = "x".repeat(bytes);
        let doc = |n: u32| {
            let doc = json!({"_id": format!("_local/{n:03}"), "text": text});
            parse_document(doc.to_string().as_bytes()).unwrap()
        };
        let docs = (0..count).map(doc).collect();
        fixture.write(docs, EditMode::Interactive);
        for descending in [false, true] {
            let query = RowsQuery {
                descending,
                ..local_docs()
            };
            let mut rows = fixture.db.start_rows(query).unwrap();
            assert!(rows.is_placed(), "of local documents nothing is counted");
            assert_eq!(rows_of_pieces(&mut rows), pieces, "{name}");
        }
    }
}

#[test]
fn a_listing_waits_for_its_counts() {
    let fixture = Fixture::new(None);
    let db = &fixture.db;
    let docs = (0..200).map(|n| {
        let doc = json!({"_id": format!("d{n:03}")});
        parse_document(doc.to_string().as_bytes()).unwrap()
    });
    fixture.write(docs.collect(), EditMode::Interactive);
    let query = || RowsQuery {
        listing: Listing::AllDocs,
        start: Some(Bound::Id("d150".into())),
        limit: Some(2),
        ..local_docs()
    };
    // As after a first turn that was over before anything was counted.
    let mut rows = db.rows(query()).unwrap();
    let range = Range::of(&query());
    let (views, blocks) = Views::open(db.all_shards()).unwrap();
    let placing = Placing::of(&query(), Some(&range), &views, blocks);
    rows.placing = Some(Box::new(placing));
    (rows.total_rows, rows.offset) = (None, None);
    let placing = rows.placing.as_mut().unwrap();
    let placed = placing.go_on(&views, &mut Turn::over()).unwrap();
    assert!(placed.is_none() && !rows.is_placed(), "rows were counted");
    let mut out = vec![];
    while rows.next_chunk(&mut out, 1 << 20).unwrap() {}
    assert!(rows.is_placed());
    assert_eq!((rows.total_rows, rows.offset), (Some(200), Some(150)));
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("d150") && text.contains("d151") && !text.contains("d152"));
}
