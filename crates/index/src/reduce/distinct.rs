//! `_approx_count_distinct`: HyperLogLog with 2^11 registers, as in CouchDB, but exact for few
//! keys.
//!
//! Keys that are different texts are different, even when they are equal in the order of views, as
//! CouchDB documents.
//!
//! | first byte of a state | then |
//! |---|---|
//! | [`EXACT`] | the keys' hashes, ascending, eight bytes each, at most [`EXACT_MAX`] of them |
//! | [`REGISTERS`] | 2^11 registers of a byte |
//!
//! The hash is XXH3 with 64 bits; its first 11 bits choose a register, which holds the largest
//! number of leading zeros, plus one, of the other 53. The estimate of the registers is that of
//! Otmar Ertl, *New cardinality estimation algorithms for HyperLogLog sketches* (2017), algorithm
//! 6, which needs no tables of measured errors.

use std::f64::consts::LN_2;

use xxhash_rust::xxh3::xxh3_64;

const EXACT: u8 = 0;
const REGISTERS: u8 = 1;

const PRECISION: u32 = 11;
const REGISTER_COUNT: usize = 1 << PRECISION;
const RANK_MAX: u8 = (64 - PRECISION + 1) as u8;

/// Hashes take as many bytes as the registers.
const EXACT_MAX: usize = REGISTER_COUNT / 8;

enum Distinct {
    /// Sorted and each once up to the length that is given, then as they came.
    Exact(Vec<u64>, usize),
    Registers(Box<[u8; REGISTER_COUNT]>),
}

impl Distinct {
    fn new() -> Self {
        Self::Exact(Vec::new(), 0)
    }

    #[inline]
    fn insert(&mut self, hash: u64) {
        match self {
            // Equal keys follow each other.
            Self::Exact(hashes, _) if hashes.last() == Some(&hash) => {}
            Self::Exact(hashes, sorted) => {
                hashes.push(hash);
                if hashes.len() >= sorted.saturating_add(EXACT_MAX) {
                    self.compact();
                }
            }
            Self::Registers(registers) => raise(registers, hash),
        }
    }

    fn compact(&mut self) {
        let Self::Exact(hashes, sorted) = self else {
            return;
        };
        hashes.sort_unstable();
        hashes.dedup();
        *sorted = hashes.len();
        if hashes.len() > EXACT_MAX {
            let mut registers = Box::new([0; REGISTER_COUNT]);
            for &hash in hashes.iter() {
                raise(&mut registers, hash);
            }
            *self = Self::Registers(registers);
        }
    }

    fn merge(&mut self, state: &[u8]) {
        match state.split_first() {
            Some((&EXACT, hashes)) => {
                for hash in read_hashes(hashes) {
                    self.insert(hash);
                }
            }
            Some((&REGISTERS, others)) => {
                if let Self::Exact(hashes, _) = self {
                    let mut registers = Box::new([0; REGISTER_COUNT]);
                    for &hash in hashes.iter() {
                        raise(&mut registers, hash);
                    }
                    *self = Self::Registers(registers);
                }
                if let Self::Registers(registers) = self {
                    for (register, other) in registers.iter_mut().zip(others) {
                        *register = (*register).max(*other);
                    }
                }
            }
            _ => {}
        }
    }

    fn state(mut self) -> Vec<u8> {
        self.compact();
        match self {
            Self::Exact(hashes, _) if hashes.is_empty() => Vec::new(),
            Self::Exact(hashes, _) => {
                let mut out = Vec::with_capacity(1 + hashes.len() * 8);
                out.push(EXACT);
                for hash in hashes {
                    out.extend_from_slice(&hash.to_be_bytes());
                }
                out
            }
            Self::Registers(registers) => [&[REGISTERS], registers.as_slice()].concat(),
        }
    }
}

fn read_hashes(bytes: &[u8]) -> impl ExactSizeIterator<Item = u64> {
    let (hashes, _) = bytes.as_chunks::<8>();
    hashes.iter().map(|hash| u64::from_be_bytes(*hash))
}

#[inline]
fn raise(registers: &mut [u8; REGISTER_COUNT], hash: u64) {
    let register = &mut registers[(hash >> (64 - PRECISION)) as usize];
    // The bit that is set ends the count at 53.
    let zeros = (hash << PRECISION | 1 << (PRECISION - 1)).leading_zeros();
    *register = (*register).max(zeros as u8 + 1);
}

pub(super) fn reduce<'a>(keys: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut distinct = Distinct::new();
    for key in keys {
        distinct.insert(xxh3_64(key));
    }
    distinct.state()
}

pub(super) fn rereduce<'a>(states: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut distinct = Distinct::new();
    for state in states {
        distinct.merge(state);
    }
    distinct.state()
}

/// Returns the number of different keys.
pub(super) fn estimate(state: &[u8]) -> u64 {
    match state.split_first() {
        Some((&EXACT, hashes)) => read_hashes(hashes).len() as u64,
        Some((&REGISTERS, registers)) => estimate_registers(registers).round() as u64,
        _ => 0,
    }
}

fn estimate_registers(registers: &[u8]) -> f64 {
    let mut counts = [0_u32; RANK_MAX as usize + 1];
    for &register in registers {
        counts[usize::from(register.min(RANK_MAX))] += 1;
    }
    let count = REGISTER_COUNT as f64;
    let (lowest, highest) = (
        f64::from(counts[0]),
        f64::from(counts[usize::from(RANK_MAX)]),
    );
    let between = &counts[1..usize::from(RANK_MAX)];
    let sum = between
        .iter()
        .rev()
        .fold(count * tau(1.0 - highest / count), |sum, &count| {
            0.5 * (sum + f64::from(count))
        });
    let sum = sum + count * sigma(lowest / count);
    count * count / (2.0 * LN_2 * sum)
}

/// x + Σ x^(2^k) 2^(k-1) for k from 1: the weight of the registers that are zero.
fn sigma(x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut factor, mut sum) = (x, 1.0, x);
    loop {
        power *= power;
        let before = sum;
        sum += power * factor;
        factor *= 2.0;
        if sum == before {
            return sum;
        }
    }
}

/// (1 - x - Σ (1 - x^(2^-k))² 2^-k) / 3 for k from 1: the weight of the registers that are at the
/// maximum.
fn tau(x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut root, mut factor, mut sum) = (x, 1.0, 1.0 - x);
    loop {
        root = root.sqrt();
        let before = sum;
        factor *= 0.5;
        sum -= (1.0 - root).powi(2) * factor;
        if sum == before {
            return sum / 3.0;
        }
    }
}
