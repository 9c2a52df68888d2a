//! The groups that password checks are shared among: the claimed name, and the networks of the address.
//!
//! A flood can spread over many names or over many networks, so no single group separates it from others.

use std::collections::HashMap;

use crate::origin::Origin;

/// An origin that claims a name. Names are treated alike whether or not an account has them, as the
/// order of the checks would otherwise reveal which names exist.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Claimant {
    /// `None` for requests without an address.
    origin: Option<Origin>,
    /// Hash of the name: a client can invent names as long as a header.
    name: [u8; 32],
}

impl Claimant {
    pub(crate) fn new(origin: Option<&Origin>, name: &str) -> Claimant {
        Claimant {
            origin: origin.cloned(),
            name: *blake3::hash(name.as_bytes()).as_bytes(),
        }
    }

    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Returns whether both claim the same name.
    pub(crate) fn has_name_of(&self, other: &Claimant) -> bool {
        self.name == other.name
    }

    fn group(&self, grouping: Grouping) -> Group {
        let bits = match grouping {
            Grouping::Name => return Group::Name(self.name),
            Grouping::Address => return Group::Origin(grouping, self.origin.clone()),
            Grouping::Network => (24, 56),
            Grouping::Site => (16, 48),
        };
        let network = self.origin.as_ref().map(|origin| origin.network(bits));
        Group::Origin(grouping, network)
    }
}

/// A property that checks are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Grouping {
    /// The claimed name.
    Name,
    /// An IPv4 address, or an IPv6 network of 64 bits.
    Address,
    /// An IPv4 network of 24 bits, or an IPv6 network of 56 bits.
    Network,
    /// An IPv4 network of 16 bits, or an IPv6 network of 48 bits, which customers of a provider get.
    Site,
}

impl Grouping {
    const ALL: [Grouping; 4] = [
        Grouping::Name,
        Grouping::Address,
        Grouping::Network,
        Grouping::Site,
    ];
    /// Those by the address of the client.
    const OF_ORIGIN: [Grouping; 3] = [Grouping::Address, Grouping::Network, Grouping::Site];
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Group {
    Name([u8; 32]),
    Origin(Grouping, Option<Origin>),
}

/// The checks of a group.
#[derive(Debug, Default)]
struct Share {
    waiting: usize,
    running: usize,
    last: LastTurn,
}

/// When a group had its last turn; groups with the least value come first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LastTurn {
    /// The number of the last turn, or of the turn before the group's first check came.
    number: u64,
    /// Whether it had a turn. A new group precedes one whose turn was the last before it came.
    is_own: bool,
}

/// All groups with checks that wait or run.
#[derive(Debug, Default)]
pub(crate) struct Crowds {
    shares: HashMap<Group, Share>,
}

impl Crowds {
    /// Adds a check that waits; `turn` is the number of the last turn that began.
    pub(crate) fn enter(&mut self, claimant: &Claimant, turn: u64) {
        for grouping in Grouping::ALL {
            let share = self.shares.entry(claimant.group(grouping));
            let share = share.or_insert_with(|| Share {
                last: LastTurn {
                    number: turn,
                    is_own: false,
                },
                ..Share::default()
            });
            share.waiting += 1;
        }
    }

    /// Begins the turn with this number for a check that waits.
    pub(crate) fn begin(&mut self, claimant: &Claimant, turn: u64) {
        self.change(claimant, |share| {
            share.waiting -= 1;
            share.running += 1;
            share.last = LastTurn {
                number: turn,
                is_own: true,
            };
        });
    }

    /// Removes a check that waits.
    pub(crate) fn leave(&mut self, claimant: &Claimant) {
        self.change(claimant, |share| share.waiting -= 1);
    }

    /// Ends a turn.
    pub(crate) fn end(&mut self, claimant: &Claimant) {
        self.change(claimant, |share| share.running -= 1);
    }

    /// Changes the groups of a claimant; removes those without checks.
    fn change(&mut self, claimant: &Claimant, change: impl Fn(&mut Share)) {
        for grouping in Grouping::ALL {
            let group = claimant.group(grouping);
            let Some(share) = self.shares.get_mut(&group) else {
                continue;
            };
            change(share);
            if share.waiting == 0 && share.running == 0 {
                self.shares.remove(&group);
            }
        }
    }

    fn share(&self, claimant: &Claimant, grouping: Grouping) -> Option<&Share> {
        self.shares.get(&claimant.group(grouping))
    }

    /// Returns the number of checks of the claimant's group that wait.
    pub(crate) fn waiting(&self, claimant: &Claimant, grouping: Grouping) -> usize {
        let share = self.share(claimant, grouping);
        share.map_or(0, |share| share.waiting)
    }

    /// Returns the number of checks that wait in the largest of the claimant's groups by address.
    pub(crate) fn waiting_of_origin(&self, claimant: &Claimant) -> usize {
        let waiting = Grouping::OF_ORIGIN.map(|grouping| self.waiting(claimant, grouping));
        waiting.into_iter().max().unwrap_or_default()
    }

    /// Returns the number of checks of the claimant's address that run.
    pub(crate) fn running(&self, claimant: &Claimant) -> usize {
        let share = self.share(claimant, Grouping::Address);
        share.map_or(0, |share| share.running)
    }

    /// Returns when the claimant's group had its last turn.
    pub(crate) fn last_turn(&self, claimant: &Claimant, grouping: Grouping) -> LastTurn {
        let share = self.share(claimant, grouping);
        share.map_or_else(LastTurn::default, |share| share.last)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }
}
