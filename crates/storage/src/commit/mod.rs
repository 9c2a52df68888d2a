//! The commit queue: everybody's edits are drained by one writer into one batch and one fsync.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use document::Rev;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::Error;
use crate::batch::Limits;
use crate::engine::Engine;
use crate::shard::Shard;
use crate::slot::{Installation, SlotNumber, SlotOutcome, SlotWrite};

mod op;
mod writer;

pub use op::{Edited, Put, ShardEdit, ShardPurge, Timing};

use op::Op;
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

#[derive(Default)]
struct Queue {
    ops: Vec<Op>,
    closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    counters: Counters,
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
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Committer {
    /// Starts the writing thread. `reserve_bytes` of the disk stay free; `on_commit` is called on that thread.
    pub fn start(
        engine: Arc<Engine>,
        reserve_bytes: u64,
        on_commit: OnCommit,
    ) -> std::io::Result<Committer> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            arrived: Condvar::new(),
            counters: Counters::default(),
        });
        let writer = Writer::new(shared.clone(), engine, reserve_bytes, on_commit);
        let handle = std::thread::Builder::new()
            .name("commit".into())
            .spawn(move || writer.run())?;
        Ok(Committer {
            shared,
            writer: Mutex::new(Some(handle)),
        })
    }

    /// What was written since the start.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Requests that wait to be taken into a batch.
    pub fn queue_length(&self) -> usize {
        self.shared.queue.lock().ops.len()
    }

    /// Queues edits; the outcomes come in their order.
    pub fn edit(
        &self,
        edits: Vec<ShardEdit>,
        limits: Limits,
        synced: bool,
    ) -> oneshot::Receiver<Result<Edited, Error>> {
        let (reply, rx) = oneshot::channel();
        self.push(Op::Edits {
            edits,
            limits,
            synced,
            queued: Instant::now(),
            reply,
        });
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

    /// Resolves once everything queued before is on disk.
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

    fn push(&self, op: Op) {
        let mut queue = self.shared.queue.lock();
        if queue.closed {
            drop(queue);
            return op.fail(Error::Closed);
        }
        queue.ops.push(op);
        self.shared.arrived.notify_one();
    }

    /// Writes what is queued, saves the summaries, flushes, and stops.
    pub fn close(&self) {
        self.shared.queue.lock().closed = true;
        self.shared.arrived.notify_one();
        if let Some(handle) = self.writer.lock().take()
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
struct FailOnExit(Arc<Shared>);

impl Drop for FailOnExit {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.closed = true;
        let ops = std::mem::take(&mut queue.ops);
        drop(queue);
        for op in ops {
            op.fail(Error::Closed);
        }
    }
}
