//! The positions of the other replicas, and what a majority has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Message, Output, Phase, Reason, Replica};
use crate::position::{Chain, Generation, NodeId, Position};

/// Maximum number of positions of a peer ahead of this replica that are kept for comparison.
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
pub(super) struct Peers {
    peers: BTreeMap<NodeId, Peer>,
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
    /// Peers that seem not to know it.
    behind: BTreeSet<NodeId>,
}

#[derive(Debug, Default)]
struct Peer {
    generation: Generation,
    /// It has everything before this offset, and its chain there equals this replica's.
    verified: u64,
    /// Positions that this replica has not reached, with the peer's chains there.
    ahead: VecDeque<(u64, Chain)>,
}

impl Peers {
    pub fn new(own: &Position) -> Peers {
        let mut chains = Chains::default();
        chains.push(own, 0);
        Peers {
            peers: BTreeMap::new(),
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
        for peer in self.peers.values_mut() {
            while let Some((at, theirs)) = peer.ahead.front().copied()
                && at <= offset
            {
                peer.ahead.pop_front();
                if at == offset && theirs == *chain {
                    peer.verified = peer.verified.max(at);
                }
            }
        }
    }

    /// Handles a change of the replicas. A node that is added, or added again, has nothing until it
    /// reports.
    pub fn change(&mut self, before: &[NodeId], after: &[NodeId]) {
        let stays = |n: &NodeId| before.contains(n) && after.contains(n);
        for (_, peer) in self.peers.iter_mut().filter(|(n, _)| !stays(n)) {
            peer.verified = 0;
            peer.ahead.clear();
        }
    }

    /// Handles the start of a generation: offsets have another meaning from here on.
    pub fn restart(&mut self) {
        self.chains = Chains::default();
        self.stable = 0;
        for peer in self.peers.values_mut() {
            peer.verified = 0;
            peer.ahead.clear();
        }
    }

    /// Returns the latest generation of any peer.
    pub fn highest_generation(&self) -> Generation {
        let all = self.peers.values().map(|p| p.generation);
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
            stable: self.peers.stable,
        };
        let others = nodes.iter().filter(|n| **n != self.me);
        let sends = others.map(|to| Output::Send {
            to: *to,
            message: durable.clone(),
        });
        self.out.extend(sends);
    }

    /// Repeats reports, which may be lost: while something here is not known to be on a majority's
    /// disks, to peers that repeat theirs, and periodically.
    pub(super) fn tell_at_tick(&mut self) {
        let next = self.position().next_offset;
        let peers = &mut self.peers;
        let (is_stuck, has_moved) = (next > peers.stable, peers.stable != peers.stable_before);
        peers.stuck_ticks = match is_stuck && !has_moved {
            true => peers.stuck_ticks + 1,
            false => 0,
        };
        peers.stable_before = peers.stable;
        peers.silent_ticks += 1;
        let behind = std::mem::take(&mut peers.behind);
        if is_stuck || has_moved || peers.silent_ticks >= SILENT_TICKS_MAX {
            peers.silent_ticks = 0;
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
        let peer = self.peers.peers.get(&node);
        let current = peer.filter(|p| p.generation == self.position().generation);
        current.map_or(0, |p| p.verified)
    }

    pub(super) fn durable(&mut self, from: NodeId, theirs: Position, stable: u64) {
        let (mine, can_diverge) = (self.generation(), self.can_diverge());
        let peer = self.peers.peers.entry(from).or_default();
        if theirs.generation < peer.generation {
            return;
        }
        if theirs.generation > peer.generation {
            *peer = Peer {
                generation: theirs.generation,
                ..Peer::default()
            };
        }
        if theirs.generation > mine {
            return self.send(from, Message::AskBegun);
        }
        if theirs.generation < mine {
            return self.tell_begun(from);
        }
        if stable < self.peers.stable {
            self.peers.behind.insert(from);
        }
        let at = theirs.next_offset;
        match self.peers.chains.at(at) {
            Some(own) if *own == theirs.chain => peer.verified = peer.verified.max(at),
            // It was ahead: either it was copied, or its disk has lost data.
            Some(_) if stable >= at && can_diverge => return self.halt(Reason::Diverged),
            Some(_) => {}
            None if at > self.issued.position.next_offset => {
                if peer.ahead.back().is_none_or(|(last, _)| *last < at) {
                    peer.ahead.push_back((at, theirs.chain));
                }
                if peer.ahead.len() > AHEAD_MAX {
                    // Keeps every other one.
                    let mut kept = 0u64;
                    peer.ahead.retain(|_| {
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
        if stable > self.peers.stable {
            self.peers.stable = stable;
            self.out.push(Output::Stable {
                generation: cursor.position.generation,
                next_offset: stable,
            });
            self.show_reads();
        }
    }
}
