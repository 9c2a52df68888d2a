//! Text indexes: postings, positions and columns by tantivy, and above them what Lucene means by a query, a score, an order.
//!
//! An index is a folder. It knows nothing of databases: whoever writes it says which documents there are, what fields they
//! have, and by a [`Commit`] what the whole stands for.
//!
//! | module | answers |
//! |---|---|
//! | `fields` | what does a document give to an index, and what is refused? |
//! | `schema` | in which fields and columns of tantivy is that kept? |
//! | `tokens` | how do terms and positions get there? |
//! | [`query`] | what is asked for? |
//! | `index` | what is an open index, and what does its last commit stand for? |
//! | `left_out` | which documents are not in it, though they should be? |
//! | `sound` | are its files what was written? |
//! | `update` | how do documents come in and go, and when are segments merged? |
//! | `similarity` | what is a score? |
//! | `effort` | how long may a search take, and how much memory? |
//! | `known` | what of that stays for the next page, so that its scores are the same? |
//! | `weigh` | which terms does a query come to, and what do they weigh? |
//! | `matcher` | which documents of a segment match, and with which score? |
//! | `collect` | which hits are first, and how many are there of each value? |
//! | `group` | which groups of hits are first? |
//! | `explain` | how did the score of a hit come about? |
//! | `among` | which hits match another query too? |
//! | `answer` | what do the shards of an index come to together? |

#![forbid(unsafe_code)]

mod answer;
mod collect;
mod column;
mod copy;
mod effort;
mod error;
mod explain;
mod fields;
mod group;
mod index;
mod left_out;
mod match_hits;
mod matcher;
pub mod query;
mod reader;
mod schema;
mod similarity;
mod statistics;
mod tokens;
mod update;
mod verify;
mod weigh;

pub use answer::{Answer, Hit, search, types_of};
pub use collect::{Distance, Range, Request, SortBy, SortKey, SortValue};
pub use copy::copy_index;
pub use effort::{Effort, SharedMemory};
pub use error::Error;
pub use explain::{Explanation, explain};
pub use fields::{Analyze, ClassicOptions, Fields, flag_of};
pub use group::{Group, GroupRequest, merge_groups};
pub use index::{Commit, Index, folder_bytes};
pub use left_out::LeftOut;
pub use match_hits::match_hits;
pub use query::Query;
pub use reader::Reader;
pub use schema::{FieldType, ID, PARTITION, Types};
pub use similarity::Similarity;
pub use statistics::Statistics;
pub use update::Update;
pub use verify::find_damage;
