//! Addresses of mail (RFC 5321 and 5322).

use super::Reader;
use crate::analyzer::Flavour;

/// The most bytes of a quoted part that are read.
const LONGEST_QUOTED: usize = 255;

/// The run of characters of a local part that was read last, and where an address in it ends.
#[derive(Default)]
pub(super) struct Seen {
    start: usize,
    end: usize,
    address: Option<usize>,
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
        if self.flavour == Flavour::Clouseau && self.address.start <= at && at < self.address.end {
            return self.address.address;
        }
        let end = self.local_part(at)?;
        let address = (self.byte(end) == Some(b'@'))
            .then(|| self.mail_host(end + 1))
            .flatten();
        if self.flavour == Flavour::Clouseau && self.byte(at).is_some_and(|byte| self.is_atom(byte))
        {
            let run_end = self.run(at, |byte| self.is_atom(byte));
            if run_end == end {
                self.address = Seen {
                    start: at,
                    end: run_end,
                    address,
                };
            }
        }
        address
    }

    /// Labels with points between them, each of atoms or quoted.
    fn local_part(&self, at: usize) -> Option<usize> {
        let mut end = self.local_label(at)?;
        loop {
            let is_point = self.byte(end) == Some(b'.');
            let was_point =
                self.flavour == Flavour::Clouseau && self.text.as_bytes()[end - 1] == b'.';
            let next = if is_point { end + 1 } else { end };
            match self.local_label(next).filter(|_| is_point || was_point) {
                Some(further) => end = further,
                None => return Some(end),
            }
        }
    }

    fn local_label(&self, at: usize) -> Option<usize> {
        if self.byte(at)? != b'"' {
            let end = self.run(at, |byte| self.is_atom(byte));
            return (end > at).then_some(end);
        }
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
