//! Ids that a process gives its documents itself, without asking a server.
//!
//! All ids of a process come from one source of their kind, so each is greater than all earlier ones, whichever thread asked.
//! A forked process has sources of its own: it must not repeat the ids of its parent.

use std::sync::{Mutex, PoisonError};

use crate::uuid::{Random, UuidAlgorithm, UuidFormat, UuidGenerator, step};

/// The maximum length of a prefix of ids in bytes.
pub const ID_PREFIX_LENGTH_MAX: usize = 256;

/// The kinds of ids that a process can give itself. Both are 32 hexadecimal digits, ascend, and share most digits with the id
/// before, which keeps them small on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessIds {
    /// Ids that start at a random number and grow by random steps, like the server's `sequential`: they say nothing about the
    /// time, and ids of different processes are in no order.
    Sequential,
    /// UUIDs of version 7: they start with the time, so ids of different processes are in the order of their milliseconds, as
    /// far as the clocks agree.
    Monotonic,
}

static SEQUENTIAL: Mutex<Option<(u32, Sequence)>> = Mutex::new(None);
static MONOTONIC: Mutex<Option<(u32, UuidGenerator)>> = Mutex::new(None);

impl ProcessIds {
    /// Returns the next id, without a prefix.
    ///
    /// # Panics
    /// The operating system returns no random numbers, without which no id is safe.
    pub fn next(self) -> String {
        let process = std::process::id();
        match self {
            ProcessIds::Sequential => {
                let new = || Sequence::new(Random::new());
                next_of(&SEQUENTIAL, process, new, Sequence::next)
            }
            ProcessIds::Monotonic => {
                let new = || UuidGenerator::new(UuidAlgorithm::V7(UuidFormat::Base16));
                next_of(&MONOTONIC, process, new, |ids| ids.next())
            }
        }
    }
}

/// Takes an id from the source of a process, which is new after a fork.
fn next_of<S>(
    source: &Mutex<Option<(u32, S)>>,
    process: u32,
    new: impl FnOnce() -> S,
    next: impl FnOnce(&mut S) -> String,
) -> String {
    // A source is valid after every step.
    let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
    if source.as_ref().is_some_and(|(of, _)| *of != process) {
        *source = None;
    }
    let (_, ids) = source.get_or_insert_with(|| (process, new()));
    next(ids)
}

/// A number of 128 bits that grows.
#[derive(Debug)]
struct Sequence {
    random: Random,
    last: u128,
}

impl Sequence {
    fn new(mut random: Random) -> Sequence {
        // The highest bit stays free: no number of steps gets to the end.
        let last = u128::from_le_bytes(random.bytes()) >> 1;
        Sequence { random, last }
    }

    fn next(&mut self) -> String {
        self.last += u128::from(step(&mut self.random));
        format!("{:032x}", self.last)
    }
}

/// Why a text cannot be the start of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// Ids that start with an underscore are CouchDB's own.
    #[error("A prefix of ids may not start with an underscore.")]
    Reserved,
    /// It is longer than [`ID_PREFIX_LENGTH_MAX`].
    #[error("A prefix of ids has at most {} bytes.", ID_PREFIX_LENGTH_MAX)]
    TooLong,
    /// It contains control characters, which are invisible in ids.
    #[error("A prefix of ids may not contain control characters.")]
    Control,
}

/// Checks that ids may start with a text.
///
/// # Errors
/// [`PrefixError`] names the violated rule.
pub fn check_id_prefix(prefix: &str) -> Result<(), PrefixError> {
    if prefix.starts_with('_') {
        return Err(PrefixError::Reserved);
    }
    if prefix.len() > ID_PREFIX_LENGTH_MAX {
        return Err(PrefixError::TooLong);
    }
    match prefix.chars().any(char::is_control) {
        true => Err(PrefixError::Control),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const KINDS: [ProcessIds; 2] = [ProcessIds::Sequential, ProcessIds::Monotonic];

    #[test]
    fn ids_of_all_threads_differ_and_ascend() {
        for kind in KINDS {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    std::thread::spawn(move || {
                        let ids: Vec<String> = (0..20_000).map(|_| kind.next()).collect();
                        assert!(ids.is_sorted_by(|left, right| left < right));
                        ids
                    })
                })
                .collect();
            let lists = threads.into_iter().map(|thread| thread.join().unwrap());
            let all: Vec<String> = lists.flatten().collect();
            assert!(all.iter().all(|id| id.len() == 32));
            let last = all.iter().max().unwrap();
            assert!(kind.next() > *last);
            let different: HashSet<&String> = all.iter().collect();
            assert_eq!(different.len(), all.len());
        }
    }

    #[test]
    fn neighbours_share_most_of_their_digits() {
        for (kind, shared) in [(ProcessIds::Sequential, 24), (ProcessIds::Monotonic, 9)] {
            let ids: Vec<String> = (0..100).map(|_| kind.next()).collect();
            let alike = ids
                .windows(2)
                .filter(|pair| pair[0][..shared] == pair[1][..shared]);
            assert!(alike.count() > 90, "{ids:?}");
        }
    }

    #[test]
    fn a_forked_process_starts_anew() {
        let source = Mutex::new(None);
        let mut made = 0;
        for process in [1, 1, 2] {
            let new = || {
                made += 1;
                Sequence::new(Random::new())
            };
            next_of(&source, process, new, Sequence::next);
        }
        assert_eq!(made, 2);
    }

    #[test]
    fn the_start_of_a_sequence_is_far_from_its_end() {
        let mut sequence = Sequence::new(Random::new());
        let first = sequence.next();
        assert!(sequence.last < 1 << 127);
        assert!(sequence.next() > first);
    }

    #[test]
    fn prefixes_are_the_start_of_documents_ids() {
        for good in ["", "status/", "a:", "gr\u{fc}n ", &"x".repeat(256)] {
            assert_eq!(check_id_prefix(good), Ok(()), "{good}");
            assert!(crate::DocId::new(&format!("{good}0")).is_ok());
        }
        for (bad, why) in [
            ("_", PrefixError::Reserved),
            ("_design/", PrefixError::Reserved),
            ("_local/", PrefixError::Reserved),
            ("a\n", PrefixError::Control),
            ("\0", PrefixError::Control),
            (&"x".repeat(257), PrefixError::TooLong),
        ] {
            assert_eq!(check_id_prefix(bad), Err(why), "{bad:?}");
        }
    }
}
