//! The commit queue: everybody's edits are drained by one writer into one batch and one fsync.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use document::{DocId, Rev};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rocksdb::WriteBatch;
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use crate::Error;
use crate::batch::{Batch, Limits};
use crate::disk::DiskGuard;
use crate::edit::{Change, Edit, Outcome};
use crate::engine::Engine;
use crate::keys::ShardNumber;
use crate::keyspace::Keyspace;
use crate::shard::{Shard, UNSAVED_CHANGES_MAX, saved};

/// Writes not yet on disk are flushed this often.
const FLUSH_EVERY: Duration = Duration::from_millis(500);
/// How long the writer waits for more requests when there were many just before, and how many are many.
const GATHER_TIME_MAX: Duration = Duration::from_micros(100);
const GATHER_REQUESTS_MIN: usize = 4;
/// The writer takes no more work into one batch than this many bytes of bodies.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// A summary is saved when this many changes came after its saved form.
const SUMMARY_SAVE_EVERY: u64 = 32_768;

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

/// A key of a keyspace, and its new value or its removal.
pub type Put = (Keyspace, Vec<u8>, Option<Vec<u8>>);

type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// A shard's edit with the limits of its database.
pub struct ShardEdit {
    /// Where the document belongs.
    pub shard: Arc<Shard>,
    /// What is to be done.
    pub edit: Edit,
}

/// A purge of revisions of one document.
pub struct ShardPurge {
    /// Where the document belongs.
    pub shard: Arc<Shard>,
    /// The document.
    pub id: DocId,
    /// Leaves to be removed; those that are none are passed over.
    pub revs: Vec<Rev>,
    /// Random id of the purge request, for replication of purges.
    pub uuid: [u8; 16],
}

/// How long an edit request waited and how long its batch took, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// In the queue.
    pub wait_us: u64,
    /// From the batch's start to its acknowledgement.
    pub commit_us: u64,
}

/// What became of a request's edits, and how long they took.
pub type Edited = (Vec<Outcome>, Timing);

enum Op {
    Edits {
        edits: Vec<ShardEdit>,
        limits: Limits,
        synced: bool,
        queued: Instant,
        reply: Reply<Edited>,
    },
    Purge {
        purges: Vec<ShardPurge>,
        limits: Limits,
        reply: Reply<Vec<Vec<Rev>>>,
    },
    Put {
        puts: Vec<Put>,
        /// The shard that the puts are about, and how many of its superseded rows they remove.
        compacted: Option<(Arc<Shard>, u64)>,
        /// Shards of a database that goes.
        dropped: Vec<Arc<Shard>>,
        synced: bool,
        reply: Reply<()>,
    },
    Sync {
        reply: Reply<()>,
    },
    /// Has the summaries of shards saved that are worth it.
    Save {
        shards: Vec<Arc<Shard>>,
        reply: Reply<()>,
    },
}

impl Op {
    fn body_bytes(&self) -> usize {
        match self {
            Op::Edits { edits, .. } => edits
                .iter()
                .map(|e| e.edit.body.len() + 256 * e.edit.files.len() + 64)
                .sum(),
            _ => 64,
        }
    }

    fn edits(&self) -> usize {
        match self {
            Op::Edits { edits, .. } => edits.len(),
            _ => 0,
        }
    }

    /// Adds the documents whose records it changes.
    fn docs_into<'a>(&'a self, docs: &mut Vec<(&'a Arc<Shard>, &'a DocId)>) {
        match self {
            Op::Edits { edits, .. } => {
                let with_record = |e: &&ShardEdit| !matches!(e.edit.change, Change::Local { .. });
                let edits = edits.iter().filter(with_record);
                docs.extend(edits.map(|e| (&e.shard, &e.edit.id)));
            }
            Op::Purge { purges, .. } => docs.extend(purges.iter().map(|p| (&p.shard, &p.id))),
            Op::Put { .. } | Op::Sync { .. } | Op::Save { .. } => {}
        }
    }

    fn wants_sync(&self) -> bool {
        match self {
            Op::Edits { synced, .. } | Op::Put { synced, .. } => *synced,
            Op::Purge { .. } | Op::Sync { .. } => true,
            Op::Save { .. } => false,
        }
    }

    fn fail(self, e: Error) {
        // A caller that went away does not want to know.
        match self {
            Op::Edits { reply, .. } => drop(reply.send(Err(e))),
            Op::Purge { reply, .. } => drop(reply.send(Err(e))),
            Op::Put { reply, .. } | Op::Sync { reply } | Op::Save { reply, .. } => {
                drop(reply.send(Err(e)));
            }
        }
    }
}

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
        let guard = DiskGuard::new(engine.path(), reserve_bytes);
        let writer = Writer {
            shared: shared.clone(),
            engine,
            guard,
            on_commit,
            unflushed_since: None,
            last_requests: 0,
            dirty: FxHashMap::default(),
        };
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

struct Writer {
    shared: Arc<Shared>,
    engine: Arc<Engine>,
    guard: DiskGuard,
    on_commit: OnCommit,
    /// When the oldest write that is not flushed was made.
    unflushed_since: Option<Instant>,
    /// Requests of the last batch.
    last_requests: usize,
    /// Shards with many changes after the saved form of their summary.
    dirty: FxHashMap<ShardNumber, Arc<Shard>>,
}

impl Writer {
    fn run(mut self) {
        let _fail_the_rest = FailOnExit(self.shared.clone());
        loop {
            let (ops, closed) = self.next_ops();
            if ops.is_empty() && closed {
                break;
            }
            if !ops.is_empty() {
                self.last_requests = ops.len();
                self.commit(ops);
            }
            // Under steady traffic too: what is delayed is on disk after this time.
            if self
                .unflushed_since
                .is_some_and(|t| t.elapsed() >= FLUSH_EVERY)
            {
                self.flush();
            }
        }
        self.save_all();
        self.flush();
    }

    /// Waits for work; empty when it is time to flush.
    fn next_ops(&self) -> (Vec<Op>, bool) {
        let mut queue = self.shared.queue.lock();
        while queue.ops.is_empty() && !queue.closed {
            let Some(since) = self.unflushed_since else {
                self.shared.arrived.wait(&mut queue);
                continue;
            };
            let deadline = since + FLUSH_EVERY;
            if self
                .shared
                .arrived
                .wait_until(&mut queue, deadline)
                .timed_out()
            {
                break;
            }
        }
        self.gather(&mut queue);
        let mut bytes = 0;
        let n = queue
            .ops
            .iter()
            .take_while(|op| {
                let first = bytes == 0;
                bytes += op.body_bytes();
                first || bytes <= BATCH_BYTES_MAX
            })
            .count();
        (queue.ops.drain(..n).collect(), queue.closed)
    }

    /// Waits a moment for as many requests as came last time: writers that were just answered are about to ask again, and
    /// an fsync for all of them costs what one for a few does. A lone writer is never waited for.
    fn gather(&self, queue: &mut MutexGuard<'_, Queue>) {
        let expected = self.last_requests * 3 / 4;
        if queue.ops.len() >= expected || expected < GATHER_REQUESTS_MIN {
            return;
        }
        let started = Instant::now();
        while queue.ops.len() < expected && !queue.closed && started.elapsed() < GATHER_TIME_MAX {
            MutexGuard::unlocked(queue, std::thread::yield_now);
        }
    }

    fn flush(&mut self) {
        if self.unflushed_since.is_none() {
            return;
        }
        self.unflushed_since = match self.engine.sync_log() {
            Ok(()) => None,
            Err(e) => {
                tracing::error!(error = %e, "flushing the log failed");
                Some(Instant::now())
            }
        };
    }

    fn note_unflushed(&mut self) {
        self.unflushed_since.get_or_insert_with(Instant::now);
    }

    fn commit(&mut self, ops: Vec<Op>) {
        let started = Instant::now();
        let ops = self.admit(ops);
        if ops.is_empty() {
            return;
        }
        let sync = ops.iter().any(Op::wants_sync);
        let prepared = self.prepare(&ops);
        let written = prepared.and_then(|(mut batch, results)| {
            let wb = std::mem::take(&mut batch.wb);
            let empty = wb.is_empty();
            if !empty {
                self.engine.wait_for_flushes();
                self.engine.write(wb, sync)?;
            } else if sync && self.unflushed_since.is_some() {
                self.engine.sync_log()?;
            }
            Ok((batch, results, empty))
        });
        match written {
            Ok((batch, results, empty)) => {
                if sync {
                    self.unflushed_since = None;
                } else if !empty {
                    self.note_unflushed();
                }
                self.publish(batch);
                self.forget_dropped(&ops);
                for op in &ops {
                    if let Op::Save { shards, .. } = op {
                        shards.iter().for_each(|shard| self.save(shard));
                    }
                }
                answer(ops, results, started);
            }
            Err(e) => {
                tracing::error!(error = %e, "commit failed");
                for op in ops {
                    if let Op::Put { dropped, .. } = &op {
                        for shard in dropped {
                            shard.dropped.store(false, Relaxed);
                        }
                    }
                    op.fail(e.clone());
                }
            }
        }
    }

    /// Refuses edits when the disk is full. Drops and compaction go on: they are what gives space back.
    fn admit(&mut self, ops: Vec<Op>) -> Vec<Op> {
        let bytes: usize = ops.iter().map(Op::body_bytes).sum();
        let Err(e) = self.guard.admit(&self.engine, bytes as u64) else {
            return ops;
        };
        let (refused, admitted): (Vec<Op>, Vec<Op>) = ops
            .into_iter()
            .partition(|op| matches!(op, Op::Edits { .. } | Op::Purge { .. }));
        for op in refused {
            op.fail(e.clone());
        }
        admitted
    }

    fn prepare<'e>(&self, ops: &'e [Op]) -> Result<(Batch<'e>, Vec<Answer>), Error> {
        let mut batch = Batch::new(self.engine.clone());
        let counters = &self.shared.counters;
        counters.batches.fetch_add(1, Relaxed);
        counters.requests.fetch_add(ops.len() as u64, Relaxed);
        let edits: usize = ops.iter().map(Op::edits).sum();
        counters.edits.fetch_add(edits as u64, Relaxed);
        let mut docs = Vec::with_capacity(edits);
        ops.iter().for_each(|op| op.docs_into(&mut docs));
        batch.fetch(&docs)?;
        let mut answers = Vec::with_capacity(ops.len());
        for op in ops {
            if let Some(e) = refusal(&batch, op) {
                answers.push(Answer::Failed(e));
                continue;
            }
            answers.push(match op {
                Op::Edits { edits, limits, .. } => Answer::Edits(
                    edits
                        .iter()
                        .map(|e| batch.edit(&e.shard, &e.edit, limits))
                        .collect::<Result<_, _>>()?,
                ),
                Op::Purge { purges, limits, .. } => Answer::Purges(
                    purges
                        .iter()
                        .map(|p| batch.purge(p, limits))
                        .collect::<Result<_, _>>()?,
                ),
                Op::Put {
                    puts,
                    compacted,
                    dropped,
                    ..
                } => {
                    for shard in dropped {
                        shard.dropped.store(true, Relaxed);
                    }
                    batch.put(puts);
                    if let Some((shard, rows)) = compacted.as_ref().filter(|(_, rows)| *rows > 0) {
                        batch.forget_superseded(shard, *rows);
                    }
                    Answer::Done
                }
                Op::Sync { .. } | Op::Save { .. } => Answer::Done,
            });
        }
        batch.finish();
        Ok((batch, answers))
    }

    /// Makes the written state visible to readers and saves summaries that are due.
    fn publish(&mut self, batch: Batch<'_>) {
        for touched in batch.into_touched() {
            let shard = &touched.shard;
            let seq = touched.meta.update_seq;
            let written = Written {
                shard,
                update_seq: seq,
                designs: touched.deltas.iter().any(|(_, id, _)| id.is_design()),
            };
            let mut state = shard.state.lock();
            let changed = state.meta.update_seq != seq;
            state.meta = touched.meta;
            let Some(summary) = state.summary.as_deref_mut() else {
                drop(state);
                if changed {
                    (self.on_commit)(&written);
                }
                continue;
            };
            for (at, id, delta) in &touched.deltas {
                summary.apply(*at, id.as_str().as_bytes(), *delta);
            }
            let mut result = Ok(());
            if !summary.ids.oversized.is_empty() {
                result = shard.split_oversized(summary, &self.engine.snapshot());
            }
            if seq - summary.saved_seq >= SUMMARY_SAVE_EVERY {
                let mut wb = WriteBatch::default();
                saved::save(&self.engine, shard.number, summary, seq, &mut wb);
                result = result.and_then(|()| self.engine.write(wb, false));
                self.unflushed_since.get_or_insert_with(Instant::now);
                self.dirty.remove(&shard.number);
            } else if seq - summary.saved_seq >= UNSAVED_CHANGES_MAX {
                self.dirty.entry(shard.number).or_insert_with(|| {
                    shard.is_dirty.store(true, Relaxed);
                    shard.clone()
                });
            }
            if let Err(e) = result {
                // It will be made anew from by-seq when next needed.
                tracing::error!(error = %e, "keeping the summary failed");
                state.summary = None;
            }
            drop(state);
            if changed {
                (self.on_commit)(&written);
            }
        }
    }

    /// Lets go of dropped shards. Nothing of theirs may be written any more: once their rows are gone, nobody looks for others.
    fn forget_dropped(&mut self, ops: &[Op]) {
        for op in ops {
            if let Op::Put { dropped, .. } = op {
                for shard in dropped {
                    self.dirty.remove(&shard.number);
                }
            }
        }
    }

    /// Saves the summaries worth saving, at close.
    fn save_all(&mut self) {
        let shards: Vec<_> = self.dirty.values().cloned().collect();
        shards.iter().for_each(|shard| self.save(shard));
    }

    /// Saves a shard's summary, if that is worth it, and lets go of the shard.
    fn save(&mut self, shard: &Arc<Shard>) {
        self.dirty.remove(&shard.number);
        shard.is_dirty.store(false, Relaxed);
        if shard.dropped.load(Relaxed) {
            return;
        }
        let mut state = shard.state.lock();
        let seq = state.meta.update_seq;
        let Some(summary) = state.summary.as_deref_mut() else {
            return;
        };
        if seq - summary.saved_seq < UNSAVED_CHANGES_MAX {
            return;
        }
        let mut wb = WriteBatch::default();
        saved::save(&self.engine, shard.number, summary, seq, &mut wb);
        if let Err(e) = self.engine.write(wb, false) {
            tracing::error!(error = %e, "saving a summary failed");
        }
        self.note_unflushed();
    }
}

/// Why an operation cannot be tried; the others of its batch go on.
fn refusal(batch: &Batch<'_>, op: &Op) -> Option<Error> {
    let gone = |s: &Arc<Shard>| s.dropped.load(Relaxed).then_some(Error::Dropped);
    match op {
        Op::Edits { edits, .. } => edits
            .iter()
            .find_map(|e| gone(&e.shard).or_else(|| batch.unreadable(&e.shard, &e.edit.id))),
        Op::Purge { purges, .. } => purges
            .iter()
            .find_map(|p| gone(&p.shard).or_else(|| batch.unreadable(&p.shard, &p.id))),
        Op::Put { compacted, .. } => compacted.as_ref().and_then(|(s, _)| gone(s)),
        Op::Sync { .. } | Op::Save { .. } => None,
    }
}

enum Answer {
    Failed(Error),
    Edits(Vec<Outcome>),
    Purges(Vec<Vec<Rev>>),
    Done,
}

fn answer(ops: Vec<Op>, answers: Vec<Answer>, started: Instant) {
    let commit_us = started.elapsed().as_micros() as u64;
    for (op, answer) in ops.into_iter().zip(answers) {
        match (op, answer) {
            (Op::Edits { reply, queued, .. }, Answer::Edits(outcomes)) => {
                let timing = Timing {
                    wait_us: started.saturating_duration_since(queued).as_micros() as u64,
                    commit_us,
                };
                drop(reply.send(Ok((outcomes, timing))));
            }
            (Op::Purge { reply, .. }, Answer::Purges(revs)) => drop(reply.send(Ok(revs))),
            (Op::Put { reply, .. } | Op::Sync { reply } | Op::Save { reply, .. }, Answer::Done) => {
                drop(reply.send(Ok(())));
            }
            (op, Answer::Failed(e)) => op.fail(e),
            (op, _) => op.fail(Error::Corrupt("commit answer")),
        }
    }
}
