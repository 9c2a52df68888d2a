//! Stacks, and how much of something each has.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::Error;

/// The name of code without a name.
pub(crate) const UNKNOWN: &str = "[unknown]";
/// The outermost frame of a stack whose callers were not found.
pub(crate) const CUT: &str = "[cut]";

/// The unit of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Samples of processor time, with a rate per second.
    Samples {
        /// The number of samples per second.
        hz: u32,
    },
    /// Microseconds of wall time.
    Microseconds,
}

/// Stacks with numbers.
#[derive(Clone, Debug)]
pub struct Profile {
    pub(crate) unit: Unit,
    /// Frames divided by semicolons, outer ones first.
    pub(crate) stacks: BTreeMap<String, u64>,
    unknown: u64,
    lost: u64,
    left_out: u64,
}

/// The growth of a function's share.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// The frame.
    pub name: String,
    /// Its share of the first profile, 0 to 1.
    pub before: f64,
    /// Its share of the second.
    pub after: f64,
}

impl Profile {
    /// Nothing yet.
    pub fn new(unit: Unit) -> Profile {
        Profile {
            unit,
            stacks: BTreeMap::new(),
            unknown: 0,
            lost: 0,
            left_out: 0,
        }
    }

    /// Parses folded text.
    ///
    /// # Errors
    /// [`Error::Folded`] with the invalid line.
    pub fn parse(folded: &str, unit: Unit) -> Result<Profile, Error> {
        let mut profile = Profile::new(unit);
        for (n, line) in folded
            .lines()
            .enumerate()
            .filter(|(_, l)| !l.trim().is_empty())
        {
            let stack = line.trim().rsplit_once(' ');
            let stack = stack.and_then(|(stack, count)| Some((stack, count.parse::<u64>().ok()?)));
            let (stack, count) = stack.ok_or(Error::Folded { line: n + 1 })?;
            *profile.stacks.entry(stack.to_owned()).or_default() += count;
        }
        Ok(profile)
    }

    /// Adds to a stack, outer frames first.
    pub fn add<S: AsRef<str>>(&mut self, frames: &[S], count: u64) {
        if count == 0 {
            return;
        }
        let mut stack = String::new();
        for (n, frame) in frames.iter().enumerate() {
            if n > 0 {
                stack.push(';');
            }
            stack.push_str(frame.as_ref());
        }
        *self.stacks.entry(stack).or_default() += count;
    }

    /// Counts stacks with a frame without a name, or that end too early.
    pub(crate) fn add_unknown(&mut self, count: u64) {
        self.unknown += count;
    }

    pub(crate) fn lose(&mut self, count: u64) {
        self.lost += count;
    }

    pub(crate) fn leave_out(&mut self, threads: u64) {
        self.left_out += threads;
    }

    /// Keeps the stacks that have a frame, from that frame on.
    pub fn below(self, frame: &str) -> Profile {
        let mut kept = Profile::new(self.unit);
        (kept.lost, kept.left_out) = (self.lost, self.left_out);
        for (stack, count) in self.stacks {
            let Some(at) = stack.split(';').position(|name| name == frame) else {
                continue;
            };
            if stack.split(';').any(|name| [UNKNOWN, CUT].contains(&name)) {
                kept.unknown += count;
            }
            let rest = stack.splitn(at + 1, ';').last().unwrap_or_default();
            *kept.stacks.entry(rest.to_owned()).or_default() += count;
        }
        kept
    }

    /// Returns the counts of the first frames of stacks that begin with a prefix, without it, in descending order.
    pub fn by_prefix(&self, prefix: &str) -> Vec<(&str, u64)> {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (stack, count) in &self.stacks {
            let mut names = stack.split(';').filter_map(|f| f.strip_prefix(prefix));
            if let Some(name) = names.next() {
                *counts.entry(name).or_default() += count;
            }
        }
        let mut counts: Vec<(&str, u64)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    }

    /// Returns the total count.
    pub fn total(&self) -> u64 {
        self.stacks.values().sum()
    }

    /// Samples with a frame that has no name, or that end too early.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Samples that were taken, and for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Threads that could not be sampled.
    pub fn threads_left_out(&self) -> u64 {
        self.left_out
    }

    /// One line a stack: its frames, divided by semicolons, a space, and its number.
    pub fn folded(&self) -> String {
        let lines = self.stacks.iter();
        lines
            .map(|(stack, count)| format!("{stack} {count}\n"))
            .collect()
    }

    /// Returns by frame its count including callees, and its own.
    fn by_frame(&self) -> HashMap<&str, (u64, u64)> {
        let mut sums: HashMap<&str, (u64, u64)> = HashMap::new();
        let mut seen = HashSet::new();
        for (stack, count) in &self.stacks {
            seen.clear();
            // A function that calls itself counts once.
            for frame in stack.split(';').filter(|f| seen.insert(*f)) {
                sums.entry(frame).or_default().0 += count;
            }
            if let Some(last) = stack.rsplit(';').next() {
                sums.entry(last).or_default().1 += count;
            }
        }
        sums
    }

    /// Returns the frames whose shares grew most since `before`, in descending order: including
    /// callees, and their own.
    pub fn growth(&self, before: &Profile, most: usize) -> (Vec<Growth>, Vec<Growth>) {
        let (old, new) = (before.by_frame(), self.by_frame());
        let of = |n: u64, total: u64| n as f64 / total.max(1) as f64;
        let grown = |which: fn(&(u64, u64)) -> u64| {
            let all = new.iter().map(|(name, counts)| Growth {
                name: (*name).to_owned(),
                before: of(old.get(name).map_or(0, which), before.total()),
                after: of(which(counts), self.total()),
            });
            let mut grown: Vec<Growth> = all.filter(|g| g.after > g.before).collect();
            let by = |g: &Growth| g.after - g.before;
            grown.sort_by(|a, b| by(b).total_cmp(&by(a)).then_with(|| a.name.cmp(&b.name)));
            grown.truncate(most);
            grown
        };
        (grown(|(all, _)| *all), grown(|(_, own)| *own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: Unit = Unit::Samples { hz: 99 };

    #[test]
    fn folded_text_is_read_as_it_was_written() {
        let mut profile = Profile::new(UNIT);
        profile.add(&["main", "a b", "c"], 3);
        profile.add(&["main"], 1);
        profile.add(&["main", "a b", "c"], 2);
        profile.add(&["never"], 0);
        let text = profile.folded();
        assert_eq!(text, "main 1\nmain;a b;c 5\n");
        let again = Profile::parse(&text, UNIT).expect("its own text");
        assert_eq!((again.folded(), again.total()), (text, 6));
        for bad in ["main", "main x", "main;a -1", "a 1\nb"] {
            assert!(Profile::parse(bad, UNIT).is_err(), "{bad}");
        }
    }

    #[test]
    fn stacks_below_a_frame_begin_with_it() {
        let text = "serve;poll;route find;a;route find 3\nserve;[cut];route find;a 2\n\
                    serve;route find;a;route find 4\nserve;route finds;a 5\n";
        let profile = Profile::parse(text, UNIT).expect("a profile");
        let below = profile.clone().below("route find");
        let wanted = "route find;a 2\nroute find;a;route find 7\n";
        assert_eq!((below.folded().as_str(), below.unknown()), (wanted, 2));
        let routes = [("find", 9), ("finds", 5)];
        assert_eq!(profile.by_prefix("route "), routes);
        assert_eq!(profile.below("route").total(), 0);
    }

    #[test]
    fn what_grew_most_is_first_also_when_it_calls_itself() {
        let before = Profile::parse("m;a 50\nm;b 50\n", UNIT).expect("a profile");
        let after = Profile::parse("m;a 20\nm;b;hot;hot 60\nm;b 20\n", UNIT).expect("a profile");
        let (all, own) = after.growth(&before, 2);
        let names = |g: &[Growth]| g.iter().map(|g| g.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&all), ["hot", "b"]);
        assert_eq!(names(&own), ["hot"]);
        assert_eq!((all[0].before, all[0].after), (0.0, 0.6));
    }
}
