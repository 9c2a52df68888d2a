//! Feeds over some shards, one after the other, against a feed over all.

use std::sync::Arc;

use document::{EditDoc, TextList, parse_document};
use proptest::prelude::*;

use super::{Changes, ChangesQuery, Filter, Framing, Since, Style};
use crate::EditMode;
use crate::fixture::Fixture;

fn edit(id: u8, generation: u32, deleted: bool) -> EditDoc {
    let id = match id % 5 {
        0 => format!("_design/{id}"),
        _ => format!("doc-{id}"),
    };
    let json = format!(
        r#"{{"_id":"{id}","_rev":"{generation}-{generation}","_deleted":{deleted},"x":{generation}}}"#
    );
    parse_document(json.as_bytes()).unwrap()
}

/// Returns the rows of a feed up to its end.
fn rows(feed: &mut Changes) -> Vec<String> {
    let mut out = vec![];
    while feed.next_chunk(Framing::Lines, &mut out, 100).unwrap() {}
    let text = String::from_utf8(out).unwrap();
    text.lines().map(str::to_owned).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn feeds_of_parts_one_after_the_other_are_the_feed_of_all(
        q in 1u32..6,
        parts in prop::collection::vec(1usize..4, 1..4),
        edits in prop::collection::vec((0u8..40, 1u32..4, any::<bool>()), 1..60),
        later in prop::collection::vec((0u8..40, 4u32..6, any::<bool>()), 0..20),
        (include_docs, by_ids) in (any::<bool>(), any::<bool>()),
    ) {
        let fixture = Fixture::new(Some(q));
        let db = &fixture.db;
        let ids: TextList = (0u8..40).step_by(2).map(|id| format!("doc-{id}")).collect();
        let ids = Arc::new(ids);
        let query = |since: Since| ChangesQuery {
            since,
            descending: false,
            limit: None,
            style: Style::MainOnly,
            include_docs,
            conflicts: false,
            attachments: Default::default(),
            filter: match by_ids {
                true => Filter::DocIds(ids.clone()),
                false => Filter::None,
            },
            seq_interval: None,
        };
        let mut since = Since::Start;
        for edits in [edits, later] {
            for (id, generation, deleted) in edits {
                fixture.write(vec![edit(id, generation, deleted)], EditMode::Replicated);
            }
            let mut whole = db.changes(query(since.clone())).unwrap();
            let wanted = (rows(&mut whole), whole.last_seq());
            let mut found = vec![];
            let (mut first, mut sizes) = (0, parts.iter().cycle());
            while first < q as usize {
                let end = (first + sizes.next().unwrap()).min(q as usize);
                let only: Arc<[usize]> = (first..end).collect();
                let mut part = db.changes_for(query(since), None, Some(&only)).unwrap();
                found.extend(rows(&mut part));
                prop_assert_eq!(part.pending().unwrap(), 0);
                since = Since::Seq(part.last_seq());
                first = end;
            }
            let Since::Seq(last) = &since else {
                return Err(TestCaseError::fail("no part was read"));
            };
            prop_assert_eq!((found, last.clone()), wanted);
        }
    }
}

#[test]
fn a_seq_takes_places_of_some_shards_from_another() {
    let fixture = Fixture::new(Some(3));
    let db = &fixture.db;
    for id in 0..40 {
        fixture.write(vec![edit(id, 1, false)], EditMode::Replicated);
    }
    let end = db.short_update_seq().unwrap();
    let part = db.seq_with("0", &end, &[0, 2]).unwrap();
    assert_ne!(part, end);
    assert_eq!(db.seq_with(&part, &end, &[1, 9]).unwrap(), end);
    let whole = db.info().unwrap().update_seq;
    assert_eq!(
        db.joined_seq(&[&whole; 3].map(String::clone)).unwrap(),
        whole
    );
    let seqs = [part, "0".to_owned(), end.clone()];
    assert_ne!(db.joined_seq(&seqs).unwrap(), whole);
    assert!(db.joined_seq(&seqs[..2]).is_err());
    assert!(db.seq_with("x", &end, &[1]).is_err());
}
