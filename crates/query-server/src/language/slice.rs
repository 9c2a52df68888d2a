//! How much work is done in one go.

use std::time::Duration;

/// Work that is made of many calls lets others go first after this time in its place.
pub const SLICE: Duration = Duration::from_millis(250);

/// Documents are mapped in several calls when their rows take more memory than this, in bytes: the
/// caller holds the rows of a call.
pub const EMITS_BYTES_MAX: usize = 8 << 20;
