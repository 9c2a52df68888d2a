//! The cluster's log in Kafka: [`cluster::Log`] on librdkafka.
//!
//! A log is two topics: `settee.<cluster>.<log number>.slots`, with a partition for each slot, and
//! `settee.<cluster>.<log number>.control` with one. A log that was lost is recreated with another
//! number, so its records cannot be taken for those of the one before. There are no consumer
//! groups, no transactions, no compaction and no committed offsets: the follower of a slot supplies
//! the offset.
//!
//! It does not know the meaning of a record. Guarantees:
//!
//! - Records of a slot arrive in the order of their offsets, and none is skipped silently ([`KafkaLog`], `tail.rs`).
//! - Reported ends of a log come from a leader at least as new as those whose records were delivered (`bounds.rs`).
//! - Records that are read back come from a leader of the requested epoch, or a later one (`read_back.rs`).
//!
//! All unsafe code is in `raw.rs`: features of librdkafka that its Rust library lacks.

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
