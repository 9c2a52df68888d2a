//! Counters of this crate, since the process started.

use telemetry::{Counter, Times};

/// Documents and keys that `_find` examined, and rows that it returned.
pub static FIND_DOCS_EXAMINED: Counter = Counter::new();
/// See [`FIND_DOCS_EXAMINED`].
pub static FIND_KEYS_EXAMINED: Counter = Counter::new();
/// See [`FIND_DOCS_EXAMINED`].
pub static FIND_RESULTS: Counter = Counter::new();
/// Queries that no index but that of all documents was found for.
pub static FIND_UNINDEXED: Counter = Counter::new();
/// Queries that returned a warning about the number of documents that they examined.
pub static FIND_WARNED: Counter = Counter::new();
/// How long `_find` took, to the last piece of its answer.
pub static FIND_TIMES: Times = Times::new();
/// Edits that a `validate_doc_update` function refused.
pub static VALIDATION_REFUSALS: Counter = Counter::new();
/// How long validations took that ran functions.
pub static VALIDATION_TIMES: Times = Times::new();
/// `_local` documents that were written.
pub static LOCAL_WRITES: Counter = Counter::new();
/// Purges that were done, of one document or many.
pub static PURGES: Counter = Counter::new();
/// Documents in them.
pub static PURGED_DOCUMENTS: Counter = Counter::new();
/// Documents of purges that failed.
pub static PURGE_FAILURES: Counter = Counter::new();
/// How long opening a database took that was not open.
pub static OPENINGS: Times = Times::new();
/// Documents that were put into text indexes, and those that were taken out, or gave nothing to one.
pub static TEXT_DOCUMENTS: Counter = Counter::new();
/// See [`TEXT_DOCUMENTS`].
pub static TEXT_REMOVALS: Counter = Counter::new();
/// Documents that text indexes left out, since the index cannot hold the results of its function
/// for them.
pub static TEXT_LEFT_OUT: Counter = Counter::new();
/// Documents that views left out, since a function exceeded a limit for them; counted for each view.
pub static VIEW_LEFT_OUT: Counter = Counter::new();
/// Documents that filters of feeds left out, since the document could not be passed to the function.
pub static FILTER_LEFT_OUT: Counter = Counter::new();
/// Commits of text indexes, each of one shard.
pub static TEXT_COMMITS: Counter = Counter::new();
/// Merges of their segments.
pub static TEXT_MERGES: Counter = Counter::new();
/// Updates of text indexes that failed, each of one shard; not those that were stopped.
pub static TEXT_UPDATE_FAILURES: Counter = Counter::new();
/// Durations of updates of text indexes with changes, each of one shard, without waits for memory.
pub static TEXT_UPDATE_TIMES: Times = Times::new();
/// How long requests waited for a text index to be current, or until their clients went; those aside that found it so.
pub static TEXT_WAIT_TIMES: Times = Times::new();
/// How long searches in text indexes took, from when their turn came.
pub static TEXT_SEARCH_TIMES: Times = Times::new();
