//! The rows of one principal, in an index that has rows by principal.
//!
//! Such an index has each row of a view once more for each principal that may read its document, in
//! a further view: [`crate::Spec::with_access`]. There a place begins with the principal, and with
//! whether its users may find the row under another of their principals too.
//!
//! **Nearly all rows are under principals of which a user is one at most:** a user has one name, and
//! most documents name users alone, or one role. They are counted and reduced as all rows are. Only
//! rows of documents that name a role and another principal are compared with those of others.

use document::{AccessSet, Principal};
use parking_lot::Mutex;

use crate::blocks::State;
use crate::keys::{put_terminated, successor, take_terminated};

/// Follows the principal in the places of rows that a user finds under one principal.
const SINGLE: u8 = 0;
/// Follows the principal in the places of rows that a user may find under several.
const OVERLAP: u8 = 1;

/// Returns the beginning of the places of one principal's rows.
fn prefix_of(principal: &Principal, overlap: bool) -> Vec<u8> {
    let mut prefix = vec![];
    put_terminated(principal.as_str().as_bytes(), &mut prefix);
    prefix.push(if overlap { OVERLAP } else { SINGLE });
    prefix
}

/// Returns the beginnings of the places of a document's rows.
pub(crate) fn prefixes_of(set: &AccessSet) -> Vec<Vec<u8>> {
    let readers = set.index_readers();
    let principals = readers.principals.iter();
    let prefix = |principal: &&Principal| prefix_of(principal, readers.overlap);
    principals.map(prefix).collect()
}

/// Returns the length of the beginning of a place; `None` if it is invalid.
pub(crate) fn prefix_len(place: &[u8]) -> Option<usize> {
    let (_, rest) = take_terminated(place)?;
    let (kind, rest) = rest.split_first()?;
    matches!(*kind, SINGLE | OVERLAP).then_some(place.len() - rest.len())
}

/// The rows of one principal.
pub(crate) struct Part {
    /// The beginning of their places.
    prefix: Vec<u8>,
    /// Prefixes of the user's other parts: rows that these have too do not count here.
    others: Vec<Vec<u8>>,
    /// The reduction of a range as far as it got.
    pub walk: Mutex<Walk>,
}

/// A reduction of rows one by one, which continues after an interruption.
#[derive(Default)]
pub(crate) struct Walk {
    /// The reduction.
    pub of: Option<Walked>,
    /// Where it continues.
    pub next: Vec<u8>,
    /// The states of the rows so far.
    pub states: Vec<State>,
}

/// The reduction of a [`Walk`].
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Walked {
    pub view: usize,
    pub function: usize,
    pub low: Vec<u8>,
    pub high: Option<Vec<u8>>,
    pub descending: bool,
}

impl Part {
    pub fn new(principal: &Principal, overlap: bool) -> Part {
        Part {
            prefix: prefix_of(principal, overlap),
            others: vec![],
            walk: Mutex::default(),
        }
    }

    /// Returns the part without the rows that these have.
    pub fn without(mut self, others: Vec<Vec<u8>>) -> Part {
        self.others = others;
        self
    }

    /// The beginning of its places.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The first place behind all of its places.
    pub fn end(&self) -> Option<Vec<u8>> {
        successor(&self.prefix)
    }

    /// Prefixes of other parts that may have its rows.
    pub fn others(&self) -> &[Vec<u8>] {
        &self.others
    }

    /// Returns a place as it is stored.
    pub fn stored(&self, place: &[u8]) -> Vec<u8> {
        [&self.prefix[..], place].concat()
    }

    /// Returns a stored place without the beginning.
    pub fn own<'p>(&self, place: &'p [u8]) -> &'p [u8] {
        place.strip_prefix(&self.prefix[..]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_begin_with_each_principal_and_its_kind() {
        let prefixes = |body: &str| {
            let prefixes = prefixes_of(&AccessSet::of_body(body.as_bytes()).unwrap());
            for prefix in &prefixes {
                let place = [&prefix[..], b"place"].concat();
                assert_eq!(prefix_len(&place), Some(prefix.len()));
            }
            prefixes
        };
        assert_eq!(
            prefixes(r#"{"_access":["bob","al"]}"#),
            [b"al\0\0".to_vec(), b"bob\0\0".to_vec()]
        );
        assert_eq!(
            prefixes(r#"{"_access":["role:a","al"]}"#),
            [b"al\0\x01".to_vec(), b"role:a\0\x01".to_vec()]
        );
        assert!(prefixes("{}").is_empty());
        assert_eq!(prefix_len(b"al\0\x02"), None);
        assert_eq!(prefix_len(b"al"), None);
    }
}
