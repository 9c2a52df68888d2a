//! The log that orders writes: one partition for each slot, and one for the control slot.

use std::future::Future;
use std::pin::Pin;

use tokio::sync::mpsc;

/// A slot's number, which is its partition's too.
pub type SlotNumber = u16;

/// The slot that is replicated on every node: members, the catalogue of databases, shared settings.
pub const CONTROL: SlotNumber = SlotNumber::MAX;

/// Something that takes a while.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Bytes as the log has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRecord {
    /// Which log it is: one that is made anew, after the one before was lost, has another number.
    pub log: u64,
    /// Where it is.
    pub offset: u64,
    /// Of the partition's leader that wrote it.
    pub epoch: i32,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What comes from a partition that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The next record.
    Record(RawRecord),
    /// There is no record at the offset that comes next: the log goes from `start` up to, but not, `end`. Said whenever the end is reached,
    /// at least every few seconds while it stays there, and when the offset is outside of the log.
    NoRecord {
        /// Its first offset.
        start: u64,
        /// The offset that the next record will get.
        end: u64,
    },
    /// What comes next could not be read several times, and why. It is tried again.
    Trouble(String),
}

/// What was found where a record was read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawFound {
    /// A record.
    Record(RawRecord),
    /// The log begins after it.
    Trimmed,
    /// The log ends before it.
    BeyondEnd,
}

/// Why a record was not appended, or is not known to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// It is not in the log and will not be.
    #[error("the log did not take the record: {0}")]
    Refused(String),
    /// Nobody knows whether it is in the log, or will be.
    #[error("it is not known whether the log took the record: {0}")]
    Unknown(String),
}

/// Why the log could not be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LogError(pub String);

/// A log. It is trusted for order and delivery alone: it may lose its end, or everything, and come again under another leader.
pub trait Log: Send + Sync + 'static {
    /// Appends a record of at most [`crate::record::BYTES_MAX`]; answers its offset once the log has it as safely as it can. What is appended
    /// to a partition while another append of this process is under way there comes after it, but for one that failed: the call itself
    /// queues. It always answers in the end.
    fn append(&self, slot: SlotNumber, record: Vec<u8>)
    -> Later<'static, Result<u64, AppendError>>;

    /// Delivers what is in a partition from this offset on, in order, until the receiver is dropped. A slot is followed by one at a time.
    /// Where the log cannot be reached nothing comes, and it goes on when it can.
    fn follow(&self, slot: SlotNumber, from: u64) -> mpsc::Receiver<Tail>;

    /// Reads the record at an offset as a leader of this epoch or a later one has it, or of a log that took this one's place.
    ///
    /// # Errors
    /// Where that is not to be had now.
    fn read_back(
        &self,
        slot: SlotNumber,
        offset: u64,
        epoch: i32,
    ) -> Later<'static, Result<RawFound, LogError>>;
}
