//! A small index, and its documents.

use std::path::Path;
use std::rc::Rc;

use search::{
    Analyze, Answer, Effort, Error, Fields, Index, Query, Reader, Request, Similarity, SortBy,
    SortKey,
};
use serde_json::{Value, json};

/// Returns a number of random cases or rounds: `full` in `make soak-units`, `short` in other runs.
pub fn rounds<T>(short: T, full: T) -> T {
    match std::env::var("NEXTEST_PROFILE").as_deref() {
        Ok("soak") => full,
        _ => short,
    }
}

/// Splits at spaces.
pub struct Words;

impl Analyze for Words {
    fn analyze(&self, _: &str, text: &str, token: &mut dyn FnMut(&str, u32)) {
        for (position, word) in text.split(' ').filter(|w| !w.is_empty()).enumerate() {
            token(word, position as u32);
        }
    }
}

/// A text in the field `t`.
pub fn text(value: &str) -> Fields {
    let mut fields = Fields::new();
    fields
        .add(0, "text", "t", json!(value), &Value::Null)
        .unwrap();
    fields
}

/// One update.
pub fn write(index: &Index, docs: &[(&str, &str)], seq: u64) {
    let mut update = index.update(1, 0).unwrap();
    for (id, value) in docs {
        update.put(id, None, text(value), &Words).unwrap();
    }
    update.commit(seq, 0).unwrap();
}

/// The best hits.
pub fn by_score(query: Query) -> Request {
    Request {
        query,
        filters: vec![],
        similarity: Similarity::Bm25,
        sort: vec![SortKey {
            by: SortBy::Score,
            reversed: false,
        }],
        limit: 100,
        after: None,
        statistics: search::Statistics::default(),
        counts: vec![],
        ranges: vec![],
    }
}

pub fn asked(reader: &Reader, request: &Request, effort: Effort) -> Result<Answer, Error> {
    search::search(&[reader], request, reader.types(), &Rc::new(effort))
}

pub fn search(reader: &Reader, request: &Request) -> Result<Answer, Error> {
    asked(reader, request, Effort::default())
}

/// The ids of the best hits.
pub fn found(index: &Index, query: Query) -> Vec<String> {
    let answer = search(&index.reader(), &by_score(query)).unwrap();
    answer.hits.into_iter().map(|hit| hit.id).collect()
}

/// Documents with a word.
pub fn term(term: &str) -> Query {
    Query::Term {
        field: "t".into(),
        term: term.into(),
    }
}

pub fn opened(dir: &Path) -> Index {
    Index::open(dir).unwrap()
}

/// Builds an index of ten long documents `d1` to `d10`, each in its own segment, which take a while
/// to merge; each contains the word `w7`.
pub fn ten_segments(dir: &Path) -> Index {
    let index = opened(dir);
    for seq in 1..=10 {
        write(&index, &[(&format!("d{seq}"), &long_text())], seq);
    }
    index
}

/// Words from `w0` on.
pub fn long_text() -> String {
    (0..20_000).map(|n| format!("w{n} ")).collect()
}
