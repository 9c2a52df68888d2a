//! The rows that an index must have, computed from the documents alone, and the comparison with its
//! actual rows.

use document::collation::{compare_erlang, first_elements};
use functions::{ReduceRow, Reducer};
use index::keys::{put_place_end, put_terminated};
use index::{
    Error, GroupCursor, GroupLevel, Index, IndexView, PlaceRange, ReduceSpec, Spec, State,
};
use serde_json::{Value, json};
use storage::{IdIter, Record, Shard};

use super::language::{Digest, emitted};
use super::{Dice, rounds};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub place: Vec<u8>,
    pub sort_len: usize,
    pub id: String,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// The rows of all views of an index.
pub fn rows(shard: &Shard, spec: &Spec) -> Vec<Vec<Row>> {
    let view = shard.view().unwrap();
    let mut all = vec![vec![]; spec.views.len()];
    let mut it = IdIter::new(&view.snapshot, shard.number);
    it.seek(&[]);
    while let Some((id, record)) = it.entry() {
        let id = std::str::from_utf8(id).unwrap().to_owned();
        let record = Record::decode(record).unwrap();
        it.next();
        let leaves = record.tree.leaves();
        let winner = &leaves[0];
        if winner.revision.deleted || (id.starts_with("_design/") && !spec.include_design) {
            continue;
        }
        let revs = |deleted| {
            let others = leaves[1..].iter();
            let revs = others.filter(|l| l.revision.deleted == deleted);
            revs.map(|l| l.rev.to_rev().to_string()).collect::<Vec<_>>()
        };
        let mut members = json!({ "_id": id, "_rev": winner.rev.to_rev().to_string() });
        if !revs(false).is_empty() {
            members["_conflicts"] = json!(revs(false));
        }
        if spec.local_seq {
            members["_local_seq"] = json!(record.seq);
        }
        let body = shard.body(winner.revision.seq).unwrap().unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        for (n, v) in spec.views.iter().enumerate() {
            let partition = spec
                .partitioned
                .then(|| id.split_once(':').unwrap_or_default().0);
            let own = emitted(&v.map, &members, &body);
            place(&id, partition, v.raw, own, &mut all[n]);
        }
    }
    for rows in &mut all {
        rows.sort_by(|a, b| a.place.cmp(&b.place));
    }
    all
}

fn place(
    id: &str,
    partition: Option<&str>,
    raw: bool,
    own: Vec<(Value, Value)>,
    out: &mut Vec<Row>,
) {
    let mut keyed: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> = vec![];
    for (key, value) in own {
        let mut sort = vec![];
        if let Some(p) = partition {
            put_terminated(p.as_bytes(), &mut sort);
        }
        let key = key.to_string().into_bytes();
        index::write_key_sort(&key, raw, &mut sort).unwrap();
        keyed.push((sort, key, value.to_string().into_bytes()));
    }
    keyed.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| compare_erlang(&a.2, &b.2)));
    let mut ordinal = 0;
    for i in 0..keyed.len() {
        let (sort, key, value) = keyed[i].clone();
        ordinal = if i > 0 && keyed[i - 1].0 == sort {
            ordinal + 1
        } else {
            0
        };
        let mut place = sort.clone();
        put_place_end(id, ordinal, &mut place);
        out.push(Row {
            place,
            sort_len: sort.len(),
            id: id.into(),
            key,
            value,
        });
    }
}

fn read(view: &IndexView, n: usize, range: &PlaceRange, descending: bool) -> Vec<Row> {
    let mut it = view.iter(n, range, descending);
    let mut all = vec![];
    while let Some(row) = it.row().unwrap() {
        all.push(Row {
            place: row.place.to_vec(),
            sort_len: row.stored.sort_len,
            id: row.id().unwrap(),
            key: row.stored.key.to_vec(),
            value: row.stored.value.to_vec(),
        });
        it.next();
    }
    all
}

fn within<'a>(rows: &'a [Row], range: &PlaceRange) -> &'a [Row] {
    let from = rows.partition_point(|r| r.place < range.low);
    let to = match &range.high {
        Some(high) => rows.partition_point(|r| r.place < *high),
        None => rows.len(),
    };
    &rows[from..to.max(from)]
}

fn reduced(spec: &ReduceSpec, rows: &[Row]) -> Vec<u8> {
    match spec {
        ReduceSpec::Builtin(b) => {
            let state = b.reduce(rows.iter().map(|r| (&r.key[..], &r.value[..])));
            b.finalize(&state).unwrap()
        }
        ReduceSpec::Custom(_) => {
            let ids: Vec<_> = rows.iter().map(|r| json!(r.id).to_string()).collect();
            let rows: Vec<_> = rows
                .iter()
                .zip(&ids)
                .map(|(r, id)| ReduceRow {
                    key: &r.key,
                    id: id.as_bytes(),
                    value: &r.value,
                })
                .collect();
            Digest.reduce(&rows).unwrap()
        }
    }
}

/// Some place at a row, or near one.
fn some_place(rows: &[Row], dice: &mut Dice) -> Vec<u8> {
    if rows.is_empty() {
        return vec![dice.below(256) as u8; 3];
    }
    let row = &rows[dice.below(rows.len())];
    let mut place = row.place.clone();
    match dice.below(4) {
        0 => place.push(dice.below(256) as u8),
        1 => place.truncate(row.sort_len),
        2 => place.truncate(dice.below(place.len() + 1)),
        _ => {}
    }
    place
}

fn some_range(rows: &[Row], dice: &mut Dice) -> PlaceRange {
    let (mut a, mut b) = (some_place(rows, dice), some_place(rows, dice));
    if a > b && dice.below(10) > 0 {
        std::mem::swap(&mut a, &mut b);
    }
    PlaceRange {
        low: if dice.below(6) == 0 { vec![] } else { a },
        high: (dice.below(6) > 0).then_some(b),
    }
}

/// Compares an index that is up to date with the documents of its shard.
pub fn check(shard: &Shard, index: &Index, dice: &mut Dice) {
    let view = index.view().unwrap();
    let meta = shard.meta();
    assert_eq!(view.indexed_seq(), meta.update_seq);
    assert_eq!(index.progress_seqs(), (meta.update_seq, meta.purge_seq));
    let all = rows(shard, index.spec());
    check_rows(&view, &all, dice);
    let bytes: usize = all
        .iter()
        .flatten()
        .map(|r| r.key.len() + r.value.len())
        .sum();
    let info = index.info();
    assert_eq!(info.external_bytes, bytes as u64);
    assert_eq!(info.rows, all.iter().map(|v| v.len() as u64).sum::<u64>());
}

/// Compares all that can be read of a view with rows.
pub fn check_rows(view: &IndexView, all: &[Vec<Row>], dice: &mut Dice) {
    for (n, rows) in all.iter().enumerate() {
        let whole = PlaceRange::default();
        let found = read(view, n, &whole, false);
        assert_eq!(found.len(), rows.len(), "rows of view {n}");
        assert!(found == *rows, "view {n} has other rows");
        assert!(
            read(view, n, &whole, true).iter().rev().eq(rows),
            "view {n} backward"
        );
        assert_eq!(view.rows(n), rows.len() as u64, "counted rows of view {n}");
        for _ in 0..6 {
            let place = some_place(rows, dice);
            let rank = rows.partition_point(|r| r.place < place);
            assert_eq!(view.rank(n, &place).unwrap(), rank as u64);
            match view.rank_until(n, &place, &|| true) {
                // It walks through some rows.
                Err(Error::Paused) => {}
                found => assert_eq!(found.unwrap(), rank as u64),
            }
            let rank = dice.below(rows.len() + 2);
            let place = rows.get(rank).map(|r| r.place.clone());
            assert_eq!(view.place_at(n, rank as u64).unwrap(), place);
        }
        let ranges = (0..3).map(|_| some_range(rows, dice));
        let wholes = std::iter::repeat_n(whole, rounds(1, 2));
        for range in ranges.chain(wholes).collect::<Vec<_>>() {
            check_range(view, n, &range, within(rows, &range), dice);
        }
    }
}

fn check_range(view: &IndexView, n: usize, range: &PlaceRange, rows: &[Row], dice: &mut Dice) {
    let descending = dice.below(2) == 0;
    let mut found = read(view, n, range, descending);
    if descending {
        found.reverse();
    }
    assert!(found == *rows, "view {n} in {range:?}");
    let spec = view.spec().views[n].clone();
    for (f, reduce) in spec.reduces.iter().enumerate() {
        let state = match dice.below(2) {
            0 => view.reduce(n, f, range, descending).unwrap(),
            _ => reduce_in_pieces(view, (n, f), range, descending).0,
        };
        let found = state.map(|s| view.finalize(n, f, &s).unwrap());
        let expected = (!rows.is_empty()).then(|| reduced(reduce, rows));
        assert_eq!(
            text(&found),
            text(&expected),
            "{reduce:?} of view {n} in {range:?}"
        );
    }
    if spec.reduces.is_empty() {
        return;
    }
    let f = dice.below(spec.reduces.len());
    if view.spec().partitioned {
        let Some(first) = rows.first() else { return };
        let mut partition = vec![];
        put_terminated(
            first.id.split(':').next().unwrap().as_bytes(),
            &mut partition,
        );
        let skip = partition.len();
        let end = index::keys::successor(&partition);
        let range = PlaceRange {
            low: range.low.clone().max(partition),
            high: match &range.high {
                Some(high) => end.map(|e| e.min(high.clone())),
                None => end,
            },
        };
        check_groups(view, n, f, &range, within(rows, &range), skip);
    } else {
        check_groups(view, n, f, range, rows, 0);
    }
}

/// Reduces a range with a pause after each block; returns the number of calls too.
pub fn reduce_in_pieces(
    view: &IndexView,
    (n, f): (usize, usize),
    range: &PlaceRange,
    descending: bool,
) -> (Option<State>, u64) {
    let mut calls = 0;
    loop {
        calls += 1;
        match view.reduce_until(n, f, range, descending, &|| true) {
            Err(Error::Paused) => {}
            state => return (state.unwrap(), calls),
        }
    }
}

/// Returns whether there is a next group, with pauses where it is one of many.
fn has_group(cursor: &mut GroupCursor, view: &IndexView, level: GroupLevel) -> bool {
    if level == GroupLevel::Exact {
        return cursor.peek(view).unwrap().is_some();
    }
    loop {
        match cursor.peek_until(view, &|| true) {
            Err(Error::Paused) => {}
            found => return found.unwrap().is_some(),
        }
    }
}

fn check_groups(
    view: &IndexView,
    n: usize,
    f: usize,
    range: &PlaceRange,
    rows: &[Row],
    skip: usize,
) {
    let reduce = &view.spec().views[n].reduces[f];
    for level in [
        GroupLevel::Exact,
        GroupLevel::Elements(1),
        GroupLevel::Elements(2),
    ] {
        let group_of = |r: &Row| match level {
            GroupLevel::Elements(count) if r.key.starts_with(b"[") => {
                let key = first_elements(&r.key, count).into_owned();
                let mut sort = vec![];
                index::write_key_sort(&key, view.spec().views[n].raw, &mut sort).unwrap();
                sort
            }
            _ => r.place[skip..r.sort_len].to_vec(),
        };
        let groups: Vec<&[Row]> = rows.chunk_by(|a, b| group_of(a) == group_of(b)).collect();
        for descending in [false, true] {
            let mut cursor = GroupCursor::new(n, f, range.clone(), level, descending, skip);
            let mut found = vec![];
            while has_group(&mut cursor, view, level) {
                let group = cursor.take().unwrap();
                let value = view.finalize(n, f, &group.state).unwrap();
                found.push((text(&Some(group.key)), text(&Some(value))));
            }
            let mut expected: Vec<_> = groups
                .iter()
                .map(|rows| {
                    let first = if descending {
                        rows.last()
                    } else {
                        rows.first()
                    };
                    let key = &first.unwrap().key;
                    let key = match level {
                        GroupLevel::Exact => key.clone(),
                        GroupLevel::Elements(n) => first_elements(key, n).into_owned(),
                    };
                    (text(&Some(key)), text(&Some(reduced(reduce, rows))))
                })
                .collect();
            if descending {
                expected.reverse();
            }
            assert_eq!(
                found, expected,
                "{reduce:?} of view {n}, {level:?}, {descending}, {range:?}"
            );
        }
    }
}

fn text(bytes: &Option<Vec<u8>>) -> Option<String> {
    bytes
        .as_ref()
        .map(|b| String::from_utf8(b.clone()).unwrap())
}
