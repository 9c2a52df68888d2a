//! Decides which connections make room when all places are taken. A pure function of the
//! connections' activities.
//!
//! Connections belong to groups: those with a login to their user, all others to their address. A
//! group's share of the places is the same for all groups that have any. Connections beyond a share
//! are closed first.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

/// At most one of this many connections is closed at a time, so that not all are examined for each that comes.
const CLOSED_PART: usize = 16;
/// A connection may be silent, or idle between two requests, for 1 s before it may be closed.
pub const GRACE_US: u64 = 1_000_000;
/// A stranger's request makes room for other strangers after this time: it mostly waits for its client.
const REQUEST_GRACE_US: u64 = 10_000_000;
/// Anonymous clients may have one of this many places at the expense of users.
const STRANGERS_PART: usize = 16;

/// The activity of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// It has not sent a request yet.
    Silent,
    /// It rests after a request.
    Resting,
    /// A request is under way.
    Busy,
}

/// A connection that has a place.
#[derive(Clone, Copy, Debug)]
pub struct Occupant {
    pub number: u64,
    /// Its user or its address.
    pub group: u64,
    /// Whether a request of it had a login.
    pub is_known: bool,
    pub is_admin: bool,
    pub activity: Activity,
    /// Since when it does that.
    pub age_us: u64,
}

/// The client whose request needs a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Stranger,
    User,
    Admin,
}

/// A connection that needs a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newcomer {
    pub class: Class,
    pub group: u64,
}

/// The order in which connections go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    /// A stranger of an address that has more than its share.
    BeyondShare,
    /// Silent since it was opened.
    Silent,
    /// An idle connection of an anonymous client.
    Stranger,
    /// A stranger that is silent, or rests, for a moment.
    Recent,
    /// A stranger's request.
    StrangersRequest,
    /// An idle connection of a user.
    Known,
    /// A request of a user who has more than a share.
    UsersRequest,
}

/// How the places are divided.
#[derive(Debug, Default)]
pub struct Shares {
    sizes: FxHashMap<u64, usize>,
    strangers: usize,
    places: usize,
}

impl Shares {
    pub fn new(occupants: &[Occupant], places: usize) -> Shares {
        let mut sizes = FxHashMap::default();
        for occupant in occupants {
            *sizes.entry(occupant.group).or_default() += 1;
        }
        Shares {
            sizes,
            strangers: occupants.iter().filter(|o| !o.is_known).count(),
            places,
        }
    }

    /// Connections of a group.
    fn size(&self, group: u64) -> usize {
        self.sizes.get(&group).copied().unwrap_or_default()
    }

    /// The places of each group, that of a newcomer among them.
    fn share(&self, newcomer: Newcomer) -> usize {
        let comes = usize::from(!self.sizes.contains_key(&newcomer.group));
        (self.places / (self.sizes.len() + comes).max(1)).max(1)
    }

    /// Whether the newcomer's group has its share already.
    pub fn has_share(&self, newcomer: Newcomer) -> bool {
        newcomer.class != Class::Admin && self.size(newcomer.group) >= self.share(newcomer)
    }

    /// The order in which a connection is closed for the newcomer; `None` if it is not.
    fn order(&self, newcomer: Newcomer, of: &Occupant) -> Option<Order> {
        let (size, is_own) = (self.size(of.group), of.group == newcomer.group);
        let own = match newcomer.class {
            Class::Admin => 0,
            _ => self.size(newcomer.group),
        };
        let is_beyond = size > self.share(newcomer);
        // The place would only change hands otherwise, and soon again.
        let takes_request = is_beyond && !is_own && size > own + 1;
        let is_stranger = newcomer.class == Class::Stranger;
        let has_rested = of.age_us >= GRACE_US;
        let takes_from_users =
            !is_stranger || self.strangers < (self.places / STRANGERS_PART).max(1);
        match (of.is_known, of.activity) {
            (false, Activity::Busy) => {
                let grace_us = if is_stranger {
                    REQUEST_GRACE_US
                } else {
                    GRACE_US
                };
                match takes_request {
                    true => Some(Order::BeyondShare),
                    false => (of.age_us >= grace_us).then_some(Order::StrangersRequest),
                }
            }
            (false, _) if is_beyond => Some(Order::BeyondShare),
            (false, _) if !has_rested => Some(Order::Recent),
            (false, Activity::Silent) => Some(Order::Silent),
            (false, Activity::Resting) => Some(Order::Stranger),
            (true, Activity::Busy) => {
                let goes = takes_request && takes_from_users && !of.is_admin;
                goes.then_some(Order::UsersRequest)
            }
            (true, _) => {
                let goes = has_rested && takes_from_users && (is_own || size > own);
                goes.then_some(Order::Known)
            }
        }
    }

    /// The connections to close for a newcomer, and whether each is closed even during a request.
    /// As many requests end as `waiting` newcomers need, and some more idle connections.
    pub fn choose(
        &self,
        newcomer: Newcomer,
        occupants: &[Occupant],
        waiting: usize,
    ) -> Vec<(u64, bool)> {
        let of = |o: &Occupant| {
            let order = self.order(newcomer, o)?;
            let size = Reverse(self.size(o.group));
            Some(((order, size, o.activity, Reverse(o.age_us)), *o))
        };
        let mut all: Vec<_> = occupants.iter().filter_map(of).collect();
        let most = (occupants.len() / CLOSED_PART).max(waiting).max(1);
        if all.len() > most {
            all.select_nth_unstable_by_key(most - 1, |(key, _)| *key);
            all.truncate(most);
        }
        all.sort_unstable_by_key(|(key, _)| *key);
        let share = self.share(newcomer);
        let mut requests: FxHashMap<u64, usize> = FxHashMap::default();
        let mut chosen = vec![];
        for ((order, ..), o) in all {
            let is_busy = o.activity == Activity::Busy;
            if is_busy {
                let ended = requests.entry(o.group).or_default();
                let is_beyond = matches!(order, Order::BeyondShare | Order::UsersRequest);
                if chosen.len() >= waiting || is_beyond && self.size(o.group) - *ended <= share {
                    continue;
                }
                *ended += 1;
            }
            chosen.push((o.number, is_busy));
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVE: u64 = 1;
    const BOB: u64 = 2;
    const PROXY: u64 = 100;
    const ELSEWHERE: u64 = 101;

    /// Connections that have had this activity for some seconds.
    fn some(count: usize, group: u64, activity: Activity, age_s: u64) -> Vec<Occupant> {
        let occupant = Occupant {
            number: 0,
            group,
            is_known: group < PROXY,
            is_admin: false,
            activity,
            age_us: age_s * 1_000_000,
        };
        vec![occupant; count]
    }

    fn numbered(parts: &[Vec<Occupant>]) -> Vec<Occupant> {
        let mut all = parts.concat();
        for (number, occupant) in all.iter_mut().enumerate() {
            occupant.number = number as u64;
        }
        all
    }

    /// Groups of the connections to close, and whether they are closed even during a request.
    fn goes(class: Class, group: u64, all: &[Occupant]) -> Vec<(u64, bool)> {
        let newcomer = Newcomer { class, group };
        let chosen = Shares::new(all, all.len()).choose(newcomer, all, 1);
        let group_of = |(n, is_busy): (u64, bool)| (all[n as usize].group, is_busy);
        chosen.into_iter().map(group_of).collect()
    }

    #[test]
    fn busy_strangers_of_one_address_go_for_others_and_never_users_for_them() {
        for known in [1, 10, 20, 31] {
            let flood = some(32 - known, PROXY, Activity::Busy, 0);
            let all = numbered(&[some(known, EVE, Activity::Resting, 60), flood]);
            if known < 31 {
                assert_eq!(goes(Class::Stranger, PROXY, &all), [], "{known}");
            }
            if known < 16 {
                assert_eq!(goes(Class::User, BOB, &all), [(PROXY, true)]);
                assert_eq!(goes(Class::Stranger, ELSEWHERE, &all), [(PROXY, true)]);
            }
        }
    }

    #[test]
    fn a_user_beyond_a_share_loses_the_oldest_requests() {
        let mut all = numbered(&[some(32, EVE, Activity::Busy, 5)]);
        all[7].age_us += 1;
        let shares = Shares::new(&all, 32);
        let bob = Newcomer {
            class: Class::User,
            group: BOB,
        };
        assert_eq!(shares.choose(bob, &all, 1), [(7, true)]);
        assert!(!shares.has_share(bob));
        assert_eq!(goes(Class::User, EVE, &all), []);
        assert_eq!(goes(Class::Stranger, PROXY, &all), [(EVE, true)]);
        assert_eq!(goes(Class::Admin, BOB, &all), [(EVE, true)]);
        for occupant in &mut all {
            occupant.is_admin = true;
        }
        assert_eq!(goes(Class::User, BOB, &all), []);
        let halves = numbered(&[
            some(16, EVE, Activity::Busy, 50),
            some(16, BOB, Activity::Busy, 50),
        ]);
        assert_eq!(goes(Class::User, EVE, &halves), []);
        assert!(Shares::new(&halves, 32).has_share(bob));
    }

    #[test]
    fn those_that_rest_go_before_requests_and_strangers_before_users() {
        let all = numbered(&[
            some(8, EVE, Activity::Resting, 60),
            some(8, BOB, Activity::Busy, 60),
            some(4, PROXY, Activity::Resting, 2),
            some(4, PROXY + 1, Activity::Silent, 2),
            some(4, PROXY + 2, Activity::Resting, 0),
            some(4, PROXY + 3, Activity::Busy, 11),
        ]);
        let group = |left: &[Occupant]| goes(Class::Stranger, 200, left).first().copied();
        let mut left = all.clone();
        for expected in [PROXY + 1, PROXY, PROXY + 2, PROXY + 3] {
            let (went, is_busy) = group(&left).expect("one goes");
            assert_eq!((went, is_busy), (expected, expected == PROXY + 3));
            left.retain(|o| o.group != went);
            left = numbered(&[left]);
        }
        assert_eq!(group(&left), Some((EVE, false)));
        let recent = numbered(&[some(16, EVE, Activity::Resting, 0)]);
        assert_eq!(group(&recent), None, "a client between two requests");
    }

    #[test]
    fn no_more_go_than_a_part() {
        let all = numbered(&[some(64, PROXY, Activity::Silent, 2)]);
        assert_eq!(goes(Class::Stranger, PROXY, &all).len(), 4);
        let newcomer = Newcomer {
            class: Class::User,
            group: BOB,
        };
        let all = numbered(&[some(64, PROXY, Activity::Busy, 2)]);
        let shares = Shares::new(&all, 64);
        assert_eq!(shares.choose(newcomer, &all, 2).len(), 2);
        assert_eq!(shares.choose(newcomer, &all, 0).len(), 0);
    }
}
