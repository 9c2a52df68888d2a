//! What goes into a replica and comes out of it, and what it keeps.

use std::sync::Arc;

use crate::position::{Chain, Generation, NodeId, Position};

/// A record of the log as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Which log it is in: one that is made anew, after the one before was lost, has another number.
    pub log: u64,
    /// Where it is.
    pub offset: u64,
    /// Of the partition's leader that wrote it.
    pub epoch: i32,
    /// Of its bytes.
    pub hash: Chain,
    /// What it is; `None` when its bytes are not what was written.
    pub header: Option<Header>,
}

/// What a record is to a replica, apart from its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The generation that it was written in. What belongs to an earlier one is passed over.
    pub generation: Generation,
    /// What it is.
    pub kind: Kind,
}

/// What a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something for the store.
    Data,
    /// The slot's replicas change, by one node. Without effect unless the change before it is the one at `after`, and a leader of
    /// this epoch wrote it.
    Replicas {
        /// All of them.
        members: Vec<NodeId>,
        /// [`Cursor::replicas_at`] of who wrote it, where that was stable.
        after: u64,
        /// Of a record that was stable there: so no other change, which the log lost, can have been acknowledged by others.
        epoch: i32,
    },
    /// A generation begins.
    Begin(Box<Begin>),
}

/// The start of a generation: the header's generation is a ballot that a majority was sealed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The generation.
    pub generation: Generation,
    /// The state that it goes on from: the latest of a sealed majority.
    pub base: Position,
    /// The replicas at that state.
    pub members: Vec<NodeId>,
}

/// A beginning and where it is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The beginning.
    pub begin: Begin,
    /// In this log.
    pub log: u64,
    /// Its offset.
    pub offset: u64,
    /// Its leader's epoch.
    pub epoch: i32,
    /// Of its bytes.
    pub hash: Chain,
}

/// The last record that was applied: it is looked for again when the log's leader changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    /// Of the leader that wrote it.
    pub epoch: i32,
    /// Of its bytes.
    pub hash: Chain,
}

/// How far a replica is, and what follows from that. It is stored in the batch that applies a record; what seldom changes is shared by
/// the cursors after many records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// How far.
    pub position: Position,
    /// The log that this generation is in.
    pub log: u64,
    /// The record before that; `None` at the start.
    pub last: Option<Last>,
    /// Leaders' epochs, each with the offset of its first record here, oldest first; of this generation, the latest of them.
    pub epochs: Arc<Vec<(i32, u64)>>,
    /// The slot's replicas.
    pub members: Arc<Vec<NodeId>>,
    /// The offset after the last change of them, 0 without one.
    pub replicas_at: u64,
    /// How this generation began; `None` for the first.
    pub begun: Option<Arc<Begun>>,
}

impl Cursor {
    /// A new slot with these replicas.
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

    /// How many replicas are a majority.
    pub fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }
}

/// A promise for who follows the leader of `epoch` from `offset` on, and for nobody who does so from elsewhere. What a leader before
/// that one wrote is not applied at the offset or after it; before it, only what leaders up to `last_epoch` wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// In this generation.
    pub generation: Generation,
    /// The epoch.
    pub epoch: i32,
    /// The offset.
    pub offset: u64,
    /// The chain there, of who asked.
    pub chain: Chain,
    /// The epoch of the record before that, -1 without one.
    pub last_epoch: i32,
}

/// What a replica has promised. It outlives copies of its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// It applies nothing in generations before this one.
    pub sealed: Generation,
    /// What it does not apply.
    pub fences: Vec<Fence>,
}

/// What a replica keeps on disk besides the slot's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Written with the data.
    pub cursor: Cursor,
    /// Written by themselves.
    pub promises: Promises,
}

/// What was found where a record was read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadBackResult {
    /// A record.
    Record(LogRecord),
    /// The log begins after it.
    Trimmed,
    /// The log ends before it.
    BeyondEnd,
}

/// What happens to a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The next record that was asked for.
    Record(LogRecord),
    /// There is no record at the offset that was asked for: the log goes from `start` up to, but not, `end`.
    NoRecord {
        /// Its first offset.
        start: u64,
        /// The offset that the next record will get.
        end: u64,
    },
    /// What [`Output::ReadBack`] asked for.
    ReadBack {
        /// The offset.
        offset: u64,
        /// What is there.
        found: ReadBackResult,
    },
    /// What was given out up to this offset is applied and on disk.
    Applied {
        /// In this generation.
        generation: Generation,
        /// The offset after it.
        next_offset: u64,
    },
    /// From another replica.
    Message {
        /// Who.
        from: NodeId,
        /// What.
        message: Message,
    },
    /// Some time has gone by: what was not answered is asked again.
    Tick,
    /// Somebody wants to read, and gives it a number.
    Read(u64),
    /// What [`Output::ReadNow`] asked for was read, in a store that had everything before this offset.
    WasRead {
        /// Its number.
        read: u64,
        /// The generation that was found there,
        generation: Generation,
        /// and the offset.
        next_offset: u64,
    },
    /// Who wanted these reads, by rising number, does not wait any more.
    GivenUp(Vec<u64>),
    /// An operator wants a new generation.
    Reseed,
    /// Nodes that there are: one that is no replica yet asks them for a copy, too.
    Known(Vec<NodeId>),
    /// The beginning of a generation was appended here, or so the log says.
    Appended {
        /// Of which generation.
        generation: Generation,
        /// Where.
        offset: u64,
    },
    /// The state was replaced by a copy of another replica's; `None`: it was not.
    Copied(Option<Cursor>),
    /// It was not, for what this replica promised ([`super::Replica::may_become`]).
    CopyRefused,
}

/// What a replica wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Deliver records from this offset on, and stop delivering others.
    Fetch {
        /// The offset.
        from: u64,
    },
    /// Read the record at this offset again, from a leader of this epoch or a later one, or from a log that took this one's place.
    ReadBack {
        /// The offset.
        offset: u64,
        /// The epoch.
        epoch: i32,
    },
    /// Write the cursor, and in the same batch, if `data`, what the record that was just given holds. [`Input::Applied`] follows.
    Apply {
        /// The record is for the store.
        data: bool,
        /// The cursor after it.
        cursor: Box<Cursor>,
    },
    /// Have this on disk before what comes after it is done.
    Promise(Promises),
    /// To another replica. May be lost.
    Send {
        /// Whom.
        to: NodeId,
        /// What.
        message: Message,
    },
    /// Append the beginning of a generation to the log.
    Append(Begin),
    /// The store has what a read has to see: read now, keep the result, and say where the store was ([`Input::WasRead`]).
    ReadNow(u64),
    /// What was read then may be shown.
    ReadDone(u64),
    /// A majority has everything before this offset on disk: it may be acknowledged, and shown.
    Stable {
        /// Of this generation.
        generation: Generation,
        /// The offset.
        next_offset: u64,
    },
    /// Replace the state by a copy of this replica's. [`Input::Copied`] follows.
    Copy {
        /// Whose.
        from: NodeId,
    },
    /// It follows the log no further for now.
    Halted(Reason),
}

/// Why a replica does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// What it applied is not what the log holds there.
    #[error(
        "what was applied here is not what the log holds: the log lost records and others took their place"
    )]
    Diverged,
    /// The log ends before what it applied.
    #[error("the log ends before what was applied here: it lost records")]
    Truncated,
    /// It is another log, or an older leader's record came after a newer one's.
    #[error("this is another log than the one that was applied here: it was lost and made anew")]
    Replaced,
    /// Others applied records that the log has lost.
    #[error("a majority of replicas cannot promise that it applied nothing that the log has lost")]
    Ahead,
    /// A record's bytes are not what was written.
    #[error(
        "a record of the log is damaged, or is none of this cluster: `settee cluster reseed` goes on after it"
    )]
    Corrupt,
    /// It lags behind the log's first record.
    #[error("the log begins after what was applied here")]
    Trimmed,
    /// A generation began from a state that it has not.
    #[error("a generation began from a state that is not here")]
    Elsewhere,
}

/// What replicas of a slot say to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// What is on the sender's disk, and up to where it knows a majority to have that.
    Durable {
        /// Its position.
        position: Position,
        /// Up to there.
        stable: u64,
    },
    /// Did you apply anything at this offset or after it that a leader before this epoch wrote? And do not from now on.
    AskFence(Fence),
    /// The answer.
    FenceAnswer {
        /// What was asked for.
        fence: Fence,
        /// It is promised.
        promised: bool,
    },
    /// How far are you?
    AskPosition {
        /// Comes back.
        round: u64,
    },
    /// The answer.
    PositionIs {
        /// Of the question.
        round: u64,
        /// In this generation.
        generation: Generation,
        /// So far.
        next_offset: u64,
    },
    /// Apply nothing any more before this generation begins.
    Seal(Generation),
    /// The answer.
    Sealed {
        /// What was asked.
        ballot: Generation,
        /// Where it stopped.
        position: Position,
        /// The replicas there.
        members: Vec<NodeId>,
    },
    /// The other answer: it is sealed for a later one.
    SealRefused {
        /// The later one.
        sealed: Generation,
    },
    /// A generation began.
    Begun(Box<Begun>),
    /// How did your generation begin?
    AskBegun,
    /// May I replace my state by yours?
    AskCopy {
        /// What would be replaced.
        position: Position,
        /// Generations before this one do not help.
        sealed: Generation,
        /// For so many ticks the sender has not gone on, though it reaches the log; 0 while it only waits for that, or for others.
        waited: u32,
    },
    /// You may, if you are still there.
    CopyGranted {
        /// What was asked about.
        position: Position,
        /// The same.
        sealed: Generation,
    },
}
