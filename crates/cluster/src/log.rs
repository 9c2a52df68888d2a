//! The log that orders writes: one partition for each slot, and one for the control slot.

use std::future::Future;
use std::pin::Pin;

use tokio::sync::mpsc;

/// A slot's number, which is also that of its partition.
pub type SlotNumber = u16;

/// The slot that every node replicates: members, the catalogue of databases, shared settings.
pub const CONTROL: SlotNumber = SlotNumber::MAX;

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A record as the log holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRecord {
    /// The number of the log: a log that was recreated after a loss has another number.
    pub log: u64,
    /// Its offset.
    pub offset: u64,
    /// The epoch of the partition leader that wrote it.
    pub epoch: i32,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// An item of a followed partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The next record.
    Record(RawRecord),
    /// There is no record at the next offset: the log holds offsets from `start` to `end`
    /// (exclusive). Sent whenever the end is reached, at least every few seconds while it stays
    /// there, and when the offset is outside of the log.
    NoRecord {
        /// Its first offset.
        start: u64,
        /// The offset that the next record will get.
        end: u64,
    },
    /// The next record could not be read in several attempts: the reason. Reading is retried.
    Trouble(String),
}

/// The result of reading a record again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawReadBackResult {
    /// A record.
    Record(RawRecord),
    /// The log starts after it.
    Trimmed,
    /// The log ends before it.
    BeyondEnd,
}

/// The reason why a record was not appended, or is not known to be appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// It is not in the log and never will be.
    #[error("the log refused the record: {0}")]
    Refused(String),
    /// The outcome is unknown: it may be in the log, now or later.
    #[error("the outcome is unknown: the log may have stored the record: {0}")]
    Unknown(String),
}

/// The reason why the log could not be queried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LogError(pub String);

/// A log. It is trusted for order and delivery only: it may lose its end, or everything, and return
/// under another leader.
pub trait Log: Send + Sync + 'static {
    /// Appends a record of at most [`crate::record::BYTES_MAX`] bytes; returns its offset once the
    /// log has stored it as safely as it can. Concurrent appends of this process to a partition are
    /// stored in the order of the calls, except those that fail: the call itself queues. It always
    /// returns eventually.
    fn append(
        &self,
        slot: SlotNumber,
        record: Vec<u8>,
    ) -> BoxFuture<'static, Result<u64, AppendError>>;

    /// Delivers the records of a partition from this offset on, in order, until the receiver is
    /// dropped. A slot has one follower at a time. While the log cannot be reached nothing is
    /// delivered; delivery continues when it can.
    fn follow(&self, slot: SlotNumber, from: u64) -> mpsc::Receiver<Tail>;

    /// Reads the record at an offset from a leader of this epoch or a later one, or from a log that
    /// replaced this one.
    ///
    /// # Errors
    /// The record cannot be read now.
    fn read_back(
        &self,
        slot: SlotNumber,
        offset: u64,
        epoch: i32,
    ) -> BoxFuture<'static, Result<RawReadBackResult, LogError>>;

    /// Returns whether the log answers this node now, after at most a few seconds. Single partitions
    /// may be unavailable all the same.
    fn is_reachable(&self) -> BoxFuture<'static, bool> {
        Box::pin(async { true })
    }
}
