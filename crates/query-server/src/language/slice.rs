//! How long work keeps its place.

use std::time::Duration;

/// Work that is made of many calls lets others go first after this time in its place.
pub const SLICE: Duration = Duration::from_millis(250);
