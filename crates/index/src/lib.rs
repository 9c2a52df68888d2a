//! Views: incremental build from by-seq, rows, the summary tree, reductions and range reads, of one
//! shard at a time.
//!
//! | module | content |
//! |---|---|
//! | `spec` | the specification of an index, and its signature |
//! | [`keys`] | encoding of rows |
//! | `map` | mapping of documents to rows |
//! | `run` | sorted files of a first build |
//! | `apply` | rows of changed documents |
//! | [`blocks`], `state` | counts and reductions of rows in O(log n) |
//! | [`reduce`], `reducer` | reduce functions, built in and custom |
//! | `row_reduction` | reduction of rows that come one after the other |
//! | `read` | reading, counting and reducing a range |
//! | `part`, `visible` | the rows that one user sees, in an index with rows by principal |
//! | `groups` | grouping of rows by their keys, and reduction of the groups |
//! | `iter` | iteration over rows |
//! | `row_cache` | cache of the rows of frequently read blocks |
//! | `upkeep` | maintenance for fast reads |
//! | `index` | an open index: its published state, and its updates |
//! | `build` | the steps of an update, and their order across crashes |
//! | `omissions` | documents that the index lacks, because a function exceeded a limit for them |
//! | [`check`] | verification of a stored index |
//! | `memory` | memory budget of builds |
//! | [`fuzz`] | properties of decoders, for any stored bytes |

#![forbid(unsafe_code)]

mod apply;
pub mod blocks;
mod build;
pub mod check;
mod cutter;
mod error;
pub mod fuzz;
mod groups;
mod index;
mod iter;
pub mod keys;
mod map;
mod memory;
mod omissions;
mod part;
mod read;
pub mod reduce;
mod reducer;
mod row_cache;
mod row_reduction;
mod run;
mod sorting;
mod spec;
mod state;
mod upkeep;
mod visible;

pub use blocks::State;
pub use build::BuildLimits;
pub use error::Error;
pub use groups::{Group, GroupCursor, GroupLevel};
pub use index::{BuildGuard, Index, IndexInfo, Progress};
pub use iter::{RowIter, ViewRow};
pub use map::{DocumentOmission, MapCounts, MapResult, Source, map_each, write_key_sort};
pub use memory::{BuildMemory, Reservation};
pub use read::{IndexView, Pause, PlaceRange};
pub use reduce::{ReduceLimit, SharedReduceLimit};
pub use reducer::{TrialReduction, try_reduce};
pub use row_cache::RowCache;
pub use spec::{ReduceSpec, Spec, ViewSpec};
