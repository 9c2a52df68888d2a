//! Who is used: databases and views, those used most.

use rustc_hash::FxHashMap;

/// Databases, or views, that a part of the counters remembers. The least used are forgotten: so names that somebody made up to have
/// one hash cost little too.
const REMEMBERED_MAX: usize = 1024;

/// How much something is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Requests.
    pub requests: u64,
    /// Of these, those that write.
    pub writes: u64,
    /// Time of the requests until their bodies' ends, in microseconds.
    pub us: u64,
    /// Bytes sent and received in bodies.
    pub bytes: u64,
}

impl Use {
    fn add(&mut self, other: &Use) {
        self.requests += other.requests;
        self.writes += other.writes;
        self.us += other.us;
        self.bytes += other.bytes;
    }
}

/// Names with how much they are used.
#[derive(Clone, Default)]
pub struct Used(FxHashMap<Box<str>, Use>);

impl Used {
    /// Counts a use of a name.
    pub fn count(&mut self, name: &str, of: &Use) {
        if let Some(sum) = self.0.get_mut(name) {
            sum.add(of);
            return;
        }
        if self.0.len() >= REMEMBERED_MAX {
            self.forget();
        }
        self.0.insert(name.into(), *of);
    }

    /// Forgets those that took no more time than the median.
    fn forget(&mut self) {
        let mut times: Vec<u64> = self.0.values().map(|of| of.us).collect();
        let middle = times.len() / 2;
        let median = *times.select_nth_unstable(middle).1;
        self.0.retain(|_, of| of.us > median);
    }

    fn add(&mut self, other: &Used) {
        for (name, of) in &other.0 {
            self.0.entry(name.clone()).or_default().add(of);
        }
    }

    /// The names with their use.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Use)> {
        self.0.iter().map(|(name, of)| (&**name, of))
    }
}

/// The use of databases and of views.
#[derive(Clone, Default)]
pub struct Usage {
    /// By name.
    pub databases: Used,
    /// By database, design document and view.
    pub views: Used,
}

impl Usage {
    pub(super) fn add(&mut self, other: &Usage) {
        self.databases.add(&other.databases);
        self.views.add(&other.views);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_the_busiest_stay() {
        let mut used = Used::default();
        let busy = Use {
            requests: 1,
            us: 1000,
            ..Use::default()
        };
        let idle = Use { us: 1, ..busy };
        for i in 0..20_000 {
            used.count("busy", &busy);
            used.count(&format!("db{i}"), &idle);
            assert!(used.0.len() <= REMEMBERED_MAX);
        }
        let busiest = used.iter().max_by_key(|(_, of)| of.us).unwrap();
        assert_eq!((busiest.0, busiest.1.requests), ("busy", 20_000));
    }

    #[test]
    fn alike_names_are_bounded_too() {
        let mut used = Used::default();
        for i in 0..5_000 {
            used.count(&i.to_string(), &Use::default());
            assert!(used.0.len() <= REMEMBERED_MAX);
        }
        assert!(used.0.contains_key("4999"));
    }
}
