//! The header `Range`.

use std::ops::Range;

use crate::errors::ApiError;

/// More ranges than this are answered with everything.
const RANGES_MAX: usize = 9;

/// The ranges that a client requests.
#[derive(Debug, PartialEq, Eq)]
pub enum Ranges {
    All,
    One(Range<u64>),
    Several(Vec<Range<u64>>),
}

/// Reads `bytes=0-4, -3` for a length. Other units, and invalid lists of ranges, are treated as a
/// missing header.
///
/// As CouchDB does, `0-` is everything, also among others (and answered with 200), and of a suffix that is longer than all, the first byte is left
/// out.
///
/// # Errors
/// 416 when a range begins behind the end, or ends before it begins.
pub fn parse(header: &str, length: u64) -> Result<Ranges, ApiError> {
    let Some(list) = header.trim().strip_prefix("bytes=") else {
        return Ok(Ranges::All);
    };
    let mut ranges = Vec::new();
    for element in list.split(',') {
        match parse_one(element.trim(), length) {
            Parsed::Range(range) => ranges.push(range),
            Parsed::NotSatisfiable => return Err(ApiError::range_not_satisfiable()),
            Parsed::All => return Ok(Ranges::All),
        }
    }
    if ranges.len() > RANGES_MAX {
        return Ok(Ranges::All);
    }
    Ok(match <[Range<u64>; 1]>::try_from(ranges) {
        Ok([range]) => Ranges::One(range),
        Err(ranges) => Ranges::Several(ranges),
    })
}

enum Parsed {
    Range(Range<u64>),
    NotSatisfiable,
    /// `0-`, or no range.
    All,
}

fn parse_one(element: &str, length: u64) -> Parsed {
    let Some((from, to)) = element.split_once('-') else {
        return Parsed::All;
    };
    let number = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
        // More digits than a number has: as far as one can go.
        true => Some(text.parse().unwrap_or(u64::MAX)),
        false => None,
    };
    let (Some(first), Some(last)): (Option<u64>, Option<u64>) = (number(from), number(to)) else {
        return Parsed::All;
    };
    let range = match (from.is_empty(), to.is_empty()) {
        (true, true) => return Parsed::All,
        (true, false) if last > length => 1..length,
        (true, false) => length - last..length,
        (false, true) if first == 0 => return Parsed::All,
        (false, true) => first..length,
        (false, false) if first > last => return Parsed::NotSatisfiable,
        (false, false) => first..length.min(last.saturating_add(1)),
    };
    match range.start < range.end {
        true => Parsed::Range(range),
        false => Parsed::NotSatisfiable,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges(header: &str, length: u64) -> Option<Ranges> {
        parse(header, length).ok()
    }

    #[test]
    fn ranges_are_read_as_couchdb_reads_them() {
        assert_eq!(ranges("bytes=0-4", 256), Some(Ranges::One(0..5)));
        assert_eq!(ranges("bytes=-3", 256), Some(Ranges::One(253..256)));
        assert_eq!(ranges("bytes=250-999", 256), Some(Ranges::One(250..256)));
        assert_eq!(ranges("bytes=10-", 256), Some(Ranges::One(10..256)));
        assert_eq!(ranges("bytes=0-", 256), Some(Ranges::All));
        assert_eq!(ranges("bytes=0-255", 256), Some(Ranges::One(0..256)));
        assert_eq!(ranges("bytes=-999", 256), Some(Ranges::One(1..256)));
        let several = Ranges::Several(vec![0..2, 4..6, 254..256]);
        assert_eq!(ranges("bytes=0-1, 4-5, -2", 256), Some(several));
        for all in [
            "items=0-4",
            "bytes=",
            "bytes=a-b",
            "bytes=-",
            "bytes=1",
            "bytes=0-1,x",
            "bytes=0-,0-,0-",
            "bytes=1-3,0-",
            "bytes=0-,300-",
        ] {
            assert_eq!(ranges(all, 256), Some(Ranges::All), "{all}");
        }
        for bad in ["bytes=300-400", "bytes=5-2", "bytes=-0", "bytes=256-"] {
            assert_eq!(ranges(bad, 256), None, "{bad}");
        }
        assert_eq!(ranges("bytes=0-1", 0), None);
        assert_eq!(ranges("bytes=0-", 0), Some(Ranges::All));
        assert_eq!(
            ranges("bytes=0-99999999999999999999999", 256),
            Some(Ranges::One(0..256))
        );
    }

    proptest! {
        #[test]
        fn every_range_lies_within_the_bytes(list in "bytes=[0-9,\\- ]{0,40}", length in 0..1000_u64) {
            let ranges = match parse(&list, length) {
                Ok(Ranges::One(range)) => vec![range],
                Ok(Ranges::Several(ranges)) => ranges,
                _ => vec![],
            };
            for range in ranges {
                prop_assert!(range.start < range.end && range.end <= length);
            }
        }
    }
}
