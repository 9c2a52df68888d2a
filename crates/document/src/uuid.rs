//! Ids for documents that come without one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;

/// When the counter of the sequential algorithm exceeds this, a new prefix starts (CouchDB's
/// value).
const SEQUENCE_MAX: u32 = 0xff_f000;
/// Maximum step of the counter (CouchDB's value: it adds a random number from 1 to 0xffd).
const SEQUENCE_STEP_MAX: u32 = 0xffd;
const PREFIX_BYTES: usize = 13;

/// The algorithms of ids: the values of CouchDB's `[uuids] algorithm`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UuidAlgorithm {
    /// 26 random hexadecimal digits, the same for some thousand ids, and 6 of a counter that grows
    /// by random steps, so that ids ascend and cannot be guessed.
    Sequential,
    /// 32 random hexadecimal digits.
    Random,
    /// 14 hexadecimal digits of microseconds since 1970, then 18 random ones.
    UtcRandom,
    /// 14 hexadecimal digits of microseconds since 1970, then a suffix (`[uuids] utc_id_suffix`).
    UtcId {
        /// The suffix.
        suffix: String,
    },
}

/// Creates document ids. Threads can share it.
///
/// ```
/// use document::{UuidAlgorithm, UuidGenerator};
/// let uuids = UuidGenerator::new(UuidAlgorithm::Sequential);
/// assert_eq!(uuids.next().len(), 32);
/// ```
#[derive(Debug)]
pub struct UuidGenerator {
    algorithm: UuidAlgorithm,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: Random,
    prefix: [u8; PREFIX_BYTES],
    sequence: u32,
    /// The time of the last id, so that ids of the same microsecond differ, and a clock that is set
    /// back does not repeat them.
    micros: u64,
}

impl UuidGenerator {
    /// Creates an independent generator.
    ///
    /// # Panics
    /// The operating system returns no random numbers, without which no id is safe.
    pub fn new(algorithm: UuidAlgorithm) -> Self {
        let mut random = Random::new();
        let prefix = random.bytes();
        let sequence = step(&mut random);
        Self {
            algorithm,
            state: Mutex::new(State {
                random,
                prefix,
                sequence,
                micros: 0,
            }),
        }
    }

    /// Returns the next id.
    ///
    /// # Panics
    /// See [`UuidGenerator::new`].
    pub fn next(&self) -> String {
        let mut state = self.lock();
        match &self.algorithm {
            UuidAlgorithm::Sequential => state.sequential(),
            UuidAlgorithm::Random => HEXLOWER.encode(&state.random.bytes::<16>()),
            UuidAlgorithm::UtcRandom => state.utc() + &HEXLOWER.encode(&state.random.bytes::<9>()),
            UuidAlgorithm::UtcId { suffix } => state.utc() + suffix,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is valid after every step, so a panic elsewhere does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn sequential(&mut self) -> String {
        let uuid = format!("{}{:06x}", HEXLOWER.encode(&self.prefix), self.sequence);
        self.sequence += step(&mut self.random);
        if self.sequence >= SEQUENCE_MAX {
            self.prefix = self.random.bytes();
            self.sequence = step(&mut self.random);
        }
        uuid
    }

    fn utc(&mut self) -> String {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_micros() as u64);
        self.micros = now.max(self.micros + 1);
        format!("{:014x}", self.micros)
    }
}

fn step(random: &mut Random) -> u32 {
    1 + u32::from_le_bytes(random.bytes()) % SEQUENCE_STEP_MAX
}

/// Random numbers of the operating system, buffered.
#[derive(Debug)]
struct Random {
    bytes: [u8; 512],
    used: usize,
}

impl Random {
    fn new() -> Self {
        let mut random = Self {
            bytes: [0; 512],
            used: 0,
        };
        random.fill();
        random
    }

    fn fill(&mut self) {
        getrandom::fill(&mut self.bytes).expect("the operating system gives random numbers");
        self.used = 0;
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        if self.used + N > self.bytes.len() {
            self.fill();
        }
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.bytes[self.used..self.used + N]);
        self.used += N;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(algorithm: UuidAlgorithm, count: usize) -> Vec<String> {
        let uuids = UuidGenerator::new(algorithm);
        (0..count).map(|_| uuids.next()).collect()
    }

    fn is_hex(text: &str) -> bool {
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    }

    #[test]
    fn ids_are_32_hexadecimal_digits_and_differ() {
        for algorithm in [
            UuidAlgorithm::Sequential,
            UuidAlgorithm::Random,
            UuidAlgorithm::UtcRandom,
        ] {
            let mut ids = some(algorithm, 1000);
            assert!(ids.iter().all(|id| id.len() == 32 && is_hex(id)));
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), 1000);
        }
    }

    #[test]
    fn sequential_ids_share_a_prefix_and_ascend() {
        let ids = some(UuidAlgorithm::Sequential, 50);
        assert!(ids.iter().all(|id| id[..26] == ids[0][..26]));
        assert!(ids.is_sorted_by(|left, right| left < right));
    }

    #[test]
    fn a_sequence_that_runs_out_gets_a_new_prefix() {
        // Steps are 0x7ff on average, so 30,000 of them exceed the maximum of the counter.
        let ids = some(UuidAlgorithm::Sequential, 30_000);
        let mut prefixes: Vec<&str> = ids.iter().map(|id| &id[..26]).collect();
        prefixes.dedup();
        assert!(prefixes.len() > 1);
        assert!(ids.iter().all(|id| id.len() == 32));
    }

    #[test]
    fn ids_made_of_the_time_strictly_ascend() {
        for (algorithm, end) in [
            (UuidAlgorithm::UtcRandom, ""),
            (
                UuidAlgorithm::UtcId {
                    suffix: "-node".into(),
                },
                "-node",
            ),
        ] {
            let ids = some(algorithm, 1000);
            assert!(ids.iter().all(|id| id.ends_with(end)));
            assert!(ids.is_sorted_by(|left, right| left[..14] < right[..14]));
        }
    }
}
