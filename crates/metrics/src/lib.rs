//! Counters of requests, metrics as values, and the two forms in which the server shows them.
//!
//! [`Stats`] counts requests by their classes in the route table ([`routes::Class`]), and open
//! connections. [`process`] reads the process's use of its machine. A [`List`] collects metrics,
//! which [`tree`] writes as CouchDB's `_stats`, and [`prometheus`] as text.
//!
//! The server makes the list: nothing here knows a request, a database or a setting.

#![forbid(unsafe_code)]

mod completed;
mod counts;
pub mod labelled;
mod list;
mod memory;
pub mod process;
pub mod prometheus;
pub mod slow_log;
mod stat;
mod stats;
mod tree;
mod usage;

pub use completed::{CompletedRequest, End};
pub use counts::{ClassCounts, Counts, METHODS};
pub use list::List;
pub use memory::MemoryPart;
pub use stat::{Stat, Unit, Value};
pub use stats::{OpenConnection, Socket, Stats};
pub use tree::tree;
pub use usage::Usage;
