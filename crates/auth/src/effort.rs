//! The cost of checking a password, so that every refusal takes the same time: a client that could
//! distinguish an existing name from an unknown one, or a cheap hash from an expensive one, by the
//! clock would know which account to attack.

use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::password::Hash;

/// Iterations of one measurement,
const MEASURED_ITERATIONS: u32 = 500;
/// Number of measurements, of which the fastest counts: other threads slow down the rest.
const MEASUREMENTS: usize = 7;

/// An iteration of SHA-384 or SHA-512 counts as this number of iterations of SHA-256: processors
/// have instructions for the latter.
const OF_LONG_HASHES: u64 = 3;

/// A number of PBKDF2 iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effort {
    hash: Hash,
    iterations: u32,
}

impl Effort {
    pub(crate) fn of(hash: Hash, iterations: u32) -> Effort {
        Effort {
            hash,
            iterations: iterations.max(1),
        }
    }

    /// Returns its iterations as they count towards `[chttpd_auth] max_iterations`: those of long
    /// hashes several times, unless the `configured` hash has as many. Not measured, so that all
    /// machines accept the same hashes.
    pub(crate) fn counted_iterations(self, configured: Effort) -> u64 {
        let is_configured =
            self.hash == configured.hash && self.iterations <= configured.iterations;
        let is_long = matches!(self.hash, Hash::Sha384 | Hash::Sha512);
        let each = match is_long && !is_configured {
            true => OF_LONG_HASHES,
            false => 1,
        };
        u64::from(self.iterations) * each
    }

    fn ns(self) -> f64 {
        f64::from(self.iterations) * iteration_ns(self.hash)
    }

    pub(crate) fn max(self, other: Effort) -> Effort {
        if self.hash == other.hash {
            let iterations = self.iterations.max(other.iterations);
            return Effort { iterations, ..self };
        }
        if self.ns() < other.ns() { other } else { self }
    }

    /// Returns the effort left after `done`; `None` when it is negligible.
    fn after(self, done: Effort) -> Option<Effort> {
        let done = match self.hash == done.hash {
            // Without a measurement, and exact.
            true => f64::from(done.iterations),
            false => done.ns() / iteration_ns(self.hash),
        };
        let left = f64::from(self.iterations) - done;
        // A float that is too large for the type becomes its largest value, one below 0 becomes 0.
        let iterations = left as u32;
        (iterations > 0).then_some(Effort { iterations, ..self })
    }

    /// Spends the effort for a password, less what is already `done`. The result is discarded.
    pub(crate) fn spend(self, password: &[u8], done: Option<Effort>) {
        let left = match done {
            Some(done) => self.after(done),
            None => Some(self),
        };
        if let Some(left) = left {
            std::hint::black_box(left.hash.pbkdf2(password, b"nobody", left.iterations));
        }
    }
}

/// Maximum iterations of SHA-256 up to which hashes in user documents raise the cost of every
/// refusal. Beyond that, a user who may choose the hash could make the server spend that time on
/// every wrong password.
const OF_DOCUMENTS_MAX: u32 = 1_200_000;

/// Returns the measured time of one iteration on this machine, in nanoseconds.
fn iteration_ns(hash: Hash) -> f64 {
    static MEASURED: [OnceLock<f64>; 5] = [const { OnceLock::new() }; 5];
    let index = match hash {
        Hash::Sha1 => 0,
        Hash::Sha224 => 1,
        Hash::Sha256 => 2,
        Hash::Sha384 => 3,
        Hash::Sha512 => 4,
    };
    *MEASURED[index].get_or_init(|| {
        let measure = || {
            let began = Instant::now();
            std::hint::black_box(hash.pbkdf2(b"password", b"salt", MEASURED_ITERATIONS));
            began.elapsed()
        };
        let least = (0..MEASUREMENTS).map(|_| measure()).min();
        let least = least.unwrap_or_default().max(Duration::from_nanos(1));
        least.as_nanos() as f64 / f64::from(MEASURED_ITERATIONS)
    })
}

/// The most expensive hash found so far in a user document.
#[derive(Default)]
pub(crate) struct CostliestHash(RwLock<Option<Effort>>);

impl CostliestHash {
    pub(crate) fn note(&self, effort: Effort) {
        let most_ns = Effort::of(Hash::Sha256, OF_DOCUMENTS_MAX).ns();
        let effort = match effort.hash {
            Hash::Sha256 => Effort {
                iterations: effort.iterations.min(OF_DOCUMENTS_MAX),
                ..effort
            },
            hash if effort.ns() > most_ns => {
                Effort::of(hash, (most_ns / iteration_ns(hash)) as u32)
            }
            _ => effort,
        };
        let known = *self.0.read().unwrap_or_else(PoisonError::into_inner);
        let new = known.map_or(effort, |known| known.max(effort));
        if known != Some(new) {
            let mut dearest = self.0.write().unwrap_or_else(PoisonError::into_inner);
            *dearest = Some(dearest.map_or(new, |dearest| dearest.max(new)));
        }
    }

    /// Returns the most expensive hash of all known ones.
    pub(crate) fn with(&self, configured: Effort) -> Effort {
        let known = *self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.map_or(configured, |known| known.max(configured))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_and_what_was_done_are_as_much_as_the_dearest() {
        let dear = Effort::of(Hash::Sha256, 600_000);
        let left = |done| dear.after(done).map(|left| left.iterations);
        assert_eq!(left(Effort::of(Hash::Sha256, 10)), Some(599_990));
        assert_eq!(left(dear), None);
        assert_eq!(left(Effort::of(Hash::Sha256, u32::MAX)), None);
        let sha1 = Effort::of(Hash::Sha1, 100_000);
        let left = dear.after(sha1).expect("more to do");
        assert!((left.ns() + sha1.ns() - dear.ns()).abs() < dear.ns() / 1000.0);
    }

    #[test]
    fn iterations_of_long_hashes_count_more_than_once() {
        let configured = Effort::of(Hash::Sha512, 1_000_000);
        for (hash, iterations, counted) in [
            (Hash::Sha1, 2_000_000, 2_000_000),
            (Hash::Sha256, 2_000_000, 2_000_000),
            (Hash::Sha384, 600_000, 1_800_000),
            (Hash::Sha512, 1_000_001, 3_000_003),
            (Hash::Sha512, 1_000_000, 1_000_000),
            (Hash::Sha512, u32::MAX, 3 * u64::from(u32::MAX)),
        ] {
            let effort = Effort::of(hash, iterations);
            assert_eq!(effort.counted_iterations(configured), counted, "{effort:?}");
        }
    }

    #[test]
    fn the_dearest_known_only_grows() {
        let dearest = CostliestHash::default();
        let of = |n| Effort::of(Hash::Sha256, n);
        assert_eq!(dearest.with(of(7)), of(7));
        for (seen, then) in [(10, 10), (5, 10), (20, 20), (u32::MAX, OF_DOCUMENTS_MAX)] {
            dearest.note(of(seen));
            assert_eq!(dearest.with(of(7)), of(then));
        }
        let admins = of(OF_DOCUMENTS_MAX + 1);
        assert_eq!(dearest.with(admins), admins);
    }
}
