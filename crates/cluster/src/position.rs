//! Where in a slot's log a replica is.

/// A node, by a number that it keeps for life.
pub type NodeId = u64;

/// The log's start over, after what was in it was lost: the ballot of who began it. Greater ones are later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation {
    /// Counts.
    pub number: u64,
    /// The node that began it: two that begin at once are told apart.
    pub by: NodeId,
}

/// A hash over all records that were applied, in their order, and their leaders: replicas with the same chain have the same state.
pub type Chain = [u8; 16];

/// How far a replica has applied its slot's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// Of the log.
    pub generation: Generation,
    /// The offset of the next record.
    pub next_offset: u64,
    /// The epoch of the partition's leader under which the last record was written; -1 before the first record.
    pub leader_epoch: i32,
    /// Over the records so far.
    pub chain: Chain,
}

impl Position {
    /// Before the first record of a new log.
    pub fn start() -> Position {
        Position {
            leader_epoch: -1,
            ..Position::default()
        }
    }

    /// The order in which the later of two replicas wins when a generation begins: no record that a majority had is missing at
    /// the last of any majority.
    pub fn rank(&self) -> (Generation, i32, u64) {
        (self.generation, self.leader_epoch, self.next_offset)
    }

    /// After a record.
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

/// The chain with another record. Its leader counts: a record that the log lost, and that its writer appended again, is another one
/// even where it was, since what a later leader's replicas promised does not hold for the earlier.
pub fn link(chain: &Chain, epoch: i32, hash: &Chain) -> Chain {
    let mut all = [0; 36];
    all[..16].copy_from_slice(chain);
    all[16..20].copy_from_slice(&epoch.to_be_bytes());
    all[20..].copy_from_slice(hash);
    digest(&all)
}

/// The first half of the BLAKE3 hash.
pub fn digest(bytes: &[u8]) -> Chain {
    let mut out = [0; 16];
    out.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    out
}
