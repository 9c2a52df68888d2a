//! Follows slots.
//!
//! All slots are followed by one client, so by one connection and one thread for each broker,
//! whatever the number of slots: a client for each would take 129 times that on a node of 128
//! slots. Each slot has a queue of librdkafka's of its own and a task here, so a receiver that is
//! slow holds up its own slot alone: its queue fills up to a limit, and then librdkafka leaves the
//! partition out of its fetches. The maximum per slot is 2.5 MB: 0.5 MB and the answer to a
//! fetch (1 MB) in librdkafka's queue, and 1 MB in the channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use cluster::log::{RawRecord, Tail};
use cluster::{TailSender, tail_channel};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::bounds::{Bounds, BoundsOf};
use crate::names::Place;
use crate::raw::{Event, Reading, Topic};

/// Time without a record after which the partition's bounds are queried.
const QUIET: Duration = Duration::from_secs(2);
/// Time without an existing record after which the partition's reader is restarted.
const STUCK: Duration = Duration::from_secs(10);
/// Number of consecutive failures after which the follower is notified.
const FAILED_MAX: u32 = 4;
/// Delay before a partition that could not be read is retried.
const AGAIN: Duration = Duration::from_millis(500);
/// An answer from a leader that is older than a record's is not believed for this time. After that
/// it is the truth: the topic was recreated.
const OLDER_MAX: Duration = Duration::from_secs(30);

/// A slot, whether it is followed or not.
pub(crate) struct Slot {
    /// Incremented by every follower: one that sees another number than its own ends.
    turn: watch::Sender<u64>,
    /// Held by the reader of the partition.
    reading: Arc<tokio::sync::Mutex<()>>,
    /// The latest leader's epoch of all records that were delivered.
    epoch: AtomicI32,
}

impl Slot {
    pub fn new() -> Slot {
        Slot {
            turn: watch::Sender::new(0),
            reading: Arc::new(tokio::sync::Mutex::new(())),
            epoch: AtomicI32::new(-1),
        }
    }
}

/// Follows a slot for one receiver.
pub(crate) struct Follower {
    slot: Arc<Slot>,
    topic: Arc<Topic>,
    place: Place,
    log: u64,
    bounds: BoundsOf,
    channel: TailSender,
    turn: u64,
    turns: watch::Receiver<u64>,
    next: u64,
    heard: Instant,
    older_since: Option<Instant>,
    /// Times in a row that the next record could not be read.
    failed: u32,
}

/// Why a partition is not read any more.
enum StopReason {
    /// The follower is gone.
    Unwanted,
    /// The reader is restarted.
    Again,
}

/// The parts that a follower needs besides its slot.
pub(crate) struct Source {
    pub topic: Arc<Topic>,
    pub place: Place,
    pub log: u64,
    pub bounds: BoundsOf,
}

impl Follower {
    /// From now on the slot's other followers end.
    pub fn new(slot: &Arc<Slot>, source: Source, from: u64) -> (Follower, mpsc::Receiver<Tail>) {
        let (channel, receiver) = tail_channel();
        slot.turn.send_modify(|turn| *turn += 1);
        let turns = slot.turn.subscribe();
        let turn = *turns.borrow();
        let follower = Follower {
            slot: slot.clone(),
            topic: source.topic,
            place: source.place,
            log: source.log,
            bounds: source.bounds,
            channel,
            turn,
            turns,
            next: from,
            heard: Instant::now(),
            older_since: None,
            failed: 0,
        };
        (follower, receiver)
    }

    /// Delivers until the follower is gone.
    pub async fn run(mut self) {
        let reading = self.slot.reading.clone();
        // The next follower has seen that it may start.
        let _held = reading.lock().await;
        while self.is_wanted() {
            let over = match Reading::start(&self.topic, self.place.partition, self.next) {
                Ok(reading) => {
                    self.heard = Instant::now();
                    let over = self.read(&reading).await;
                    // Dropping waits for librdkafka's threads.
                    let _ = tokio::task::spawn_blocking(move || drop(reading)).await;
                    over
                }
                Err(code) => {
                    tracing::debug!(target: "kafka", "{:?}: {code}", self.place);
                    StopReason::Again
                }
            };
            match over {
                StopReason::Unwanted => return,
                // Above all, it may have no such offset.
                StopReason::Again => {
                    self.look(None).await;
                    self.pause().await;
                }
            }
        }
    }

    fn is_wanted(&self) -> bool {
        *self.turns.borrow() == self.turn && !self.channel.is_closed()
    }

    async fn pause(&mut self) {
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            _ = self.turns.changed() => {}
            () = self.channel.closed() => {}
        }
    }

    async fn read(&mut self, reading: &Reading) -> StopReason {
        let mut asked = Instant::now();
        loop {
            if !self.is_wanted() {
                return StopReason::Unwanted;
            }
            let over = match reading.take() {
                Some(event) => self.deliver(reading, event).await,
                None => {
                    let quiet = asked.max(self.heard) + QUIET;
                    tokio::select! {
                        () = reading.ready() => None,
                        _ = self.turns.changed() => Some(StopReason::Unwanted),
                        () = self.channel.closed() => Some(StopReason::Unwanted),
                        () = tokio::time::sleep_until(quiet) => {
                            let over = self.look(Some(reading)).await;
                            asked = Instant::now();
                            over
                        }
                    }
                }
            };
            if let Some(over) = over {
                return over;
            }
        }
    }

    async fn deliver(&mut self, reading: &Reading, event: Event) -> Option<StopReason> {
        match event {
            Event::Record { offset, .. } if offset < self.next => None,
            Event::Record {
                offset,
                epoch,
                bytes,
            } => {
                self.next = offset + 1;
                self.failed = 0;
                self.slot.epoch.fetch_max(epoch, Ordering::Relaxed);
                let log = self.log;
                let record = RawRecord {
                    log,
                    offset,
                    epoch,
                    bytes,
                };
                let over = self.send(Tail::Record(record)).await;
                self.heard = Instant::now();
                over
            }
            // The answer comes from a leader that is not older than its records.
            Event::End { offset } => {
                let start = reading.first_offset().filter(|start| *start <= offset)?;
                self.send(Tail::NoRecord { start, end: offset }).await
            }
            Event::Failed(code) => {
                tracing::debug!(target: "kafka", "{:?} at {}: {code}", self.place, self.next);
                self.failed += 1;
                if self.failed == FAILED_MAX {
                    let Place { topic, partition } = &self.place;
                    let why = format!("{topic} [{partition}] at offset {}: {code}", self.next);
                    self.failed = 0;
                    self.send(Tail::Trouble(why)).await;
                }
                Some(StopReason::Again)
            }
        }
    }

    /// Reports that the next record does not exist, if so.
    async fn look(&mut self, reading: Option<&Reading>) -> Option<StopReason> {
        let next = self.next;
        let bounds = tokio::select! {
            bounds = self.bounds.get(&self.place) => bounds?,
            _ = self.turns.changed() => return Some(StopReason::Unwanted),
        };
        if self.is_older(bounds) {
            return None;
        }
        // Newer events are delivered first, and make this answer obsolete.
        let event = reading.and_then(Reading::take);
        if let (Some(event), Some(reading)) = (event, reading) {
            let over = self.deliver(reading, event).await;
            if over.is_some() || self.next != next {
                return over;
            }
        }
        let Bounds { start, end, .. } = bounds;
        if next < start || next >= end {
            return self.send(Tail::NoRecord { start, end }).await;
        }
        (self.heard.elapsed() > STUCK).then_some(StopReason::Again)
    }

    /// Returns whether it comes from a leader that is older than that of a record: its log may be
    /// gone.
    fn is_older(&mut self, bounds: Bounds) -> bool {
        if bounds.epoch >= self.slot.epoch.load(Ordering::Relaxed) {
            self.older_since = None;
            return false;
        }
        let since = *self.older_since.get_or_insert_with(Instant::now);
        since.elapsed() < OLDER_MAX
    }

    async fn send(&mut self, tail: Tail) -> Option<StopReason> {
        tokio::select! {
            is_sent = self.channel.send(tail) => (!is_sent).then_some(StopReason::Unwanted),
            _ = self.turns.changed() => Some(StopReason::Unwanted),
        }
    }
}
