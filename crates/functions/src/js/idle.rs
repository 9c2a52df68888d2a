//! A pool of idle items, limited by number, size and time.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Items that no call uses now. The most recently used one is last.
pub(super) struct Idle<T> {
    entries: Mutex<Vec<Entry<T>>>,
    count_max: usize,
    bytes_max: usize,
}

struct Entry<T> {
    item: T,
    bytes: usize,
    since: Instant,
}

impl<T> Idle<T> {
    /// Creates a pool of at most `count_max` items that take at most `bytes_max` in total.
    pub fn new(count_max: usize, bytes_max: usize) -> Idle<T> {
        Idle {
            entries: Mutex::default(),
            count_max,
            bytes_max,
        }
    }

    /// Takes the most recently used item that fits.
    pub fn take(&self, fits: impl Fn(&T) -> bool) -> Option<T> {
        let mut entries = self.entries.lock();
        let at = entries.iter().rposition(|entry| fits(&entry.item))?;
        Some(entries.remove(at).item)
    }

    /// Adds an item of `bytes` bytes. The oldest are evicted for it; one that exceeds the whole
    /// pool is dropped.
    pub fn put(&self, item: T, bytes: usize) {
        if bytes > self.bytes_max {
            return;
        }
        let mut entries = self.entries.lock();
        entries.push(Entry {
            item,
            bytes,
            since: Instant::now(),
        });
        let mut sum: usize = entries.iter().map(|entry| entry.bytes).sum();
        let mut surplus = 0;
        while entries.len() - surplus > self.count_max || sum > self.bytes_max {
            sum -= entries[surplus].bytes;
            surplus += 1;
        }
        let dropped: Vec<_> = entries.drain(..surplus).collect();
        drop(entries);
        drop(dropped);
    }

    /// Drops items that were not used for `time`.
    pub fn rest(&self, time: Duration) {
        let mut entries = self.entries.lock();
        let dropped: Vec<_> = entries
            .extract_if(.., |entry| entry.since.elapsed() > time)
            .collect();
        drop(entries);
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_idle_stays_within_its_number_and_size() {
        let idle = Idle::new(3, 100);
        for n in 0..5 {
            idle.put(n, 10);
        }
        assert_eq!(idle.take(|&n| n == 1), None);
        assert_eq!(idle.take(|&n| n == 2), Some(2));
        idle.put(5, 85);
        assert_eq!(idle.take(|&n| n == 3), None);
        assert_eq!(idle.take(|&n| n == 4), Some(4));
        idle.put(6, 101);
        assert_eq!(idle.take(|&n| n == 6), None);
        assert_eq!(idle.take(|&n| n == 5), Some(5));
        idle.put(7, 100);
        idle.rest(Duration::ZERO);
        assert_eq!(idle.take(|_| true), None);
    }
}
