//! Inputs, outputs and durable state of a replica.

use std::sync::Arc;

use crate::position::{Chain, Generation, NodeId, Position};

/// A record as it was read from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The number of the log: a log that was recreated after a loss has another number.
    pub log: u64,
    /// Its offset.
    pub offset: u64,
    /// The epoch of the partition leader that wrote it.
    pub epoch: i32,
    /// Hash of its bytes.
    pub hash: Chain,
    /// Its header; `None` when its bytes are damaged.
    pub header: Option<Header>,
}

/// The part of a record that a replica needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The generation that it was written in. Records of an earlier one are skipped.
    pub generation: Generation,
    /// Its kind.
    pub kind: Kind,
}

/// The kind of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data for the store.
    Data,
    /// A change of the slot's replicas by one node. It has no effect unless the change before it is
    /// the one at `after`, and a leader of this epoch wrote it.
    Replicas {
        /// All of them.
        members: Vec<NodeId>,
        /// [`Cursor::replicas_at`] of its writer, where that was stable.
        after: u64,
        /// The epoch of a record that was stable there: so no other change, which the log lost, can
        /// have been acknowledged by others.
        epoch: i32,
    },
    /// The start of a generation.
    Begin(Box<GenerationStart>),
}

/// The start of a generation: the header's generation is a ballot that a majority was sealed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerationStart {
    /// The generation.
    pub generation: Generation,
    /// The state from which it continues: the latest of a sealed majority.
    pub base: Position,
    /// The replicas at that state.
    pub members: Vec<NodeId>,
}

/// The start of a generation and its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerationStartRecord {
    /// The start.
    pub begin: GenerationStart,
    /// The number of its log.
    pub log: u64,
    /// Its offset.
    pub offset: u64,
    /// Its leader's epoch.
    pub epoch: i32,
    /// Hash of its bytes.
    pub hash: Chain,
}

/// The last applied record: it is looked for again when the log's leader changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRecord {
    /// The epoch of the leader that wrote it.
    pub epoch: i32,
    /// Hash of its bytes.
    pub hash: Chain,
}

/// The position of a replica, and what follows from it. It is stored in the batch that applies a
/// record; the cursors of many records share what seldom changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The position.
    pub position: Position,
    /// The log that contains this generation.
    pub log: u64,
    /// The record before the position; `None` at the start.
    pub last: Option<LastRecord>,
    /// Leader epochs, each with the offset of its first record here, oldest first; the latest ones
    /// of this generation.
    pub epochs: Arc<Vec<(i32, u64)>>,
    /// The slot's replicas.
    pub members: Arc<Vec<NodeId>>,
    /// The offset after their last change, 0 without one.
    pub replicas_at: u64,
    /// How this generation started; `None` for the first.
    pub begun: Option<Arc<GenerationStartRecord>>,
}

impl Cursor {
    /// Returns the cursor of a new slot with these replicas.
    pub fn start(members: Vec<NodeId>) -> Cursor {
        Cursor {
            position: Position::start(),
            log: 0,
            last: None,
            epochs: Arc::default(),
            members: Arc::new(members),
            replicas_at: 0,
            begun: None,
        }
    }

    /// Returns the number of replicas in a majority.
    pub fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }
}

/// A promise to a node that follows the leader of `epoch` from `offset` on, and to none that does
/// so from elsewhere. Records of an earlier leader are not applied at the offset or after it;
/// before it, only records of leaders up to `last_epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The generation.
    pub generation: Generation,
    /// The epoch.
    pub epoch: i32,
    /// The offset.
    pub offset: u64,
    /// The chain there, of the node that asked.
    pub chain: Chain,
    /// The epoch of the record before that, -1 without one.
    pub last_epoch: i32,
}

/// The promises of a replica. They outlive copies of its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// It applies nothing in generations before this one.
    pub sealed: Generation,
    /// Records that it does not apply.
    pub fences: Vec<Fence>,
}

/// A replica's durable state besides the slot's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableState {
    /// Written with the data.
    pub cursor: Cursor,
    /// Written separately.
    pub promises: Promises,
}

/// The result of reading a record again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadBackResult {
    /// A record.
    Record(LogRecord),
    /// The log starts after it.
    Trimmed,
    /// The log ends before it.
    BeyondEnd,
}

/// An input of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The next requested record.
    Record(LogRecord),
    /// There is no record at the requested offset: the log holds offsets from `start` to `end`
    /// (exclusive).
    NoRecord {
        /// Its first offset.
        start: u64,
        /// The offset that the next record will get.
        end: u64,
    },
    /// The result of [`Output::ReadBack`].
    ReadBack {
        /// The offset.
        offset: u64,
        /// The result.
        found: ReadBackResult,
    },
    /// Everything handed out up to this offset is applied and on disk.
    Applied {
        /// In this generation.
        generation: Generation,
        /// The offset after it.
        next_offset: u64,
    },
    /// A message from another replica.
    Message {
        /// The sender.
        from: NodeId,
        /// The message.
        message: Message,
    },
    /// Time has passed: unanswered questions are repeated.
    Tick,
    /// A read, under the caller's number.
    Read(u64),
    /// The read of [`Output::ReadNow`] is done, in a store that had everything before this offset.
    WasRead {
        /// Its number.
        read: u64,
        /// The generation of the store.
        generation: Generation,
        /// The offset of the store.
        next_offset: u64,
    },
    /// These reads, by ascending number, were given up.
    GivenUp(Vec<u64>),
    /// An operator requests a new generation.
    Reseed,
    /// The existing nodes: one that is not a replica yet also requests a copy from them.
    Known(Vec<NodeId>),
    /// The start of a generation was appended here, according to the log.
    Appended {
        /// The generation.
        generation: Generation,
        /// Its offset.
        offset: u64,
    },
    /// The state was replaced by a copy of another replica's; `None`: it was not.
    Copied(Option<Cursor>),
    /// It was not, because of this replica's promises ([`super::Replica::may_become`]).
    CopyRefused,
    /// The next record names contents that this node lacks; a majority has reported for this number of
    /// ticks that it lacks them.
    Lacking(u32),
}

/// An output of a replica, to be carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Deliver records from this offset on, and stop delivering others.
    Fetch {
        /// The offset.
        from: u64,
    },
    /// Read the record at this offset again, from a leader of this epoch or a later one, or from a
    /// log that replaced this one.
    ReadBack {
        /// The offset.
        offset: u64,
        /// The epoch.
        epoch: i32,
    },
    /// Write the cursor, and in the same batch, if `data`, the contents of the record that was just
    /// given. [`Input::Applied`] follows.
    Apply {
        /// The record contains data for the store.
        data: bool,
        /// The cursor after it.
        cursor: Box<Cursor>,
    },
    /// Write this to disk before carrying out later outputs.
    Promise(Promises),
    /// Send to another replica. May be lost.
    Send {
        /// The recipient.
        to: NodeId,
        /// The message.
        message: Message,
    },
    /// Append the start of a generation to the log.
    Append(GenerationStart),
    /// The store has everything that a read has to see: read now, keep the result, and report the
    /// store's position ([`Input::WasRead`]).
    ReadNow(u64),
    /// The result of that read may be returned.
    ReadDone(u64),
    /// A majority has everything before this offset on disk: it may be acknowledged, and shown.
    Stable {
        /// In this generation.
        generation: Generation,
        /// The offset.
        next_offset: u64,
    },
    /// Replace the state by a copy of this replica's. [`Input::Copied`] follows.
    Copy {
        /// The source.
        from: NodeId,
    },
    /// It does not follow the log further for now.
    Halted(Reason),
}

/// The reason why a replica does not advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Its applied records differ from the log's records there.
    #[error(
        "the records applied here differ from the log's: the log lost records and others took their place"
    )]
    Diverged,
    /// The log ends before what it applied.
    #[error("the log ends before the position applied here: it lost records")]
    Truncated,
    /// It is another log, or an older leader's record arrived after a newer one's.
    #[error("this is another log than the one applied here: it was lost and created again")]
    Replaced,
    /// Others applied records that the log has lost.
    #[error("a majority of replicas cannot promise that it applied nothing that the log has lost")]
    Ahead,
    /// The bytes of a record are damaged.
    #[error(
        "a record of the log is damaged, or belongs to another cluster: `settee cluster reseed` continues after it"
    )]
    Corrupt,
    /// It lags behind the log's first record.
    #[error("the log starts after the position applied here")]
    Trimmed,
    /// A record names contents that a majority lacks.
    #[error(
        "the next record names an attachment that this node lacks, and most nodes report that they lack it: the slot is copied, or the record is left out"
    )]
    Lacking,
    /// A generation started from a state that it does not have.
    #[error("a generation started from a state that this replica does not have")]
    Elsewhere,
}

/// A message between replicas of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The sender's durable position, and the offset up to which it knows a majority to have it.
    Durable {
        /// Its position.
        position: Position,
        /// That offset.
        stable: u64,
    },
    /// Asks whether the recipient applied, at this offset or after it, anything that a leader
    /// before this epoch wrote, and asks it to promise not to.
    AskFence(Fence),
    /// The answer.
    FenceAnswer {
        /// The fence asked about.
        fence: Fence,
        /// Whether it is promised.
        promised: bool,
    },
    /// Requests the recipient's position.
    AskPosition {
        /// Returned in the answer.
        round: u64,
    },
    /// The answer.
    PositionIs {
        /// The round of the question.
        round: u64,
        /// The generation.
        generation: Generation,
        /// The position.
        next_offset: u64,
    },
    /// Asks the recipient to apply nothing more before this generation starts.
    Seal(Generation),
    /// The answer.
    Sealed {
        /// The ballot of the question.
        ballot: Generation,
        /// The position where it stopped.
        position: Position,
        /// The replicas at that position.
        members: Vec<NodeId>,
    },
    /// The negative answer: it is sealed for a later one.
    SealRefused {
        /// The later ballot.
        sealed: Generation,
    },
    /// A generation started.
    Begun(Box<GenerationStartRecord>),
    /// Asks how the recipient's generation started.
    AskBegun,
    /// Asks whether the sender may replace its state by the recipient's.
    AskCopy {
        /// The state to replace.
        position: Position,
        /// Earlier generations do not help.
        sealed: Generation,
        /// Ticks for which the sender has not advanced, though it reaches the log; 0 while it only
        /// waits for the log, or for others.
        waited: u32,
    },
    /// Grants a copy, if the sender of the question is still at that position.
    CopyGranted {
        /// The position of the question.
        position: Position,
        /// The ballot of the question.
        sealed: Generation,
    },
}
