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
/// The bits of the fraction of a millisecond in a UUID of version 7.
const TICK_BITS: u32 = 12;
/// RFC 9562's variant.
const VARIANT: u128 = 0b10;

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
    /// A UUID of version 7 (RFC 9562): milliseconds since 1970, then random bits. Ids of one generator ascend: the first 12
    /// random bits are the fraction of the millisecond, as the RFC's method 3 has it.
    V7(UuidFormat),
    /// A UUID of version 4: random bits.
    V4(UuidFormat),
}

/// How a UUID is written: the values of CouchDB's `[uuids] format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UuidFormat {
    /// 32 hexadecimal digits.
    #[default]
    Base16,
    /// 25 digits of base 36.
    Base36,
    /// 32 hexadecimal digits in groups: `0199df37-5929-7032-b402-c3e61fbbf88f`.
    Rfc9562,
}

impl UuidFormat {
    fn write(self, uuid: u128) -> String {
        match self {
            UuidFormat::Base16 => format!("{uuid:032x}"),
            UuidFormat::Base36 => base_36(uuid),
            UuidFormat::Rfc9562 => {
                let hex = format!("{uuid:032x}");
                let groups = [
                    &hex[..8],
                    &hex[8..12],
                    &hex[12..16],
                    &hex[16..20],
                    &hex[20..],
                ];
                groups.join("-")
            }
        }
    }
}

/// The digits of 2^128 - 1 in base 36.
const BASE_36_DIGITS: usize = 25;

fn base_36(mut number: u128) -> String {
    let mut digits = [b'0'; BASE_36_DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize];
        number /= 36;
    }
    String::from_utf8_lossy(&digits).into_owned()
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
    /// The last time that a version 7 id was made of, in units of 1/4096 of a millisecond since 1970.
    ticks: u64,
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
                ticks: 0,
            }),
        }
    }

    /// Returns the next id.
    ///
    /// # Panics
    /// Those of [`UuidGenerator::new`].
    pub fn next(&self) -> String {
        let mut state = self.lock();
        match &self.algorithm {
            UuidAlgorithm::Sequential => state.sequential(),
            UuidAlgorithm::Random => HEXLOWER.encode(&state.random.bytes::<16>()),
            UuidAlgorithm::UtcRandom => state.utc() + &HEXLOWER.encode(&state.random.bytes::<9>()),
            UuidAlgorithm::UtcId { suffix } => state.utc() + suffix,
            UuidAlgorithm::V7(format) => format.write(state.v7()),
            UuidAlgorithm::V4(format) => format.write(state.v4()),
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

    /// `unix_ts_ms` 48 bits, `ver` 4, `rand_a` 12, `var` 2, `rand_b` 62.
    fn v7(&mut self) -> u128 {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| (time.as_nanos() << TICK_BITS) / 1_000_000);
        self.ticks = (now as u64).max(self.ticks + 1);
        let (millis, fraction) = (self.ticks >> TICK_BITS, self.ticks & ((1 << TICK_BITS) - 1));
        let random = u64::from_le_bytes(self.random.bytes()) & ((1 << 62) - 1);
        let (time, rest) = (u128::from(millis), u128::from(fraction));
        time << 80 | 7 << 76 | rest << 64 | VARIANT << 62 | u128::from(random)
    }

    /// Random but for `ver` and `var`.
    fn v4(&mut self) -> u128 {
        let random = u128::from_le_bytes(self.random.bytes());
        random & !(0xf << 76) & !(0b11 << 62) | 4 << 76 | VARIANT << 62
    }

    fn utc(&mut self) -> String {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_micros() as u64);
        self.micros = now.max(self.micros + 1);
        format!("{:014x}", self.micros)
    }
}

/// Returns a random step of ids that ascend.
pub(crate) fn step(random: &mut Random) -> u32 {
    1 + u32::from_le_bytes(random.bytes()) % SEQUENCE_STEP_MAX
}

/// Random numbers of the operating system, buffered.
#[derive(Debug)]
pub(crate) struct Random {
    bytes: [u8; 512],
    used: usize,
}

impl Random {
    pub(crate) fn new() -> Self {
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

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
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
    fn uuids_have_their_version_and_ascend_when_they_hold_the_time() {
        let v7 = some(UuidAlgorithm::V7(UuidFormat::Base16), 10_000);
        assert!(v7.is_sorted_by(|left, right| left < right));
        for (ids, version) in [
            (v7, b'7'),
            (some(UuidAlgorithm::V4(UuidFormat::Base16), 1000), b'4'),
        ] {
            assert!(ids.iter().all(|id| id.len() == 32 && is_hex(id)));
            assert!(ids.iter().all(|id| id.as_bytes()[12] == version));
            assert!(ids.iter().all(|id| b"89ab".contains(&id.as_bytes()[16])));
        }
        let millis = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_millis();
        let id = UuidGenerator::new(UuidAlgorithm::V7(UuidFormat::Base16)).next();
        let of_id = u128::from_str_radix(&id[..12], 16).unwrap();
        assert!(of_id >= millis && of_id < millis + 60_000, "{id}");
    }

    #[test]
    fn one_uuid_in_all_formats() {
        // CouchDB's default.ini has this example.
        let uuid = 0x0199_df37_5929_7032_b402_c3e6_1fbb_f88f;
        for (format, text) in [
            (UuidFormat::Base16, "0199df3759297032b402c3e61fbbf88f"),
            (UuidFormat::Base36, "03eudcyamunnfraqdgmopx09b"),
            (UuidFormat::Rfc9562, "0199df37-5929-7032-b402-c3e61fbbf88f"),
        ] {
            assert_eq!(format.write(uuid), text);
        }
        assert_eq!(base_36(u128::MAX), "f5lxx1zz5pnorynqglhzmsp33");
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
