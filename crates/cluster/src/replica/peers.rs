//! How far the others are, and what a majority has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Message, Output, Phase, Reason, Replica};
use crate::position::{Chain, Generation, NodeId, Position};

/// Positions of a peer ahead of this replica that wait to be compared.
const AHEAD_MAX: usize = 256;

/// Without anything to say, it is said after so many ticks how far this replica is.
const SILENT_TICKS_MAX: u32 = 20;

/// Chains at offsets that were passed.
#[derive(Debug, Default)]
pub(super) struct Chains(VecDeque<(u64, Chain)>);

impl Chains {
    /// So many are kept in any case, for questions about promises;
    const MIN: usize = 4_096;
    /// and so many where replicas lag, so that a majority of them still counts (1.6 MB).
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

/// The other replicas as they said they are.
#[derive(Debug)]
pub(super) struct Peers {
    peers: BTreeMap<NodeId, Peer>,
    /// This replica's own way.
    pub chains: Chains,
    /// A majority has everything before this offset.
    pub stable: u64,
    /// For so many ticks no more was stable, though this replica has more.
    pub stuck_ticks: u32,
    /// What was stable at the last tick, and what was said by then.
    stable_before: u64,
    /// Ticks since all were told how far this replica is.
    silent_ticks: u32,
    /// Who seems not to know.
    behind: BTreeSet<NodeId>,
}

#[derive(Debug, Default)]
struct Peer {
    generation: Generation,
    /// It has everything before this offset, and its chain there is this replica's.
    verified: u64,
    /// Positions that this replica has not come to, and the peer's chain there.
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

    /// This replica is given everything before a position: what was said of it can be compared.
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

    /// The replicas change. Who comes, or comes again, has nothing until it says so.
    pub fn change(&mut self, before: &[NodeId], after: &[NodeId]) {
        let stays = |n: &NodeId| before.contains(n) && after.contains(n);
        for (_, peer) in self.peers.iter_mut().filter(|(n, _)| !stays(n)) {
            peer.verified = 0;
            peer.ahead.clear();
        }
    }

    /// A generation begins: offsets mean something else from here on.
    pub fn restart(&mut self) {
        self.chains = Chains::default();
        self.stable = 0;
        for peer in self.peers.values_mut() {
            peer.verified = 0;
            peer.ahead.clear();
        }
    }

    /// The latest generation of anyone.
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

    /// What was said may be lost: it is said again while something here is not known to be on a majority's disks, to those who ask the
    /// same of this replica, and now and then.
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

    /// Everything before this offset is on the disk of a replica, as far as is known here.
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
            // It was further: then it was copied, or its disk is not what it was.
            Some(_) if stable >= at && can_diverge => return self.halt(Reason::Diverged),
            Some(_) => {}
            None if at > self.issued.position.next_offset => {
                if peer.ahead.back().is_none_or(|(last, _)| *last < at) {
                    peer.ahead.push_back((at, theirs.chain));
                }
                if peer.ahead.len() > AHEAD_MAX {
                    // Every other one will do.
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

    /// Counts what a majority has on disk.
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
        // What this replica has not is not for it to show.
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
