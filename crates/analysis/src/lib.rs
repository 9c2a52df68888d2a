//! The text side of full-text search: analyzers for the words of a text, and parsers of query
//! texts.
//!
//! CouchDB has two full-text searches, each with the analyzers and the query language of one
//! version of Lucene: `_search` (Clouseau, Lucene 4.6) and `_nouveau` (Lucene 9). [`Flavour`]
//! chooses one. An [`Analyzer`] cuts a text into [`Token`]s as that version does; [`query::parse`]
//! parses a query text into a [`query::Query`].
//!
//! Nothing here reads files or depends on an index. All work is linear in the length of the text,
//! and recursion is bounded by a named limit.
//!
//! ```
//! use analysis::{Analyzer, Flavour};
//! use serde_json::json;
//!
//! let english = Analyzer::parse(Flavour::Nouveau, &json!("english")).unwrap();
//! let words: Vec<_> = english.tokens("The sheep's meadows").into_iter().map(|t| (t.text, t.position)).collect();
//! assert_eq!(words, [("sheep".to_owned(), 1), ("meadow".to_owned(), 2)]);
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod analyzer;
mod characters;
mod checkpoints;
mod error;
mod fields;
mod filter;
mod grams;
pub mod highlight;
mod names;
pub mod query;
mod stem;
mod stop;
mod tokenizer;

pub use analyzer::{Analyzer, Flavour, Token};
pub use error::Error;
pub use fields::FieldAnalyzers;

/// Part of the signatures of indexes, so that a correction of an analyzer, or of how values come
/// into an index, rebuilds them.
pub const VERSION: u32 = 2;
