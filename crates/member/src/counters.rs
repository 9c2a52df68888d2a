//! Counters of the work that nodes do for each other.

use telemetry::Counter;

pub use raft_log::SYNCED as LOG_SYNCED;

/// Writes that were forwarded to another node, which proposes them.
pub static FORWARDED_WRITES: Counter = Counter::new();
/// Clients' requests that were forwarded to another node.
pub static FORWARDED_REQUESTS: Counter = Counter::new();
/// Requests to other nodes for their parts of a response.
pub static GATHERED_REQUESTS: Counter = Counter::new();
/// Those of all of these that the other node did not answer, or could not execute.
pub static FORWARD_FAILURES: Counter = Counter::new();
/// Slots that were copied from other nodes.
pub static COPIES_INSTALLED: Counter = Counter::new();
/// Copies of slots that were not completed.
pub static COPY_FAILURES: Counter = Counter::new();
/// Bytes of slots that were received from other nodes.
pub static COPY_BYTES: Counter = Counter::new();
/// Copies of slots that this node began to send.
pub static COPIES_SENT: Counter = Counter::new();
/// Contents of attachments that were copied to a majority before a record named them.
pub static CONTENTS_STAGED: Counter = Counter::new();
/// Contents that this node lacked when it applied a record, and fetched from another.
pub static CONTENTS_FETCHED: Counter = Counter::new();
/// Attempts to copy a content to another node, or to fetch one, that failed.
pub static CONTENT_FAILURES: Counter = Counter::new();
/// Bytes of contents that were sent to other nodes.
pub static CONTENT_BYTES_SENT: Counter = Counter::new();
/// Bytes of contents that were received from other nodes.
pub static CONTENT_BYTES_RECEIVED: Counter = Counter::new();
