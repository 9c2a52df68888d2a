//! The interface of a slot's driver: its store, network, options, status and errors.

use tokio::time::{Duration, Instant};

use crate::log::{BoxFuture, SlotNumber};
use crate::position::{Generation, NodeId, Position};
use crate::record::{Body, Stamp};
use crate::replica::{Cursor, DurableState, Message, Promises, Reason};

/// The reason why a store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The disk is full.
    #[error("the disk is full: {0}")]
    Full(String),
    /// A record names a content that this node lacks, and that no node in reach has.
    #[error("{text}")]
    Lacking {
        /// A description for people.
        text: String,
        /// A majority of the slot's replicas reported that they lack it.
        by_majority: bool,
    },
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// The outcomes of a record's requests, by gateway and counter.
pub type Outcomes<O> = Vec<((u64, u64), O)>;

/// The store of a slot's state on this node.
pub trait SlotStore: Send + Sync + 'static {
    /// The outcome of one request.
    type Outcome: Clone + Send + Sync + 'static;
    /// A fetched state of another replica.
    type Copy: StagedCopy;

    /// Returns the replica's durable state; `None` for a new slot. Called at the start, and again
    /// after a failure once everything queued has been answered.
    ///
    /// # Errors
    /// It cannot be read.
    fn saved(&self) -> Result<Option<DurableState>, StoreError>;

    /// Queues a record's data (`None`: only the cursor) with the cursor after it, to be written in
    /// one batch, after everything queued before; called in order, and the call itself queues. The
    /// future completes when the batch is on disk and readers see it, with the outcome of each
    /// request, the first one for a request that was applied before. **When one fails, those queued
    /// behind it fail too**, until [`SlotStore::saved`] is called.
    ///
    /// **A record is only written with all contents that the state after it needs**: what is applied
    /// counts. So the store fetches contents that it lacks first, and fails with
    /// [`StoreError::Lacking`] if no node in reach has one.
    fn apply(
        &self,
        body: Option<Body>,
        cursor: &Cursor,
    ) -> BoxFuture<'static, Result<Outcomes<Self::Outcome>, StoreError>>;

    /// Writes the promises; completes when they are on disk.
    fn promise(&self, promises: &Promises) -> BoxFuture<'static, Result<(), StoreError>>;

    /// Returns exactly the position that readers see; generation and next offset count.
    ///
    /// # Errors
    /// It cannot be read.
    fn position(&self) -> Result<Position, StoreError>;

    /// Fetches another replica's state without touching the local one.
    fn copy(&self, from: NodeId) -> BoxFuture<'static, Result<Self::Copy, StoreError>>;
}

/// Another replica's state that is not installed yet. Dropping it leaves nothing behind.
pub trait StagedCopy: Send + 'static {
    /// Returns its cursor.
    fn cursor(&self) -> &Cursor;

    /// Replaces the local state, atomically. The local promises stay.
    fn install(self) -> BoxFuture<'static, Result<(), StoreError>>;
}

/// Sends messages to other replicas. May lose them, never blocks.
pub trait Network: Send + Sync + 'static {
    /// Sends a message.
    fn send(&self, to: NodeId, slot: SlotNumber, message: Message);
}

/// The options of a slot.
#[derive(Clone, Debug)]
pub struct SlotOptions {
    /// Its number.
    pub slot: SlotNumber,
    /// The stamp of its records.
    pub stamp: Stamp,
    /// This node.
    pub me: NodeId,
    /// A random number.
    pub start: u64,
    /// The replicas of a new slot: the same on every node.
    pub genesis: Vec<NodeId>,
    /// Interval after which unanswered questions are repeated.
    pub tick: Duration,
    /// Time after which an appended record that was not applied is appended again.
    pub again_after: Duration,
    /// Nothing is proposed while a majority lacks something for longer than this.
    pub lag_time_max: Duration,
    /// Nothing is proposed while a majority lacks more bytes of records than this.
    pub lag_bytes_max: u64,
}

impl SlotOptions {
    /// Returns options with default times.
    pub fn new(stamp: Stamp, me: NodeId, start: u64, genesis: Vec<NodeId>) -> SlotOptions {
        SlotOptions {
            slot: stamp.slot,
            stamp,
            me,
            start,
            genesis,
            tick: Duration::from_millis(200),
            again_after: Duration::from_secs(1),
            lag_time_max: Duration::from_secs(10),
            lag_bytes_max: 64 << 20,
        }
    }
}

/// The condition that a proposal waits for.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// The number of replicas that must have it on disk; `None`: a majority, so that it is stable.
    pub copies: Option<usize>,
    /// The deadline.
    pub deadline: Instant,
}

/// A request that was applied by the required number of replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposalOutcome<O> {
    /// Its outcome.
    pub outcome: O,
    /// Its offset in the log, or that of its repetition.
    pub offset: u64,
    /// The number of replicas known to have it on disk.
    pub copies: usize,
}

/// The reason why a proposal did not reach its condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError<O> {
    /// It is applied here, but on too few other replicas: it is visible, and may be kept.
    #[error("only {copies} replicas are known to have it")]
    TooFew {
        /// Its outcome.
        outcome: O,
        /// The number of replicas that have it on disk.
        copies: usize,
    },
    /// It is not in the log, and never will be.
    #[error("the slot accepts no writes now: {0}")]
    NotNow(String),
    /// Not in the log either: this node's disk is full.
    #[error("the disk is full: {0}")]
    Full(String),
    /// Not in the log either: too much is pending for the other replicas.
    #[error("a majority of the slot's replicas is too far behind")]
    Behind,
    /// The outcome is unknown: it may be applied, now or later. The same request may be proposed
    /// again.
    #[error("the outcome is unknown: it may have been applied")]
    Unknown,
    /// The slot was stopped; the outcome is unknown.
    #[error("the slot was stopped")]
    Stopped,
}

/// The reason why the replicas of a slot were not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Replicas are changed one at a time.
    #[error("the replicas change by one node at a time")]
    NotOne,
    /// It did not happen in time. It may still happen.
    #[error("the slot's replicas were not changed: {0}")]
    NotNow(String),
}

/// The reason why nothing can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The state is not known to be the latest, or to be stable.
    #[error("the slot cannot be read now: {0}")]
    NotNow(String),
    /// The store's position cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The slot was stopped.
    #[error("the slot was stopped")]
    Stopped,
}

/// Everything before this offset is on the disks of a majority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StableOffset {
    /// The generation of the log.
    pub generation: Generation,
    /// The offset after it.
    pub next_offset: u64,
}

/// The status of a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotStatus {
    /// The durable position.
    pub position: Position,
    /// The number of the log that contains the generation of the position.
    pub log: u64,
    /// A majority is known to have everything before this offset of its generation.
    pub stable: u64,
    /// The slot's replicas.
    pub members: Vec<NodeId>,
    /// The offset up to which each replica is known to have everything.
    pub durable: Vec<(NodeId, u64)>,
    /// Why it does not advance.
    pub halted: Option<Reason>,
    /// It waits for a new generation, and applies nothing before that starts.
    pub sealed: bool,
    /// It accepts writes.
    pub proposes: bool,
    /// The offset of the log's next record, as far as is known here.
    pub log_end: Option<u64>,
    /// The end of the log, from the log or from other replicas, which may reach it when this node
    /// does not.
    pub end: u64,
    /// When the oldest record was first seen that this replica lacks.
    pub behind_since: Option<Instant>,
    /// The last error: an invalid record, the store, a copy, the log.
    pub error: Option<String>,
    /// The store fails: nothing can be read here, and nothing is applied, until it recovers.
    pub store_fails: bool,
    /// The disk is full: nothing is applied until that is over.
    pub is_full: bool,
    /// Waiting proposals.
    pub proposals: usize,
    /// Waiting reads.
    pub reads: usize,
}
