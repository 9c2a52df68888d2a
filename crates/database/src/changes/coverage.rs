//! The coverage of the seqs of a user of a database with access: the principals whose rows the
//! device has, and how far those of new principals came.
//!
//! A seq is `seq~covered~signature`. `covered` has a fingerprint of each principal whose rows the
//! device has up to the seq. If the user has other principals when the device returns, rows of these
//! come first, up to the seq. Meanwhile `covered` is followed by the fingerprints of these, and the
//! place of the last of their rows: `covered.new.seq`. With fewer principals the feed continues.

use std::sync::Arc;

use document::Principals;

use crate::Error;
use crate::access_key::FINGERPRINT_LEN;
use crate::reader::{Reader, SIGNED, SignedSeq};
use crate::seq::Seqs;

/// Between the parts of a coverage. It is in no seq and no fingerprint.
const PART: char = '.';

/// The coverage of the seqs of a feed.
pub(super) struct Coverage {
    /// Fingerprints of the principals whose rows come in the order of the feed.
    covered: String,
    /// The principals whose earlier rows come first.
    new: Option<Backfill>,
}

/// Rows of new principals that come first.
struct Backfill {
    /// The new principals.
    user: Arc<Principals>,
    fingerprints: String,
    /// How far their rows came.
    at: Seqs,
}

impl Coverage {
    /// The coverage of a feed of which no earlier part is missing.
    pub fn whole(reader: &Reader) -> Coverage {
        Coverage {
            covered: fingerprints(reader, reader.user()),
            new: None,
        }
    }

    /// The coverage of a feed that continues from a seq. `parse` reads the place of a backfill.
    ///
    /// # Errors
    /// Errors of `parse`.
    pub fn of(
        reader: &Reader,
        given: &SignedSeq<'_>,
        parse: impl Fn(&str) -> Result<Seqs, Error>,
    ) -> Result<Coverage, Error> {
        let mut parts = given.coverage.split(PART);
        let covered = parts.next().unwrap_or_default();
        let (before, at) = (parts.next().unwrap_or_default(), parts.next());
        let is_new = |of: &str, fingerprint: &str| !has(of, fingerprint);
        let new = reader
            .user()
            .filter(|one| is_new(covered, &reader.fingerprint(one)));
        if new.iter().next().is_none() {
            return Ok(Coverage::whole(reader));
        }
        let known = reader
            .user()
            .filter(|one| has(covered, &reader.fingerprint(one)));
        // Principals that came in the middle of a backfill let it start again.
        let continues = !new
            .iter()
            .any(|one| is_new(before, &reader.fingerprint(one)));
        let at = match at {
            Some(at) if continues => parse(at)?,
            _ => parse("0")?,
        };
        Ok(Coverage {
            covered: fingerprints(reader, &known),
            new: Some(Backfill {
                fingerprints: fingerprints(reader, &new),
                user: Arc::new(new),
                at,
            }),
        })
    }

    /// The principals whose earlier rows come first.
    pub fn new_user(&self) -> Option<&Arc<Principals>> {
        self.new.as_ref().map(|new| &new.user)
    }

    /// Where their rows continue in a shard.
    pub fn at(&self, shard: usize) -> u64 {
        let at = self.new.as_ref().and_then(|new| new.at.at.get(shard));
        at.copied().unwrap_or_default()
    }

    /// Moves behind one of their rows; returns the place before.
    pub fn move_to(&mut self, shard: usize, seq: u64) -> u64 {
        let at = self.new.as_mut().and_then(|new| new.at.at.get_mut(shard));
        at.map_or(0, |at| std::mem::replace(at, seq))
    }

    /// Ends the backfill: the device has all rows up to the feed's place.
    pub fn end(&mut self, reader: &Reader) {
        *self = Coverage::whole(reader);
    }

    /// Appends it to a seq.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.push(SIGNED);
        out.extend_from_slice(self.covered.as_bytes());
        if let Some(new) = &self.new {
            let part = PART as u8;
            out.push(part);
            out.extend_from_slice(new.fingerprints.as_bytes());
            out.push(part);
            new.at.write_to(out);
        }
    }
}

/// Returns the fingerprints of principals, one after the other.
fn fingerprints(reader: &Reader, of: &Principals) -> String {
    of.iter().map(|one| reader.fingerprint(one)).collect()
}

/// Returns whether a list of fingerprints has this one.
fn has(list: &str, fingerprint: &str) -> bool {
    let mut all = list.as_bytes().chunks(FINGERPRINT_LEN);
    all.any(|one| one == fingerprint.as_bytes())
}
