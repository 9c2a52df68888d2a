//! `_top_N` and `_bottom_N`: the first N values in the order of views or its reverse, without
//! duplicates. Of values that are equal in that order the first one is kept.

use std::cmp::Ordering;

use document::Collator;
use document::collation::HIGHEST;

/// Returns the array of the `count` largest values; nothing without values.
pub(super) fn top<'a>(count: u32, values: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    rank(count, values, |left, right| right.cmp(left))
}

/// Returns the array of the `count` smallest values; nothing without values.
pub(super) fn bottom<'a>(count: u32, values: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    rank(count, values, Ord::cmp)
}

struct Ranked<'a> {
    sort_key: Vec<u8>,
    value: &'a [u8],
}

fn rank<'a>(
    count: u32,
    values: impl Iterator<Item = &'a [u8]>,
    order: impl Fn(&[u8], &[u8]) -> Ordering,
) -> Vec<u8> {
    let collator = Collator::root();
    // `Builtin::parse` gives no less than one.
    let count = (count as usize).max(1);
    let mut ranked: Vec<Ranked<'a>> = Vec::new();
    let mut sort_key = Vec::new();
    for value in values {
        sort_key.clear();
        if collator.write_sort_key(value, &mut sort_key).is_err() {
            // A value without a sort key, because it is too deep, sorts above all others.
            sort_key.extend_from_slice(HIGHEST);
            sort_key.extend_from_slice(value);
        }
        let is_beyond = ranked.len() == count
            && ranked
                .last()
                .is_some_and(|last| order(&sort_key, &last.sort_key) != Ordering::Less);
        if is_beyond {
            continue;
        }
        if let Err(at) = ranked.binary_search_by(|other| order(&other.sort_key, &sort_key)) {
            ranked.truncate(count.saturating_sub(1).max(at));
            ranked.insert(
                at,
                Ranked {
                    sort_key: sort_key.clone(),
                    value,
                },
            );
        }
    }
    write(&ranked)
}

fn write(ranked: &[Ranked<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, ranked) in ranked.iter().enumerate() {
        out.push(if at == 0 { b'[' } else { b',' });
        out.extend_from_slice(ranked.value);
    }
    if !out.is_empty() {
        out.push(b']');
    }
    out
}
