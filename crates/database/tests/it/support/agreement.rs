//! Compares the results of a database with those of the naive model.

use std::sync::Arc;

use database::{
    ChangesQuery, Database, Filter, Listing, Read, ReadOptions, RevSelection, Since, Style,
};
use document::{DocId, Rev};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::naive::{Doc, Model};
use crate::support::{all_docs, bound, changes_of, feed, ids_of, rows_of};

/// A range of `_all_docs`; places are numbers that the test turns into ids.
#[derive(Clone, Debug)]
pub struct ListQuery {
    start: Option<usize>,
    end: Option<usize>,
    inclusive_end: bool,
    descending: bool,
    skip: u64,
    limit: Option<u64>,
    include_docs: bool,
    conflicts: bool,
    chunk: usize,
}

pub fn list_query(places: usize) -> impl Strategy<Value = ListQuery> {
    (
        prop::option::of(0..places),
        prop::option::of(0..places),
        any::<[bool; 4]>(),
        prop_oneof![2 => Just(0u64), 3 => 0u64..16, 1 => Just(1000u64)],
        prop::option::of(0u64..10),
        1usize..2000,
    )
        .prop_map(|(start, end, flags, skip, limit, chunk)| ListQuery {
            start,
            end,
            inclusive_end: flags[0],
            descending: flags[1],
            skip,
            limit,
            include_docs: flags[2],
            conflicts: flags[3],
            chunk,
        })
}

#[derive(Clone, Debug)]
pub struct FeedQuery {
    limit: u64,
    descending: bool,
    all_leaves: bool,
    include_docs: bool,
    conflicts: bool,
    /// Only these documents.
    only: Option<Vec<usize>>,
    chunk: usize,
}

pub fn feed_query(ids: usize) -> impl Strategy<Value = FeedQuery> {
    (
        0u64..16,
        any::<[bool; 4]>(),
        prop::option::weighted(0.2, prop::collection::vec(0..ids, 0..5)),
        1usize..1000,
    )
        .prop_map(|(limit, flags, only, chunk)| FeedQuery {
            limit,
            descending: flags[0],
            all_leaves: flags[1],
            include_docs: flags[2],
            conflicts: flags[3],
            only,
            chunk,
        })
}

/// A revision of a document as a client sees it.
fn json_of(id: &str, doc: &Doc, rev: &Rev) -> Value {
    let body = doc.nodes[rev].body.as_ref().unwrap();
    let mut json: Value = serde_json::from_str(&body.text).unwrap();
    json["_id"] = json!(id);
    json["_rev"] = json!(rev.to_string());
    if body.deleted {
        json["_deleted"] = json!(true);
    }
    json
}

/// Adds the leaves besides the winner, if there are any.
fn add_leaves(json: &mut Value, member: &str, doc: &Doc, deleted: bool) {
    let others = doc.leaves().into_iter().skip(1);
    let others = others.filter(|l| doc.is_deleted_rev(l) == deleted);
    let others: Vec<String> = others.map(|l| l.to_string()).collect();
    if !others.is_empty() {
        json[member] = json!(others);
    }
}

/// Counts, sizes and every document.
pub fn check_all(db: &Arc<Database>, model: &Model, ids: &[&str]) -> Result<(), TestCaseError> {
    let info = db.info().unwrap();
    let live = model.live_ids().len() as u64;
    prop_assert_eq!(info.doc_count, live);
    prop_assert_eq!(info.doc_del_count, model.docs.len() as u64 - live);
    prop_assert_eq!(info.external_bytes, model.leaf_bytes());
    for id in ids {
        check_doc(db, model, id)?;
    }
    check_locals(db, model)?;
    let rows = rows_of(&mut db.rows(all_docs()).unwrap(), 4000);
    prop_assert_eq!(ids_of(&rows), model.live_ids());
    let mut changes = ids_of(&changes_of(
        &mut db.changes(feed(Since::Start)).unwrap(),
        4000,
    ));
    changes.sort();
    let all: Vec<_> = model.docs.keys().cloned().collect();
    prop_assert_eq!(changes, all, "the feed lists each document once");
    Ok(())
}

fn check_doc(db: &Database, model: &Model, id: &str) -> Result<(), TestCaseError> {
    let doc_id = DocId::new(id).unwrap();
    let plain = db.read(&doc_id, &ReadOptions::default()).unwrap();
    let Some(doc) = model.docs.get(id) else {
        prop_assert!(
            matches!(plain, Read::Missing),
            "{} should be missing: {:?}",
            id,
            plain
        );
        let revs = db.open_revs(&doc_id, &RevSelection::All, &ReadOptions::default());
        prop_assert!(revs.unwrap().is_none());
        return Ok(());
    };
    let winner = doc.winner();
    let full = ReadOptions {
        revs: true,
        revs_info: true,
        conflicts: true,
        deleted_conflicts: true,
        ..ReadOptions::default()
    };
    let full = db.read(&doc_id, &full).unwrap();
    if doc.is_deleted() {
        prop_assert!(
            matches!(plain, Read::Deleted),
            "{} should be deleted: {:?}",
            id,
            plain
        );
        prop_assert!(matches!(full, Read::Deleted));
    } else {
        prop_assert_eq!(found(plain)?, json_of(id, doc, &winner));
        prop_assert_eq!(found(full)?, full_json(id, doc, model.revs_limit));
    }
    check_leaves(db, &doc_id, doc, model.revs_limit)?;
    check_revisions(db, &doc_id, doc)
}

fn found(read: Read) -> Result<Value, TestCaseError> {
    let Read::Found(doc) = read else {
        return Err(TestCaseError::fail(format!("not found: {read:?}")));
    };
    Ok(serde_json::from_slice(&doc.json).unwrap())
}

fn full_json(id: &str, doc: &Doc, revs_limit: usize) -> Value {
    let winner = doc.winner();
    let mut json = json_of(id, doc, &winner);
    json["_revisions"] = revisions(doc, &winner, revs_limit);
    let statuses = doc.lineage(&winner).into_iter().map(|rev| {
        let status = match &doc.nodes[&rev].body {
            Some(b) if b.kept && b.deleted => "deleted",
            Some(b) if b.kept => "available",
            _ => "missing",
        };
        json!({"rev": rev.to_string(), "status": status})
    });
    json["_revs_info"] = statuses.collect();
    add_leaves(&mut json, "_conflicts", doc, false);
    add_leaves(&mut json, "_deleted_conflicts", doc, true);
    json
}

/// A lowered limit applies to reads immediately, and to stored revisions with the next edit.
fn revisions(doc: &Doc, rev: &Rev, revs_limit: usize) -> Value {
    let lineage = doc.lineage(rev).into_iter().take(revs_limit);
    let ids: Vec<String> = lineage.map(|r| r.hash.to_string()).collect();
    json!({"start": rev.generation, "ids": ids})
}

/// `open_revs=all` with ancestries: all leaves, best first.
fn check_leaves(
    db: &Database,
    id: &DocId,
    doc: &Doc,
    revs_limit: usize,
) -> Result<(), TestCaseError> {
    let options = ReadOptions {
        revs: true,
        ..ReadOptions::default()
    };
    let leaves = db
        .open_revs(id, &RevSelection::All, &options)
        .unwrap()
        .unwrap();
    let leaves: Vec<Value> = leaves
        .into_iter()
        .map(|l| serde_json::from_slice(&l.unwrap().json).unwrap())
        .collect();
    let expected = doc.leaves().into_iter().map(|rev| {
        let mut json = json_of(id.as_str(), doc, &rev);
        json["_revisions"] = revisions(doc, &rev, revs_limit);
        json
    });
    // `_revisions` as the trees know them, whichever order equal leaves come in.
    prop_assert_eq!(leaves, expected.collect::<Vec<_>>());
    Ok(())
}

/// Every revision individually, and the leaf it has become.
fn check_revisions(db: &Database, id: &DocId, doc: &Doc) -> Result<(), TestCaseError> {
    let known: Vec<Rev> = doc.nodes.keys().cloned().collect();
    for rev in &known {
        let one = ReadOptions {
            rev: Some(rev.clone()),
            ..ReadOptions::default()
        };
        let kept = doc.nodes[rev].body.as_ref().is_some_and(|b| b.kept);
        let read = db.read(id, &one).unwrap();
        if kept {
            prop_assert_eq!(found(read)?, json_of(id.as_str(), doc, rev));
        } else {
            prop_assert!(matches!(read, Read::Missing), "{} {} {:?}", id, rev, read);
        }
        let latest = ReadOptions {
            latest: true,
            ..one
        };
        let mut leaves = doc.leaves();
        leaves.retain(|leaf| doc.lineage(leaf).contains(rev));
        let read = found(db.read(id, &latest).unwrap())?;
        prop_assert_eq!(read, json_of(id.as_str(), doc, &leaves[0]));
    }
    let mut asked = known;
    let unknown = Rev::parse("3-nobody").unwrap();
    asked.push(unknown.clone());
    let diff = db.revs_diff(id.as_str(), &asked).unwrap();
    prop_assert_eq!(diff.map(|diff| diff.missing), Some(vec![unknown]));
    Ok(())
}

fn check_locals(db: &Database, model: &Model) -> Result<(), TestCaseError> {
    let mut query = all_docs();
    query.listing = Listing::LocalDocs;
    query.include_docs = true;
    let rows = rows_of(&mut db.rows(query).unwrap(), 100);
    let expected = model.locals.iter().map(|(id, (n, body))| {
        let mut doc: Value = serde_json::from_str(body).unwrap();
        doc["_id"] = json!(id);
        doc["_rev"] = json!(format!("0-{n}"));
        json!({"id": id, "key": id, "value": {"rev": format!("0-{n}")}, "doc": doc})
    });
    prop_assert_eq!(rows, expected.collect::<Vec<_>>());
    Ok(())
}

/// Total, offset and rows of a range.
pub fn check_listing(
    db: &Database,
    model: &Model,
    query: &ListQuery,
    place: fn(usize) -> &'static str,
) -> Result<(), TestCaseError> {
    let (start, end) = (query.start.map(place), query.end.map(place));
    let mut live = model.live_ids();
    let total = live.len();
    if query.descending {
        live.reverse();
    }
    // -1 before, 0 at, 1 after the place in the listing's direction.
    let order = |id: &str, place: &str| {
        let order = id.cmp(place);
        if query.descending {
            order.reverse()
        } else {
            order
        }
    };
    let before = live
        .iter()
        .filter(|id| start.is_some_and(|s| order(id, s).is_lt()));
    let offset = (before.count() + query.skip as usize).min(total);
    let inside = live.iter().filter(|id| {
        start.is_none_or(|s| order(id, s).is_ge())
            && end.is_none_or(|e| match order(id, e) {
                std::cmp::Ordering::Equal => query.inclusive_end,
                o => o.is_lt(),
            })
    });
    let expected = inside
        .skip(query.skip as usize)
        .take(query.limit.map_or(usize::MAX, |l| l as usize))
        .map(|id| {
            let doc = &model.docs[*id];
            let winner = doc.winner();
            let mut row = json!({"id": id, "key": id, "value": {"rev": winner.to_string()}});
            if query.include_docs {
                row["doc"] = json_of(id, doc, &winner);
                if query.conflicts {
                    add_leaves(&mut row["doc"], "_conflicts", doc, false);
                }
            }
            row
        });
    let mut asked = all_docs();
    asked.start = bound(start);
    asked.end = bound(end);
    asked.inclusive_end = query.inclusive_end;
    asked.descending = query.descending;
    (asked.skip, asked.limit) = (query.skip, query.limit);
    (asked.include_docs, asked.conflicts) = (query.include_docs, query.conflicts);
    let mut rows = db.rows(asked).unwrap();
    prop_assert_eq!(rows.total_rows, Some(total as u64));
    prop_assert_eq!(rows.offset, Some(offset as u64));
    prop_assert_eq!(
        rows_of(&mut rows, query.chunk),
        expected.collect::<Vec<_>>()
    );
    Ok(())
}

fn asked_of(query: &FeedQuery, since: &str, ids: &[&str]) -> ChangesQuery {
    let mut asked = feed(if query.descending {
        Since::Start
    } else {
        Since::Seq(since.to_owned())
    });
    asked.descending = query.descending;
    asked.include_docs = query.include_docs;
    asked.conflicts = query.conflicts;
    if query.all_leaves {
        asked.style = Style::AllDocs;
    }
    if let Some(only) = &query.only {
        let only = only.iter().map(|i| ids[*i].to_owned());
        asked.filter = Filter::of_ids(only.collect());
    }
    asked
}

/// The feed after `since`, which was when the model had made `then` changes.
pub fn check_feed(
    db: &Arc<Database>,
    model: &Model,
    query: &FeedQuery,
    since: &str,
    then: u64,
    ids: &[&str],
) -> Result<(), TestCaseError> {
    // Shard by shard, each in the order of its updates.
    let mut expected = model.changed_after(if query.descending { 0 } else { then });
    if query.descending {
        expected.reverse();
    }
    if let Some(only) = &query.only {
        expected.retain(|id| only.iter().any(|i| ids[*i] == *id));
    }
    let shard = |id: &&str| db.shard_of(&DocId::new(id).unwrap()).range;
    expected.sort_by_key(shard);
    if query.only.is_some() && query.descending {
        // Documents that are looked up come in the reverse of the ascending order, shards too.
        expected.sort_by_key(|id| std::cmp::Reverse(shard(id)));
    }
    let asked = asked_of(query, since, ids);
    let mut limited = asked.clone();
    limited.limit = Some(query.limit);
    let shown = expected.len().min(query.limit as usize);

    let mut changes = db.changes(asked.clone()).unwrap();
    let pending = changes.pending().unwrap();
    let rows = changes_of(&mut changes, query.chunk);
    prop_assert_eq!(ids_of(&rows), expected.clone());
    let expected_rows = expected
        .iter()
        .map(|id| change_json(id, &model.docs[*id], query));
    let without_seq = rows.iter().cloned().map(|mut row| {
        row.as_object_mut().unwrap().remove("seq");
        row
    });
    prop_assert_eq!(
        without_seq.collect::<Vec<_>>(),
        expected_rows.collect::<Vec<_>>()
    );
    if query.descending || query.only.is_some() {
        return Ok(());
    }
    prop_assert_eq!(pending, expected.len() as u64);
    prop_assert_eq!(changes.pending().unwrap(), 0);

    let mut changes = db.changes(limited).unwrap();
    let part = changes_of(&mut changes, query.chunk);
    prop_assert_eq!(ids_of(&part), &expected[..shown]);
    prop_assert_eq!(changes.pending().unwrap(), (expected.len() - shown) as u64);
    let rest = |from: String| {
        let mut query = asked.clone();
        query.since = Since::Seq(from);
        db.changes(query).unwrap()
    };
    let continued = changes_of(&mut rest(changes.last_seq()), query.chunk);
    prop_assert_eq!(ids_of(&continued), &expected[shown..]);
    for (i, row) in rows.iter().enumerate().step_by(3) {
        let seq = row["seq"].as_str().unwrap().to_owned();
        let after = changes_of(&mut rest(seq), query.chunk);
        prop_assert_eq!(ids_of(&after), &expected[i + 1..]);
    }
    Ok(())
}

fn change_json(id: &str, doc: &Doc, query: &FeedQuery) -> Value {
    let mut leaves = doc.leaves();
    let winner = leaves[0].clone();
    if !query.all_leaves {
        leaves.truncate(1);
    }
    let revs: Vec<Value> = leaves
        .iter()
        .map(|rev| json!({"rev": rev.to_string()}))
        .collect();
    let mut json = json!({"id": id, "changes": revs});
    if doc.is_deleted() {
        json["deleted"] = json!(true);
    }
    if query.include_docs {
        json["doc"] = json_of(id, doc, &winner);
        if query.conflicts {
            add_leaves(&mut json["doc"], "_conflicts", doc, false);
        }
    }
    json
}
