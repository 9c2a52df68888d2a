//! The rows of an index that a query examines: several ranges of each field, in the order of the
//! index and in one pass.
//!
//! Where a row's key is outside of the ranges of a field, the next place that can hold one inside
//! is known, and the cursor jumps there: so `$in` and `$or` are several ranges, and a range of a
//! later field is used though one before it has a range too. Skipping changes neither the rows that
//! are seen nor their order.

use document::collation::{self, HIGHEST};
use index::{IndexView, PlaceRange, RowIter, ViewRow};
use mango::Intervals;

use crate::Error;

/// The first byte of an array's sort key, which every key of an index begins with.
pub(super) const ARRAY: u8 = 0x17;
/// Rows that are passed one by one before the cursor jumps.
const STEPS_MAX: u32 = 4;
/// Rows that are passed, and jumps, in looking for the next wanted row, before others get their turn.
const LOOKS_MAX: u32 = 512;
/// The bytes of their places: keys may be long.
const LOOKS_BYTES_MAX: usize = 1 << 20;

/// The rows of an index that are examined.
#[derive(Clone, Debug)]
pub(crate) struct ScanRange {
    /// The prefix of every place: the partition.
    prefix: Vec<u8>,
    /// Intervals of the leading fields, up to the last restricted one.
    columns: Vec<Intervals>,
    /// The places from the first to the last of them.
    pub range: PlaceRange,
    /// All rows in `range` are wanted.
    exact: bool,
}

impl ScanRange {
    pub fn new(prefix: Vec<u8>, columns: &[Intervals]) -> ScanRange {
        let restricted = columns.iter().rposition(|set| !set.is_full());
        let columns = columns[..restricted.map_or(0, |last| last + 1)].to_vec();
        let mut low = prefix.clone();
        low.push(ARRAY);
        let mut high = None;
        let mut exact = true;
        for (i, set) in columns.iter().enumerate() {
            let ranges = set.ranges();
            let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
                high = Some(low.clone());
                break;
            };
            if ranges.len() == 1 && is_value(&first.0, &first.1) {
                low.extend_from_slice(&first.0);
                continue;
            }
            high = Some([&low[..], &last.1].concat());
            low.extend_from_slice(&first.0);
            exact = ranges.len() == 1 && i + 1 == columns.len();
            break;
        }
        let high = high.unwrap_or_else(|| [&low[..], HIGHEST].concat());
        ScanRange {
            prefix,
            columns,
            range: PlaceRange {
                low,
                high: Some(high),
            },
            exact,
        }
    }

    /// Where the next row can be that is wanted, when the one at `place` is not.
    fn judge(&self, place: &[u8], descending: bool) -> Result<Option<Vec<u8>>, Error> {
        if self.exact {
            return Ok(None);
        }
        let mut at = self.prefix.len() + 1;
        for set in &self.columns {
            let corrupt = || storage::Error::Corrupt("index row");
            let rest = place.get(at..).ok_or_else(corrupt)?;
            let length = collation::skip(rest).ok_or_else(corrupt)?;
            if !set.is_full()
                && let Err(next) = set.find(&rest[..length])
            {
                let ranges = set.ranges();
                let found = if descending {
                    next.checked_sub(1).map(|i| &ranges[i].1)
                } else {
                    ranges.get(next).map(|(low, _)| low)
                };
                let before = &place[..at];
                return Ok(Some(match (found, descending) {
                    (Some(bound), _) => [before, bound].concat(),
                    // Behind all rows that begin like this one.
                    (None, false) => [before, HIGHEST].concat(),
                    (None, true) => before.to_vec(),
                }));
            }
            at += length;
        }
        Ok(None)
    }
}

/// Whether the range holds one value alone.
fn is_value(low: &[u8], high: &[u8]) -> bool {
    high.strip_prefix(low) == Some(HIGHEST) && collation::skip(low) == Some(low.len())
}

/// The wanted rows of one shard.
pub(crate) struct Cursor<'a> {
    iter: RowIter<'a>,
    scan_range: &'a ScanRange,
    descending: bool,
    /// Rows that were examined, without those that were skipped.
    pub examined: u64,
    /// The row is not known to be wanted: it was enough for now.
    pub is_unsettled: bool,
    /// The place of the row here, if there is one: used repeatedly while other cursors' rows come
    /// first.
    place: Vec<u8>,
    is_at_end: bool,
}

impl<'a> Cursor<'a> {
    /// A cursor at the first matching row of `range`, which is the rest of the range.
    pub fn new(
        index: &'a IndexView,
        view: usize,
        range: &PlaceRange,
        scan_range: &'a ScanRange,
        descending: bool,
    ) -> Result<Self, Error> {
        let mut cursor = Cursor {
            iter: index.iter(view, range, descending),
            scan_range,
            descending,
            examined: 0,
            is_unsettled: false,
            place: vec![],
            is_at_end: false,
        };
        cursor.settle()?;
        Ok(cursor)
    }

    pub fn row(&self) -> Result<Option<ViewRow<'_>>, Error> {
        Ok(self.iter.row()?)
    }

    /// The place of the row here; `None` at the end.
    pub fn place(&self) -> Option<&[u8]> {
        (!self.is_at_end).then_some(&*self.place)
    }

    pub fn next(&mut self) -> Result<(), Error> {
        self.iter.next();
        self.settle()
    }

    /// Moves to a matching row, unless this one matches; or leaves it unsettled.
    pub fn settle(&mut self) -> Result<(), Error> {
        let mut steps = 0;
        let mut bytes = 0;
        self.is_unsettled = false;
        for _ in 0..LOOKS_MAX {
            if bytes > LOOKS_BYTES_MAX {
                break;
            }
            let Some(place) = self.iter.place()? else {
                self.is_at_end = true;
                return Ok(());
            };
            self.examined += u64::from(steps == 0);
            let Some(target) = self.scan_range.judge(place, self.descending)? else {
                self.place.clear();
                self.place.extend_from_slice(place);
                return Ok(());
            };
            bytes += place.len();
            steps += 1;
            if steps < STEPS_MAX {
                self.iter.next();
            } else {
                self.iter.seek(&target);
                steps = 0;
            }
        }
        self.is_unsettled = true;
        self.keep_place()
    }

    fn keep_place(&mut self) -> Result<(), Error> {
        let place = self.iter.place()?;
        self.is_at_end = place.is_none();
        self.place.clear();
        self.place.extend_from_slice(place.unwrap_or_default());
        Ok(())
    }
}

/// The cursor whose row comes next.
pub(crate) fn next_of(cursors: &[Cursor<'_>], descending: bool) -> Option<usize> {
    let places = cursors.iter().enumerate();
    let places = places.filter_map(|(i, cursor)| Some((i, cursor.place()?)));
    let next = match descending {
        // The first of equal ones, in both directions.
        true => places.reduce(|best, other| if other.1 > best.1 { other } else { best }),
        false => places.reduce(|best, other| if other.1 < best.1 { other } else { best }),
    };
    next.map(|(i, _)| i)
}

/// Moves a cursor to its next row. If `is_of_user`, the row that it leaves may be in other parts of the
/// index too, whose cursors pass it.
pub(crate) fn advance(
    cursors: &mut [Cursor<'_>],
    next: usize,
    is_of_user: bool,
) -> Result<(), Error> {
    if !is_of_user {
        return cursors[next].next();
    }
    let place = std::mem::take(&mut cursors[next].place);
    cursors[next].next()?;
    for cursor in cursors {
        if cursor.place() == Some(&place[..]) {
            cursor.next()?;
        }
    }
    Ok(())
}
