//! Times of the proposals of all slots of this process.

use telemetry::Durations;

/// From a proposal to its first append.
pub static QUEUED: Durations = Durations::new();
/// From there until the log has it.
pub static LOGGED: Durations = Durations::new();
/// From there until it is on this node's disk.
pub static APPLIED: Durations = Durations::new();
/// From there until the required number of nodes has it on disk.
pub static ACKNOWLEDGED: Durations = Durations::new();
