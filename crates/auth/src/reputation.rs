//! Addresses that gave right or wrong passwords, which decide who comes first when checks wait.
//!
//! By address only: by name, the order of the checks would reveal which names exist.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::origin::Origin;

/// An address comes after others for this time after a wrong password.
const FAILED_TIME: Duration = Duration::from_secs(300);
/// An address comes before others for this time after a right password.
const KNOWN_TIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Most addresses that are remembered, of each kind.
const ADDRESSES_MAX: usize = 16_384;

/// The priority of an address; the least comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// It gave a right password before, and no wrong one recently.
    Known,
    /// It gave neither, or both.
    Unknown,
    /// It gave a wrong password recently.
    Failed,
}

#[derive(Default)]
pub(crate) struct Reputations {
    known: Recent,
    failed: Recent,
}

/// Addresses with the time of an event.
#[derive(Default)]
struct Recent {
    at: HashMap<Origin, Instant>,
}

impl Reputations {
    pub(crate) fn rank(&self, origin: Option<&Origin>) -> Rank {
        let Some(origin) = origin else {
            return Rank::Unknown;
        };
        let is_known = self.known.has(origin, KNOWN_TIME);
        let has_failed = self.failed.has(origin, FAILED_TIME);
        match (is_known, has_failed) {
            (true, false) => Rank::Known,
            (false, true) => Rank::Failed,
            (true, true) | (false, false) => Rank::Unknown,
        }
    }

    /// Notes whether a password of this address was right.
    pub(crate) fn note(&mut self, origin: &Origin, is_right: bool) {
        if is_right {
            self.failed.at.remove(origin);
            self.known.note(origin, KNOWN_TIME);
        } else {
            self.failed.note(origin, FAILED_TIME);
        }
    }
}

impl Recent {
    fn has(&self, origin: &Origin, life: Duration) -> bool {
        let at = self.at.get(origin);
        at.is_some_and(|at| at.elapsed() < life)
    }

    /// Replaces any other address when there are too many.
    fn note(&mut self, origin: &Origin, life: Duration) {
        if self.at.len() >= ADDRESSES_MAX && !self.at.contains_key(origin) {
            self.make_room(life);
        }
        self.at.insert(origin.clone(), Instant::now());
    }

    fn make_room(&mut self, life: Duration) {
        let any = self.at.iter().next();
        let Some((any, at)) = any.map(|(any, at)| (any.clone(), *at)) else {
            return;
        };
        // All are searched only when one of them is known to be old.
        if at.elapsed() < life {
            self.at.remove(&any);
        } else {
            self.at.retain(|_, at| at.elapsed() < life);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn address(n: usize) -> Origin {
        IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(n).expect("small"))).into()
    }

    #[test]
    fn an_address_is_ranked_by_its_passwords() {
        let mut reputations = Reputations::default();
        let address = address(1);
        let mut rank_after = |is_right: Option<bool>| {
            if let Some(is_right) = is_right {
                reputations.note(&address, is_right);
            }
            reputations.rank(Some(&address))
        };
        assert_eq!(rank_after(None), Rank::Unknown);
        assert_eq!(rank_after(Some(false)), Rank::Failed);
        assert_eq!(rank_after(Some(true)), Rank::Known);
        assert_eq!(rank_after(Some(false)), Rank::Unknown);
        assert_eq!(reputations.rank(None), Rank::Unknown);
    }

    #[test]
    fn remembered_addresses_are_bounded_and_the_last_one_is_among_them() {
        let mut reputations = Reputations::default();
        for n in 0..ADDRESSES_MAX + 100 {
            reputations.note(&address(n), false);
            assert_eq!(reputations.rank(Some(&address(n))), Rank::Failed);
        }
        assert_eq!(reputations.failed.at.len(), ADDRESSES_MAX);
    }
}
