//! The commit queue: everybody's edits are drained by one writer into one batch and one fsync.
//!
//! The writer is a thread. Where nobody else writes, a thread that may do so ([`commit_on_this_thread`]) is the writer for its own edit: it
//! need not wake another one, and be woken by it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;

use document::Rev;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::Error;
use crate::engine::Engine;
use crate::limits::Limits;
use crate::shard::Shard;
use crate::slot::{Installation, SlotNumber, SlotOutcome, SlotWrite};

mod op;
mod piece;
mod queue;
mod writer;

pub use op::{Edited, Put, ShardEdit, ShardPurge, Timing};

use op::Op;
use queue::Queue;
use writer::Writer;

/// What a commit did to a shard.
pub struct Written<'a> {
    /// The shard.
    pub shard: &'a Arc<Shard>,
    /// Its seq after the commit.
    pub update_seq: u64,
    /// A design document is among what changed.
    pub designs: bool,
}

/// Called after each commit for each shard written, before the writes are acknowledged; must be quick.
pub type OnCommit = Box<dyn Fn(&Written<'_>) + Send + Sync>;

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    counters: Counters,
    /// A thread panicked while it wrote: what the writer knows may be wrong.
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

/// The queue's front end.
pub struct Committer {
    shared: Arc<Shared>,
    /// Whoever holds it commits. What is in the queue is taken out of it by who holds it, so that everything is written in its order.
    writer: Arc<Mutex<Writer>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

thread_local! {
    static COMMITS: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread writes an edit itself when nobody else writes, and waits for the disk meanwhile. Not for threads of a low
/// priority: others would wait for them.
pub fn commit_on_this_thread() {
    COMMITS.set(true);
}

/// Longer edits are left to the thread, in bytes.
const OWN_BYTES_MAX: usize = 64 << 10;

impl Committer {
    /// Starts the writing thread. `reserve_bytes` of the disk stay free; `on_commit` is called on the thread that commits.
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

    /// What was written since the start.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Whether the writer ended before the store was closed.
    pub(crate) fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Relaxed)
    }

    /// Requests that wait to be taken into a batch.
    pub fn queue_length(&self) -> usize {
        self.shared.queue.lock().len()
    }

    /// Queues edits; the outcomes come in their order. Many edits are written in several batches, in their order, and answered
    /// after the last one: others may write between them, and after a crash the first ones may be there alone.
    pub fn edit(
        &self,
        edits: Vec<ShardEdit>,
        limits: Limits,
        synced: bool,
    ) -> oneshot::Receiver<Result<Edited, Error>> {
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

    /// Queues purges; the revisions removed come in their order.
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

    /// Queues a write of a slot, which is on disk when it is answered; one outcome a request, in their order. Writes of one slot may be queued
    /// one after another: each goes on from the one before.
    ///
    /// Nothing of it is written, the position neither, when it fails: with [`Error::SlotPosition`] when it does not go on from where the
    /// slot is, with [`Error::DiskFull`], [`Error::Dropped`], [`Error::Corrupt`] or [`Error::Engine`] when this machine cannot apply it. Writes that were
    /// queued after it fail then, too.
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

    /// Queues a slot's copy to be put in its place.
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

    /// Queues puts about a database; they fail once it is dropped, so that none brings its record back.
    pub fn put_for(
        &self,
        shard: Arc<Shard>,
        puts: Vec<Put>,
    ) -> oneshot::Receiver<Result<(), Error>> {
        self.push_put(puts, Some((shard, 0)), vec![], true)
    }

    /// The same, on disk with a later write.
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

    /// Forgets the oldest purges beyond the last `keep`, some of them at a time.
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

    /// Resolves once everything that was answered before is on disk.
    pub fn sync(&self) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, rx) = oneshot::channel();
        self.push(Op::Sync { reply });
        rx
    }

    /// Saves the summaries of shards that are about to be let go, so that they need not be replayed when they are opened again.
    pub fn save(&self, shards: Vec<Arc<Shard>>) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, rx) = oneshot::channel();
        self.push(Op::Save { shards, reply });
        rx
    }

    /// Commits at once if nobody else is about to, and the disk was quick just before.
    fn commit_or_push(&self, op: Op) {
        if op.bytes() > OWN_BYTES_MAX || !op.is_of_loaded_shards() {
            return self.push(op);
        }
        let queue = self.shared.queue.lock();
        let is_free = queue.is_empty() && !queue.closed;
        // Under the queue's lock: what is queued from here on comes after it.
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

    /// Writes what is queued, saves the summaries, flushes, and stops.
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

/// When the writer ends, in order or by a panic, nobody waits for it in vain.
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

/// The same for whoever writes at the moment, if it panics. Dropped before the writer is let go, so that nobody goes on with what it knows.
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
