//! A log in memory, for tests and for use without a broker. It can simulate the failures of real
//! logs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::log::{
    AppendError, BoxFuture, Log, LogError, RawReadBackResult, RawRecord, SlotNumber, Tail,
};

/// Records buffered for a follower.
const TAIL_MAX: usize = 1024;
/// Interval at which the end of the log is reported again.
const END_AGAIN: Duration = Duration::from_millis(500);

/// Faults to inject. Probabilities are per mille.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Refuses appends.
    pub refuses: bool,
    /// Never answers appends, and does not store them.
    pub hangs: bool,
    /// Duration of an append.
    pub delay: Duration,
    /// A record is written twice.
    pub twice: u32,
    /// A record is written, and the acknowledgement is lost.
    pub written_unknown: u32,
    /// A record is not written, and the outcome is unknown.
    pub lost_unknown: u32,
}

/// A log in memory. Clones are the same log.
#[derive(Clone, Default)]
pub struct MemoryLog {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Counts changes.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    faults: Faults,
    partitions: HashMap<SlotNumber, Partition>,
}

#[derive(Default)]
struct Partition {
    number: u64,
    start: u64,
    epoch: i32,
    records: Vec<(i32, Vec<u8>)>,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            state: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let done = change(&mut self.state());
        self.changed.send_modify(|count| *count += 1);
        done
    }
}

impl Partition {
    fn end(&self) -> u64 {
        self.start + self.records.len() as u64
    }

    fn get(&self, offset: u64) -> Option<RawRecord> {
        let at = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let (epoch, bytes) = self.records.get(at)?;
        Some(RawRecord {
            log: self.number,
            offset,
            epoch: *epoch,
            bytes: bytes.clone(),
        })
    }

    fn push(&mut self, bytes: Vec<u8>) -> u64 {
        self.records.push((self.epoch, bytes));
        self.end() - 1
    }
}

impl MemoryLog {
    /// Creates an empty log.
    pub fn new() -> MemoryLog {
        MemoryLog::default()
    }

    /// Sets the faults from now on.
    pub fn set(&self, faults: Faults) {
        self.shared.change(|state| state.faults = faults);
    }

    /// Elects another leader of a partition, which lacks this many of the last records.
    pub fn cut(&self, slot: SlotNumber, records: usize) {
        self.with(slot, |partition| {
            let keep = partition.records.len().saturating_sub(records);
            partition.records.truncate(keep);
            partition.epoch += 1;
        });
    }

    /// Loses a partition, and recreates it.
    pub fn lose(&self, slot: SlotNumber) {
        self.with(slot, |partition| {
            *partition = Partition {
                number: partition.number + 1,
                ..Partition::default()
            };
        });
    }

    /// Deletes this many of a partition's first records.
    pub fn trim(&self, slot: SlotNumber, records: usize) {
        self.with(slot, |partition| {
            let gone = records.min(partition.records.len());
            partition.records.drain(..gone);
            partition.start += gone as u64;
        });
    }

    /// Returns the offset of a partition's next record.
    pub fn end(&self, slot: SlotNumber) -> u64 {
        let state = self.shared.state();
        state.partitions.get(&slot).map_or(0, Partition::end)
    }

    /// Returns the bytes of all records.
    pub fn bytes(&self) -> usize {
        let state = self.shared.state();
        let records = state.partitions.values().flat_map(|p| &p.records);
        records.map(|(_, bytes)| bytes.len()).sum()
    }

    fn with(&self, slot: SlotNumber, change: impl FnOnce(&mut Partition)) {
        self.shared
            .change(|state| change(state.partitions.entry(slot).or_default()));
    }
}

impl Shared {
    fn append(&self, slot: SlotNumber, record: Vec<u8>) -> Result<u64, AppendError> {
        let unknown = || Err(AppendError::Unknown("no answer".into()));
        let chance = |of: u32| fastrand::u32(..1000) < of;
        self.change(|state| {
            let faults = state.faults;
            if faults.refuses {
                return Err(AppendError::Refused("it takes nothing".into()));
            }
            if chance(faults.lost_unknown) {
                return unknown();
            }
            let partition = state.partitions.entry(slot).or_default();
            if chance(faults.twice) {
                partition.push(record.clone());
            }
            let offset = partition.push(record);
            match chance(faults.written_unknown) {
                true => unknown(),
                false => Ok(offset),
            }
        })
    }

    /// Returns the records from an offset on, or the bounds of the log.
    fn at(&self, slot: SlotNumber, next: u64) -> Result<Vec<RawRecord>, Tail> {
        let mut state = self.state();
        let partition = state.partitions.entry(slot).or_default();
        let records: Vec<RawRecord> = (next..next + 64)
            .map_while(|offset| partition.get(offset))
            .collect();
        match records.is_empty() {
            false => Ok(records),
            true => Err(Tail::NoRecord {
                start: partition.start,
                end: partition.end(),
            }),
        }
    }

    async fn deliver(self: Arc<Self>, slot: SlotNumber, from: u64, to: mpsc::Sender<Tail>) {
        let mut changed = self.changed.subscribe();
        let mut next = from;
        while !to.is_closed() {
            changed.mark_unchanged();
            match self.at(slot, next) {
                Ok(records) => {
                    for record in records {
                        next = record.offset + 1;
                        if to.send(Tail::Record(record)).await.is_err() {
                            return;
                        }
                    }
                }
                Err(end) => {
                    if to.send(end).await.is_err() {
                        return;
                    }
                    tokio::select! {
                        _ = timeout(END_AGAIN, changed.changed()) => {}
                        () = to.closed() => return,
                    }
                }
            }
        }
    }
}

impl Log for MemoryLog {
    fn append(
        &self,
        slot: SlotNumber,
        record: Vec<u8>,
    ) -> BoxFuture<'static, Result<u64, AppendError>> {
        let Faults { hangs, delay, .. } = self.shared.state().faults;
        if delay.is_zero() && !hangs {
            let answer = self.shared.append(slot, record);
            return Box::pin(std::future::ready(answer));
        }
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            sleep(delay).await;
            let mut changed = shared.changed.subscribe();
            while shared.state().faults.hangs {
                let _ = changed.changed().await;
            }
            shared.append(slot, record)
        })
    }

    fn follow(&self, slot: SlotNumber, from: u64) -> mpsc::Receiver<Tail> {
        let (to, tail) = mpsc::channel(TAIL_MAX);
        tokio::spawn(Arc::clone(&self.shared).deliver(slot, from, to));
        tail
    }

    fn read_back(
        &self,
        slot: SlotNumber,
        offset: u64,
        _epoch: i32,
    ) -> BoxFuture<'static, Result<RawReadBackResult, LogError>> {
        // It always has one leader, the latest.
        let mut state = self.shared.state();
        let partition = state.partitions.entry(slot).or_default();
        let found = match partition.get(offset) {
            Some(record) => RawReadBackResult::Record(record),
            None if offset < partition.start => RawReadBackResult::Trimmed,
            None => RawReadBackResult::BeyondEnd,
        };
        Box::pin(std::future::ready(Ok(found)))
    }
}
