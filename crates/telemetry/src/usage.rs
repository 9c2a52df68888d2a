//! Usage by name: the most used ones.

use std::time::Duration;

use rustc_hash::FxHashMap;

/// Maximum number of names, of databases or views, per part of the counters. The least used are
/// forgotten: so names constructed to have equal hashes cost little too.
const REMEMBERED_MAX: usize = 1024;

/// The amount of use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    /// Requests.
    pub requests: u64,
    /// Writing requests among them.
    pub writes: u64,
    /// Time of the requests until their bodies' ends, in microseconds.
    pub us: u64,
    /// Bytes sent and received in bodies.
    pub bytes: u64,
    /// Start of the counts, in seconds since the start: one that was forgotten starts over.
    pub since_s: f64,
}

impl Use {
    fn add(&mut self, other: &Use) {
        self.requests += other.requests;
        self.writes += other.writes;
        self.us += other.us;
        self.bytes += other.bytes;
        self.since_s = self.since_s.max(other.since_s);
    }
}

/// The use since the start, and the time of recent requests, which determines the busiest.
#[derive(Clone, Copy, Debug, Default)]
struct UsageRecord {
    all: Use,
    /// The window that the last request ended in.
    window: u64,
    in_window_us: u64,
    in_window_before_us: u64,
}

/// Length of a window, in seconds. Requests of the current and the previous window are recent.
const WINDOW_S: u64 = 10;

impl UsageRecord {
    fn count(&mut self, of: &Use, window: u64) {
        self.all.add(of);
        self.go_on_to(window);
        self.in_window_us += of.us;
    }

    fn go_on_to(&mut self, window: u64) {
        match window.saturating_sub(self.window) {
            0 => return,
            1 => self.in_window_before_us = self.in_window_us,
            _ => self.in_window_before_us = 0,
        }
        (self.in_window_us, self.window) = (0, window);
    }

    /// Time of the requests of this window and the one before, in microseconds.
    fn lately_us(mut self, window: u64) -> u64 {
        self.go_on_to(window);
        self.in_window_us + self.in_window_before_us
    }
}

/// Returns the window of a time since the start.
fn window(since_start: Duration) -> u64 {
    since_start.as_secs() / WINDOW_S
}

/// Names with how much they are used.
#[derive(Clone, Default)]
pub struct UsageByName(FxHashMap<Box<str>, UsageRecord>);

impl UsageByName {
    /// Counts a use of a name, at a time since the start.
    pub fn count(&mut self, name: &str, of: &Use, since_start: Duration) {
        let window = window(since_start);
        if let Some(known) = self.0.get_mut(name) {
            known.count(of, window);
            return;
        }
        if self.0.len() >= REMEMBERED_MAX {
            self.forget(window);
        }
        let mut new = UsageRecord::default();
        new.all.since_s = since_start.as_secs_f64();
        new.count(of, window);
        self.0.insert(name.into(), new);
    }

    /// Forgets those that took no more time recently than the median.
    fn forget(&mut self, window: u64) {
        let mut times: Vec<u64> = self.0.values().map(|of| of.lately_us(window)).collect();
        let middle = times.len() / 2;
        let median = *times.select_nth_unstable(middle).1;
        self.0.retain(|_, of| of.lately_us(window) > median);
    }

    /// Adds what another one counted.
    pub fn add(&mut self, other: &UsageByName) {
        for (name, of) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            let (newer, mut older) = match sum.window > of.window {
                true => (*sum, *of),
                false => (*of, *sum),
            };
            older.go_on_to(newer.window);
            let mut all = sum.all;
            all.add(&of.all);
            *sum = UsageRecord {
                all,
                window: newer.window,
                in_window_us: newer.in_window_us + older.in_window_us,
                in_window_before_us: newer.in_window_before_us + older.in_window_before_us,
            };
        }
    }

    /// Returns those that took the most time since the start, at most `most`.
    pub fn most_used(&self, most: usize) -> Vec<&str> {
        let mut all: Vec<_> = self
            .0
            .iter()
            .map(|(name, of)| (of.all.us, &**name))
            .collect();
        all.sort_unstable_by(|a, b| (b.0, a.1).cmp(&(a.0, b.1)));
        all.truncate(most);
        all.into_iter().map(|(_, name)| name).collect()
    }

    /// Returns those that took the most time recently, at most `most`, with their use since the
    /// start.
    pub fn busiest(&self, most: usize, since_start: Duration) -> Vec<(&str, Use)> {
        let window = window(since_start);
        let all = self.0.iter();
        let mut all: Vec<_> = all
            .map(|(name, of)| (of.lately_us(window), &**name, of.all))
            .filter(|(lately, ..)| *lately > 0)
            .collect();
        all.sort_unstable_by(|a, b| (b.0, a.1).cmp(&(a.0, b.1)));
        all.truncate(most);
        all.into_iter().map(|(_, name, of)| (name, of)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_the_busiest_stay() {
        let mut used = UsageByName::default();
        let busy = Use {
            requests: 1,
            us: 1000,
            ..Use::default()
        };
        let idle = Use { us: 1, ..busy };
        for i in 0..20_000 {
            used.count("busy", &busy, Duration::ZERO);
            used.count(&format!("db{i}"), &idle, Duration::ZERO);
            assert!(used.0.len() <= REMEMBERED_MAX);
        }
        let busiest = used.busiest(1, Duration::from_secs(WINDOW_S));
        assert_eq!((busiest[0].0, busiest[0].1.requests), ("busy", 20_000));
    }

    #[test]
    fn who_was_busy_long_ago_is_not_among_the_busiest() {
        let of = |us| Use {
            us,
            ..Use::default()
        };
        let (mut one, mut other) = (UsageByName::default(), UsageByName::default());
        one.count("old", &of(1_000_000), Duration::from_secs(5));
        one.count("new", &of(7), Duration::from_secs(61));
        other.count("new", &of(5), Duration::from_secs(55));
        one.add(&other);
        let names = |at| -> Vec<&str> {
            let busiest = one.busiest(9, Duration::from_secs(at));
            busiest.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(62), ["new"]);
        assert_eq!(names(90), Vec::<&str>::new());
        let lately = one.0["new"].lately_us(window(Duration::from_secs(62)));
        assert_eq!((lately, one.0["new"].all.us), (12, 12));
    }

    #[test]
    fn alike_names_are_bounded_too() {
        let mut used = UsageByName::default();
        for i in 0..5_000 {
            used.count(&i.to_string(), &Use::default(), Duration::ZERO);
            assert!(used.0.len() <= REMEMBERED_MAX);
        }
        assert!(used.0.contains_key("4999"));
    }
}
