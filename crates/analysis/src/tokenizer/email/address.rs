//! Addresses of mail (RFC 5321 and 5322).

use super::Reader;
use crate::analyzer::Flavour;
use crate::tokenizer::scanner::DEAD_END_BYTES;
use std::collections::HashSet;

/// The most bytes of a quoted part that are read.
const LONGEST_QUOTED: usize = 255;

/// A cache of labels that were read, so that each is read a bounded number of times.
#[derive(Default)]
pub(super) struct Seen {
    /// The run of atoms that started an address last, and where that ends: wherever one starts in
    /// the run, its first label ends with the run.
    start: usize,
    end: usize,
    address: Option<usize>,
    /// Ends of labels after which no address is found. Only those are kept whose next label ends in
    /// another piece of [`DEAD_END_BYTES`] bytes.
    dead_ends: HashSet<usize>,
    #[cfg(test)]
    bytes_read: std::cell::Cell<usize>,
}

impl Reader<'_> {
    fn is_atom(&self, byte: u8) -> bool {
        // By an oversight, Lucene 4.6 accepts points and commas in a label.
        byte.is_ascii_alphanumeric()
            || b"!#$%&'*+-/=?^_`{|}~".contains(&byte)
            || (self.flavour == Flavour::Clouseau && matches!(byte, b'.' | b','))
    }

    /// Returns the end of an address at `at`.
    pub(super) fn address(&mut self, at: usize) -> Option<usize> {
        // Lucene 9 reads no further than its window, which depends on the start.
        if self.flavour == Flavour::Nouveau {
            let end = self.local_part(at, &mut Vec::new())?;
            return self.address_after(end);
        }
        if self.address.start <= at && at < self.address.end {
            return self.address.address;
        }
        let mut trail = Vec::new();
        let end = self.local_part(at, &mut trail);
        let address = end.and_then(|end| self.address_after(end));
        if address.is_none() {
            self.address.dead_ends.extend(trail);
        }
        if self.byte(at).is_some_and(|byte| self.is_atom(byte)) {
            self.address.start = at;
            self.address.end = self.run(at, |byte| self.is_atom(byte));
            self.address.address = address;
        }
        address
    }

    /// Returns the end of an address whose local part ends at `end`.
    fn address_after(&mut self, end: usize) -> Option<usize> {
        (self.byte(end) == Some(b'@'))
            .then(|| self.mail_host(end + 1))
            .flatten()
    }

    /// Labels with points between them, each of atoms or quoted. `None` at a dead end: how labels
    /// continue after the end of one does not depend on where the first started. The `trail` gets
    /// the ends that will be dead ones if no address is found.
    fn local_part(&self, at: usize, trail: &mut Vec<usize>) -> Option<usize> {
        let is_clouseau = self.flavour == Flavour::Clouseau;
        let mut end = self.local_label(at)?;
        loop {
            if self.address.dead_ends.contains(&end) {
                return None;
            }
            let is_point = self.byte(end) == Some(b'.');
            let was_point = is_clouseau && self.text.as_bytes()[end - 1] == b'.';
            if !is_point && !was_point {
                return Some(end);
            }
            let next = if is_point { end + 1 } else { end };
            let Some(further) = self.local_label(next) else {
                return Some(end);
            };
            if is_clouseau && end / DEAD_END_BYTES != further / DEAD_END_BYTES {
                trail.push(end);
            }
            end = further;
        }
    }

    fn local_label(&self, at: usize) -> Option<usize> {
        let end = match self.byte(at)? {
            b'"' => self.quoted(at)?,
            _ => self.run(at, |byte| self.is_atom(byte)),
        };
        #[cfg(test)]
        {
            let bytes_read = &self.address.bytes_read;
            bytes_read.set(bytes_read.get() + end - at);
        }
        (end > at).then_some(end)
    }

    fn quoted(&self, at: usize) -> Option<usize> {
        let mut end = at + 1;
        while end < at + LONGEST_QUOTED {
            match self.byte(end)? {
                b'"' => return Some(end + 1),
                b'\\' if self.byte(end + 1)?.is_ascii() => end += 2,
                0x01..=0x08 | 0x0b | 0x0c | 0x0e..=0x21 | 0x23..=0x5b | 0x5d..=0x7e => end += 1,
                _ => return None,
            }
        }
        None
    }

    fn mail_host(&mut self, at: usize) -> Option<usize> {
        if self.byte(at)? != b'[' {
            return self.domain(at).into_iter().max();
        }
        let mut end = at + 1;
        while end < at + LONGEST_QUOTED {
            match self.byte(end)? {
                b']' => return Some(end + 1),
                b'\\' if self.byte(end + 1)?.is_ascii() => end += 2,
                0x01..=0x08 | 0x0b | 0x0c | 0x0e..=0x5a | 0x5e..=0x7f => end += 1,
                _ => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Texts of labels that are long enough for dead ends.
    fn labels() -> impl Strategy<Value = String> {
        let parts = vec![
            "\"a\".", "\"a\".", "\"a\".", "\".\"", "\".\"", "a.", ".", "\"", "\\\"", "\\", "@",
            "@a.com", "@[", "]", "mailto:", ":", " ", "-",
        ];
        prop::collection::vec(prop::sample::select(parts), 0..150).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn cached_addresses_are_those_of_a_first_look(text in labels()) {
            let mut reader = Reader::new(Flavour::Clouseau, &text);
            for at in 0..text.len() {
                // Out of order, as after `mailto:`.
                for at in [at + 7, at] {
                    let first_look = Reader::new(Flavour::Clouseau, &text).address(at);
                    prop_assert_eq!(reader.address(at), first_look, "at {}", at);
                }
            }
        }
    }

    #[test]
    fn labels_are_read_a_bounded_number_of_times() {
        for (part, end) in [
            ("\"a\".", ""),
            ("\"a\".", "a@"),
            ("\"a\".", "a@[x"),
            ("\".\"", ""),
            ("\".", ""),
            ("a.\"b\".", ""),
            (".\"a\"", ""),
            ("\"\\\"\".", ""),
            ("\\\".", ""),
            ("mailto:\"a\".", ""),
            ("\"mailto:\".", ""),
            ("a-", "."),
            ("a-", ".\"b\""),
            ("a-", ".\"b\"@"),
        ] {
            let text = part.repeat(20_000 / part.len()) + end;
            let mut reader = Reader::new(Flavour::Clouseau, &text);
            for at in 0..text.len() {
                assert_eq!(reader.address(at + 7), None, "{part}{end}");
                assert_eq!(reader.address(at), None, "{part}{end}");
            }
            // A first label that is quoted, and those after it up to a dead end.
            let bytes_max = 2 * text.len() * (LONGEST_QUOTED + 2 * DEAD_END_BYTES);
            let bytes_read = reader.address.bytes_read.get();
            assert!(bytes_read <= bytes_max, "{part}{end}: {bytes_read}");
            let dead_ends = reader.address.dead_ends.len();
            assert!(
                dead_ends <= 4 * text.len() / DEAD_END_BYTES + 4,
                "{part}{end}"
            );
        }
    }
}
