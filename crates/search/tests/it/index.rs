//! Index operations on one index.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use search::query::{Interval, WildcardToken};
use search::{Effort, Error, Fields, Query, Request, SortValue};
use serde_json::{Value, json};

use crate::support::{Words, asked, by_score, found, opened, search, term, text, write};

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
    // Two edits of a term of two characters replace it entirely.
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
fn documents_with_long_ids_are_replaced_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    // Ids that differ only at their ends are different.
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
        // These two match nothing, but read everything.
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
        // All positions of all its words exceed the limit.
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
fn long_terms_take_more_steps() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    let long = |end: &str| format!("{}{end}", "a".repeat(60_000));
    write(&index, &[("a", &long("x")), ("b", &long("y"))], 1);
    let reader = index.reader();
    let field = || "t".to_owned();
    let queries = [
        Query::Prefix {
            field: field(),
            prefix: "a".into(),
        },
        Query::Wildcard {
            field: field(),
            pattern: vec![WildcardToken::Char('a'), WildcardToken::Many],
        },
        Query::Fuzzy {
            field: field(),
            term: long("z"),
            edits: 1,
            prefix: 0,
        },
    ];
    for query in queries {
        let over = Effort::new(Duration::ZERO, usize::MAX);
        let answer = asked(&reader, &by_score(query.clone()), over);
        assert!(matches!(answer, Err(Error::TooLong)));
        let answer = search(&reader, &by_score(query));
        assert_eq!(answer.unwrap().total, 2);
    }
}

#[test]
fn terms_of_fuzzy_queries_are_charged_with_the_names_of_their_fields() {
    const BYTES_MAX: usize = 6 << 20;
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    let long = "f".repeat(4_000);
    let words: String = (0..100).map(|n| format!("aa{n:02} ")).collect();
    let mut fields = Fields::new();
    for field in ["t", long.as_str()] {
        fields
            .add(0, "text", field, json!(words), &Value::Null)
            .unwrap();
    }
    let mut update = index.update(1, 0).unwrap();
    update.put("a", None, fields, &Words).unwrap();
    update.commit(1, 0).unwrap();
    let reader = index.reader();
    let fuzzy = |field: &str| {
        let clause = |n: usize| Query::Fuzzy {
            field: field.into(),
            term: format!("aa{n:02}"),
            edits: 2,
            prefix: 0,
        };
        let effort = Effort::new(Duration::from_secs(600), BYTES_MAX);
        let query = Query::any((0..20).map(clause).collect());
        asked(&reader, &by_score(query), effort)
    };
    assert_eq!(fuzzy("t").unwrap().total, 1);
    let refused = fuzzy(&long);
    assert!(matches!(refused, Err(Error::TooMuch { max: BYTES_MAX })));
}

#[test]
fn positions_of_intervals_are_charged_and_read_once_for_a_document() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(&index, &[("a", &"x ".repeat(50_000))], 1);
    let reader = index.reader();
    let any = |count| {
        by_score(Query::Interval {
            field: "t".into(),
            source: Interval::Or(vec![Interval::Term("x".into()); count]),
        })
    };
    let over = Effort::new(Duration::ZERO, usize::MAX);
    let answer = asked(&reader, &any(1), over);
    assert!(matches!(answer, Err(Error::TooLong)), "{answer:?}");
    let little = Effort::new(Duration::from_secs(600), 150_000);
    let answer = asked(&reader, &any(1), little);
    assert!(matches!(answer, Err(Error::TooMuch { .. })), "{answer:?}");
    let pauses = Rc::new(Cell::new(0));
    let counted = pauses.clone();
    let effort = Effort::default().with_pauses(move || {
        counted.set(counted.get() + 1);
        Duration::ZERO
    });
    assert_eq!(asked(&reader, &any(500), effort).unwrap().total, 1);
    assert!((1..50).contains(&pauses.get()), "{}", pauses.get());
}
