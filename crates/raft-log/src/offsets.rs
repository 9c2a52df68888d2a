//! The offsets of records among Raft's entries.
//!
//! Raft numbers all entries, including the empty one of each new leader and changes of its members.
//! Offsets count records only. The few other entries are listed, so that either number follows from
//! the other by arithmetic.

/// The last entry that is not in the log any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// Its index.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// The offset of the first record after it.
    pub offset: u64,
}

/// The offsets of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    base: Base,
    /// The indexes after the base of entries that are not records, ascending.
    gaps: Vec<u64>,
}

impl Offsets {
    /// Returns the offsets of an empty log that starts after `base`.
    pub fn starting(base: Base) -> Offsets {
        Offsets { base, gaps: vec![] }
    }

    /// Returns the offsets of a log that starts after `base`. `None` if the gaps are not ascending
    /// indexes after it.
    pub fn new(base: Base, gaps: Vec<u64>) -> Option<Offsets> {
        let is_ascending = gaps.is_sorted_by(|a, b| a < b);
        let is_after = gaps.first().is_none_or(|gap| *gap > base.index);
        (is_ascending && is_after).then_some(Offsets { base, gaps })
    }

    /// Returns the base.
    pub fn base(&self) -> Base {
        self.base
    }

    /// Returns the indexes of entries that are not records.
    pub fn gaps(&self) -> &[u64] {
        &self.gaps
    }

    /// Returns the offset of the first record after the entry at an index, which is the base's or a
    /// later one.
    pub fn after(&self, index: u64) -> u64 {
        let entries = index.saturating_sub(self.base.index);
        let gaps = self.gaps.partition_point(|gap| *gap <= index) as u64;
        self.base.offset + entries.saturating_sub(gaps)
    }

    /// Returns the index of the record at an offset, which is the base's or a later one, if all
    /// further entries are records.
    pub fn index_of(&self, offset: u64) -> u64 {
        let mut index = self.base.index + 1 + offset.saturating_sub(self.base.offset);
        for gap in &self.gaps {
            if *gap > index {
                break;
            }
            index += 1;
        }
        index
    }

    /// Adds the entry at the next index, after [`Offsets::truncate`].
    pub fn push(&mut self, index: u64, is_record: bool) {
        debug_assert!(self.gaps.last().is_none_or(|gap| *gap < index));
        if !is_record {
            self.gaps.push(index);
        }
    }

    /// Removes the entries from an index on: other ones replace them.
    pub fn truncate(&mut self, from: u64) {
        let kept = self.gaps.partition_point(|gap| *gap < from);
        self.gaps.truncate(kept);
    }

    /// Removes the entries up to an index, which has this term.
    pub fn trim(&mut self, index: u64, term: u64) {
        debug_assert!(index >= self.base.index);
        let offset = self.after(index);
        self.base = Base {
            index,
            term,
            offset,
        };
        self.gaps.retain(|gap| *gap > index);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn offsets_count_records_without_gaps(
            entries in prop::collection::vec(prop::bool::weighted(0.7), 1..60),
            trim in 0_usize..60,
            base in 0_u64..5,
        ) {
            let start = Base { index: base, term: 1, offset: 100 };
            let mut offsets = Offsets::starting(start);
            let mut next = 100;
            let mut model = vec![];
            for (index, is_record) in (base + 1..).zip(&entries) {
                offsets.push(index, *is_record);
                if *is_record {
                    model.push((index, next));
                    next += 1;
                }
            }
            let trim = base + trim.min(entries.len()) as u64;
            offsets.trim(trim, 1);
            for (index, offset) in model {
                if index > trim {
                    prop_assert_eq!(offsets.index_of(offset), index);
                    prop_assert_eq!(offsets.after(index), offset + 1);
                }
            }
            prop_assert_eq!(offsets.after(base + entries.len() as u64), next);
        }

        #[test]
        fn replaced_entries_leave_nothing(
            first in prop::collection::vec(any::<bool>(), 0..20),
            second in prop::collection::vec(any::<bool>(), 0..20),
            kept in 0_usize..20,
        ) {
            let kept = kept.min(first.len());
            let mut replaced = Offsets::default();
            for (index, is_record) in (1..).zip(&first) {
                replaced.push(index, *is_record);
            }
            replaced.truncate(kept as u64 + 1);
            let mut plain = Offsets::default();
            for (index, is_record) in (1..).zip(&first[..kept]) {
                plain.push(index, *is_record);
            }
            for (index, is_record) in (kept as u64 + 1..).zip(&second) {
                replaced.push(index, *is_record);
                plain.push(index, *is_record);
            }
            prop_assert_eq!(replaced, plain);
        }
    }
}
