//! The documents that an index lacks, because a map function exceeded a limit for them.

use std::collections::BTreeSet;

use storage::varint::{Reader, put};

/// The limits that a map function exceeds because of its document, by their configuration keys. The
/// places are stored.
const LIMITS: [&str; 5] = [
    "memory_limit_bytes",
    "emit_rows_limit",
    "emit_bytes_limit",
    "time_limit_ms",
    "os_process_timeout",
];
/// The first limits are always stored, those of time only if one was exceeded.
const LIMITS_ALWAYS_STORED: usize = 3;

/// Bits of the first byte of the stored form.
const HAS_MORE: u8 = 1;
const HAS_TIMES: u8 = 2;

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

    /// Forgets the documents that were left out with changes after a seq, which are mapped again.
    pub fn forget_after(&mut self, seq: u64) {
        self.seqs.retain(|left_out| *left_out <= seq);
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

    /// Returns the limit of time that the functions exceeded for one of these documents.
    pub fn exceeded_time(&self) -> Option<functions::Error> {
        let all = LIMITS.iter().zip(&self.exceeded);
        let (limit, value) = all
            .skip(LIMITS_ALWAYS_STORED)
            .find(|(_, value)| **value > 0)?;
        Some(functions::Error::Limit {
            limit,
            value: value.to_string(),
        })
    }

    /// Appends the stored form; nothing if no document was left out.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        let (always, times) = self.exceeded.split_at(LIMITS_ALWAYS_STORED);
        let has_times = times.iter().any(|value| *value > 0);
        out.push((u8::from(self.has_more) * HAS_MORE) | (u8::from(has_times) * HAS_TIMES));
        always.iter().for_each(|value| put(*value, out));
        if has_times {
            times.iter().for_each(|value| put(*value, out));
        }
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
        let bits = r.byte()?;
        omissions.has_more = bits & HAS_MORE != 0;
        let stored = match bits & HAS_TIMES != 0 {
            true => LIMITS.len(),
            false => LIMITS_ALWAYS_STORED,
        };
        for value in &mut omissions.exceeded[..stored] {
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
        // Limits of time came later, and are stored only where one was exceeded.
        omissions.note(8, &exceeded("time_limit_ms", 5000));
        let mut stored = vec![];
        omissions.encode(&mut stored);
        assert_eq!(stored, b"\x02\0\x0a\0\x88\x27\0\x07\x01\xa4\x02");
        let mut reader = Reader::new(&stored, "omissions");
        let read = Omissions::decode(&mut reader).unwrap();
        assert_eq!(read, omissions);
        assert!(read.may_come_in(|name| (name == "time_limit_ms").then_some(5001)));
        assert_eq!(read.exceeded_time(), Some(exceeded("time_limit_ms", 5000)));
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
