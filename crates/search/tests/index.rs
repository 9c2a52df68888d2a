//! What an index does by itself.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use search::query::Interval;
use search::{
    Analyze, Answer, Effort, Error, Fields, Index, Query, Reader, Request, SortBy, SortKey,
    SortValue,
};
use serde_json::{Value, json};

struct Words;

impl Analyze for Words {
    fn analyze(&self, _: &str, text: &str, token: &mut dyn FnMut(&str, u32)) {
        for (position, word) in text.split(' ').filter(|w| !w.is_empty()).enumerate() {
            token(word, position as u32);
        }
    }
}

fn text(value: &str) -> Fields {
    let mut fields = Fields::new();
    fields
        .add(0, "text", "t", json!(value), &Value::Null)
        .unwrap();
    fields
}

fn write(index: &Index, docs: &[(&str, &str)], seq: u64) {
    let mut update = index.update(1, 0).unwrap();
    for (id, value) in docs {
        update.put(id, None, text(value), &Words).unwrap();
    }
    update.commit(seq, 0).unwrap();
}

fn by_score(query: Query) -> Request {
    Request {
        query,
        partition: None,
        sort: vec![SortKey {
            by: SortBy::Score,
            reversed: false,
        }],
        limit: 100,
        after: None,
        counts: vec![],
        ranges: vec![],
    }
}

fn search(reader: &Reader, request: &Request) -> Result<Answer, Error> {
    reader.search(request, reader.types(), &Rc::new(Effort::default()))
}

fn found(index: &Index, query: Query) -> Vec<String> {
    let answer = search(&index.reader(), &by_score(query)).unwrap();
    answer.hits.into_iter().map(|hit| hit.id).collect()
}

fn term(term: &str) -> Query {
    Query::Term {
        field: "t".into(),
        term: term.into(),
    }
}

fn phrase(words: &[&str], slop: u32) -> Query {
    Query::Phrase {
        field: "t".into(),
        terms: (0..)
            .zip(words.iter().map(|w| vec![(*w).to_owned()]))
            .collect(),
        slop,
    }
}

fn opened(dir: &Path) -> Index {
    Index::open(dir).unwrap()
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
    update.tidy(&|| false).unwrap();
    assert_eq!(search(&before, &by_score(term("x"))).unwrap().total, 1);
    assert_eq!(
        search(&index.reader(), &by_score(term("x"))).unwrap().total,
        0
    );
}

#[test]
fn small_commits_do_not_pile_up_segments() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    for n in 1..=40 {
        write(&index, &[(&format!("d{n}"), "x")], n);
        if index.is_untidy() {
            index.update(1, 0).unwrap().tidy(&|| false).unwrap();
        }
    }
    assert!(
        index.reader().segments() <= 10,
        "{}",
        index.reader().segments()
    );
    assert_eq!(index.commit().seq, 40);
    assert_eq!(found(&index, term("x")).len(), 40);
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
    request.partition = Some("q".into());
    let answer = search(&index.reader(), &request).unwrap();
    assert_eq!((answer.total, answer.hits[0].id.as_str()), (1, "q:a"));
    request.partition = Some("r".into());
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
        reader.search(&request, reader.types(), &Rc::new(effort))
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
    let before = index.file_bytes();
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
    assert!(index.file_bytes() < 2 * before + 10_000);
    assert_eq!(found(&index, term("x")), ["a"]);
}
