//! The commit queue: one writer drains the edits of all requests into one batch and one fsync.
//!
//! The writer is a thread. Where nothing else is being written, a thread that may do so
//! ([`commit_on_this_thread`]) is the writer of its own edit: this saves waking another thread, and
//! being woken by it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;

use document::{Principal, Rev};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::Error;
use crate::engine::Engine;
use crate::limits::Limits;
use crate::shard::Shard;
use crate::slot::{Installation, SlotNumber, SlotOutcome, SlotWrite};

mod copy_time;
mod op;
mod piece;
mod queue;
mod writer;

pub use op::{EditOutcomes, Put, ShardEdit, ShardPurge, Timing};

use op::Op;
use queue::Queue;
use writer::Writer;

/// The effect of a commit on a shard.
pub struct ShardCommit<'a> {
    /// The shard.
    pub shard: &'a Arc<Shard>,
    /// Its seq after the commit.
    pub update_seq: u64,
    /// Whether a design document changed.
    pub designs: bool,
    /// The principals whose feeds have new rows, in a shard with access. They may be repeated.
    pub principals: &'a [Principal],
}

/// Called after each commit for each shard written, before the writes are acknowledged; must be
/// fast.
pub type OnCommit = Box<dyn Fn(&ShardCommit<'_>) + Send + Sync>;

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    counters: Counters,
    /// A thread panicked while it wrote: the writer's state may be wrong.
    has_failed: AtomicBool,
}

/// Totals since the start.
#[derive(Default)]
pub struct Counters {
    /// Batches written.
    pub batches: std::sync::atomic::AtomicU64,
    /// Requests in them.
    pub requests: std::sync::atomic::AtomicU64,
    /// Edits in those.
    pub edits: std::sync::atomic::AtomicU64,
}

/// The front end of the queue.
pub struct Committer {
    shared: Arc<Shared>,
    /// The holder commits. Only the holder takes from the queue, so that everything is written in
    /// its order.
    writer: Arc<Mutex<Writer>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

thread_local! {
    static COMMITS: Cell<bool> = const { Cell::new(false) };
}

/// Lets this thread write its own edits when nothing else is being written, and wait for the disk
/// meanwhile. Not for low-priority threads: others would wait for them.
pub fn commit_on_this_thread() {
    COMMITS.set(true);
}

/// Longer edits are left to the writer thread, in bytes.
const OWN_BYTES_MAX: usize = 64 << 10;

impl Committer {
    /// Starts the writer thread. `reserve_bytes` of the disk stay free; `on_commit` is called on
    /// the committing thread.
    pub fn start(
        engine: Arc<Engine>,
        reserve_bytes: u64,
        on_commit: OnCommit,
    ) -> std::io::Result<Committer> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            arrived: Condvar::new(),
            counters: Counters::default(),
            has_failed: AtomicBool::new(false),
        });
        let writer = Writer::new(shared.clone(), engine, reserve_bytes, on_commit);
        let writer = Arc::new(Mutex::new(writer));
        let handle = {
            let (shared, writer) = (shared.clone(), writer.clone());
            let thread = std::thread::Builder::new().name("commit".into());
            thread.spawn(move || writer::run(&shared, &writer))?
        };
        Ok(Committer {
            shared,
            writer,
            thread: Mutex::new(Some(handle)),
        })
    }

    /// Returns totals since the start.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Returns whether the writer ended before the store was closed.
    pub(crate) fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Relaxed)
    }

    /// Returns the number of requests that wait for a batch.
    pub fn queue_length(&self) -> usize {
        self.shared.queue.lock().len()
    }

    /// Queues edits; the outcomes are in the same order. Many edits are written in several batches,
    /// in order, and answered after the last one: other writes may come in between, and after a
    /// crash only the first ones may exist.
    pub fn edit(
        &self,
        edits: Vec<ShardEdit>,
        limits: Limits,
        synced: bool,
    ) -> oneshot::Receiver<Result<EditOutcomes, Error>> {
        let (reply, rx) = oneshot::channel();
        let op = Op::Edits {
            bytes: edits.iter().map(ShardEdit::bytes).sum(),
            done: Vec::new(),
            edits,
            limits,
            synced,
            queued: Instant::now(),
            reply,
        };
        if synced && COMMITS.get() {
            self.commit_or_push(op);
        } else {
            self.push(op);
        }
        rx
    }

    /// Queues purges; the removed revisions are in the same order.
    pub fn purge(
        &self,
        purges: Vec<ShardPurge>,
        limits: Limits,
    ) -> oneshot::Receiver<Result<Vec<Vec<Rev>>, Error>> {
        let (reply, rx) = oneshot::channel();
        self.push(Op::Purge {
            purges,
            done: Vec::new(),
            limits,
            reply,
        });
        rx
    }

    /// Queues a write of a slot, which is on disk when it is answered, with one outcome per
    /// request, in order. Writes of one slot may be queued one after another: each continues from
    /// the one before.
    ///
    /// If it fails, nothing of it is written, not even the position: with [`Error::SlotPosition`]
    /// when it does not continue from the slot's position, with [`Error::DiskFull`],
    /// [`Error::Dropped`], [`Error::Corrupt`] or [`Error::Engine`] when this machine cannot apply
    /// it. Writes that were queued after it fail then, too.
    pub fn apply_slot(
        &self,
        write: SlotWrite,
    ) -> oneshot::Receiver<Result<Vec<SlotOutcome>, Error>> {
        let (reply, rx) = oneshot::channel();
        let write = Box::new(write);
        self.push(Op::Slot { write, reply });
        rx
    }

    /// Queues the removal of a slot's rows.
    pub(crate) fn drop_slot(&self, slot: SlotNumber) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, rx) = oneshot::channel();
        self.push(Op::DropSlot { slot, reply });
        rx
    }

    /// Queues the installation of a slot's copy.
    pub(crate) fn install(
        &self,
        installation: Installation,
    ) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, rx) = oneshot::channel();
        let installation = Box::new(installation);
        self.push(Op::Install {
            installation,
            reply,
        });
        rx
    }

    /// Queues plain puts, applied together.
    pub fn put(&self, puts: Vec<Put>) -> oneshot::Receiver<Result<(), Error>> {
        self.push_put(puts, None, vec![], true)
    }

    /// Queues puts about a database; they fail once it is dropped, so that none recreates its
    /// record.
    pub fn put_for(
        &self,
        shard: Arc<Shard>,
        puts: Vec<Put>,
    ) -> oneshot::Receiver<Result<(), Error>> {
        self.push_put(puts, Some((shard, 0)), vec![], true)
    }

    /// Queues puts about a database that are on disk with a later write.
    pub(crate) fn put_for_later(
        &self,
        shard: Arc<Shard>,
        puts: Vec<Put>,
    ) -> oneshot::Receiver<Result<(), Error>> {
        self.push_put(puts, Some((shard, 0)), vec![], false)
    }

    pub(crate) fn put_dropping(
        &self,
        puts: Vec<Put>,
        shards: Vec<Arc<Shard>>,
    ) -> oneshot::Receiver<Result<(), Error>> {
        self.push_put(puts, None, shards, true)
    }

    pub(crate) fn put_compacted(
        &self,
        puts: Vec<Put>,
        shard: Arc<Shard>,
        rows: u64,
    ) -> oneshot::Receiver<Result<(), Error>> {
        self.push_put(puts, Some((shard, rows)), vec![], false)
    }

    /// Removes the oldest purges beyond the last `keep`, some of them at a time.
    pub(crate) fn trim_purges(
        &self,
        shard: Arc<Shard>,
        keep: u64,
    ) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, rx) = oneshot::channel();
        self.push(Op::TrimPurges { shard, keep, reply });
        rx
    }

    /// Removes the time bins of a shard.
    pub fn reset_time_seq(&self, shard: Arc<Shard>) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, rx) = oneshot::channel();
        self.push(Op::ResetTimeSeq { shard, reply });
        rx
    }

    fn push_put(
        &self,
        puts: Vec<Put>,
        compacted: Option<(Arc<Shard>, u64)>,
        dropped: Vec<Arc<Shard>>,
        synced: bool,
    ) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, rx) = oneshot::channel();
        self.push(Op::Put {
            puts,
            compacted,
            dropped,
            synced,
            reply,
        });
        rx
    }

    /// Resolves once everything answered before is on disk.
    pub fn sync(&self) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, rx) = oneshot::channel();
        self.push(Op::Sync { reply });
        rx
    }

    /// Saves the summaries of shards that are about to be closed, so that they need not be replayed
    /// when they are reopened.
    pub fn save(&self, shards: Vec<Arc<Shard>>) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, rx) = oneshot::channel();
        self.push(Op::Save { shards, reply });
        rx
    }

    /// Commits immediately if nothing else is about to be written, and the disk was fast just
    /// before.
    fn commit_or_push(&self, op: Op) {
        if op.bytes() > OWN_BYTES_MAX || !op.is_of_loaded_shards() || op.has_long_records() {
            return self.push(op);
        }
        let queue = self.shared.queue.lock();
        let is_free = queue.is_empty() && !queue.closed;
        // Under the queue's lock: whatever is queued from here on comes after it.
        let writer = is_free.then(|| self.writer.try_lock()).flatten();
        drop(queue);
        match writer {
            Some(mut writer) if writer.is_quick() => {
                let _fail_the_rest = FailOnPanic(&self.shared);
                writer.commit_one(op);
            }
            writer => {
                drop(writer);
                self.push(op);
            }
        }
    }

    fn push(&self, op: Op) {
        let mut queue = self.shared.queue.lock();
        if queue.closed {
            drop(queue);
            return op.fail(Error::Closed);
        }
        queue.push(op);
        self.shared.arrived.notify_one();
    }

    /// Writes the queue, saves the summaries, flushes, and stops.
    pub fn close(&self) {
        self.shared.queue.lock().closed = true;
        self.shared.arrived.notify_one();
        if let Some(handle) = self.thread.lock().take()
            && handle.join().is_err()
        {
            tracing::error!("the commit thread had panicked");
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.close();
    }
}

/// When the writer ends, normally or by a panic, fails the waiting requests.
struct FailOnExit<'a>(&'a Shared);

impl Drop for FailOnExit<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.closed = true;
        let ops = queue.take_all();
        drop(queue);
        for op in ops {
            op.fail(Error::Closed);
        }
    }
}

/// Fails the waiting requests if a committing thread panics. Dropped before the writer's lock is
/// released, so that no thread continues with its state.
struct FailOnPanic<'a>(&'a Shared);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.has_failed.store(true, Relaxed);
            drop(FailOnExit(self.0));
            self.0.arrived.notify_one();
        }
    }
}
