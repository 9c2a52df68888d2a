//! Reads past what cannot be read.

use std::cmp::Ordering;

use crate::Error;
use crate::snapshot::Cursor;

/// Iterates over a range of keys. An unreadable block is a hole in it, after which reading
/// continues.
pub(crate) struct HoleScan<'a> {
    cursor: Cursor<'a>,
    /// The start of the range.
    low: Vec<u8>,
    /// The end of the range (exclusive).
    high: Vec<u8>,
    /// The last key read, or the end of the last hole.
    last: Option<Vec<u8>>,
    begun: bool,
}

/// Unreadable keys: those after `after`, and before `before`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    pub after: Vec<u8>,
    pub before: Vec<u8>,
    pub reason: String,
}

/// The next item.
pub(crate) enum ScanItem {
    Row,
    Hole(Hole),
    End,
}

impl<'a> HoleScan<'a> {
    /// `cursor` iterates over the keys from `low` to `high` (exclusive).
    pub fn new(cursor: Cursor<'a>, low: Vec<u8>, high: Vec<u8>) -> HoleScan<'a> {
        HoleScan {
            cursor,
            low,
            high,
            last: None,
            begun: false,
        }
    }

    /// Returns key and value, after [`ScanItem::Row`].
    pub fn item(&self) -> Option<(&[u8], &[u8])> {
        self.cursor.item()
    }

    /// Advances to the next row, or over the next hole.
    pub fn advance(&mut self) -> ScanItem {
        match std::mem::replace(&mut self.begun, true) {
            false => self.cursor.seek_to_first(),
            true if self.cursor.valid() => {
                let key = self.cursor.key().unwrap_or_default();
                let last = self.last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
                self.cursor.next();
            }
            // After a hole that reaches to the end, does not probe again: there may be more
            // unreadable data beyond the range.
            true if self.last.as_ref().is_some_and(|last| *last >= self.high) => {
                return ScanItem::End;
            }
            true => self.cursor.seek(self.last.as_deref().unwrap_or(&self.low)),
        }
        if self.cursor.valid() {
            return ScanItem::Row;
        }
        match self.cursor.status() {
            Ok(()) => ScanItem::End,
            Err(e) => self.skip(&e),
        }
    }

    /// Finds where reading can continue. It probes near the last key first, so that rows between
    /// two holes are found.
    fn skip(&mut self, error: &Error) -> ScanItem {
        let after = self.last.clone().unwrap_or_else(|| self.low.clone());
        let width = after.len().max(self.high.len()) + 2;
        let low = widened(&after, width);
        let mut readable = widened(&self.high, width);
        let mut broken = low.clone();
        for bit in 0..width * 8 {
            let Some(probe) = plus_bit(&low, bit) else {
                break;
            };
            if probe.as_slice() >= readable.as_slice() {
                break;
            }
            if self.can_read(&probe) {
                readable = probe;
                break;
            }
            broken = probe;
        }
        // The bounds meet where the hole ends.
        while let Some(probe) = between(&broken, &readable) {
            match self.can_read(&probe) {
                true => readable = probe,
                false => broken = probe,
            }
        }
        let before = match readable.as_slice().cmp(&widened(&self.high, width)) {
            Ordering::Less => readable,
            _ => self.high.clone(),
        };
        self.last = Some(before.clone());
        // No row: the next `advance` seeks.
        self.cursor.seek(&self.high);
        ScanItem::Hole(Hole {
            after,
            before,
            reason: error.to_string(),
        })
    }

    fn can_read(&mut self, key: &[u8]) -> bool {
        self.cursor.seek(key);
        self.cursor.valid() || self.cursor.status().is_ok()
    }
}

fn widened(key: &[u8], width: usize) -> Vec<u8> {
    let mut wide = key.to_vec();
    wide.resize(width, 0);
    wide
}

/// Returns `key + 2^bit` of a big-endian number; `None` on overflow.
fn plus_bit(key: &[u8], bit: usize) -> Option<Vec<u8>> {
    let mut sum = key.to_vec();
    let mut at = sum.len().checked_sub(1 + bit / 8)?;
    let mut carry = 1u16 << (bit % 8);
    loop {
        carry += u16::from(sum[at]);
        sum[at] = carry as u8;
        carry >>= 8;
        if carry == 0 {
            return Some(sum);
        }
        at = at.checked_sub(1)?;
    }
}

/// Returns the mean of two numbers of equal width; `None` when they are adjacent.
fn between(low: &[u8], high: &[u8]) -> Option<Vec<u8>> {
    let mut sum = vec![0; low.len()];
    let mut carry = 0u16;
    for i in (0..low.len()).rev() {
        let digit = u16::from(low[i]) + u16::from(high[i]) + carry;
        sum[i] = digit as u8;
        carry = digit >> 8;
    }
    for digit in &mut sum {
        let both = carry << 8 | u16::from(*digit);
        *digit = (both / 2) as u8;
        carry = both % 2;
    }
    (sum.as_slice() > low).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b))
    }

    proptest! {
        #[test]
        fn keys_are_counted_with_as_numbers(a in any::<[u8; 6]>(), b in any::<[u8; 6]>(), bit in 0usize..60) {
            let (low, high) = (a.min(b), a.max(b));
            let middle = u64::midpoint(number(&low), number(&high));
            let found = between(&low, &high).map(|key| number(&key));
            prop_assert_eq!(found, (middle > number(&low)).then_some(middle));
            let sum = number(&a) + (1 << bit);
            let found = plus_bit(&a, bit).map(|key| number(&key));
            prop_assert_eq!(found, (sum < 1 << 48).then_some(sum));
        }
    }
}
