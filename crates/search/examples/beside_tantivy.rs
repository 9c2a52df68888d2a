//! Compares the cost of this crate with tantivy alone, in one process: both index the same texts
//! and run the same searches, interleaved. Prints the median of the rounds, and the ratio of its
//! rate to tantivy's, with the lowest and the highest.
//!
//! `cargo run --release -p search --example beside_tantivy [DOCUMENTS [WORK...]]`, where WORK is
//! build, term, and, phrase or prefix
//!
//! Both return the 25 best hits by BM25 and the number of hits. Tantivy's index has one text field
//! with lengths in its own form, and the ids as a stored field; this crate's also has ids and
//! lengths as columns, and reads the id of each hit.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "it is a measurement"
)]

#[allow(dead_code, reason = "the benchmark uses the rest")]
#[path = "../../bench/src/words.rs"]
mod words;

use std::hint::black_box;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use search::{Analyze, Effort, Fields, Query, Reader, Request, Similarity, SortBy, SortKey};
use serde_json::{Value, json};
use tantivy::collector::{Count, TopDocs};
use tantivy::query::{BooleanQuery, PhraseQuery, RegexQuery, TermQuery};
use tantivy::schema::{
    Field, IndexRecordOption, STORED, Schema, TextFieldIndexing, TextOptions, Value as _,
};
use tantivy::{Searcher, TantivyDocument, Term};
use words::SearchKind;

const ROUNDS: usize = 9;
const QUERIES: usize = 2_000;
const HITS: usize = 25;
const MEMORY_BYTES: usize = 64 << 20;
const FIELD: &str = "text";

/// Splits at single spaces, as tantivy's `whitespace` tokenizer does.
struct Words;

impl Analyze for Words {
    fn analyze(&self, _: &str, text: &str, token: &mut dyn FnMut(&str, u32)) {
        for (position, word) in (0..).zip(text.split(' ')) {
            token(word, position);
        }
    }
}

fn id(number: u64) -> String {
    format!("doc-{number:08}")
}

/// Tantivy, set up as in its own examples.
struct Alone {
    index: tantivy::Index,
    id: Field,
    text: Field,
}

impl Alone {
    fn new(folder: &Path) -> Alone {
        let mut schema = Schema::builder();
        let indexing = TextFieldIndexing::default()
            .set_tokenizer("whitespace")
            .set_index_option(IndexRecordOption::WithFreqsAndPositions);
        let id = schema.add_text_field("id", tantivy::schema::STRING | STORED);
        let text = TextOptions::default().set_indexing_options(indexing);
        let text = schema.add_text_field(FIELD, text);
        let index = tantivy::Index::create_in_dir(folder, schema.build()).unwrap();
        Alone { index, id, text }
    }

    fn build(&self, texts: &[String]) {
        let mut writer = self
            .index
            .writer_with_num_threads::<TantivyDocument>(1, MEMORY_BYTES)
            .unwrap();
        for (number, text) in (0..).zip(texts) {
            let mut document = TantivyDocument::new();
            document.add_text(self.id, id(number));
            document.add_text(self.text, text);
            writer.add_document(document).unwrap();
        }
        writer.commit().unwrap();
        writer.wait_merging_threads().unwrap();
    }

    fn query(&self, wanted: SearchKind, words: &[String]) -> Box<dyn tantivy::query::Query> {
        let term = |word: &String| Term::from_field_text(self.text, word);
        let one = |word| -> Box<dyn tantivy::query::Query> {
            Box::new(TermQuery::new(term(word), IndexRecordOption::WithFreqs))
        };
        match wanted {
            SearchKind::Term => one(&words[0]),
            SearchKind::And => {
                Box::new(BooleanQuery::intersection(words.iter().map(one).collect()))
            }
            SearchKind::Phrase => Box::new(PhraseQuery::new(words.iter().map(term).collect())),
            SearchKind::Prefix => {
                let pattern = format!("{}.*", words[0]);
                Box::new(RegexQuery::from_pattern(&pattern, self.text).unwrap())
            }
        }
    }
}

fn query(wanted: SearchKind, words: &[String]) -> Query {
    let field = FIELD.to_owned();
    let term = |word: &String| Query::Term {
        field: FIELD.to_owned(),
        term: word.clone(),
    };
    match wanted {
        SearchKind::Term => term(&words[0]),
        SearchKind::And => Query::Boolean {
            must: words.iter().map(term).collect(),
            should: vec![],
            must_not: vec![],
            should_min: 0,
        },
        SearchKind::Phrase => Query::Phrase {
            field,
            terms: (0..).zip(words.iter().map(|w| vec![w.clone()])).collect(),
            slop: 0,
        },
        SearchKind::Prefix => Query::Prefix {
            field,
            prefix: words[0].clone(),
        },
    }
}

fn build(index: &search::Index, texts: &[String]) {
    let mut update = index.update(1, MEMORY_BYTES).unwrap();
    for (number, text) in (0..).zip(texts) {
        let mut fields = Fields::new();
        fields
            .add(0, "text", FIELD, json!(text), &Value::Null)
            .unwrap();
        update.put(&id(number), None, fields, &Words).unwrap();
    }
    update.commit(texts.len() as u64, 0).unwrap();
}

/// Runs `ours` and `theirs` interleaved, each of which processes `work` items, and prints both
/// results.
fn in_turns(name: &str, work: usize, mut ours: impl FnMut(), mut theirs: impl FnMut()) {
    let rate = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        work as f64 / start.elapsed().as_secs_f64()
    };
    let mut rounds: Vec<(f64, f64)> = (0..ROUNDS)
        .map(|round| match round % 2 {
            0 => {
                let ours = rate(&mut ours);
                (ours, rate(&mut theirs))
            }
            _ => {
                let theirs = rate(&mut theirs);
                (rate(&mut ours), theirs)
            }
        })
        .collect();
    rounds.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let ratio = |round: (f64, f64)| round.0 / round.1;
    let middle = rounds[ROUNDS / 2];
    println!(
        "{name:8} {:10.0}/s {:10.0}/s {:6.2} ({:.2} to {:.2})",
        middle.0,
        middle.1,
        ratio(middle),
        ratio(rounds[0]),
        ratio(rounds[ROUNDS - 1])
    );
}

fn builds_in_turns(texts: &[String]) {
    in_turns(
        "build",
        texts.len(),
        || {
            let folder = tempfile::tempdir().unwrap();
            build(&search::Index::open(folder.path()).unwrap(), texts);
        },
        || {
            let folder = tempfile::tempdir().unwrap();
            Alone::new(folder.path()).build(texts);
        },
    );
}

/// Searches with this crate; returns the number of hits.
fn ask(reader: &Reader, query: Query) -> u64 {
    let request = Request {
        query,
        filters: vec![],
        similarity: Similarity::Bm25,
        sort: vec![SortKey {
            by: SortBy::Score,
            reversed: false,
        }],
        limit: HITS,
        after: None,
        statistics: search::Statistics::default(),
        counts: vec![],
        ranges: vec![],
    };
    let effort = Rc::new(Effort::default());
    let answer = search::search(&[reader], &request, reader.types(), &effort).unwrap();
    black_box(answer).total
}

/// Searches with tantivy; returns the number of hits.
fn ask_alone(alone: &Alone, searcher: &Searcher, query: &dyn tantivy::query::Query) -> u64 {
    let best = TopDocs::with_limit(HITS).order_by_score();
    let (best, total) = searcher.search(query, &(best, Count)).unwrap();
    for (_, at) in best {
        let document: TantivyDocument = searcher.doc(at).unwrap();
        black_box(document.get_first(alone.id).unwrap().as_str().unwrap());
    }
    total as u64
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let documents: u64 = arguments.next().map_or(200_000, |n| n.parse().unwrap());
    let asked_for: Vec<String> = arguments.collect();
    let is_wanted =
        |what: &str| asked_for.is_empty() || asked_for.iter().any(|asked| asked == what);
    let texts: Vec<String> = (0..documents).map(words::text).collect();
    println!("{documents} documents; this crate, tantivy alone, ratio of the rates");
    if is_wanted("build") {
        builds_in_turns(&texts);
    }
    let folders = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let index = search::Index::open(folders.0.path()).unwrap();
    build(&index, &texts);
    let alone = Alone::new(folders.1.path());
    alone.build(&texts);
    let reader = index.reader();
    let searcher = alone.index.reader().unwrap().searcher();
    for wanted in SearchKind::ALL {
        let name = format!("{wanted:?}").to_lowercase();
        if !is_wanted(&name) {
            continue;
        }
        let asked: Vec<_> = (0..QUERIES).map(|_| wanted.any(documents)).collect();
        let ours = |words: &Vec<String>| ask(&reader, query(wanted, words));
        let theirs =
            |words: &Vec<String>| ask_alone(&alone, &searcher, &*alone.query(wanted, words));
        for words in &asked {
            assert_eq!(ours(words), theirs(words), "{wanted:?} {words:?}");
        }
        in_turns(
            &name,
            QUERIES,
            || {
                for words in &asked {
                    ours(words);
                }
            },
            || {
                for words in &asked {
                    theirs(words);
                }
            },
        );
    }
}
