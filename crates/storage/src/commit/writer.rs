//! The writer: one thread at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rocksdb::WriteBatch;
use rustc_hash::FxHashMap;
use telemetry::State;

use super::copy_time::BatchWrite;
use super::op::{Answer, Op, Work, answer, apply};
use super::piece::{Budget, Fetcher, WINDOW_FIRST};
use super::queue::{Leftovers, Queue};
use super::{FailOnExit, FailOnPanic, OnCommit, ShardCommit, Shared};
use crate::Error;
use crate::batch::Batch;
use crate::counters::COMMIT_HOLDS;
use crate::disk::DiskGuard;
use crate::engine::Engine;
use crate::keys::ShardNumber;
use crate::shard::{Shard, UNSAVED_CHANGES_MAX, saved};
use crate::slot::Pending;
use crate::tree::KeptTrees;
use crate::winners::Winners;

/// Interval at which delayed writes are flushed.
const FLUSH_EVERY: Duration = Duration::from_millis(500);
/// How long the writer waits for more requests after a batch of many.
const GATHER_TIME_MAX: Duration = Duration::from_micros(100);
const GATHER_REQUESTS_MIN: usize = 4;
/// Pieces of a long operation are synced when they reach this size, so that the last sync is not a
/// long one.
const UNSYNCED_BYTES_MAX: usize = 4 << 20;
/// Number of changes after its saved form after which a summary is saved.
const SUMMARY_SAVE_EVERY: u64 = 32_768;

/// After a commit that took longer, threads with other work do not commit themselves.
const QUICK_TIME_MAX: Duration = Duration::from_millis(2);

/// The writer thread: writes what is queued until the queue is closed.
pub(super) fn run(shared: &Shared, writer: &Mutex<Writer>) {
    let _fail_the_rest = FailOnExit(shared);
    loop {
        let unflushed_since = writer.lock().unflushed_since;
        wait_for_work(shared, unflushed_since);
        let mut writer = writer.lock();
        // Dropped before the lock.
        let _fail_the_rest = FailOnPanic(shared);
        if !writer.turn() {
            break;
        }
    }
    let mut writer = writer.lock();
    if !shared.has_failed.load(Relaxed) {
        writer.save_all();
    }
    writer.flush();
}

/// Waits until something is queued, it is time to flush, or another thread left something to be
/// flushed.
fn wait_for_work(shared: &Shared, unflushed_since: Option<Instant>) {
    let mut queue = shared.queue.lock();
    if !queue.is_empty() || queue.closed || std::mem::take(&mut queue.is_unflushed) {
        return;
    }
    match unflushed_since {
        Some(since) => {
            let deadline = since + FLUSH_EVERY;
            shared.arrived.wait_until(&mut queue, deadline);
        }
        None => shared.arrived.wait(&mut queue),
    }
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    engine: Arc<Engine>,
    guard: DiskGuard,
    on_commit: OnCommit,
    /// When the oldest unflushed write was made.
    unflushed_since: Option<Instant>,
    /// Bytes of pieces of long operations among those.
    unsynced_bytes: usize,
    /// Trees of the documents that the pieces of a long operation change.
    kept: KeptTrees,
    /// Number of records to read at a time: few while they are long.
    window: usize,
    /// Requests in the last batch.
    last_requests: usize,
    /// Duration of the last batch.
    last_time: Duration,
    /// Shards with many changes after the saved form of their summary.
    dirty: FxHashMap<ShardNumber, Arc<Shard>>,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        engine: Arc<Engine>,
        reserve_bytes: u64,
        on_commit: OnCommit,
    ) -> Writer {
        Writer {
            guard: DiskGuard::new(engine.path(), reserve_bytes),
            shared,
            engine,
            on_commit,
            unflushed_since: None,
            unsynced_bytes: 0,
            kept: KeptTrees::default(),
            window: WINDOW_FIRST,
            last_requests: 0,
            last_time: Duration::ZERO,
            dirty: FxHashMap::default(),
        }
    }

    /// Returns whether the last commit had one request and was fast, so that a thread with other
    /// work may do the next.
    pub(super) fn is_quick(&self) -> bool {
        self.last_requests <= 1 && self.last_time < QUICK_TIME_MAX && self.engine.is_roomy()
    }

    /// Commits an operation that was not queued.
    pub(super) fn commit_one(&mut self, op: Op) {
        self.last_requests = 1;
        self.commit(vec![op]);
        if self.unflushed_since.is_some() {
            self.shared.queue.lock().is_unflushed = true;
            self.shared.arrived.notify_one();
        }
    }

    /// Does one round of work; false when the queue is closed and empty.
    fn turn(&mut self) -> bool {
        let (ops, closed) = self.next_ops();
        if ops.is_empty() && closed {
            return false;
        }
        if !ops.is_empty() {
            self.last_requests = ops.len();
            self.commit(ops);
        }
        // Under steady traffic too: delayed writes are on disk after this time.
        if self
            .unflushed_since
            .is_some_and(|t| t.elapsed() >= FLUSH_EVERY)
        {
            self.flush();
        }
        true
    }

    /// Returns the queued operations; empty when it is time to flush.
    fn next_ops(&self) -> (Vec<Op>, bool) {
        let mut queue = self.shared.queue.lock();
        self.gather(&mut queue);
        (queue.take(), queue.closed)
    }

    /// Waits a moment for as many requests as in the last batch: clients that were just answered
    /// are about to send again, and an fsync for all of them costs as much as one for a few. It
    /// never waits for a lone client.
    fn gather(&self, queue: &mut MutexGuard<'_, Queue>) {
        let expected = self.last_requests * 3 / 4;
        if queue.len() >= expected || expected < GATHER_REQUESTS_MIN {
            return;
        }
        let _writes = telemetry::enter(State::Write);
        let started = Instant::now();
        while queue.len() < expected && !queue.closed && started.elapsed() < GATHER_TIME_MAX {
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
        let _writes = telemetry::enter(State::Write);
        let started = Instant::now();
        let ops = self.admit(ops);
        if ops.is_empty() {
            return;
        }
        // Time for the disk is counted separately, but not the copying of a long batch.
        let mut disk = Duration::ZERO;
        let prepared = self.prepare(&ops);
        let written = prepared.and_then(|(mut batch, answers)| {
            let sync = self.syncs(&ops, &answers, batch.bytes());
            let started = Instant::now();
            let copying = BatchWrite::begin(batch.bytes());
            self.write(&mut batch, sync)?;
            disk = started.elapsed().saturating_sub(copying.cpu_time());
            Ok((batch, answers))
        });
        match written {
            Ok((mut batch, answers)) => {
                debug_assert!(
                    self.unflushed_since.is_none() || !ends_durable(&ops, &answers),
                    "acknowledged durable writes are on disk"
                );
                let kept = batch.kept();
                self.publish(batch);
                self.forget_dropped(&ops, &answers);
                for (op, answer) in ops.iter().zip(&answers) {
                    if let (Op::Save { shards, .. }, Answer::Done) = (op, answer) {
                        shards.iter().for_each(|shard| self.save(shard));
                    }
                }
                let left = answer(ops, answers, started);
                if !left.begun.is_empty() {
                    self.kept = kept;
                }
                self.give_back(left);
            }
            Err(e) => {
                tracing::error!(error = %e, "commit failed");
                for op in ops {
                    for shard in op.dropped() {
                        shard.dropped.store(false, Relaxed);
                    }
                    op.fail(e.clone());
                }
            }
        }
        self.last_time = started.elapsed();
        COMMIT_HOLDS.record(self.last_time.saturating_sub(disk));
    }

    fn write(&mut self, batch: &mut Batch<'_>, sync: bool) -> Result<(), Error> {
        let wb = std::mem::take(&mut batch.wb);
        let empty = wb.is_empty();
        if !empty {
            self.engine.wait_for_flushes();
            // The engine publishes a batch atomically, so its documents are read from the engine
            // meanwhile.
            batch.each_read_lately(Winners::begin_write);
            let written = self.engine.write(wb, sync);
            batch.each_read_lately(Winners::end_write);
            written?;
        } else if sync && self.unflushed_since.is_some() {
            self.engine.sync_log()?;
        }
        if sync {
            (self.unflushed_since, self.unsynced_bytes) = (None, 0);
        } else if !empty {
            self.note_unflushed();
        }
        Ok(())
    }

    /// Returns whether the log has to be synced with this batch.
    fn syncs(&mut self, ops: &[Op], answers: &[Answer], bytes: usize) -> bool {
        let mut all = ops.iter().zip(answers).filter(|(op, _)| op.wants_sync());
        let mut is_begun = false;
        let is_due = all.any(|(op, answer)| {
            is_begun |= matches!(answer, Answer::Edits(_) | Answer::Purges(_));
            answer.ends(op)
        });
        if is_begun && !is_due {
            self.unsynced_bytes += bytes;
        }
        is_due || self.unsynced_bytes >= UNSYNCED_BYTES_MAX
    }

    fn give_back(&self, left: Leftovers) {
        if !left.begun.is_empty() || !left.untouched.is_empty() {
            self.shared.queue.lock().give_back(left);
            self.shared.arrived.notify_one();
        }
    }

    /// Refuses edits when the disk is full. Drops and compaction continue: they free space.
    fn admit(&mut self, ops: Vec<Op>) -> Vec<Op> {
        let bytes: usize = ops.iter().map(Op::bytes).sum();
        let Err(e) = self.guard.admit(&self.engine, bytes as u64) else {
            return ops;
        };
        let (refused, admitted): (Vec<Op>, Vec<Op>) = ops.into_iter().partition(Op::takes_room);
        for op in refused {
            op.fail(e.clone());
        }
        admitted
    }

    fn prepare<'e>(&mut self, ops: &'e [Op]) -> Result<(Batch<'e>, Vec<Answer>), Error> {
        let mut work = Work {
            batch: Batch::new(self.engine.clone(), std::mem::take(&mut self.kept)),
            slots: Pending::new(self.engine.clone()),
            fetcher: Fetcher::new(ops, self.window),
            budget: Budget::new(),
        };
        let mut answers = Vec::with_capacity(ops.len());
        for i in 0..ops.len() {
            answers.push(apply(ops, i, &mut work)?);
        }
        self.window = work.fetcher.window();
        let ended = answers.iter().zip(ops).filter(|(a, op)| a.ends(op));
        let counters = &self.shared.counters;
        counters.batches.fetch_add(1, Relaxed);
        counters.requests.fetch_add(ended.count() as u64, Relaxed);
        let edits: usize = answers.iter().map(Answer::edits).sum();
        counters.edits.fetch_add(edits as u64, Relaxed);
        work.batch.finish()?;
        work.slots.finish(&mut work.batch.wb)?;
        Ok((work.batch, answers))
    }

    /// Makes the written state visible to readers and saves summaries that are due.
    fn publish(&mut self, batch: Batch<'_>) {
        for touched in batch.into_touched() {
            touched.publish_time_bins();
            let shard = &touched.shard;
            let seq = touched.meta.update_seq;
            let written = ShardCommit {
                shard,
                update_seq: seq,
                designs: touched.deltas.iter().any(|(_, id, _)| id.is_design()),
                principals: &touched.principals,
            };
            let mut state = shard.state.lock();
            // Feeds and indexes continue after the last seq that they saw.
            debug_assert!(seq >= state.meta.update_seq, "seqs only grow");
            let changed = state.meta.update_seq != seq;
            if touched.meta.digest.is_some() {
                shard.has_digest.store(true, Relaxed);
            }
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
                // It will be rebuilt from by-seq when it is next needed.
                tracing::error!(error = %e, "keeping the summary failed");
                state.summary = None;
            }
            drop(state);
            if changed {
                (self.on_commit)(&written);
            }
        }
    }

    /// Releases dropped shards. Their rows may not be written any more: once their rows are
    /// deleted, no others will be.
    fn forget_dropped(&mut self, ops: &[Op], answers: &[Answer]) {
        let done = ops.iter().zip(answers).filter(|(op, a)| a.ends(op));
        for shard in done.flat_map(|(op, _)| op.dropped()) {
            self.dirty.remove(&shard.number);
        }
    }

    /// Saves the summaries worth saving, at close.
    fn save_all(&mut self) {
        let shards: Vec<_> = self.dirty.values().cloned().collect();
        shards.iter().for_each(|shard| self.save(shard));
    }

    /// Saves a shard's summary, if that is worth it, and releases the shard.
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

/// Returns whether a request ends with this batch whose client waits for the disk.
fn ends_durable(ops: &[Op], answers: &[Answer]) -> bool {
    let mut all = ops.iter().zip(answers);
    all.any(|(op, answer)| op.wants_sync() && answer.ends(op))
}
