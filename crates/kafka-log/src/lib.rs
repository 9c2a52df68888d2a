//! What does the cluster's log look like in Kafka? [`cluster::Log`] on librdkafka.
//!
//! A log is two topics: `settee.<cluster>.<log number>.slots`, with a partition for each slot, and `settee.<cluster>.<log
//! number>.control` with one. A log that was lost is made anew with another number, so its records cannot be taken for those of
//! the one before. There are no consumer groups, no transactions, no compaction and no committed offsets: who follows a slot says
//! where it goes on.
//!
//! It does not know what a record means. What it makes sure of:
//!
//! - Records of a slot come in the order of their offsets, and none is passed over in silence ([`KafkaLog`], `tail.rs`).
//! - What is said of a log's ends comes from a leader that is no older than those whose records were delivered (`bounds.rs`).
//! - What is read back comes from a leader of the epoch that was asked for, or a later one (`read_back.rs`).
//!
//! All unsafe code is in `raw.rs`: what librdkafka has and its Rust library does not give.

mod bounds;
mod client;
mod log;
mod names;
mod options;
mod producer;
mod raw;
mod read_back;
mod tail;
mod topics;

pub use log::KafkaLog;
pub use options::{OpenError, Options};
pub use topics::{TopicOptions, check_topics, create_topics, has_records, log_numbers};
