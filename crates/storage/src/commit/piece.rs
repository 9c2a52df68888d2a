//! Limits the work of one batch.

use std::time::{Duration, Instant};

use super::op::Op;
use super::queue::BATCH_BYTES_MAX;
use crate::Error;
use crate::batch::Batch;

/// After this time no more edits are applied in a batch. Writing them takes about as long again.
const TIME_MAX: Duration = Duration::from_millis(10);
/// Time in each batch that is reserved for long operations.
const LONG_TIME_MIN: Duration = Duration::from_millis(3);
const LONG_BYTES_MIN: usize = 1 << 20;

/// Number of records read at a time: at first, factor of growth, and maximum. A record may have
/// megabytes, and the size of the next ones is unknown.
pub(super) const WINDOW_FIRST: usize = 8;
const WINDOW_GROWTH: usize = 4;
const WINDOW_MAX: usize = 1024;
/// Approximate maximum size of records decoded at a time, in bytes.
const WINDOW_BYTES: usize = 256 << 10;

/// The remaining time and bytes of a batch.
pub(super) struct Budget {
    until: Instant,
    bytes_max: usize,
    is_long: bool,
}

impl Budget {
    pub fn new() -> Budget {
        Budget {
            until: Instant::now() + TIME_MAX,
            bytes_max: BATCH_BYTES_MAX,
            is_long: false,
        }
    }

    /// Starts the long operations.
    pub fn begin_long(&mut self) {
        if !std::mem::replace(&mut self.is_long, true) {
            self.until = self.until.max(Instant::now() + LONG_TIME_MIN);
            self.bytes_max += LONG_BYTES_MIN;
        }
    }

    pub fn is_spent(&self, batch: &Batch<'_>) -> bool {
        batch.bytes() >= self.bytes_max || Instant::now() >= self.until
    }
}

/// Reads the records of documents in the order in which they are needed, some ahead: fewer at a
/// time when they are long.
pub(super) struct Fetcher<'e> {
    ops: &'e [Op],
    /// The first edit or purge whose record was not read.
    op: usize,
    place: usize,
    window: usize,
}

impl<'e> Fetcher<'e> {
    /// `window` is the number of records to read first, as the fetcher of the batch before
    /// determined ([`Fetcher::window`]).
    pub fn new(ops: &'e [Op], window: usize) -> Fetcher<'e> {
        Fetcher {
            ops,
            op: 0,
            place: ops.first().map_or(0, Op::done),
            window: window.min(WINDOW_FIRST),
        }
    }

    /// Returns the number of records that it would read next.
    pub fn window(&self) -> usize {
        self.window
    }

    /// Returns whether the record of an operation's edit was read.
    pub fn has(&self, op: usize, place: usize) -> bool {
        (op, place) < (self.op, self.place)
    }

    /// Reads records up to that of an operation's edit. Unread ones of operations before it are not
    /// needed.
    pub fn reach(&mut self, op: usize, place: usize, batch: &mut Batch<'e>) -> Result<(), Error> {
        if self.op < op {
            (self.op, self.place) = (op, self.ops[op].done());
        }
        while !self.has(op, place) && self.op < self.ops.len() {
            self.read_some(batch)?;
        }
        Ok(())
    }

    fn read_some(&mut self, batch: &mut Batch<'e>) -> Result<(), Error> {
        let mut docs = Vec::with_capacity(self.window);
        // Where to continue after each number of documents.
        let mut ends = Vec::with_capacity(self.window);
        while let Some(op) = self.ops.get(self.op)
            && docs.len() < self.window
        {
            self.place = op.docs_into(self.place, docs.len() + 1, &mut docs);
            if self.place >= op.parts() {
                self.op += 1;
                self.place = self.ops.get(self.op).map_or(0, Op::done);
            }
            ends.push((docs.len(), self.op, self.place));
        }
        let may_stop = |count: usize| ends.binary_search_by_key(&count, |end| end.0).is_ok();
        let (read, bytes) = batch.fetch(&docs, WINDOW_BYTES, may_stop)?;
        if read < docs.len()
            && let Some(&(_, op, place)) = ends.iter().rfind(|end| end.0 == read)
        {
            (self.op, self.place) = (op, place);
        }
        self.window = match bytes <= WINDOW_BYTES {
            true => (self.window * WINDOW_GROWTH).min(WINDOW_MAX),
            false => (read * WINDOW_BYTES / bytes).max(1),
        };
        Ok(())
    }
}
