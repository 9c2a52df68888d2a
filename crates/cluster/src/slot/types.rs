//! What a slot's driver is given, and what it tells.

use tokio::time::{Duration, Instant};

use crate::log::{Later, SlotNumber};
use crate::position::{Generation, NodeId, Position};
use crate::record::{Body, Stamp};
use crate::replica::{Cursor, Message, Promises, Reason, Saved};

/// Why a store did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no room.
    #[error("the disk is full: {0}")]
    Full(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// What became of the requests of a record, by gateway and counter.
pub type Outcomes<O> = Vec<((u64, u64), O)>;

/// What a slot's state is kept in on this node.
pub trait SlotStore: Send + Sync + 'static {
    /// What became of one request.
    type Outcome: Clone + Send + Sync + 'static;
    /// Another replica's state that was fetched.
    type Copy: StagedCopy;

    /// What is on disk of the replica; `None` when the slot is new here. Asked at the start, and again after a failure once everything
    /// that was queued has been answered.
    ///
    /// # Errors
    /// When it cannot be read.
    fn saved(&self) -> Result<Option<Saved>, StoreError>;

    /// Queues a record's data (`None`: only the cursor) with the cursor after it, to be written in one batch, after everything that was
    /// queued before; called in order, and the call itself queues. It is ready when that is on disk and readers see it; it answers
    /// what became of each request, the first outcome for one that was applied before. **When one fails, those that are queued
    /// behind it fail too**, until [`SlotStore::saved`] was asked.
    fn apply(
        &self,
        body: Option<Body>,
        cursor: &Cursor,
    ) -> Later<'static, Result<Outcomes<Self::Outcome>, StoreError>>;

    /// Writes the promises; ready when they are on disk.
    fn promise(&self, promises: &Promises) -> Later<'static, Result<(), StoreError>>;

    /// How far what readers see is, and no less; generation and next offset count.
    ///
    /// # Errors
    /// When it cannot be read.
    fn position(&self) -> Result<Position, StoreError>;

    /// Fetches another replica's state beside the own one.
    fn copy(&self, from: NodeId) -> Later<'static, Result<Self::Copy, StoreError>>;
}

/// Another replica's state, not yet in the place of the own one. Dropped, it leaves nothing behind.
pub trait StagedCopy: Send + 'static {
    /// How far it is.
    fn cursor(&self) -> &Cursor;

    /// Puts it in the place of the own state, at once or not at all. The own promises stay.
    fn install(self) -> Later<'static, Result<(), StoreError>>;
}

/// How messages reach other replicas. May lose them, never blocks.
pub trait Network: Send + Sync + 'static {
    /// Sends one.
    fn send(&self, to: NodeId, slot: SlotNumber, message: Message);
}

/// What a slot is started with.
#[derive(Clone, Debug)]
pub struct SlotOptions {
    /// Its number.
    pub slot: SlotNumber,
    /// What its records bear.
    pub stamp: Stamp,
    /// This node.
    pub me: NodeId,
    /// A random number.
    pub start: u64,
    /// The replicas of a slot that is new: the same on every node.
    pub genesis: Vec<NodeId>,
    /// After this time what was not answered is asked again.
    pub tick: Duration,
    /// A record that was appended and has not been applied after this time is appended again.
    pub again_after: Duration,
    /// Nothing is proposed while a majority lacks something for longer than this,
    pub lag_time_max: Duration,
    /// or more than so many bytes of records.
    pub lag_bytes_max: u64,
}

impl SlotOptions {
    /// The usual times.
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

/// What a proposal waits for.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// Replicas that have it on disk; `None`: a majority, so that it is there to stay.
    pub copies: Option<usize>,
    /// Until then.
    pub deadline: Instant,
}

/// A request that was applied, by as many replicas as were waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposed<O> {
    /// What became of it.
    pub outcome: O,
    /// Where it is in the log, or where it was repeated.
    pub offset: u64,
    /// Replicas that are known to have it on disk.
    pub copies: usize,
}

/// Why a proposal did not come to what was waited for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError<O> {
    /// It is applied here, and too few other replicas have it: it is there, and may stay.
    #[error("only {copies} replicas are known to have it")]
    TooFew {
        /// What became of it.
        outcome: O,
        /// Replicas that have it on disk.
        copies: usize,
    },
    /// It is not in the log, and will not be.
    #[error("the slot takes no writes now: {0}")]
    NotNow(String),
    /// Nor is this: this node's disk is full.
    #[error("the disk is full: {0}")]
    Full(String),
    /// Nor is this: too much is on its way to the others.
    #[error("a majority of the slot's replicas is too far behind")]
    Behind,
    /// Nobody knows whether it is, or will be, applied. The same request may be proposed again.
    #[error("it is not known whether it was applied")]
    Unknown,
    /// The slot was stopped; it is not known either.
    #[error("the slot was stopped")]
    Stopped,
}

/// Why the replicas of a slot were not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Replicas are changed one by one.
    #[error("the replicas change by one node at a time")]
    NotOne,
    /// It came to nothing before its time was over. It may happen yet.
    #[error("the slot's replicas were not changed: {0}")]
    NotNow(String),
}

/// Why there is nothing to be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// What would be shown is not known to be the latest, or to be there to stay.
    #[error("the slot cannot be read now: {0}")]
    NotNow(String),
    /// The store does not say where it is.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The slot was stopped.
    #[error("the slot was stopped")]
    Stopped,
}

/// Everything before this is on the disks of a majority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stable {
    /// Of the log.
    pub generation: Generation,
    /// The offset after it.
    pub next_offset: u64,
}

/// How a slot is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotStatus {
    /// How far it is on disk.
    pub position: Position,
    /// A majority has everything before this offset of its generation, as far as is known here.
    pub stable: u64,
    /// The slot's replicas.
    pub members: Vec<NodeId>,
    /// Up to where each replica is known to have everything.
    pub durable: Vec<(NodeId, u64)>,
    /// Why it does not go on.
    pub halted: Option<Reason>,
    /// It waits for a new generation, and applies nothing before it begins.
    pub sealed: bool,
    /// It takes writes.
    pub proposes: bool,
    /// The offset that the log's next record gets, as far as is known here.
    pub log_end: Option<u64>,
    /// What went wrong last: a record that is none, the store, a copy, the log.
    pub error: Option<String>,
    /// The store fails: there is nothing to be read here, nor is anything applied, until that is over.
    pub store_fails: bool,
    /// There is no room: nothing is applied until that is over.
    pub is_full: bool,
    /// Proposals that wait.
    pub proposals: usize,
    /// Reads that wait.
    pub reads: usize,
}
