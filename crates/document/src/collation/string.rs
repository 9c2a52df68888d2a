//! Strings: the collator's sort keys, which are computed here for most ASCII texts.
//!
//! A sort key of the collator has three levels with a byte `01` between them. The first has the
//! primary weights of all characters, one or two bytes each in ASCII; the second and the third
//! distinguish accents and cases. On these levels the weight of plain small letters, digits and
//! punctuation is *common*: it is not written, only the number of its occurrences between others
//! (the compression of ICU's `collationkeys.cpp`). ASCII has no accents, and its capitals share one
//! tertiary weight. So a key of ASCII needs only a table of primary weights and capitals.
//!
//! The table is built from keys that the collator writes. A character with unexpected keys is left
//! to the collator, and so are all texts with such a character.

use std::cmp::Ordering;

use icu_collator::options::CollatorOptions;
use icu_collator::{Collator, CollatorBorrowed};

use super::runs;

/// Longer texts are compared by their sort keys, in bytes. The collator walks from the first
/// difference back to a place where it can begin, in time that grows with the square of the way.
const COMPARED_BYTES_MAX: usize = 1 << 10;

const LEVEL_SEPARATOR: u8 = 1;

/// The encoding of a run of common weights: full runs first, then the rest, counted up from `low`
/// before a lower weight and the end, and down from `high` before a higher weight.
struct Common {
    run_max: usize,
    low: u8,
    full_run: u8,
    high: u8,
}

const SECONDARY: Common = Common {
    run_max: 0x21,
    low: 0x05,
    full_run: 0x25,
    high: 0x45,
};

const TERTIARY: Common = Common {
    run_max: 0x61,
    low: 0x05,
    full_run: 0x65,
    high: 0xc5,
};

/// The tertiary weight of a capital.
const CAPITAL_WEIGHT: u8 = 0xdc;

/// An entry of the table has the primary weight's bytes, the first one lowest, and these bits.
const TWO_BYTES: u32 = 1 << 16;
const CAPITAL: u32 = 1 << 17;
pub(super) const UNKNOWN: u32 = 1 << 18;

type Table = [u32; 256];

pub(super) struct Strings {
    collator: CollatorBorrowed<'static>,
    pub(super) table: Table,
}

impl Strings {
    pub(super) fn new() -> Self {
        let collator = Collator::try_new(Default::default(), CollatorOptions::default())
            .expect("invariant: the data of the root collation is compiled into the program");
        let mut table = [UNKNOWN; 256];
        for character in 0..0x80_u8 {
            let mut key = Vec::new();
            write_slowly(&collator, &[character], &mut key);
            table[usize::from(character)] = entry(&key);
        }
        check(&collator, &mut table);
        Self { collator, table }
    }

    /// Appends the sort key of a text. Invalid UTF-8 counts as U+FFFD.
    #[inline]
    pub(super) fn write(&self, text: &[u8], out: &mut Vec<u8>) {
        if !write_fast(&self.table, text, out) {
            write_slowly(&self.collator, text, out);
        }
    }

    pub(super) fn compare(&self, left: &str, right: &str) -> Ordering {
        if left == right {
            return Ordering::Equal;
        }
        let is_long =
            |text: &str| text.len() > COMPARED_BYTES_MAX || runs::divide(text.as_bytes()).is_some();
        if !is_long(left) && !is_long(right) {
            return self.collator.compare(left, right);
        }
        if let Some(order) = self.order_of_first_difference(left.as_bytes(), right.as_bytes()) {
            return order;
        }
        let key = |text: &str| {
            let mut key = Vec::new();
            self.write(text.as_bytes(), &mut key);
            key
        };
        key(left).cmp(&key(right))
    }

    /// Returns the order of two texts if their first difference decides it: two characters of the
    /// table with different primary weights, behind nothing or a further one of the table. No such
    /// character changes its primary weight with its neighbours.
    pub(super) fn order_of_first_difference(&self, left: &[u8], right: &[u8]) -> Option<Ordering> {
        let at = left
            .iter()
            .zip(right)
            .position(|(left, right)| left != right)?;
        let primary = |character: u8| {
            let entry = self.table[usize::from(character)];
            (entry & UNKNOWN == 0).then_some([entry as u8, (entry >> 8) as u8])
        };
        if let Some(before) = at.checked_sub(1) {
            primary(left[before])?;
        }
        let order = primary(left[at])?.cmp(&primary(right[at])?);
        Some(order).filter(|order| order.is_ne())
    }
}

/// Returns the table's entry for a character whose sort key is `key`.
fn entry(key: &[u8]) -> u32 {
    let (primary, case) = match *key {
        [first, 1, 5, 1, case] if first > 1 => (u32::from(first), case),
        [first, second, 1, 5, 1, case] if first > 1 && second > 1 => {
            (u32::from(first) | u32::from(second) << 8 | TWO_BYTES, case)
        }
        _ => return UNKNOWN,
    };
    match case {
        5 => primary,
        CAPITAL_WEIGHT => primary | CAPITAL,
        _ => UNKNOWN,
    }
}

/// Compares keys made with the table with keys of the collator, and removes from the table what
/// differs.
///
/// Weights that share their first byte may be written in a shorter form when they follow each
/// other, which shows when a character follows itself.
fn check(collator: &CollatorBorrowed<'static>, table: &mut Table) {
    let agrees = |table: &Table, text: &[u8]| {
        let (mut fast, mut slow) = (Vec::new(), Vec::new());
        let known = write_fast(table, text, &mut fast);
        write_slowly(collator, text, &mut slow);
        !known || fast == slow
    };
    for character in 0..0x80_u8 {
        let alone = [
            vec![character; 2],
            vec![b'a', character, b'a'],
            vec![character, b'A', character],
        ];
        if !alone.iter().all(|text| agrees(table, text)) {
            table[usize::from(character)] = UNKNOWN;
        }
    }
    let known: Vec<u8> = (0..0x80)
        .filter(|&character| table[usize::from(character)] != UNKNOWN)
        .collect();
    let backward: Vec<u8> = known.iter().rev().copied().collect();
    let runs = [1, 32, 33, 34, 66, 67, 96, 97, 98, 194, 195, 300];
    let runs = runs.iter().flat_map(|&length| {
        let small = vec![b'a'; length];
        [
            [small.clone(), b"A".to_vec(), small.clone()].concat(),
            [b"A".to_vec(), small].concat(),
        ]
    });
    if !agrees(table, b"")
        || !agrees(table, &known)
        || !agrees(table, &backward)
        || !runs.into_iter().all(|text| agrees(table, &text))
    {
        *table = [UNKNOWN; 256];
    }
}

fn write_slowly(collator: &CollatorBorrowed<'static>, text: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let divided = runs::divide(text);
    // The error is `Infallible`.
    let Ok(()) = collator.write_sort_key_utf8_to(divided.as_deref().unwrap_or(text), out);
    debug_assert!(!out[start..].contains(&0), "sort keys have no zero bytes");
}

/// Appends the sort key of a text if all of its characters are in the table. Returns whether they
/// are.
#[inline]
fn write_fast(table: &Table, text: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    // Two bytes for each primary weight; the store for the last one may go one byte too far.
    out.resize(start + 2 * text.len() + 1, 0);
    let primaries = &mut out[start..];
    let mut at = 0;
    let mut seen = 0;
    for &character in text {
        let entry = table[usize::from(character)];
        seen |= entry;
        if seen & UNKNOWN != 0 {
            out.truncate(start);
            return false;
        }
        primaries[at] = entry as u8;
        primaries[at + 1] = (entry >> 8) as u8;
        at += 1 + usize::from(entry & TWO_BYTES != 0);
    }
    out.truncate(start + at);
    out.push(LEVEL_SEPARATOR);
    write_common(&SECONDARY, text.len(), SECONDARY.low, out);
    out.push(LEVEL_SEPARATOR);
    if seen & CAPITAL == 0 {
        write_common(&TERTIARY, text.len(), TERTIARY.low, out);
    } else {
        write_cases(table, text, out);
    }
    true
}

/// Writes the third level of a text with capitals.
fn write_cases(table: &Table, text: &[u8], out: &mut Vec<u8>) {
    let mut common = 0;
    for &character in text {
        if table[usize::from(character)] & CAPITAL == 0 {
            common += 1;
        } else {
            write_common(&TERTIARY, common, TERTIARY.high, out);
            out.push(CAPITAL_WEIGHT);
            common = 0;
        }
    }
    write_common(&TERTIARY, common, TERTIARY.low, out);
}

/// Writes `count` common weights before a weight on the side of `from` (`low` or `high`).
#[inline]
fn write_common(level: &Common, count: usize, from: u8, out: &mut Vec<u8>) {
    let Some(mut rest) = count.checked_sub(1) else {
        return;
    };
    while rest >= level.run_max {
        out.push(level.full_run);
        rest -= level.run_max;
    }
    // Less than `run_max`.
    let rest = rest as u8;
    out.push(if from == level.low {
        from + rest
    } else {
        from - rest
    });
}

/// Appends a text so that texts compare by their bytes, and without zero bytes.
pub(super) fn write_raw(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| byte <= 1) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[1, rest[at] + 1]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}
