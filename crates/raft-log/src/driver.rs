//! The threads of a log: one drives all groups, one writes, one maintains the disk.
//!
//! The first never waits for a write, so that leaders continue to send heartbeats. The second writes
//! everything that piled up during a sync with the next one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::{NodeId, SlotNumber};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::codec;
use crate::disk::{GroupWrite, LogDisk};
use crate::figures::{LogFigures, SYNCED};
use crate::groups::{Core, Effect, Flush};
use crate::message::{AppendOutcome, FetchRequest, Fetched, NodeMessage};
use crate::options::LogNode;

/// The duration of a tick.
const TICK: Duration = Duration::from_millis(100);
/// Commands that are handled before something is written.
const COMMANDS_MAX: usize = 1024;
/// Ticks between checks of the log's size.
const SIZE_TICKS: u64 = 50;
/// Ticks in which the space of trimmed entries is reclaimed: raft-engine rewrites entries that keep old
/// files from being removed when the tenth call finds them.
const RECLAIM_TICKS: u64 = 12 * SIZE_TICKS;
/// Ticks between updates of the figures.
const FIGURES_TICKS: u64 = 10;
/// The pause after a write that failed.
const RETRY: Duration = Duration::from_secs(1);

/// Decides when the log is trimmed because of its size.
pub(crate) struct SizeLimit {
    bytes_max: u64,
    /// The tick before which the size is not compared.
    next: u64,
}

impl SizeLimit {
    /// Creates the limit.
    pub fn new(bytes_max: u64) -> SizeLimit {
        SizeLimit { bytes_max, next: 0 }
    }

    /// Returns whether the log must be trimmed now. The size follows only after a while: each trim in
    /// the meantime would halve the rest.
    fn is_exceeded(&mut self, bytes: u64, ticks: u64) -> bool {
        let is_exceeded = bytes > self.bytes_max && ticks >= self.next;
        if is_exceeded {
            self.next = ticks + RECLAIM_TICKS;
        }
        is_exceeded
    }
}

/// Sends bundles to other nodes.
pub trait Transport: Send + Sync + 'static {
    /// Sends a bundle, and returns whether it was accepted. It may be lost all the same; those over one
    /// connection arrive in order.
    fn send(&self, to: NodeId, bundle: Bytes) -> bool;

    /// Sends a short bundle that must not wait for the others, and may overtake them. It may be lost.
    fn send_urgent(&self, to: NodeId, bundle: Bytes) {
        self.send(to, bundle);
    }
}

/// An order to the driving thread.
pub(crate) enum Command {
    Append {
        slot: SlotNumber,
        record: Bytes,
        reply: oneshot::Sender<AppendOutcome>,
    },
    Fetch {
        request: FetchRequest,
        reply: oneshot::Sender<Fetched>,
    },
    Deliver {
        from: NodeId,
        bundle: Bytes,
    },
    LogNodes(Vec<LogNode>),
    Trim {
        slot: SlotNumber,
        unneeded: u64,
        stable: u64,
    },
    Flushed(Vec<Flush>),
    Stop,
}

/// The thread that drives all groups.
pub(crate) struct Driver<D: LogDisk> {
    pub core: Core<D>,
    pub disk: Arc<D>,
    pub log: u64,
    pub size_limit: SizeLimit,
    pub transport: Arc<dyn Transport>,
    pub commands: Receiver<Command>,
    /// To the writing thread.
    pub jobs: Sender<Flush>,
    /// To the thread that maintains the disk.
    pub maintenance: Sender<()>,
    pub is_reachable: Arc<AtomicBool>,
    pub figures: Arc<Mutex<LogFigures>>,
    pub appends: BTreeMap<u64, oneshot::Sender<AppendOutcome>>,
    pub fetches: BTreeMap<u64, oneshot::Sender<Fetched>>,
    /// Flushes that the other thread has.
    pub writing: usize,
    pub ticks: u64,
}

impl<D: LogDisk> Driver<D> {
    /// Runs until [`Command::Stop`].
    pub fn run(mut self) {
        let mut next_tick = Instant::now() + TICK;
        loop {
            let left = next_tick.saturating_duration_since(Instant::now());
            match self.commands.recv_timeout(left) {
                Ok(command) => {
                    if !self.handle_all(command) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            if now >= next_tick {
                // Ticks that were missed are not repeated: they would be elections.
                next_tick = now + TICK;
                self.tick();
            }
            self.flush();
            self.put_out();
        }
    }

    /// Handles a command and those that came since. Returns whether to continue.
    fn handle_all(&mut self, first: Command) -> bool {
        let mut next = Some(first);
        for _ in 0..COMMANDS_MAX {
            let Some(command) = next else {
                return true;
            };
            if !self.handle(command) {
                return false;
            }
            next = self.commands.try_recv().ok();
        }
        // The last one that was taken.
        next.is_none_or(|command| self.handle(command))
    }

    fn handle(&mut self, command: Command) -> bool {
        match command {
            Command::Append {
                slot,
                record,
                reply,
            } => {
                let number = self.core.append(slot, record);
                self.appends.insert(number, reply);
            }
            Command::Fetch { request, reply } => {
                let number = self.core.fetch(request);
                self.fetches.insert(number, reply);
            }
            Command::Deliver { from, bundle } => match codec::decode(self.log, bundle) {
                Ok(messages) => {
                    for message in messages {
                        self.core.deliver(from, message);
                    }
                }
                Err(e) => tracing::warn!(node = from, "a message of the log is malformed: {e}"),
            },
            Command::LogNodes(nodes) => self.core.set_log_nodes(nodes),
            Command::Trim {
                slot,
                unneeded,
                stable,
            } => self.core.trim(slot, unneeded, stable),
            Command::Flushed(flushes) => {
                for flush in flushes {
                    self.writing -= 1;
                    self.core.end_flush(flush);
                }
            }
            Command::Stop => return false,
        }
        true
    }

    fn tick(&mut self) {
        self.ticks += 1;
        self.core.tick();
        let is_reachable = self.core.is_reachable();
        self.is_reachable.store(is_reachable, Ordering::Relaxed);
        if self.ticks.is_multiple_of(FIGURES_TICKS) {
            let figures = LogFigures {
                bytes: self.disk.bytes(),
                ..self.core.figures()
            };
            *self.figures.lock() = figures;
        }
        if self.ticks.is_multiple_of(SIZE_TICKS) {
            // A full disk lets raft-engine begin files that it counts as full.
            let is_stalled = self.core.is_stalled();
            if !is_stalled && self.size_limit.is_exceeded(self.disk.bytes(), self.ticks) {
                self.core.trim_half();
            }
            // The thread ends with this one.
            let _ = self.maintenance.send(());
        }
    }

    fn flush(&mut self) {
        while let Some(flush) = self.core.begin_flush() {
            self.put_out();
            if flush.writes().is_empty() && self.writing == 0 {
                self.core.end_flush(flush);
                continue;
            }
            self.writing += 1;
            // Without the other thread nothing is confirmed any more, and other nodes lead.
            let _ = self.jobs.send(flush);
        }
    }

    /// Sends messages, all of a node together, and answers callers. The effects of messages that were
    /// refused are put out the next time.
    fn put_out(&mut self) {
        let mut messages: BTreeMap<NodeId, Vec<NodeMessage>> = BTreeMap::new();
        let mut urgent: BTreeMap<NodeId, Vec<NodeMessage>> = BTreeMap::new();
        for effect in self.core.take_effects() {
            match effect {
                Effect::Send { to, message } => {
                    let lane = match message.is_urgent() {
                        true => &mut urgent,
                        false => &mut messages,
                    };
                    lane.entry(to).or_default().push(message);
                }
                // Callers that gave up are gone.
                Effect::Appended { number, outcome } => {
                    if let Some(reply) = self.appends.remove(&number) {
                        let _ = reply.send(outcome);
                    }
                }
                Effect::Fetched { number, fetched } => {
                    if let Some(reply) = self.fetches.remove(&number) {
                        let _ = reply.send(fetched);
                    }
                }
            }
        }
        for (to, urgent) in urgent {
            for bundle in codec::encode(self.log, urgent.iter()) {
                self.transport.send_urgent(to, bundle);
            }
        }
        for (to, messages) in messages {
            let mut bundles = codec::encode(self.log, messages.iter()).into_iter();
            // Those after one that is refused would be of no use.
            if !bundles.all(|bundle| self.transport.send(to, bundle)) {
                self.core.note_unsent(to, messages);
            }
        }
    }
}

/// Writes until the other thread ends.
pub(crate) fn write<D: LogDisk>(
    disk: &D,
    jobs: &Receiver<Flush>,
    done: &Sender<Command>,
    is_stopped: &AtomicBool,
) {
    while let Ok(first) = jobs.recv() {
        let flushes: Vec<Flush> = std::iter::once(first).chain(jobs.try_iter()).collect();
        if !write_flushes(disk, &flushes, is_stopped) {
            return;
        }
        if done.send(Command::Flushed(flushes)).is_err() {
            return;
        }
    }
}

/// Maintains the disk until the driving thread ends. That is slow when old entries are needed: they
/// are written again.
pub(crate) fn maintain<D: LogDisk>(disk: &D, orders: &Receiver<()>) {
    while orders.recv().is_ok() {
        if let Err(e) = disk.maintain() {
            tracing::warn!("the log's disk space was not reclaimed: {e}");
        }
    }
}

/// Writes all of these with one sync, and repeats that until it succeeds. Returns whether it did.
fn write_flushes<D: LogDisk>(disk: &D, flushes: &[Flush], is_stopped: &AtomicBool) -> bool {
    let writes: Vec<&GroupWrite> = flushes.iter().flat_map(Flush::writes).collect();
    let must_sync = flushes.iter().any(Flush::must_sync);
    if writes.is_empty() {
        return true;
    }
    let mut is_logged = false;
    let began = Instant::now();
    while let Err(e) = disk.write(&writes, must_sync) {
        if !std::mem::replace(&mut is_logged, true) {
            tracing::error!("the log cannot write, and tries again: {e}");
        }
        if is_stopped.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(RETRY);
    }
    if must_sync {
        SYNCED.record(began.elapsed());
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_too_large_is_halved_once_until_its_space_is_reclaimed() {
        let mut limit = SizeLimit::new(100);
        assert!(!limit.is_exceeded(100, SIZE_TICKS));
        let trims = |limit: &mut SizeLimit, from: u64| {
            let ticks = (0..12).map(|turn| from + turn * SIZE_TICKS);
            ticks.filter(|ticks| limit.is_exceeded(101, *ticks)).count()
        };
        assert_eq!(trims(&mut limit, 2 * SIZE_TICKS), 1);
        assert_eq!(trims(&mut limit, 14 * SIZE_TICKS), 1);
    }
}
