//! Positions of replicas in a slot's log.

/// A node's number, which never changes.
pub type NodeId = u64;

/// A restart of the log after records were lost: the ballot of the node that started it. Greater
/// ones are later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation {
    /// A counter.
    pub number: u64,
    /// The node that started it, which distinguishes concurrent starts.
    pub by: NodeId,
}

/// A hash over all applied records in order, with their leader epochs: replicas with equal chains
/// have equal states.
pub type Chain = [u8; 16];

/// The position up to which a replica has applied its slot's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// The generation of the log.
    pub generation: Generation,
    /// The offset of the next record.
    pub next_offset: u64,
    /// The epoch of the partition's leader under which the last record was written; -1 before the
    /// first record.
    pub leader_epoch: i32,
    /// The chain over the records so far.
    pub chain: Chain,
}

impl Position {
    /// Returns the position before the first record of a new log.
    pub fn start() -> Position {
        Position {
            leader_epoch: -1,
            ..Position::default()
        }
    }

    /// Returns the rank that decides which of two replicas is later when a generation starts: the
    /// latest of any majority has every record that a majority had.
    pub fn rank(&self) -> (Generation, i32, u64) {
        (self.generation, self.leader_epoch, self.next_offset)
    }

    /// Returns the position after a record.
    #[must_use]
    pub fn after(&self, offset: u64, epoch: i32, hash: &Chain) -> Position {
        Position {
            generation: self.generation,
            next_offset: offset + 1,
            leader_epoch: epoch,
            chain: link(&self.chain, epoch, hash),
        }
    }
}

/// Extends a chain by a record. The leader epoch is part of it: a record that the log lost, and
/// that its writer appended again, differs even at the same offset, since promises about a later
/// leader do not hold for the earlier one.
pub fn link(chain: &Chain, epoch: i32, hash: &Chain) -> Chain {
    let mut all = [0; 36];
    all[..16].copy_from_slice(chain);
    all[16..20].copy_from_slice(&epoch.to_be_bytes());
    all[20..].copy_from_slice(hash);
    digest(&all)
}

/// Returns the first half of the BLAKE3 hash.
pub fn digest(bytes: &[u8]) -> Chain {
    let mut out = [0; 16];
    out.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    out
}
