//! A log with the failures of real logs.

use std::sync::Arc;

use cluster::position::{Chain, digest};
use cluster::replica::{Header, Input, LogRecord, ReadBackResult};

/// A write of a client: its author, its number, and its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub request: (u64, u64),
    pub key: u8,
    pub value: u64,
    /// The content that it names, which is not part of the record.
    pub content: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub epoch: i32,
    pub header: Header,
    pub writes: Vec<Write>,
    pub hash: Chain,
    pub damaged: bool,
}

impl Entry {
    pub fn new(header: Header, writes: Vec<Write>, salt: u64) -> Entry {
        let hash = digest(format!("{header:?}{writes:?}{salt}").as_bytes());
        Entry {
            epoch: 0,
            header,
            writes,
            hash,
            damaged: false,
        }
    }
}

/// One partition.
#[derive(Clone, Debug, Default)]
pub struct FakeLog {
    pub number: u64,
    pub start: u64,
    pub epoch: i32,
    entries: Vec<Arc<Entry>>,
}

impl FakeLog {
    pub fn end(&self) -> u64 {
        self.start + self.entries.len() as u64
    }

    pub fn get(&self, offset: u64) -> Option<&Entry> {
        self.entries
            .get(usize::try_from(offset.checked_sub(self.start)?).ok()?)
            .map(Arc::as_ref)
    }

    pub fn append(&mut self, entry: Entry) -> u64 {
        self.entries.push(Arc::new(Entry {
            epoch: self.epoch,
            ..entry
        }));
        self.end() - 1
    }

    /// Elects another leader, which lacks the last records.
    pub fn lose(&mut self, records: usize) {
        let keep = self.entries.len().saturating_sub(records);
        self.entries.truncate(keep);
        self.epoch += 1;
    }

    /// Elects another leader, whose log has another history.
    pub fn go_back_to(&mut self, branch: FakeLog) {
        let epoch = self.epoch + 1;
        *self = FakeLog { epoch, ..branch };
    }

    /// Applies retention.
    pub fn trim(&mut self, records: usize) {
        let gone = records.min(self.entries.len());
        self.entries.drain(..gone);
        self.start += gone as u64;
    }

    /// Loses everything, and recreates the topic.
    pub fn lose_all(&mut self) {
        *self = FakeLog {
            number: self.number + 1,
            ..FakeLog::default()
        };
    }

    pub fn damage(&mut self, back: u64) {
        let at = self.entries.len().checked_sub(1 + back as usize);
        if let Some(entry) = at.and_then(|at| self.entries.get_mut(at)) {
            Arc::make_mut(entry).damaged = true;
        }
    }

    /// Returns a record as a reader gets it; `damaged` in transit.
    pub fn record(&self, offset: u64, damaged: bool) -> Option<LogRecord> {
        let entry = self.get(offset)?;
        let damaged = damaged || entry.damaged;
        let mut hash = entry.hash;
        hash[0] ^= u8::from(damaged);
        Some(LogRecord {
            log: self.number,
            offset,
            epoch: entry.epoch,
            hash,
            header: (!damaged).then(|| entry.header.clone()),
        })
    }

    /// Returns a record; `None` if this leader is not of that epoch of that log, or later.
    pub fn read_back(&self, offset: u64, (log, epoch): (u64, i32), damaged: bool) -> Option<Input> {
        if self.number == log && self.epoch < epoch {
            return None;
        }
        let found = match self.record(offset, damaged) {
            Some(record) => ReadBackResult::Record(record),
            None if offset < self.start => ReadBackResult::Trimmed,
            None => ReadBackResult::BeyondEnd,
        };
        Some(Input::ReadBack { offset, found })
    }
}
