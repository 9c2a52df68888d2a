//! Tracks the seq up to which all batches are finished, in whatever order they finish.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::Value;

/// The batches in flight, in the order of the source.
pub struct Watermark(Mutex<State>);

struct State {
    /// Everything up to this seq is finished.
    seq: Value,
    /// The number of the next batch.
    next: u64,
    /// The batches that are not finished, by number.
    open: BTreeMap<u64, OpenBatch>,
    with_changes: u64,
}

struct OpenBatch {
    /// Its last seq.
    end: Value,
    /// The last seq of the finished batches between this one and the next open one. They leave nothing else:
    /// thousands of batches can finish while one is open.
    finished: Option<Value>,
}

impl Watermark {
    pub fn new(seq: Value) -> Watermark {
        Watermark(Mutex::new(State {
            seq,
            next: 0,
            open: BTreeMap::new(),
            with_changes: 0,
        }))
    }

    /// Starts a batch that ends at `seq`; returns its number.
    pub fn begin(&self, seq: Value) -> u64 {
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        let batch = OpenBatch {
            end: seq,
            finished: None,
        };
        state.open.insert(number, batch);
        number
    }

    /// Marks a batch as finished. Returns the new watermark, and the last seq of the batch.
    pub fn finish(&self, number: u64, had_changes: bool) -> (Value, Value) {
        let mut state = self.0.lock();
        state.with_changes += u64::from(had_changes);
        let Some(batch) = state.open.remove(&number) else {
            return (state.seq.clone(), Value::Null);
        };
        let through = batch.finished.unwrap_or_else(|| batch.end.clone());
        match state.open.range_mut(..number).next_back() {
            Some((_, before)) => before.finished = Some(through),
            None => state.seq = through,
        }
        (state.seq.clone(), batch.end)
    }

    pub fn seq(&self) -> Value {
        self.0.lock().seq.clone()
    }

    /// Returns the number of finished batches that were not empty.
    pub fn batches_with_changes(&self) -> u64 {
        self.0.lock().with_changes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_batch_that_is_not_done_holds_back_those_after_it() {
        let through = Watermark::new(0.into());
        let numbers: Vec<u64> = (1..=3).map(|n| through.begin(n.into())).collect();
        through.finish(numbers[2], true);
        through.finish(numbers[1], false);
        assert_eq!(through.seq(), 0);
        through.finish(numbers[0], true);
        assert_eq!(through.seq(), 3);
        assert_eq!(through.batches_with_changes(), 2);
        through.begin(4.into());
        assert_eq!(through.seq(), 3);
    }

    proptest! {
        #[test]
        fn never_past_the_first_open_batch(order in Just((0u64..20).collect::<Vec<_>>()).prop_shuffle()) {
            let through = Watermark::new(0.into());
            for n in 1..=20u64 {
                through.begin(n.into());
            }
            let mut done = std::collections::BTreeSet::new();
            for number in order {
                through.finish(number, true);
                done.insert(number);
                let first_open = (0..20).find(|n| !done.contains(n)).unwrap_or(20);
                prop_assert_eq!(through.seq(), first_open);
                prop_assert_eq!(through.0.lock().open.len(), 20 - done.len());
            }
        }
    }
}
