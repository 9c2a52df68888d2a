//! Workloads of mixed operations on single documents: YCSB's, and mixes that users define.
//!
//! An operation may take several requests: an update reads the revision first. Clients choose each
//! operation at random, and every kind is measured separately and in the sum.

mod caller;
mod distribution;
mod kind;
mod mix;
mod pool;
mod records;
mod run;
mod sequence;
mod weights;
mod ycsb;

pub use mix::Mix;

pub(crate) use caller::Caller;
pub(super) use mix::MixWorkload;
pub(super) use ycsb::Ycsb;
