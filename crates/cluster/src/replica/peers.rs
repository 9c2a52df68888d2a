//! How far the others are, and what a majority has.

use std::collections::{BTreeMap, VecDeque};

use super::{Chains, Message, Output, Phase, Reason, Replica};
use crate::position::{Chain, Generation, NodeId, Position};

/// Positions of a peer ahead of this replica that wait to be compared.
const AHEAD_MAX: usize = 256;

/// The other replicas as they said they are.
#[derive(Debug)]
pub(super) struct Peers {
    peers: BTreeMap<NodeId, Peer>,
    /// This replica's own way.
    pub chains: Chains,
    /// A majority has everything before this offset.
    pub stable: u64,
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
        chains.push(own);
        Peers {
            peers: BTreeMap::new(),
            chains,
            stable: 0,
        }
    }

    /// This replica is given everything before a position: what was said of it can be compared.
    pub fn note_own(&mut self, own: &Position) {
        self.chains.push(own);
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
        if matches!(self.phase, Phase::Copying) {
            return;
        }
        let durable = Message::Durable {
            position: *self.position(),
            stable: self.peers.stable,
        };
        self.send_others(&durable);
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
