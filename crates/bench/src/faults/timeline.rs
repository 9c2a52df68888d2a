//! Times of responses: throughput before a fault, and its recovery.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

/// Length of a bucket, in seconds.
const BUCKET: f64 = 0.05;
/// Throughput counts as recovered after 10 buckets: half a second.
const WINDOW: usize = 10;

/// Counts of responses by time, shared by all clients.
#[derive(Clone)]
pub(super) struct Timeline(Rc<Inner>);

struct Inner {
    start: Instant,
    buckets: RefCell<Vec<u32>>,
    /// The fault: answers to requests that began at this time or later are from after it.
    began_from: Cell<f64>,
    /// Responses from this time on are from after the fault.
    ended_from: Cell<f64>,
    first: Cell<Option<f64>>,
}

impl Timeline {
    pub(super) fn start() -> Self {
        Self(Rc::new(Inner {
            start: Instant::now(),
            buckets: RefCell::default(),
            began_from: Cell::new(f64::INFINITY),
            ended_from: Cell::new(f64::INFINITY),
            first: Cell::new(None),
        }))
    }

    /// Seconds since the start.
    pub(super) fn now(&self) -> f64 {
        self.0.start.elapsed().as_secs_f64()
    }

    /// Notes an answer that came now, to a request that began at `began`.
    pub(super) fn note(&self, began: f64) {
        self.note_at(began, self.now());
    }

    fn note_at(&self, began: f64, now: f64) {
        let mut buckets = self.0.buckets.borrow_mut();
        let at = (now / BUCKET) as usize;
        if buckets.len() <= at {
            buckets.resize(at + 1, 0);
        }
        buckets[at] += 1;
        let is_after = began >= self.0.began_from.get() || now >= self.0.ended_from.get();
        if is_after && self.0.first.get().is_none() {
            self.0.first.set(Some(now));
        }
    }

    /// The first answer is now the first to a request that began at `at` or later.
    pub(super) fn count_from(&self, at: f64) {
        self.0.began_from.set(at);
        self.0.ended_from.set(f64::INFINITY);
        self.0.first.set(None);
    }

    /// The first answer is now the first that comes at `at` or later.
    pub(super) fn count_ended_from(&self, at: f64) {
        self.0.began_from.set(f64::INFINITY);
        self.0.ended_from.set(at);
        self.0.first.set(None);
    }

    /// When the first answer after the fault came.
    pub(super) fn first_answer(&self) -> Option<f64> {
        self.0.first.get()
    }

    /// Responses per second between two times, in whole buckets.
    pub(super) fn rate(&self, from: f64, to: f64) -> f64 {
        let (from, to) = ((from / BUCKET).ceil() as usize, (to / BUCKET) as usize);
        let buckets = self.0.buckets.borrow();
        let count: u32 = buckets.iter().take(to).skip(from).sum();
        match to > from {
            true => f64::from(count) / ((to - from) as f64 * BUCKET),
            false => 0.0,
        }
    }

    /// The start of the first half second after `from` with at least `rate` responses per second;
    /// `None` if there was none yet.
    pub(super) fn back_at(&self, from: f64, rate: f64) -> Option<f64> {
        let first = (from / BUCKET).ceil() as usize;
        // The bucket that is being filled does not count yet.
        let done = (self.now() / BUCKET) as usize;
        let buckets = self.0.buckets.borrow();
        let count = |at: usize| buckets.get(at).copied().unwrap_or_default();
        let wanted = rate * WINDOW as f64 * BUCKET;
        (first..)
            .take_while(|at| at + WINDOW <= done)
            .find(|at| f64::from((*at..at + WINDOW).map(count).sum::<u32>()) >= wanted)
            .map(|at| at as f64 * BUCKET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A timeline that began a minute ago, with an answer each hundredth of a second but from 10 to 12.
    fn with_a_gap() -> Timeline {
        let timeline = Timeline(Rc::new(Inner {
            start: Instant::now() - Duration::from_secs(60),
            buckets: RefCell::default(),
            began_from: Cell::new(f64::INFINITY),
            ended_from: Cell::new(f64::INFINITY),
            first: Cell::new(None),
        }));
        timeline.count_from(10.0);
        for at in (0..2_000).filter(|at| !(1_000..1_200).contains(at)) {
            // The answer at 12 is to a request of before.
            let began = if at == 1_200 {
                9.99
            } else {
                f64::from(at) / 100.0
            };
            timeline.note_at(began, f64::from(at) / 100.0 + 0.001);
        }
        timeline
    }

    #[test]
    fn the_rate_is_of_whole_buckets() {
        let timeline = with_a_gap();
        assert!((timeline.rate(1.0, 9.0) - 100.0).abs() < 1.0);
        assert_eq!(timeline.rate(10.02, 11.98), 0.0);
        assert_eq!(timeline.rate(5.0, 5.0), 0.0);
    }

    #[test]
    fn recovery_is_told_from_the_answers() {
        let timeline = with_a_gap();
        let first = timeline.first_answer().unwrap();
        assert!((first - 12.011).abs() < 1e-6, "{first}");
        let back = timeline.back_at(10.0, 90.0).unwrap();
        assert!((11.9..12.1).contains(&back), "{back}");
        assert_eq!(timeline.back_at(10.0, 150.0), None);
        timeline.count_ended_from(0.0);
        assert_eq!(timeline.first_answer(), None);
    }
}
