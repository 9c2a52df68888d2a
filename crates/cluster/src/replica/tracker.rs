//! The positions of the other replicas, and what a majority has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Message, Output, Phase, Reason, Replica};
use crate::position::{Chain, Generation, NodeId, Position};

/// Maximum number of positions of another replica, ahead of this one, that are kept for comparison.
const AHEAD_MAX: usize = 256;

/// Ticks after which this replica reports its position even without news.
const SILENT_TICKS_MAX: u32 = 20;

/// Chains at offsets that were passed.
#[derive(Debug, Default)]
pub(super) struct Chains(VecDeque<(u64, Chain)>);

impl Chains {
    /// Chains that are always kept, for questions about promises.
    const MIN: usize = 4_096;
    /// Chains kept while replicas lag, so that a majority of them still counts (1.6 MB).
    const MAX: usize = 65_536;

    fn push(&mut self, position: &Position, stable: u64) {
        self.0.push_back((position.next_offset, position.chain));
        let is_old = |at: Option<&(u64, Chain)>| at.is_some_and(|(at, _)| *at <= stable);
        while self.0.len() > Self::MIN && (self.0.len() > Self::MAX || is_old(self.0.get(1))) {
            self.0.pop_front();
        }
    }

    pub fn at(&self, offset: u64) -> Option<&Chain> {
        let i = self.0.binary_search_by_key(&offset, |(at, _)| *at).ok()?;
        self.0.get(i).map(|(_, chain)| chain)
    }
}

/// The other replicas, as they reported.
#[derive(Debug)]
pub(super) struct Tracker {
    replicas: BTreeMap<NodeId, TrackedReplica>,
    /// This replica's own history.
    pub chains: Chains,
    /// A majority has everything before this offset.
    pub stable: u64,
    /// Ticks without progress of `stable`, though this replica is ahead of it.
    pub stuck_ticks: u32,
    /// `stable` at the last tick, and the reports sent by then.
    stable_before: u64,
    /// Ticks since this replica last reported its position to all.
    silent_ticks: u32,
    /// Replicas that seem not to know it.
    behind: BTreeSet<NodeId>,
}

#[derive(Debug, Default)]
struct TrackedReplica {
    generation: Generation,
    /// It has everything before this offset, and its chain there equals this replica's.
    verified: u64,
    /// Positions that this replica has not reached, with the other replica's chains there.
    ahead: VecDeque<(u64, Chain)>,
}

impl Tracker {
    pub fn new(own: &Position) -> Tracker {
        let mut chains = Chains::default();
        chains.push(own, 0);
        Tracker {
            replicas: BTreeMap::new(),
            chains,
            stable: 0,
            stuck_ticks: 0,
            stable_before: 0,
            silent_ticks: 0,
            behind: BTreeSet::new(),
        }
    }

    /// Records that this replica was handed everything before a position: earlier reports can be
    /// compared.
    pub fn note_own(&mut self, own: &Position) {
        self.chains.push(own, self.stable);
        let (offset, chain) = (own.next_offset, &own.chain);
        for replica in self.replicas.values_mut() {
            while let Some((at, theirs)) = replica.ahead.front().copied()
                && at <= offset
            {
                replica.ahead.pop_front();
                if at == offset && theirs == *chain {
                    replica.verified = replica.verified.max(at);
                }
            }
        }
    }

    /// Handles a change of the replicas. A node that is added, or added again, has nothing until it
    /// reports.
    pub fn change(&mut self, before: &[NodeId], after: &[NodeId]) {
        let stays = |n: &NodeId| before.contains(n) && after.contains(n);
        for (_, replica) in self.replicas.iter_mut().filter(|(n, _)| !stays(n)) {
            replica.verified = 0;
            replica.ahead.clear();
        }
    }

    /// Handles the start of a generation: offsets have another meaning from here on.
    pub fn restart(&mut self) {
        self.chains = Chains::default();
        self.stable = 0;
        for replica in self.replicas.values_mut() {
            replica.verified = 0;
            replica.ahead.clear();
        }
    }

    /// Returns the latest generation of any other replica.
    pub fn highest_generation(&self) -> Generation {
        let all = self.replicas.values().map(|p| p.generation);
        all.max().unwrap_or_default()
    }
}

impl Replica {
    pub(super) fn tell_durable(&mut self) {
        let members = Arc::clone(&self.issued.members);
        self.tell_durable_to(&members);
    }

    fn tell_durable_to(&mut self, nodes: &[NodeId]) {
        if matches!(self.phase, Phase::Copying) {
            return;
        }
        let durable = Message::Durable {
            position: *self.position(),
            stable: self.tracker.stable,
        };
        let others = nodes.iter().filter(|n| **n != self.me);
        let sends = others.map(|to| Output::Send {
            to: *to,
            message: durable.clone(),
        });
        self.out.extend(sends);
    }

    /// Repeats reports, which may be lost: while something here is not known to be on a majority's
    /// disks, to replicas that repeat theirs, and periodically.
    pub(super) fn tell_at_tick(&mut self) {
        let next = self.position().next_offset;
        let tracker = &mut self.tracker;
        let (is_stuck, has_moved) = (
            next > tracker.stable,
            tracker.stable != tracker.stable_before,
        );
        tracker.stuck_ticks = match is_stuck && !has_moved {
            true => tracker.stuck_ticks + 1,
            false => 0,
        };
        tracker.stable_before = tracker.stable;
        tracker.silent_ticks += 1;
        let behind = std::mem::take(&mut tracker.behind);
        if is_stuck || has_moved || tracker.silent_ticks >= SILENT_TICKS_MAX {
            tracker.silent_ticks = 0;
            return self.tell_durable();
        }
        for to in behind {
            self.tell_durable_to(&[to]);
        }
    }

    /// Returns the offset before which everything is known to be on a replica's disk.
    pub fn durable_of(&self, node: NodeId) -> u64 {
        if node == self.me {
            return self.position().next_offset;
        }
        let replica = self.tracker.replicas.get(&node);
        let current = replica.filter(|p| p.generation == self.position().generation);
        current.map_or(0, |p| p.verified)
    }

    pub(super) fn durable(&mut self, from: NodeId, theirs: Position, stable: u64) {
        let (mine, can_diverge) = (self.generation(), self.can_diverge());
        let replica = self.tracker.replicas.entry(from).or_default();
        if theirs.generation < replica.generation {
            return;
        }
        if theirs.generation > replica.generation {
            *replica = TrackedReplica {
                generation: theirs.generation,
                ..TrackedReplica::default()
            };
        }
        if theirs.generation > mine {
            return self.send(from, Message::AskBegun);
        }
        if theirs.generation < mine {
            return self.tell_begun(from);
        }
        if stable < self.tracker.stable {
            self.tracker.behind.insert(from);
        }
        let at = theirs.next_offset;
        match self.tracker.chains.at(at) {
            Some(own) if *own == theirs.chain => replica.verified = replica.verified.max(at),
            // It was ahead: either it was copied, or its disk has lost data.
            Some(_) if stable >= at && can_diverge => return self.halt(Reason::Diverged),
            Some(_) => {}
            None if at > self.issued.position.next_offset => {
                if replica.ahead.back().is_none_or(|(last, _)| *last < at) {
                    replica.ahead.push_back((at, theirs.chain));
                }
                if replica.ahead.len() > AHEAD_MAX {
                    // Keeps every other one.
                    let mut kept = 0u64;
                    replica.ahead.retain(|_| {
                        kept += 1;
                        kept.is_multiple_of(2)
                    });
                }
            }
            None => {}
        }
        self.count_stable();
    }

    fn can_diverge(&self) -> bool {
        self.is_drained() && !matches!(self.phase, Phase::Copying | Phase::Halted(_))
    }

    /// Computes what a majority has on disk.
    pub(super) fn count_stable(&mut self) {
        let cursor = &self.saved.cursor;
        if cursor.position.generation != self.generation() || cursor.members.is_empty() {
            return;
        }
        let mut durable: Vec<u64> = cursor.members.iter().map(|n| self.durable_of(*n)).collect();
        durable.sort_unstable_by(|a, b| b.cmp(a));
        let needed = match self.rules.majority {
            true => cursor.majority(),
            false => 1,
        };
        let stable = durable.get(needed - 1).copied().unwrap_or(0);
        // This replica must not show what it does not have.
        let stable = stable.min(cursor.position.next_offset);
        if stable > self.tracker.stable {
            self.tracker.stable = stable;
            self.out.push(Output::Stable {
                generation: cursor.position.generation,
                next_offset: stable,
            });
            self.show_reads();
        }
    }
}
