//! Replicates state over several nodes by a log.
//!
//! Every write of a *slot* is a record in one partition of a log. Each replica of the slot applies
//! the records in order to its own store, and a write is acknowledged when a majority of the slot's
//! replicas has applied it durably. The log is trusted for order and delivery only: it may lose its
//! end, or everything.

#![forbid(unsafe_code)]

pub mod counters;
pub mod log;
pub mod memory_log;
mod message;
pub mod position;
pub mod record;
pub mod replica;
pub mod slot;
mod tail_channel;

pub use log::{BoxFuture, CONTROL, Log, SlotNumber};
pub use memory_log::MemoryLog;
pub use position::{Generation, NodeId, Position};
pub use tail_channel::{TailSender, tail_channel};
