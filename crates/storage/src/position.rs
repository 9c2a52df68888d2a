//! A position in the log of a slot.

/// A slot's number in its cluster.
pub type SlotNumber = u16;

/// The generation of a slot's log: another one starts when the last was lost. Ordered by number,
/// then by author.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation {
    /// A counter.
    pub number: u64,
    /// The node that started it.
    pub by: u64,
}

/// The position up to which a slot's log is applied here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// The generation of the log.
    pub generation: Generation,
    /// Offset of the first record that is not applied.
    pub next_offset: u64,
    /// The log's own epoch at the last record applied.
    pub leader_epoch: i32,
    /// Hash over all records applied.
    pub chain: [u8; 16],
}

/// Describes a position, for people.
pub(crate) fn described(position: Option<&Position>) -> String {
    let Some(p) = position else {
        return "its beginning".to_owned();
    };
    let Generation { number, by } = p.generation;
    let chain = u128::from_be_bytes(p.chain);
    format!(
        "offset {} of generation {number} by {by:x} (epoch {}, chain {chain:032x})",
        p.next_offset, p.leader_epoch
    )
}
