//! Views: incremental build from by-seq, rows, the summary tree, reductions and range reads, of one shard at a time.
//!
//! | module | answers |
//! |---|---|
//! | `spec` | what is an index made of, and when are two the same? |
//! | [`keys`] | how are rows stored? |
//! | `map` | how do documents become rows? |
//! | `run` | how is a first build written, sorted, as files? |
//! | `apply` | how are changed documents brought in? |
//! | [`blocks`], `state` | how are rows counted and reduced in O(log n)? |
//! | [`reduce`], `reducer` | what do reduce functions compute, and who runs them? |
//! | `read` | how is a range read, counted, reduced? |
//! | `groups` | how are rows grouped by their keys, and the groups reduced? |
//! | `iter` | how does a reader go from row to row? |
//! | `row_cache` | which blocks' rows are kept in memory? |
//! | `upkeep` | how is an index kept quick to read? |
//! | `index` | what do readers see of an open index, and who brings it up to date? |
//! | `build` | what does an update do, in which order, and what of a crash? |
//! | [`check`] | is a stored index sound? |
//! | `memory` | how much memory may builds take together? |
//! | [`fuzz`] | what must hold for any stored bytes? |

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
mod read;
pub mod reduce;
mod reducer;
mod row_cache;
mod run;
mod sorting;
mod spec;
mod state;
mod upkeep;

pub use blocks::State;
pub use build::BuildLimits;
pub use error::Error;
pub use groups::{Group, GroupCursor, GroupLevel};
pub use index::{Index, IndexInfo, Progress, Running};
pub use iter::{RowIter, ViewRow};
pub use map::{MapCounts, Source, map_each, write_key_sort};
pub use memory::{BuildMemory, Taken};
pub use read::{IndexView, PlaceRange};
pub use reduce::{ReduceLimit, SharedReduceLimit};
pub use reducer::{Tried, try_reduce};
pub use row_cache::RowCache;
pub use spec::{ReduceSpec, Spec, ViewSpec};
