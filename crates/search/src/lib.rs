//! Full-text indexes: postings, positions and columns by tantivy, and on top of them Lucene's
//! queries, scores and sort orders.
//!
//! An index is a folder. It does not know databases: the caller supplies documents and fields, and
//! with each [`Commit`] the state that the index represents.
//!
//! | module | answers |
//! |---|---|
//! | `fields` | Which fields does a document have, and which are refused? |
//! | `schema` | In which fields and columns of tantivy are they stored? |
//! | `tokens` | How do terms and positions reach tantivy? |
//! | [`query`] | What is a query? |
//! | `request` | In which order are its hits, and what is counted? |
//! | `index` | What is an open index, and which state does its last commit represent? |
//! | `write_behind` | Which files are in memory only, and when are they written? |
//! | `omissions` | Which documents could not be indexed? |
//! | `verify` | Do the files match their checksums? |
//! | `update` | How are documents added and removed, and when are segments merged? |
//! | `similarity` | What is a score? |
//! | `expression` | Does a regular expression match a word? |
//! | `effort` | How much time and memory may a search take? |
//! | `statistics` | Which corpus statistics does the next page reuse, so that its scores agree? |
//! | `weigh` | Into which terms does a query expand, and what is the weight of each? |
//! | `matcher` | Which documents of a segment match, and with which score? |
//! | `collect` | Which hits are first, and how many hits has each value? |
//! | `group` | Which groups of hits are first? |
//! | `group_search` | Which hits of each group are first? |
//! | `explain` | How was the score of a hit computed? |
//! | `match_hits` | Which hits match another query as well? |
//! | `answer` | How are the results of an index's shards merged? |

#![forbid(unsafe_code)]

mod answer;
mod collect;
mod column;
mod copy;
mod effort;
mod error;
mod explain;
mod explanation;
mod expression;
mod fields;
mod group;
mod group_search;
mod index;
mod match_hits;
mod matcher;
mod omissions;
pub mod query;
mod reader;
mod request;
mod schema;
mod segment;
mod similarity;
mod statistics;
mod tokens;
mod update;
mod verify;
mod weigh;
mod write_behind;

pub use answer::{Answer, Hit, search, types_of};
pub use copy::copy_index;
pub use effort::{AnswerMemory, Effort, SharedMemory};
pub use error::Error;
pub use explain::explain;
pub use explanation::Explanation;
pub use fields::{Analyze, ClassicOptions, Fields, flag_of};
pub use group::GroupRequest;
pub use group_search::{GroupAnswer, GroupHits, search_groups};
pub use index::{Commit, Index, folder_bytes};
pub use match_hits::match_hits;
pub use omissions::Omissions;
pub use query::Query;
pub use reader::Reader;
pub use request::{Distance, Range, Request, SortBy, SortKey, SortValue};
pub use schema::{FieldType, ID, PARTITION, Types};
pub use similarity::Similarity;
pub use statistics::{STATISTICS_BYTES_MAX, Statistics};
pub use update::{PreparedDocument, Update};
pub use verify::find_damage;
