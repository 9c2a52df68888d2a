//! What is counted in this crate, since the process started.

use telemetry::Times;

/// How long writes took that waited for the disk.
pub static SYNCS: Times = Times::new();
