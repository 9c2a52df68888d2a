//! Feeds inputs to the replica and carries out its outputs: records, the store, the tail of the
//! log.

use std::mem::take;

use tokio::sync::mpsc;

use super::{PendingWrite, Task, Todo, WriteInfo};
use crate::log::{RawRecord, Tail};
use crate::position::digest;
use crate::record::{Body, RecordError};
use crate::replica::{Cursor, DurableState, Input, LogRecord, Output, Reason, Replica};
use crate::slot::types::{Outcomes, SlotStore, StableOffset, StoreError};

/// Maximum number of ticks between retries of a failing store.
const AGAIN_TICKS_MAX: u32 = 15;

impl<S: SlotStore> Task<S> {
    /// Starts a replica from the durable state.
    pub(super) fn begin(&mut self, saved: Option<DurableState>, start: u64) {
        let Some(saved) = saved else {
            // A new slot: its initial state is written first.
            self.is_fresh = true;
            let cursor = Cursor::start(self.options.genesis.clone());
            return self.apply(None, &cursor, false, 0);
        };
        self.boot += 1;
        self.generation = saved.cursor.position.generation;
        self.next = saved.cursor.position.next_offset;
        self.lag.restart();
        self.reading_back.clear();
        self.proposals.renew();
        let (mut replica, mut out) = Replica::new(self.options.me, start, saved);
        out.extend(replica.handle(Input::Known(self.known.clone())));
        if let Some(ticks) = self.lacking_ticks {
            out.extend(replica.handle(Input::Lacking(ticks)));
        }
        out.extend(self.readers.renew(&mut replica));
        self.replica = Some(replica);
        self.begin_stable(self.next);
        self.queue(out, &mut None, 0);
        self.carry_out();
    }

    /// Handles a failure of the store: nothing continues until it is retried from its state.
    pub(super) fn fail(&mut self, error: &StoreError) {
        // Writes queued behind it fail as well.
        let is_first = self.replica.take().is_some() || self.again_ticks.0 == 0;
        self.tail = None;
        self.todo.clear();
        if !is_first {
            return;
        }
        self.store_error = Some(error.clone());
        // Without such reports, another node may have the content and only be slow, or out of reach.
        let is_lacking = matches!(
            error,
            StoreError::Lacking {
                by_majority: true,
                ..
            }
        );
        self.lacking_ticks = is_lacking.then(|| self.lacking_ticks.unwrap_or(0));
        let pause = (2 * self.again_ticks.1 + 1).min(AGAIN_TICKS_MAX);
        self.again_ticks = (pause, pause);
        self.complain(match error {
            StoreError::Lacking { text, .. } => text.clone(),
            _ => format!("the store failed: {error}"),
        });
    }

    /// Retries at a tick, with a growing interval while the store fails. A full disk can still be
    /// read, so then it is the log that is not followed meanwhile.
    pub(super) fn go_on_after_failure(&mut self) {
        let is_full = matches!(self.store_error, Some(StoreError::Full(_)));
        let left = &mut self.again_ticks.0;
        *left = left.saturating_sub(1);
        let is_over = *left == 0;
        if self.replica.is_none() && (is_full || is_over) {
            self.try_again();
        } else if self.replica.is_some() && self.tail.is_none() && is_over {
            self.follow(self.next);
        }
    }

    pub(super) fn try_again(&mut self) {
        let is_idle = self.applying.is_empty() && self.promising.is_none() && !self.is_installing;
        if !is_idle {
            return;
        }
        match self.store.saved() {
            Ok(saved) => self.begin(saved, fastrand::u64(..)),
            Err(error) => self.fail(&error),
        }
    }

    pub(super) fn give(&mut self, input: Input) {
        self.give_with(input, None, 0);
    }

    /// Gives the replica an input, with the contents of its record.
    pub(super) fn give_with(&mut self, input: Input, mut body: Option<Body>, bytes: usize) {
        let Some(replica) = &mut self.replica else {
            return;
        };
        let out = replica.handle(input);
        self.queue(out, &mut body, bytes);
        self.carry_out();
    }

    pub(super) fn queue(&mut self, out: Vec<Output>, body: &mut Option<Body>, bytes: usize) {
        let todo = out.into_iter().map(|output| {
            let body = match &output {
                Output::Apply { data: true, .. } => body.take(),
                _ => None,
            };
            Todo {
                output,
                body,
                bytes,
            }
        });
        self.todo.extend(todo);
    }

    /// Carries out outputs in order, up to a promise that has to be on disk.
    pub(super) fn carry_out(&mut self) {
        while self.promising.is_none()
            && let Some(Todo {
                output,
                body,
                bytes,
            }) = self.todo.pop_front()
        {
            match output {
                Output::Fetch { from } => self.follow(from),
                Output::ReadBack { offset, epoch } => self.read_back(offset, epoch),
                Output::Apply { data, cursor } => self.apply(body, &cursor, data, bytes),
                Output::Promise(promises) => self.promising = Some(self.store.promise(&promises)),
                Output::Send { to, message } => {
                    self.network.send(to, self.options.slot, message);
                }
                Output::Append(begin) => self.append_begin(begin),
                Output::ReadNow(read) => self.readers.read_now(read),
                Output::ReadDone(read) => self.readers.done(read),
                Output::Stable {
                    generation,
                    next_offset,
                } => self.stable(StableOffset {
                    generation,
                    next_offset,
                }),
                Output::Copy { from } => self.copy(from),
                Output::Halted(reason) => self.halted(reason),
            }
        }
    }

    /// A slot that starts with data has no record of it. That state is stable from the beginning;
    /// records become stable when a majority has them.
    pub(super) fn begin_stable(&self, next_offset: u64) {
        if next_offset == 0 {
            self.stable(StableOffset {
                generation: self.generation,
                next_offset,
            });
        }
    }

    pub(super) fn stable(&self, stable: StableOffset) {
        self.board.stable.send_if_modified(|known| {
            let is_later = stable > *known;
            if is_later {
                *known = stable;
            }
            is_later
        });
    }

    /// It checks again periodically, with the same result, which is logged once.
    fn halted(&mut self, reason: Reason) {
        if self.told_halt.replace(reason) != Some(reason) {
            tracing::warn!(slot = self.options.slot, "the slot halts here: {reason}");
        }
    }

    pub(super) fn follow(&mut self, from: u64) {
        // One at a time.
        self.tail = None;
        if from < self.next {
            self.lag.restart();
        }
        self.next = from;
        if self.again_ticks.0 == 0 {
            self.tail = Some(self.log.follow(self.options.slot, from));
        }
    }

    pub(super) fn tail(&mut self, tail: Option<Tail>) {
        match tail {
            // Followed again at the next tick.
            None => self.lose_tail(),
            Some(Tail::Trouble(why)) => self.complain(format!("the log is not read: {why}")),
            Some(Tail::NoRecord { start, end }) => {
                self.log_end = Some(end);
                if self.replica.as_ref().is_some_and(|r| r.halted().is_none()) {
                    self.error = None;
                }
                self.give(Input::NoRecord { start, end });
            }
            Some(Tail::Record(raw)) => {
                self.next = raw.offset + 1;
                self.log_end = self.log_end.max(Some(self.next));
                let bytes = raw.bytes.len();
                self.lag.given(bytes);
                // Unless this one cannot be read.
                self.error = None;
                let (record, body) = self.decode(&raw);
                self.give_with(Input::Record(record), body, bytes);
            }
        }
    }

    /// Keeps a tail that has ended, so that it is not polled.
    pub(super) fn lose_tail(&mut self) {
        let (_, ended) = mpsc::channel(1);
        self.tail = Some(ended);
        self.complain("the log's reader ended".into());
    }

    pub(super) fn decode(&mut self, raw: &RawRecord) -> (LogRecord, Option<Body>) {
        let (hash, header, body) = match self.options.stamp.read(&raw.bytes) {
            Ok(record) => {
                let header = record.header();
                (record.hash, Some(header), Some(record.body))
            }
            Err(error) => {
                self.no_record(raw.offset, &error);
                (digest(&raw.bytes), None, None)
            }
        };
        let record = LogRecord {
            log: raw.log,
            offset: raw.offset,
            epoch: raw.epoch,
            hash,
            header,
        };
        (record, body)
    }

    pub(super) fn no_record(&mut self, offset: u64, error: &RecordError) {
        self.complain(format!("at offset {offset} of the log: {error}"));
    }

    /// Reports an error, in the status and once in the program's log.
    pub(super) fn complain(&mut self, text: String) {
        // Messages that differ only in numbers are not logged again.
        let kind: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
        if self.told.as_ref() != Some(&kind) {
            tracing::error!(slot = self.options.slot, "{text}");
            self.told = Some(kind);
        }
        self.error = Some(text);
    }

    pub(super) fn apply(&mut self, body: Option<Body>, cursor: &Cursor, data: bool, bytes: usize) {
        let hash = cursor.last.map(|last| last.hash);
        let hash = hash.filter(|_| self.proposals.awaits_records());
        let of = WriteInfo {
            boot: self.boot,
            generation: cursor.position.generation,
            next_offset: cursor.position.next_offset,
            bytes,
            single: hash.map(|hash| (hash, data, cursor.members.to_vec())),
        };
        let written = self.store.apply(body, cursor);
        self.applying_bytes += bytes;
        self.applying.push_back(PendingWrite { written, of });
    }

    /// Handles writes that the store has finished.
    pub(super) fn applied(&mut self) {
        let mut applied = None;
        for (of, result) in take(&mut self.written) {
            self.applying_bytes -= of.bytes;
            match result {
                Err(error) => self.fail(&error),
                Ok(_) if take(&mut self.is_fresh) => self.try_again(),
                Ok(outcomes) if self.replica.is_some() && of.boot == self.boot => {
                    applied = Some((of.generation, of.next_offset));
                    self.take_outcomes(of, outcomes);
                }
                // It had failed before.
                Ok(_) => {}
            }
        }
        if let Some((generation, next_offset)) = applied {
            self.give(Input::Applied {
                generation,
                next_offset,
            });
        }
    }

    pub(super) fn take_outcomes(&mut self, of: WriteInfo, outcomes: Outcomes<S::Outcome>) {
        if of.generation != self.generation {
            self.generation = of.generation;
            self.proposals.renew();
        }
        self.error = None;
        self.store_error = None;
        self.again_ticks = (0, 0);
        self.lacking_ticks = None;
        self.told_halt = None;
        for (key, outcome) in outcomes {
            self.proposals.outcome(key, outcome, of.next_offset);
        }
        if let Some((hash, data, members)) = of.single {
            self.proposals
                .went_by(&hash, data, &members, of.next_offset);
        }
    }
}
