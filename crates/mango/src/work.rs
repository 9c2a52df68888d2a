//! The bound on the processor time that a selector takes for one document.
//!
//! Conditions are counted in steps, which are a flag's and a counter's cost; the clock of the thread is read after many of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use thiserror::Error;

/// The maximum processor time of a thread for one document: reading 64 regular expressions over the largest document that
/// CouchDB takes needs about half of it.
pub const DOCUMENT_TIME_MAX: Duration = Duration::from_secs(2);

/// Steps between two reads of the clock: about a millisecond.
const STEPS: u32 = 20_000;

/// The sort keys of longer values are kept until the document is judged, in bytes,
pub(crate) const LONG_VALUE_BYTES: usize = 1 << 10;
/// up to this many bytes of them.
const KEYS_BYTES_MAX: usize = 32 << 20;

/// A selector took longer than [`DOCUMENT_TIME_MAX`] for a document.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("The selector takes more than {} s of processor time for one document", DOCUMENT_TIME_MAX.as_secs())]
pub struct TookTooLong;

thread_local! {
    static WORK: Work = const { Work::new() };
}

struct Work {
    steps_left: Cell<u32>,
    /// The thread's processor time at the first read of the clock.
    began: Cell<Option<Duration>>,
    is_over: Cell<bool>,
    /// Whether a document is being judged.
    is_judging: Cell<bool>,
    keys: RefCell<Keys>,
    /// How often the clock was read.
    #[cfg(test)]
    clock_reads: Cell<u32>,
}

/// The sort keys of values, by where these are in memory.
struct Keys {
    by_place: BTreeMap<(usize, usize), Vec<u8>>,
    bytes: usize,
}

impl Work {
    const fn new() -> Work {
        Work {
            steps_left: Cell::new(STEPS),
            began: Cell::new(None),
            is_over: Cell::new(false),
            is_judging: Cell::new(false),
            keys: RefCell::new(Keys {
                by_place: BTreeMap::new(),
                bytes: 0,
            }),
            #[cfg(test)]
            clock_reads: Cell::new(0),
        }
    }

    #[cold]
    fn read_clock(&self) {
        self.steps_left.set(STEPS);
        #[cfg(test)]
        self.clock_reads.set(self.clock_reads.get() + 1);
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
        match self.began.get() {
            None => self.began.set(Some(now)),
            Some(began) if now.saturating_sub(began) >= DOCUMENT_TIME_MAX => self.is_over.set(true),
            Some(_) => {}
        }
    }
}

/// Judges one document. The result of `judge` does not count if its time is over.
///
/// # Errors
/// [`TookTooLong`].
pub(crate) fn bounded(judge: impl FnOnce() -> bool) -> Result<bool, TookTooLong> {
    WORK.with(|work| {
        work.steps_left.set(STEPS);
        work.began.set(None);
        work.is_over.set(false);
        work.is_judging.set(true);
    });
    let judging = Judging;
    let matches = judge();
    drop(judging);
    match WORK.with(|work| work.is_over.get()) {
        true => Err(TookTooLong),
        false => Ok(matches),
    }
}

/// A document is being judged: its values stay where they are in memory.
struct Judging;

impl Drop for Judging {
    fn drop(&mut self) {
        WORK.with(|work| {
            work.is_judging.set(false);
            let mut keys = work.keys.borrow_mut();
            if keys.bytes > 0 {
                keys.by_place.clear();
                keys.bytes = 0;
            }
        });
    }
}

/// Calls `take` with the sort key of a value, which `make` makes.
pub(crate) fn with_key<T>(
    value: &[u8],
    make: impl FnOnce() -> Vec<u8>,
    take: impl FnOnce(&[u8]) -> T,
) -> T {
    WORK.with(|work| {
        if !work.is_judging.get() {
            return take(&make());
        }
        let place = (value.as_ptr().addr(), value.len());
        let mut keys = work.keys.borrow_mut();
        if let Some(key) = keys.by_place.get(&place) {
            return take(key);
        }
        let key = make();
        let taken = take(&key);
        if keys.bytes + key.capacity() <= KEYS_BYTES_MAX {
            keys.bytes += key.capacity();
            keys.by_place.insert(place, key);
        }
        taken
    })
}

/// Keeps no sort keys meanwhile, for values that do not stay where they are in memory.
pub(crate) fn without_keys<T>(judge: impl FnOnce() -> T) -> T {
    let was_judging = WORK.with(|work| work.is_judging.replace(false));
    let judged = judge();
    WORK.with(|work| work.is_judging.set(was_judging));
    judged
}

/// Ends the judging of this document.
pub(crate) fn give_up() {
    WORK.with(|work| work.is_over.set(true));
}

/// Counts the work on `bytes` of a value, and returns whether the time is over.
pub(crate) fn is_over(bytes: usize) -> bool {
    WORK.with(|work| {
        let steps = u32::try_from(1 + bytes / 64).unwrap_or(u32::MAX);
        match work.steps_left.get().checked_sub(steps) {
            Some(left) => work.steps_left.set(left),
            None => work.read_clock(),
        }
        work.is_over.get()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::Selector;

    /// Returns how often the clock is read while a document is judged.
    fn clock_reads(selector: &Value, document: &Value) -> u32 {
        let selector = Selector::parse(selector).expect("a selector");
        let reads = || WORK.with(|work| work.clock_reads.get());
        let before = reads();
        selector.matches(document);
        reads() - before
    }

    #[test]
    fn each_element_costs_as_much_as_the_paths_that_are_looked_up_in_it() {
        let paths = |count: usize| {
            let paths = (0..count).map(|n| json!({(format!("a{n}.b.c.d.e.f")): 1}));
            paths.collect::<Vec<Value>>()
        };
        let with = |combination: &str, first: Value, count: usize| {
            let mut nodes = vec![first];
            nodes.extend(paths(count));
            json!({combination: nodes})
        };
        let members: serde_json::Map<String, Value> =
            (0..200).map(|n| (format!("m{n}"), json!(1))).collect();
        let document = json!({"a": vec![1; 200], "o": members});
        // The first condition decides about each element.
        let of_all = |count| json!({"a": {"$allMatch": with("$or", json!({"$gt": -1}), count)}});
        let of_any = |count| json!({"a": {"$elemMatch": with("$and", json!({"$gt": 1}), count)}});
        let of_names =
            |count| json!({"o": {"$keyMapMatch": with("$and", json!({"$eq": "x"}), count)}});
        for (few, many) in [
            (of_all(1), of_all(1000)),
            (of_any(1), of_any(1000)),
            (of_names(1), of_names(1000)),
        ] {
            assert_eq!(clock_reads(&few, &document), 0, "{few}");
            let reads = clock_reads(&many, &document);
            assert!(reads >= 10, "{reads} for {} bytes", many.to_string().len());
        }
    }

    #[test]
    fn each_array_costs_as_much_as_the_operands_of_all() {
        let document = json!({"a": vec![json!([]); 200]});
        let of = |count: usize| {
            let operands: Vec<usize> = (0..count).collect();
            json!({"a": {"$elemMatch": {"$all": operands}}})
        };
        assert_eq!(clock_reads(&of(1), &document), 0);
        assert!(clock_reads(&of(20_000), &document) >= 2);
    }
}
