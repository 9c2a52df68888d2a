//! What an index does by itself.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use search::query::Interval;
use search::{
    ClassicOptions, Distance, Effort, Error, Fields, GroupRequest, Index, Query, Range, Request,
    Similarity, SortBy, SortKey, SortValue,
};
use serde_json::{Value, json};

mod support;

use support::{Words, asked, by_score, found, opened, search, term, text, write};

fn phrase(words: &[&str], slop: u32) -> Query {
    Query::Phrase {
        field: "t".into(),
        terms: (0..)
            .zip(words.iter().map(|w| vec![(*w).to_owned()]))
            .collect(),
        slop,
    }
}

#[test]
fn what_was_committed_is_there_after_it_is_opened_again_and_the_rest_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    assert_eq!(index.commit().seq, 0);
    write(&index, &[("a", "x"), ("b", "x y")], 7);
    let update = index.update(1, 0).unwrap();
    update.put("c", None, text("x"), &Words).unwrap();
    drop(update);
    drop(index);
    let index = opened(dir.path());
    assert_eq!(index.commit().seq, 7);
    assert!(index.commit().types.contains_key("t"));
    assert_eq!(found(&index, term("x")), ["a", "b"]);
    assert!(index.file_bytes() > 0);
    assert!(index.damage().is_none());
}

#[test]
fn an_index_that_cannot_be_read_is_empty_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    write(&opened(dir.path()), &[("a", "x")], 7);
    std::fs::write(dir.path().join("meta.json"), "{").unwrap();
    let index = opened(dir.path());
    assert!(index.damage().is_some());
    assert_eq!(index.commit().seq, 0);
    write(&index, &[("b", "x")], 8);
    assert_eq!(found(&index, term("x")), ["b"]);
}

#[test]
fn readers_keep_what_they_have_seen_while_the_index_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(&index, &[("a", "x")], 1);
    let before = index.reader();
    let mut update = index.update(1, 0).unwrap();
    update.remove("a");
    update.commit(2, 0).unwrap();
    drop(update);
    index.tidy(&|| false).unwrap();
    assert_eq!(search(&before, &by_score(term("x"))).unwrap().total, 1);
    assert_eq!(
        search(&index.reader(), &by_score(term("x"))).unwrap().total,
        0
    );
}

#[test]
fn the_shorter_text_and_the_rarer_term_come_first() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(
        &index,
        &[
            ("a", "x y y y y y"),
            ("b", "x"),
            ("c", "rare y y"),
            ("d", "x x x"),
        ],
        1,
    );
    assert_eq!(found(&index, term("x")), ["d", "b", "a"]);
    assert_eq!(
        found(&index, Query::any(vec![term("y"), term("rare")])),
        ["c", "a"]
    );
}

#[test]
fn phrases_may_be_loose() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(
        &index,
        &[
            ("a", "x y z"),
            ("b", "x z"),
            ("c", "z x"),
            ("d", "x y y y z"),
        ],
        1,
    );
    assert_eq!(found(&index, phrase(&["x", "z"], 0)), ["b"]);
    assert_eq!(found(&index, phrase(&["x", "z"], 1)), ["b", "a"]);
    let mut loose = found(&index, phrase(&["x", "z"], 2));
    loose.sort();
    assert_eq!(loose, ["a", "b", "c"]);
}

#[test]
fn terms_that_are_more_alike_come_first() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(
        &index,
        &[("a", "roam"), ("b", "fox"), ("c", "fo"), ("d", "nothing")],
        1,
    );
    let fuzzy = |edits| Query::Fuzzy {
        field: "t".into(),
        term: "foam".into(),
        edits,
        prefix: 0,
    };
    assert_eq!(found(&index, fuzzy(1)), ["a"]);
    // Two edits of a term of two characters are all of it.
    assert_eq!(found(&index, fuzzy(2)), ["a", "b"]);
}

#[test]
fn a_regular_expression_is_of_the_whole_term() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(&index, &[("a", "fox"), ("b", "foxes"), ("c", "afox")], 1);
    let regex = |pattern: &str| Query::Regex {
        field: "t".into(),
        pattern: pattern.into(),
    };
    assert_eq!(found(&index, regex("fox(es)?")), ["a", "b"]);
    assert_eq!(found(&index, regex("fox|a.*")), ["a", "c"]);
    assert!(matches!(
        search(&index.reader(), &by_score(regex("["))),
        Err(Error::Regex(_))
    ));
}

#[test]
fn intervals_have_an_order_or_not_and_gaps() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(
        &index,
        &[
            ("a", "x m y"),
            ("b", "y x"),
            ("c", "x y"),
            ("d", "x m m m y"),
        ],
        1,
    );
    let interval = |source| {
        let mut ids = found(
            &index,
            Query::Interval {
                field: "t".into(),
                source,
            },
        );
        ids.sort();
        ids
    };
    let parts = || vec![Interval::Term("x".into()), Interval::Term("y".into())];
    assert_eq!(interval(Interval::Ordered(parts())), ["a", "c", "d"]);
    assert_eq!(interval(Interval::Unordered(parts())), ["a", "b", "c", "d"]);
    assert_eq!(interval(Interval::Phrase(parts())), ["c"]);
    let near = Interval::MaxGaps(1, Box::new(Interval::Ordered(parts())));
    assert_eq!(interval(near), ["a", "c"]);
    let narrow = Interval::MaxWidth(2, Box::new(Interval::Unordered(parts())));
    assert_eq!(interval(narrow), ["b", "c"]);
}

#[test]
fn a_field_of_another_type_is_refused_and_the_update_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(&index, &[("a", "x")], 1);
    let update = index.update(1, 0).unwrap();
    let mut fields = Fields::new();
    fields
        .add(0, "string", "t", json!("x"), &Value::Null)
        .unwrap();
    let refused = update.put("b", None, fields, &Words).unwrap_err();
    assert_eq!(refused.to_string(), "field t is of type STRING not TEXT");
    drop(update);
    assert_eq!(found(&index, Query::All), ["a"]);
}

#[test]
fn a_place_of_another_order_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(&index, &[("a", "x")], 1);
    let mut request = by_score(Query::All);
    request.after = Some(vec![SortValue::Null]);
    assert!(matches!(
        search(&index.reader(), &request),
        Err(Error::Bookmark)
    ));
}

#[test]
fn partitions_are_apart() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    let mut update = index.update(1, 0).unwrap();
    update.put("p:a", Some("p"), text("x"), &Words).unwrap();
    update.put("q:a", Some("q"), text("x"), &Words).unwrap();
    update.commit(1, 0).unwrap();
    let mut request = by_score(term("x"));
    let within = |partition: &str| Query::Term {
        field: search::PARTITION.into(),
        term: partition.into(),
    };
    request.filters = vec![within("q")];
    let answer = search(&index.reader(), &request).unwrap();
    assert_eq!((answer.total, answer.hits[0].id.as_str()), (1, "q:a"));
    request.filters = vec![within("r")];
    assert_eq!(search(&index.reader(), &request).unwrap().total, 0);
}

#[test]
fn what_cannot_be_opened_now_is_not_thrown_away() {
    let dir = tempfile::tempdir().unwrap();
    write(&opened(dir.path()), &[("a", "x")], 7);
    // A folder in place of the file: an error that says nothing about what is in the file.
    let (meta, aside) = (dir.path().join("meta.json"), dir.path().join("aside"));
    std::fs::rename(&meta, &aside).unwrap();
    std::fs::create_dir(&meta).unwrap();
    assert!(Index::open(dir.path()).is_err());
    std::fs::remove_dir(&meta).unwrap();
    std::fs::rename(&aside, &meta).unwrap();
    let index = opened(dir.path());
    assert!(index.damage().is_none());
    assert_eq!(found(&index, term("x")), ["a"]);
}

#[test]
fn documents_with_long_ids_are_replaced_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    // Those that differ at their ends only are different.
    let id = |end: &str| "i".repeat(65_400) + end;
    let (first, second) = (id("a"), id("b"));
    write(&index, &[(&first, "x"), (&second, "x")], 1);
    write(&index, &[(&first, "y")], 2);
    assert_eq!(found(&index, term("y")), std::slice::from_ref(&first));
    assert_eq!(found(&index, term("x")), [second]);
    let mut update = index.update(1, 0).unwrap();
    update.remove(&first);
    update.commit(3, 0).unwrap();
    assert_eq!(found(&index, term("y")), Vec::<String>::new());
}

#[test]
fn long_strings_are_cut_between_characters() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    let mut fields = Fields::new();
    let long = "a".repeat(64_999) + "üüü" + &"b".repeat(600);
    fields
        .add(0, "string", "s", json!(long), &Value::Null)
        .unwrap();
    let mut update = index.update(1, 0).unwrap();
    update.put("a", None, fields, &Words).unwrap();
    update.commit(1, 0).unwrap();
    let request = Request {
        counts: vec!["s".into()],
        ..by_score(Query::All)
    };
    let answer = search(&index.reader(), &request).unwrap();
    assert_eq!(answer.counts[0].len(), 1);
}

#[test]
fn a_search_ends_when_its_time_or_memory_does() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    let ids: Vec<String> = (0..5_000).map(|n| format!("{n:04}")).collect();
    let docs: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "x y z")).collect();
    write(&index, &docs, 1);
    let reader = index.reader();
    let asked = |query: Query, limit, effort| {
        let request = Request {
            limit,
            ..by_score(query)
        };
        self::asked(&reader, &request, effort)
    };
    let near = Query::Interval {
        field: "t".into(),
        source: Interval::Ordered(["z", "x"].map(|t| Interval::Term(t.into())).into()),
    };
    let queries = [
        Query::All,
        // Nothing is found by these two, which look at everything.
        phrase(&["z", "x"], 0),
        near,
        Query::any(vec![term("x"), term("y")]),
    ];
    for query in queries {
        let effort = Effort::new(Duration::ZERO, usize::MAX);
        let answer = asked(query.clone(), 10, effort);
        assert!(matches!(answer, Err(Error::TooLong)), "{query:?}");
    }
    let effort = || Effort::new(Duration::from_secs(600), 100_000);
    let few = asked(Query::All, 100, effort()).unwrap();
    assert_eq!((few.total, few.hits.len()), (5_000, 100));
    let all = asked(Query::All, 5_000, effort());
    assert!(matches!(all, Err(Error::TooMuch { max: 100_000 })));
    let pattern = "a|b".to_owned();
    let field = "t".to_owned();
    let regex = asked(Query::Regex { field, pattern }, 1, effort());
    assert!(matches!(regex, Err(Error::TooMuch { .. })));
}

#[test]
fn a_phrase_of_many_words_in_a_document_of_many_ends() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(&index, &[("a", &"x ".repeat(50_000))], 1);
    let reader = index.reader();
    for slop in [0, 9] {
        let request = by_score(phrase(&vec!["x"; 10_000], slop));
        // All places of all of its words are more than may be taken.
        let effort = Effort::new(Duration::from_secs(600), 64 << 20);
        let answer = asked(&reader, &request, effort);
        assert!(matches!(answer, Err(Error::TooMuch { .. })), "{answer:?}");
        let effort = Effort::new(Duration::from_millis(100), usize::MAX);
        let began = std::time::Instant::now();
        let answer = asked(&reader, &request, effort);
        assert!(matches!(answer, Err(Error::TooLong)), "{answer:?}");
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn words_of_intervals_are_clauses_and_patterns_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(&index, &[("a", "x")], 1);
    let words = (0..2_000).map(|n| Interval::Term(format!("w{n}")));
    let query = Query::Interval {
        field: "t".into(),
        source: Interval::Or(words.collect()),
    };
    let refused = search(&index.reader(), &by_score(query)).unwrap_err();
    assert!(matches!(refused, Error::TooManyClauses { .. }));
    let query = Query::Regex {
        field: "t".into(),
        pattern: "a)|(?:x".into(),
    };
    let refused = search(&index.reader(), &by_score(query)).unwrap_err();
    assert!(matches!(refused, Error::Regex(_)));
}

#[test]
fn an_update_that_is_given_up_leaves_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(&index, &[("a", "x")], 1);
    let before = segment_files(dir.path());
    let update = index.update(1, 0).unwrap();
    let words: String = (0..40_000).map(|n| format!("w{n} ")).collect();
    // More than a writer keeps in memory.
    for n in 0..60 {
        let id = format!("b{n}");
        update
            .put(&id, None, text(&format!("{words}{n}")), &Words)
            .unwrap();
    }
    update.abandon().unwrap();
    assert_eq!(segment_files(dir.path()), before);
    assert_eq!(found(&index, term("x")), ["a"]);
    // tantivy's list of files forgets those that are gone.
    write(&index, &[("c", "x")], 2);
    assert_eq!(segment_files(dir.path()).len(), 2 * before.len());
    let list = std::fs::read(dir.path().join(".managed.json")).unwrap();
    let list: Vec<String> = serde_json::from_slice(&list).unwrap();
    assert!(list.iter().all(|name| dir.path().join(name).exists()));
    assert_eq!(found(&index, term("x")), ["a", "c"]);
}

/// An index like Clouseau's of so many documents: a facet `f` of their numbers, a string `s` of their numbers' last digit, a text, a point.
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

fn grouped(query: Query, field: &str, sort: SortBy, limit: usize) -> GroupRequest {
    GroupRequest {
        query,
        filters: vec![],
        similarity: Similarity::TfIdf,
        field: field.into(),
        sort: vec![SortKey {
            by: sort,
            reversed: false,
        }],
        limit,
    }
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
    let value = |value: Option<&str>| Query::Value {
        field: "s".into(),
        value: value.map(str::to_owned),
    };
    let nobody = Query::Facet {
        field: "f".into(),
        values: vec!["nobody".into()],
    };
    for filter in [facet, value(Some("3")), value(None), nobody] {
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

#[test]
fn groups_end_when_their_time_does() {
    let dir = tempfile::tempdir().unwrap();
    let index = classic(dir.path(), 3_000);
    let reader = index.reader();
    let over = || Effort::new(Duration::ZERO, usize::MAX);
    let by = SortBy::Distance(distance());
    for field in ["f", "s", "nosuch"] {
        let request = grouped(Query::All, field, by.clone(), 200);
        let stopped = reader.groups(&request, reader.types(), &Rc::new(over()));
        assert!(matches!(stopped, Err(Error::TooLong)), "{field}");
        let free = Rc::new(Effort::default());
        let (groups, total) = reader.groups(&request, reader.types(), &free).unwrap();
        let expected = match field {
            "f" => 200,
            "s" => 10,
            _ => 1,
        };
        assert_eq!((groups.len(), total), (expected, 3_000), "{field}");
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
            .map(|_| Query::Value {
                field: "s".into(),
                value: Some("1".into()),
            })
            .collect(),
        ..by_tf_idf(Query::All)
    };
    for request in [counts, few_hits] {
        let answer = asked(&reader, &request, little());
        assert!(matches!(answer, Err(Error::TooMuch { .. })), "{answer:?}");
    }
    // As many groups as documents: only those that are answered are kept.
    let request = grouped(Query::All, "f", SortBy::Id, 20);
    let (groups, total) = reader
        .groups(&request, reader.types(), &Rc::new(little()))
        .unwrap();
    assert_eq!((groups.len(), total), (20, 20_000));
    let request = grouped(Query::All, "f", SortBy::Strings("f".into()), 20_000);
    let refused = reader.groups(&request, reader.types(), &Rc::new(little()));
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
    let free = Rc::new(Effort::default());
    let request = grouped(Query::All, "f", SortBy::Id, 5);
    let groups = index
        .reader()
        .groups(&request, index.reader().types(), &free);
    assert_eq!(groups.unwrap().0.len(), 1);
}

#[test]
fn the_first_groups_are_those_of_the_best_hits() {
    let dir = tempfile::tempdir().unwrap();
    let index = classic(dir.path(), 1_000);
    let reader = index.reader();
    let free = Rc::new(Effort::default());
    // Document n has latitude n % 90 and is of group n % 10: group 0 has 0, group 1 has 1...
    for (sort, reversed, expected) in [
        (SortBy::Numbers("lat".into()), false, ["0", "1", "2"]),
        (SortBy::Numbers("lat".into()), true, ["9", "8", "7"]),
        (SortBy::Strings("f".into()), true, ["9", "8", "7"]),
        // All are alike: by their names.
        (SortBy::Score, false, ["0", "1", "2"]),
    ] {
        let mut request = grouped(term("x"), "s", sort, 3);
        request.sort[0].reversed = reversed;
        let (groups, _) = reader.groups(&request, reader.types(), &free).unwrap();
        let names: Vec<_> = groups.iter().map(|g| g.by.clone().unwrap()).collect();
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
    // An index that was written before this was noted.
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

/// Files of segments in a folder.
fn segment_files(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.len() > 32 && !name.starts_with('.')
        })
        .collect();
    files.sort();
    files
}

/// Where what tantivy adds to each file begins: a line of JSON with the sum, its length, and a number that is the same for all.
fn footer_at(file: &[u8]) -> usize {
    let numbers = file.len() - 8;
    let length = file[numbers..numbers + 4].try_into().unwrap();
    numbers - u32::from_le_bytes(length) as usize
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_flipped_bit_of_any_file_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(&index, &[("a", "x y z"), ("b", "x y")], 1);
    write(&index, &[("b", "y"), ("c", "z")], 2);
    drop(index);
    assert_eq!(search::damage_of(dir.path()).unwrap(), None);
    let files = segment_files(dir.path());
    assert!(files.len() > 8, "{files:?}");
    for file in files {
        let body = footer_at(&std::fs::read(&file).unwrap());
        for at in (0..body).step_by(body / 20 + 1) {
            flip(&file, at);
            let damage = search::damage_of(dir.path()).unwrap();
            assert!(damage.is_some(), "{}, byte {at}", file.display());
            flip(&file, at);
        }
        let whole = std::fs::read(&file).unwrap();
        for harmed in [&whole[..whole.len() / 2], &[]] {
            std::fs::write(&file, harmed).unwrap();
            let damage = search::damage_of(dir.path()).unwrap();
            assert!(damage.is_some(), "{} cut", file.display());
        }
        std::fs::write(&file, whole).unwrap();
    }
    assert_eq!(search::damage_of(dir.path()).unwrap(), None);
    assert_eq!(search::damage_of(&dir.path().join("none")).unwrap(), None);
}

#[test]
fn an_index_with_a_flipped_bit_is_empty_when_it_is_opened() {
    for extension in ["idx", "pos", "term", "fast", "store"] {
        let dir = tempfile::tempdir().unwrap();
        write(&opened(dir.path()), &[("a", "x y z")], 7);
        let mut files = segment_files(dir.path()).into_iter();
        let file = files.find(|f| f.extension().is_some_and(|e| e == extension));
        flip(&file.unwrap(), 0);
        let index = opened(dir.path());
        assert!(index.damage().unwrap().contains(extension));
        assert_eq!(index.commit().seq, 0);
    }
}

#[test]
fn what_is_damaged_is_not_merged_into_something_that_looks_whole() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    for n in 0..20u64 {
        write(&index, &[(&format!("d{n}"), "x y z")], n + 1);
    }
    assert_eq!(index.look_for_damage().unwrap(), None);
    let files = segment_files(dir.path());
    flip_positions(&files);
    assert!(matches!(index.tidy(&|| false), Err(Error::Engine(_))));
    assert_eq!(index.reader().segments(), 20);
    assert!(index.look_for_damage().unwrap().is_some());
    // What was found is remembered, however large the index is.
    flip_positions(&files);
    drop(index);
    assert!(search::damage_of(dir.path()).unwrap().is_some());
    let index = opened(dir.path());
    assert!(index.damage().is_some());
    write(&index, &[("a", "x")], 30);
    assert_eq!(found(&index, term("x")), ["a"]);
    assert_eq!(search::damage_of(dir.path()).unwrap(), None);
}

#[test]
fn what_was_thrown_away_in_part_is_empty_too() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("damaged"), "why").unwrap();
    let index = opened(dir.path());
    assert_eq!(index.damage(), Some("why"));
    write(&index, &[("a", "x")], 1);
    drop(index);
    assert_eq!(opened(dir.path()).damage(), None);
}

/// Flips the first bit of each file of positions, or flips it back.
fn flip_positions(files: &[std::path::PathBuf]) {
    let positions = files
        .iter()
        .filter(|f| f.extension().is_some_and(|e| e == "pos"));
    positions.for_each(|file| flip(file, 0));
}

#[test]
fn files_of_a_process_that_was_killed_are_in_nobodys_way() {
    let dir = tempfile::tempdir().unwrap();
    write(
        &opened(dir.path()),
        &[("a", "x"), ("b", "x"), ("c", "x")],
        1,
    );
    // What an update leaves that is killed right before its commit is there.
    let meta = dir.path().join("meta.json");
    let before = std::fs::read(&meta).unwrap();
    write(&opened(dir.path()), &[("a", "y")], 2);
    std::fs::write(&meta, before).unwrap();
    let left = files_in(dir.path());
    let deleted = left.iter().find(|file| file.ends_with(".del"));
    // It was not written to its end.
    std::fs::write(dir.path().join(deleted.unwrap()), "torn").unwrap();
    assert_eq!(search::damage_of(dir.path()).unwrap(), None);
    let index = opened(dir.path());
    assert_eq!(index.damage(), None);
    assert_eq!(found(&index, term("x")), ["a", "b", "c"]);
    write(&index, &[("a", "y")], 2);
    assert_eq!(found(&index, term("x")), ["b", "c"]);
    assert_eq!(found(&index, term("y")), ["a"]);
    let of_segments = |file: &&String| file.contains('.') && !file.ends_with("json");
    let files = files_in(dir.path());
    let segments: std::collections::BTreeSet<_> = files
        .iter()
        .filter(of_segments)
        .filter_map(|file| file.split('.').next())
        .filter(|id| !id.is_empty())
        .collect();
    assert_eq!(segments.len(), index.reader().segments(), "{files:?}");
}

/// The names of an index's files.
fn files_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn copies_beside_updates_and_merges_are_of_one_commit_each() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(&dir.path().join("index"));
    write(&index, &[("d0", "x")], 1);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 2.. {
                let id = format!("d{}", n - 1);
                // One more, and one that was there, so that documents are taken out too.
                write(&index, &[(&id, "x"), ("d0", "x")], n);
                index.tidy(&|| false).unwrap();
                if is_over.load(relaxed) {
                    return;
                }
            }
        });
        let mut seqs = vec![];
        for n in 0..40 {
            let copy = dir.path().join(n.to_string());
            assert!(search::copy_index(&dir.path().join("index"), &copy).unwrap());
            assert_eq!(search::damage_of(&copy).unwrap(), None);
            let copied = Index::open(&copy).unwrap();
            assert_eq!(copied.damage(), None);
            let seq = copied.commit().seq;
            assert_eq!(
                found(&copied, term("x")).len().min(100),
                seq.min(100) as usize
            );
            // It is an index as any other.
            write(&copied, &[("new", "y")], seq + 1);
            assert_eq!(found(&copied, term("y")), ["new"]);
            seqs.push(seq);
        }
        is_over.store(true, relaxed);
        assert!(seqs.first() < seqs.last(), "{seqs:?}");
    });
    assert!(!search::copy_index(&dir.path().join("nowhere"), &dir.path().join("none")).unwrap());
}

#[test]
fn a_lost_file_is_damage_and_is_not_copied() {
    for extension in ["idx", "pos", "term", "fast", "store", "fieldnorm", "del"] {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("index");
        let index = opened(&folder);
        write(&index, &[("a", "x y z"), ("b", "x")], 7);
        write(&index, &[("b", "y")], 8);
        assert_eq!(index.look_for_damage().unwrap(), None);
        let mut files = segment_files(&folder).into_iter();
        let file = files.find(|f| f.extension().is_some_and(|e| e == extension));
        std::fs::remove_file(file.unwrap()).unwrap();
        let damage = search::damage_of(&folder).unwrap().unwrap();
        assert!(damage.contains(extension), "{extension}: {damage}");
        assert!(search::copy_index(&folder, &dir.path().join("copy")).is_err());
        // Also of one that is open.
        let damage = index.look_for_damage().unwrap();
        let damage = damage.unwrap_or_default();
        assert!(damage.contains(extension), "{extension}: {damage}");
        drop(index);
        assert!(opened(&folder).damage().is_some());
    }
}

#[test]
fn looking_for_damage_makes_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, copy) = (dir.path().join("index"), dir.path().join("copy"));
    write(&opened(&folder), &[("a", "x")], 1);
    assert!(search::copy_index(&folder, &copy).unwrap());
    let files = files_in(&copy);
    assert_eq!(search::damage_of(&copy).unwrap(), None);
    assert_eq!(files_in(&copy).len(), files.len());
}

#[test]
fn what_is_to_be_thrown_away_is_not_copied_and_no_copy_is_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, copy) = (dir.path().join("index"), dir.path().join("copy"));
    let index = opened(&folder);
    write(&index, &[("a", "x y")], 1);
    assert!(search::copy_index(&folder, &copy).unwrap());
    // Its files are the index's own.
    assert!(search::copy_index(&folder, &copy).is_err());
    assert_eq!(search::damage_of(&folder).unwrap(), None);
    assert_eq!(found(&index, term("x")), ["a"]);
    std::fs::write(folder.join("damaged"), "why").unwrap();
    let marked = dir.path().join("marked");
    assert!(!search::copy_index(&folder, &marked).unwrap());
    assert!(!marked.exists());
}

#[test]
fn updates_that_are_given_up_beside_merges_leave_no_files() {
    for round in 0..10u64 {
        let dir = tempfile::tempdir().unwrap();
        let index = opened(dir.path());
        let mut seq = 0;
        for _ in 0..40 {
            seq += 1;
            write(&index, &[(&format!("d{seq}"), "x y z")], seq);
        }
        std::thread::scope(|scope| {
            let merging = scope.spawn(|| index.tidy(&|| false));
            while !merging.is_finished() {
                let update = index.update(1, 0).unwrap();
                update.put("new", None, text("x"), &Words).unwrap();
                std::thread::sleep(std::time::Duration::from_micros(700 * round));
                update.abandon().unwrap();
            }
            merging.join().unwrap().unwrap();
        });
        assert_eq!(found(&index, term("x")).len(), 40);
        assert_eq!(search::damage_of(dir.path()).unwrap(), None);
        let files = segment_files(dir.path());
        let ids: std::collections::BTreeSet<_> = files
            .iter()
            .filter_map(|file| file.file_stem()?.to_str()?.split('.').next())
            .collect();
        // What readers see may be from before a merge that was committed all the same.
        drop(index);
        let index = opened(dir.path());
        assert_eq!(ids.len(), index.reader().segments(), "{files:?}");
        write(&index, &[("new", "x")], seq + 1);
        assert_eq!(found(&index, term("x")).len(), 41);
    }
}
