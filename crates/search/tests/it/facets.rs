//! Facets, filters, groups and stored fields of indexes, and their time and memory.

use std::cell::Cell;
use std::ops::Bound;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use search::{
    ClassicOptions, Distance, Effort, Error, Fields, GroupAnswer, GroupRequest, Index, Query,
    Range, Reader, Request, Similarity, SortBy, SortKey, SortValue, search_groups,
};
use serde_json::{Value, json};

use crate::support::{Words, asked, by_score, opened, search, term, text, write};

/// Builds an index like Clouseau's: a facet `f` of the number, a string `s` of its last digit, a
/// text, a point.
fn classic(dir: &Path, docs: u32) -> Index {
    let index = opened(dir);
    let mut update = index.update(1, 0).unwrap();
    let plain = ClassicOptions {
        index: true,
        analyzed: true,
        store: false,
        facet: false,
        boost: 1.0,
    };
    let facet = ClassicOptions {
        facet: true,
        ..plain.clone()
    };
    for n in 0..docs {
        let mut fields = Fields::classic();
        fields.add_classic("t", json!("x y z"), &plain);
        fields.add_classic("f", json!(format!("{n:05}")), &facet);
        fields.add_classic("s", json!((n % 10).to_string()), &plain);
        fields.add_classic("lon", json!(n % 360), &plain);
        fields.add_classic("lat", json!(n % 90), &plain);
        update.put(&n.to_string(), None, fields, &Words).unwrap();
    }
    update.commit(1, 0).unwrap();
    drop(update);
    index
}

fn distance() -> Distance {
    Distance {
        lon_field: "lon".into(),
        lat_field: "lat".into(),
        lon: 0.0,
        lat: 0.0,
        radius: 1.0,
    }
}

fn exactly(n: f64) -> Range {
    Range {
        label: n.to_string(),
        low: std::ops::Bound::Included(n),
        high: std::ops::Bound::Included(n),
    }
}

fn by_tf_idf(query: Query) -> Request {
    Request {
        similarity: Similarity::TfIdf,
        ..by_score(query)
    }
}

/// A request for groups of hits with one hit each.
fn grouped(query: Query, field: &str, sort: SortBy, limit: usize) -> (Request, GroupRequest) {
    let groups = GroupRequest {
        field: field.into(),
        sort: vec![SortKey {
            by: sort,
            reversed: false,
        }],
        limit,
    };
    let request = Request {
        limit: 1,
        ..by_tf_idf(query)
    };
    (request, groups)
}

fn groups_of(
    reader: &Reader,
    (request, groups): &(Request, GroupRequest),
    effort: Effort,
) -> Result<GroupAnswer, Error> {
    let effort = Rc::new(effort);
    search_groups(&[reader], request, groups, reader.types(), &effort)
}

/// An effort, and the number of its pauses.
fn counted(effort: Effort) -> (Effort, Rc<Cell<u32>>) {
    let pauses = Rc::new(Cell::new(0));
    let noted = pauses.clone();
    let effort = effort.with_pauses(move || {
        noted.set(noted.get() + 1);
        Duration::ZERO
    });
    (effort, pauses)
}

#[test]
fn filters_counts_ranges_and_distances_end_when_their_time_does() {
    let dir = tempfile::tempdir().unwrap();
    let index = classic(dir.path(), 3_000);
    let reader = index.reader();
    let over = || Effort::new(Duration::ZERO, usize::MAX);
    let is_stopped = |request: &Request, what: &str| {
        let answer = asked(&reader, request, over());
        assert!(matches!(answer, Err(Error::TooLong)), "{what}: {answer:?}");
        let answer = search(&reader, request);
        assert!(answer.is_ok(), "{what}: {answer:?}");
    };
    let all = || by_tf_idf(Query::All);
    let facet = Query::Facet {
        field: "f".into(),
        values: (0..1_000).map(|n| format!("{n:05}")).collect(),
    };
    let nobody = Query::Facet {
        field: "f".into(),
        values: vec!["nobody".into()],
    };
    for filter in [facet, nobody] {
        let what = format!("{filter:?}");
        let request = Request {
            filters: vec![filter],
            ..all()
        };
        is_stopped(&request, &what);
    }
    let request = Request {
        counts: vec!["f".into()],
        limit: 0,
        ..all()
    };
    is_stopped(&request, "counts");
    // Few documents, but many ranges of each.
    let ranges = (0..1_000).map(|n| exactly(f64::from(n) + 0.5)).collect();
    let request = Request {
        ranges: vec![("lon".into(), ranges)],
        filters: vec![Query::Facet {
            field: "f".into(),
            values: vec!["00001".into(), "00002".into()],
        }],
        ..all()
    };
    is_stopped(&request, "ranges");
    let request = Request {
        sort: vec![SortKey {
            by: SortBy::Distance(distance()),
            reversed: false,
        }],
        ..all()
    };
    is_stopped(&request, "distances");
}

/// An index of four documents, each with 5,000 numbers and as many strings.
fn with_many_values(dir: &Path) -> Index {
    let index = opened(dir);
    let mut update = index.update(1, 0).unwrap();
    for id in ["a", "b", "c", "d"] {
        let mut fields = Fields::new();
        for n in 0..5_000 {
            let text = json!(n.to_string());
            fields
                .add(0, "double", "n", json!(n), &Value::Null)
                .unwrap();
            fields.add(0, "string", "s", text, &Value::Null).unwrap();
        }
        update.put(id, None, fields, &Words).unwrap();
    }
    update.commit(1, 0).unwrap();
    drop(update);
    index
}

#[test]
fn values_of_a_document_are_steps_of_a_search() {
    let dir = tempfile::tempdir().unwrap();
    let index = with_many_values(dir.path());
    let reader = index.reader();
    let sorted = |by| Request {
        sort: vec![SortKey {
            by,
            reversed: false,
        }],
        limit: 2,
        ..by_score(Query::All)
    };
    let filtered = |filter| Request {
        filters: vec![filter],
        ..by_score(Query::All)
    };
    let requests = [
        sorted(SortBy::Field("n".into())),
        sorted(SortBy::Numbers("n".into())),
        sorted(SortBy::Field("s".into())),
        filtered(Query::Numbers {
            field: "n".into(),
            low: Bound::Included(5_000.0),
            high: Bound::Unbounded,
        }),
        filtered(Query::Facet {
            field: "s".into(),
            values: vec!["nobody".into()],
        }),
    ];
    // Others run after each document at the latest.
    for request in requests {
        let (effort, pauses) = counted(Effort::default());
        asked(&reader, &request, effort).unwrap();
        assert!(pauses.get() >= 4, "{request:?}: {}", pauses.get());
    }
    let (effort, pauses) = counted(Effort::default());
    let request = grouped(Query::All, "s", SortBy::Id, 2);
    let groups = groups_of(&reader, &request, effort);
    assert_eq!(groups.unwrap().total, 4);
    assert!(pauses.get() >= 4, "groups: {}", pauses.get());
}

#[test]
fn groups_end_when_their_time_does() {
    let dir = tempfile::tempdir().unwrap();
    let index = classic(dir.path(), 3_000);
    let reader = index.reader();
    let over = || Effort::new(Duration::ZERO, usize::MAX);
    let by = SortBy::Distance(distance());
    for field in ["f", "s", "nosuch"] {
        let request = grouped(Query::All, field, by.clone(), 200);
        let stopped = groups_of(&reader, &request, over());
        assert!(matches!(stopped, Err(Error::TooLong)), "{field}");
        let found = groups_of(&reader, &request, Effort::default()).unwrap();
        let expected = match field {
            "f" => 200,
            "s" => 10,
            _ => 1,
        };
        assert_eq!(
            (found.groups.len(), found.total),
            (expected, 3_000),
            "{field}"
        );
    }
}

#[test]
fn filters_counts_and_groups_stay_within_their_memory() {
    let dir = tempfile::tempdir().unwrap();
    let index = classic(dir.path(), 20_000);
    let reader = index.reader();
    let little = || Effort::new(Duration::from_secs(600), 50_000);
    let counts = Request {
        counts: vec!["f".into()],
        limit: 0,
        ..by_tf_idf(Query::All)
    };
    let few_hits = Request {
        query: term("x"),
        filters: (0..20)
            .map(|_| Query::Facet {
                field: "f".into(),
                values: vec!["00001".into()],
            })
            .collect(),
        ..by_tf_idf(Query::All)
    };
    for request in [counts, few_hits] {
        let answer = asked(&reader, &request, little());
        assert!(matches!(answer, Err(Error::TooMuch { .. })), "{answer:?}");
    }
    // As many groups as documents: only the requested ones are kept.
    let request = grouped(Query::All, "f", SortBy::Id, 20);
    let found = groups_of(&reader, &request, little()).unwrap();
    assert_eq!((found.groups.len(), found.total), (20, 20_000));
    // Hits are charged too.
    let mut many_hits = grouped(Query::All, "s", SortBy::Id, 10);
    many_hits.0.limit = 1_000;
    let refused = groups_of(&reader, &many_hits, little());
    assert!(matches!(refused, Err(Error::TooMuch { .. })));
    let request = grouped(Query::All, "f", SortBy::Strings("f".into()), 20_000);
    let refused = groups_of(&reader, &request, little());
    assert!(matches!(refused, Err(Error::TooMuch { .. })));
}

#[test]
fn facets_that_are_asked_for_are_clauses() {
    let dir = tempfile::tempdir().unwrap();
    let index = classic(dir.path(), 10);
    let facets = |n: usize| Query::Facet {
        field: "f".into(),
        values: (0..n).map(|n| format!("{n:05}")).collect(),
    };
    let request = |filters| Request {
        filters,
        ..by_tf_idf(Query::All)
    };
    let few = request(vec![facets(500), facets(500)]);
    assert_eq!(search(&index.reader(), &few).unwrap().total, 10);
    let many = request(vec![facets(500), facets(600)]);
    let refused = search(&index.reader(), &many).unwrap_err();
    assert!(matches!(refused, Error::TooManyClauses { .. }));
}

#[test]
fn long_facets_are_cut_between_characters() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    let long = "a".repeat(64_999) + "üüü" + &"b".repeat(600);
    let mut fields = Fields::classic();
    let options = ClassicOptions {
        index: true,
        analyzed: false,
        store: false,
        facet: true,
        boost: 1.0,
    };
    fields.add_classic("f", json!(long), &options);
    let mut update = index.update(1, 0).unwrap();
    update.put("a", None, fields, &Words).unwrap();
    update.commit(1, 0).unwrap();
    let request = Request {
        counts: vec!["f".into()],
        filters: vec![Query::Facet {
            field: "f".into(),
            values: vec![long],
        }],
        ..by_tf_idf(Query::All)
    };
    let answer = search(&index.reader(), &request).unwrap();
    assert_eq!((answer.total, answer.counts[0].len()), (1, 1));
    let request = grouped(Query::All, "f", SortBy::Id, 5);
    let found = groups_of(&index.reader(), &request, Effort::default()).unwrap();
    assert_eq!((found.groups.len(), found.groups[0].total), (1, 1));
}

#[test]
fn ten_groups_take_as_many_steps_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let index = classic(dir.path(), 3_000);
    let reader = index.reader();
    let prefix = || Query::Prefix {
        field: "f".into(),
        prefix: "0".into(),
    };
    // With enough memory to keep the matches, and without.
    for bytes_max in [usize::MAX, 20_000] {
        let steps = |groups: usize| {
            let (effort, pauses) = counted(Effort::new(Duration::from_secs(600), bytes_max));
            let request = grouped(prefix(), "s", SortBy::Id, groups);
            let found = groups_of(&reader, &request, effort).unwrap();
            let totals: Vec<u64> = found.groups.iter().map(|group| group.total).collect();
            assert_eq!((found.total, totals), (3_000, vec![300; groups]));
            pauses.get()
        };
        let (one, ten) = (steps(1), steps(10));
        assert!(one >= 8 && ten <= one + 1, "{bytes_max}: {one}, {ten}");
    }
}

#[test]
fn explanations_search_for_each_part_once_however_deep_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let index = classic(dir.path(), 3_000);
    let reader = index.reader();
    let steps = |depth: usize| {
        let prefix = Query::Prefix {
            field: "f".into(),
            prefix: "0".into(),
        };
        let nested = (0..depth).fold(prefix, |inner, _| Query::all(vec![inner, term("x")]));
        let request = Request {
            limit: 3,
            ..by_tf_idf(nested)
        };
        let hits = search(&reader, &request).unwrap().hits;
        let (effort, pauses) = counted(Effort::default());
        let explained = search::explain(&[&*reader], &request, &hits, &Rc::new(effort)).unwrap();
        for (hit, explanation) in hits.iter().zip(&explained) {
            let SortValue::Score(score) = hit.order[0] else {
                panic!("{hit:?}");
            };
            assert!((score - explanation.value).abs() <= 1e-5 * score, "{hit:?}");
        }
        assert_eq!(explained.len(), 3);
        pauses.get()
    };
    let (flat, deep) = (steps(1), steps(20));
    assert!(flat >= 5 && deep <= flat + 2, "{flat}, {deep}");
}

#[test]
fn the_first_groups_are_those_of_the_best_hits() {
    let dir = tempfile::tempdir().unwrap();
    let index = classic(dir.path(), 1_000);
    let reader = index.reader();
    // Document n has latitude n % 90 and is of group n % 10: group 0 has 0, group 1 has 1...
    for (sort, reversed, expected) in [
        (SortBy::Numbers("lat".into()), false, ["0", "1", "2"]),
        (SortBy::Numbers("lat".into()), true, ["9", "8", "7"]),
        (SortBy::Strings("f".into()), true, ["9", "8", "7"]),
        // All have equal scores: sorted by name.
        (SortBy::Score, false, ["0", "1", "2"]),
    ] {
        let mut request = grouped(term("x"), "s", sort, 3);
        request.1.sort[0].reversed = reversed;
        let found = groups_of(&reader, &request, Effort::default()).unwrap();
        let names: Vec<_> = found.groups.iter().map(|g| g.by.clone().unwrap()).collect();
        assert_eq!(names, expected, "{request:?}");
    }
}

#[test]
fn texts_of_many_hits_are_their_own_however_often_they_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    // Lengths differ, and one is empty.
    let name = |n: usize| "n".repeat(n % 7);
    let ids: Vec<String> = (0..100).map(|n| format!("{n:03}{}", name(n))).collect();
    let mut update = index.update(1, 0).unwrap();
    for (n, id) in ids.iter().enumerate() {
        let mut fields = text("x");
        fields
            .add(
                0,
                "string",
                "s",
                json!(format!("é{}", name(n))),
                &Value::Null,
            )
            .unwrap();
        update.put(id, None, fields, &Words).unwrap();
    }
    update.commit(1, 0).unwrap();
    drop(update);
    let mut request = by_score(term("x"));
    request.sort.insert(
        0,
        SortKey {
            by: SortBy::Field("s".into()),
            reversed: false,
        },
    );
    let mut expected: Vec<(String, String)> = ids
        .iter()
        .enumerate()
        .map(|(n, id)| (format!("é{}", name(n)), id.clone()))
        .collect();
    expected.sort();
    for limit in [100, 1, 33, 100] {
        request.limit = limit;
        let hits = search(&index.reader(), &request).unwrap().hits;
        let found: Vec<_> = hits
            .into_iter()
            .map(|hit| match &hit.order[0] {
                SortValue::Text(text) => (text.clone(), hit.id),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, expected[..limit]);
    }
}

#[test]
fn stored_fields_are_there_whether_or_not_all_documents_have_some() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    let stored = |index: &Index, word: &str| {
        let hit = &search(&index.reader(), &by_score(term(word))).unwrap().hits[0];
        index.reader().stored(hit.segment, hit.doc).unwrap()
    };
    let put = |index: &Index, id: &str, has_stored: bool, seq| {
        let mut update = index.update(1, 0).unwrap();
        let mut fields = text(id);
        if has_stored {
            let store = Value::Bool(true);
            fields.add(1, "string", "s", json!(id), &store).unwrap();
        }
        update.put(id, None, fields, &Words).unwrap();
        update.commit(seq, 0).unwrap();
    };
    put(&index, "a", false, 1);
    assert!(!index.commit().has_stored);
    assert_eq!(stored(&index, "a"), "{}");
    put(&index, "b", true, 2);
    put(&index, "c", false, 3);
    drop(index);
    let index = opened(dir.path());
    assert_eq!(stored(&index, "b"), r#"{"s":"b"}"#);
    assert_eq!(stored(&index, "c"), "{}");
    // An index that was written before this flag existed.
    let old: search::Commit = serde_json::from_str(r#"{"seq":5,"purge_seq":0}"#).unwrap();
    assert!(old.has_stored);
}

#[test]
fn hits_of_many_segments_are_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    for n in 0..20u64 {
        let ids: Vec<String> = (0..10).map(|m| format!("{:03}", n + 20 * m)).collect();
        let docs: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "x")).collect();
        write(&index, &docs, n + 1);
    }
    assert_eq!(index.reader().segments(), 20);
    let expected: Vec<String> = (0..200).map(|n| format!("{n:03}")).collect();
    for limit in [0, 1, 25, 199, 200, 500] {
        let request = Request {
            limit,
            sort: vec![],
            ..by_score(term("x"))
        };
        let answer = search(&index.reader(), &request).unwrap();
        let ids: Vec<String> = answer.hits.into_iter().map(|hit| hit.id).collect();
        assert_eq!(ids, expected[..limit.min(200)]);
        assert_eq!(answer.total, 200);
    }
}

#[test]
fn groups_of_many_segments_have_their_first_hits_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    for n in 0..20u64 {
        let mut update = index.update(1, 0).unwrap();
        for m in 0..10 {
            let mut fields = text("x");
            let parity = ["even", "odd"][n as usize % 2];
            let added = fields.add(0, "string", "s", json!(parity), &Value::Null);
            added.unwrap();
            let id = format!("{:03}", n + 20 * m);
            update.put(&id, None, fields, &Words).unwrap();
        }
        update.commit(n + 1, 0).unwrap();
    }
    let reader = index.reader();
    assert_eq!(reader.segments(), 20);
    for limit in [0, 1, 3, 25, 100, 500] {
        let (mut request, groups) = grouped(term("x"), "s", SortBy::Score, 5);
        request.sort = vec![];
        request.limit = limit;
        let found = groups_of(&reader, &(request, groups), Effort::default()).unwrap();
        assert_eq!((found.total, found.groups.len()), (200, 2));
        for (group, (first, name)) in found.groups.iter().zip([(0, "even"), (1, "odd")]) {
            assert_eq!((group.by.as_deref(), group.total), (Some(name), 100));
            let ids: Vec<&str> = group.hits.iter().map(|hit| hit.id.as_str()).collect();
            let expected = (first..200).step_by(2).map(|n| format!("{n:03}"));
            let expected: Vec<String> = expected.take(limit).collect();
            assert_eq!(ids, expected, "{limit}");
        }
    }
}
