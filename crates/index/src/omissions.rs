//! The documents that an index lacks, because a map function exceeded a limit for them.

use std::collections::BTreeSet;

use storage::varint::{Reader, put};

/// The limits that a map function exceeds because of its document, by their configuration keys. The
/// places are stored.
const LIMITS: [&str; 3] = ["memory_limit_bytes", "emit_rows_limit", "emit_bytes_limit"];

/// Maximum number of documents that are counted. They are written with the state.
const COUNTED_MAX: usize = 1_000;

/// The documents that an index lacks, by the seqs of the changes with which they were left out. A
/// document that is changed has another seq.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Omissions {
    seqs: BTreeSet<u64>,
    /// The lowest value with which each limit was exceeded; 0 if it was not.
    exceeded: [u64; LIMITS.len()],
    /// There were more documents than are counted.
    has_more: bool,
}

impl Omissions {
    /// Returns whether no document was left out.
    pub fn is_empty(&self) -> bool {
        self.seqs.is_empty() && !self.has_more
    }

    /// Returns the number of documents that were left out, at most 1,000.
    pub fn count(&self) -> u64 {
        match self.has_more {
            true => COUNTED_MAX as u64,
            false => self.seqs.len() as u64,
        }
    }

    /// Records that a document was left out with the change of this seq.
    pub fn note(&mut self, seq: u64, error: &functions::Error) {
        self.insert(seq);
        let functions::Error::Limit { limit, value } = error else {
            return;
        };
        let place = LIMITS.iter().position(|name| name == limit);
        if let (Some(place), Ok(value)) = (place, value.parse()) {
            self.lower(place, value);
        }
    }

    /// Adds others.
    pub fn merge(&mut self, other: &Omissions) {
        other.seqs.iter().for_each(|&seq| self.insert(seq));
        for (place, value) in other.exceeded.into_iter().enumerate() {
            self.lower(place, value);
        }
        self.has_more |= other.has_more;
    }

    /// Records that a document was left out, whatever the configuration is.
    pub fn insert(&mut self, seq: u64) {
        if self.seqs.len() < COUNTED_MAX {
            self.seqs.insert(seq);
        } else {
            self.has_more |= !self.seqs.contains(&seq);
        }
    }

    fn lower(&mut self, place: usize, value: u64) {
        let exceeded = &mut self.exceeded[place];
        if value > 0 && (*exceeded == 0 || value < *exceeded) {
            *exceeded = value;
        }
    }

    /// Returns the seqs of the changes with which documents were left out, ascending.
    pub fn seqs(&self) -> impl Iterator<Item = u64> {
        self.seqs.iter().copied()
    }

    /// Forgets documents that were changed since.
    pub fn forget(&mut self, seqs: &[u64]) {
        for seq in seqs {
            self.seqs.remove(seq);
        }
        if self.is_empty() {
            *self = Omissions::default();
        }
    }

    /// Returns whether documents that were left out may come in, because a limit is higher now.
    pub fn may_come_in(&self, limit: impl Fn(&str) -> Option<u64>) -> bool {
        let is_higher = |(name, exceeded): (&&str, &u64)| {
            *exceeded > 0 && limit(name).is_some_and(|now| now > *exceeded)
        };
        !self.is_empty() && LIMITS.iter().zip(&self.exceeded).any(is_higher)
    }

    /// Appends the stored form; nothing if no document was left out.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        out.push(u8::from(self.has_more));
        self.exceeded.iter().for_each(|value| put(*value, out));
        let mut before = 0;
        for seq in self.seqs() {
            put(seq - before, out);
            before = seq;
        }
    }

    /// Reads the stored form, to the end of the value.
    ///
    /// # Errors
    /// [`storage::Error::Corrupt`].
    pub fn decode(r: &mut Reader<'_>) -> Result<Omissions, storage::Error> {
        let mut omissions = Omissions::default();
        if r.rest.is_empty() {
            return Ok(omissions);
        }
        omissions.has_more = r.byte()? != 0;
        for value in &mut omissions.exceeded {
            *value = r.varint()?;
        }
        let mut seq = 0_u64;
        while !r.rest.is_empty() {
            seq = seq.checked_add(r.varint()?).ok_or_else(|| r.corrupt())?;
            omissions.seqs.insert(seq);
        }
        Ok(omissions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exceeded(limit: &'static str, value: u64) -> functions::Error {
        functions::Error::Limit {
            limit,
            value: value.to_string(),
        }
    }

    #[test]
    fn omissions_are_read_as_they_were_stored() {
        let mut omissions = Omissions::default();
        let mut stored = vec![];
        omissions.encode(&mut stored);
        assert!(stored.is_empty());
        omissions.note(300, &exceeded("emit_rows_limit", 20));
        omissions.note(7, &exceeded("emit_rows_limit", 10));
        omissions.encode(&mut stored);
        assert_eq!(stored, b"\0\0\x0a\0\x07\xa5\x02");
        let mut reader = Reader::new(&stored, "omissions");
        assert_eq!(Omissions::decode(&mut reader).unwrap(), omissions);
        let mut reader = Reader::new(&stored[..3], "omissions");
        assert!(Omissions::decode(&mut reader).is_err());
    }

    #[test]
    fn documents_may_come_in_when_a_limit_that_they_exceeded_is_higher() {
        let mut omissions = Omissions::default();
        omissions.note(1, &exceeded("emit_rows_limit", 10));
        let may_come_in =
            |name: &str, value| omissions.may_come_in(|limit| (limit == name).then_some(value));
        assert!(may_come_in("emit_rows_limit", 11));
        assert!(!may_come_in("emit_rows_limit", 10));
        assert!(!may_come_in("emit_bytes_limit", u64::MAX));
        let mut changed = omissions.clone();
        changed.forget(&[1]);
        assert_eq!(changed, Omissions::default());
    }

    #[test]
    fn more_than_are_counted_are_never_none() {
        let mut omissions = Omissions::default();
        let seqs: Vec<u64> = (0..=COUNTED_MAX as u64).collect();
        for &seq in &seqs {
            omissions.note(seq, &exceeded("memory_limit_bytes", 1));
        }
        omissions.forget(&seqs);
        assert!(!omissions.is_empty());
    }
}
