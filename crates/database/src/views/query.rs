//! Parameters of a view query, and the ranges of places that they select.

use document::TextList;
use document::collation::HIGHEST;
use index::keys::put_terminated;
use index::{GroupLevel, PlaceRange, write_key_sort};

use super::design::{Design, ViewAt};
use crate::{Error, ShownAttachments};

/// Whether a query waits for the index to be current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Answer when it is.
    True,
    /// Answer immediately.
    False,
    /// Answer immediately, then update.
    Lazy,
}

/// How a reduced query groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// One row of all.
    None,
    /// One row a group.
    By(GroupLevel),
}

impl Grouping {
    /// Combines `group` and `group_level`, in whichever order they are given: the level takes
    /// precedence.
    ///
    /// # Errors
    /// [`Error::QueryParse`] when they contradict each other.
    pub fn of(group: Option<bool>, level: Option<u64>) -> Result<Grouping, Error> {
        let elements = |n| GroupLevel::Elements(usize::try_from(n).unwrap_or(usize::MAX));
        match (group, level) {
            (Some(true), None) => Ok(Grouping::By(GroupLevel::Exact)),
            (_, None | Some(0)) => Ok(Grouping::None),
            (Some(false), Some(_)) => Err(refused(
                "Can't specify group=false and group_level>0 at the same time",
            )),
            (_, Some(n)) => Ok(Grouping::By(elements(n))),
        }
    }
}

/// Most keys that a thread that serves requests searches for.
const KEYS_HERE_MAX: usize = 1000;

/// Most bytes of keys whose sort keys a thread that serves requests writes.
const KEY_BYTES_HERE_MAX: usize = 64 << 10;

/// A view query. Keys are JSON text.
#[derive(Clone, Debug)]
pub struct ViewQuery {
    /// Where the range begins, in the query's direction.
    pub start: Option<Vec<u8>>,
    /// With `start`: the first document of its key.
    pub start_id: Option<String>,
    /// Where it ends.
    pub end: Option<Vec<u8>>,
    /// With `end`: the last document of its key.
    pub end_id: Option<String>,
    /// `end` itself is in the range.
    pub inclusive_end: bool,
    /// Rows of these keys, in their order.
    pub keys: Option<TextList>,
    /// Rows at most.
    pub limit: Option<u64>,
    /// Rows left out at the beginning.
    pub skip: u64,
    /// From the last row to the first.
    pub descending: bool,
    /// Rows have the document.
    pub include_docs: bool,
    /// `None`: not given, which means false. A reduced query must not have it.
    pub conflicts: Option<bool>,
    /// With `include_docs`: how attachments are shown.
    pub attachments: ShownAttachments,
    /// `None`: when the view has a reduce function.
    pub reduce: Option<bool>,
    /// How reduced rows are grouped.
    pub grouping: Grouping,
    /// Whether the index is brought up to date first.
    pub update: Update,
    /// Whether the update seq of the rows is requested too.
    pub update_seq: bool,
    /// Only rows of documents of this partition.
    pub partition: Option<String>,
}

impl Default for ViewQuery {
    fn default() -> Self {
        ViewQuery {
            start: None,
            start_id: None,
            end: None,
            end_id: None,
            inclusive_end: true,
            keys: None,
            limit: None,
            skip: 0,
            descending: false,
            include_docs: false,
            conflicts: None,
            attachments: ShownAttachments::default(),
            reduce: None,
            grouping: Grouping::None,
            update: Update::True,
            update_seq: false,
            partition: None,
        }
    }
}

/// The requested bounds of one range: a key with a document id, in the direction of the query.
struct Ends<'a> {
    start: Option<&'a [u8]>,
    start_id: Option<&'a str>,
    end: Option<&'a [u8]>,
    end_id: Option<&'a str>,
    inclusive_end: bool,
}

fn refused(reason: &str) -> Error {
    Error::QueryParse(reason.to_owned())
}

impl ViewQuery {
    /// Refuses parameters that do not apply to this view, as CouchDB does.
    ///
    /// # Errors
    /// [`Error::QueryParse`].
    pub fn check(&self, design: &Design, at: ViewAt) -> Result<(), Error> {
        match (design.spec.partitioned, &self.partition) {
            (true, None) => {
                return Err(refused(
                    "`partition` parameter is mandatory for queries to this view.",
                ));
            }
            (false, Some(_)) => {
                return Err(refused(
                    "`partition` parameter is not supported in this design doc",
                ));
            }
            _ => {}
        }
        self.check_reduction(at)?;
        let has_range = self.start.is_some() || self.end.is_some();
        if has_range && self.keys.as_ref().is_some_and(|keys| !keys.is_empty()) {
            return Err(refused(
                "`keys` is incompatible with `key`, `start_key` and `end_key`",
            ));
        }
        if self.keys.is_none() && self.is_reversed(design.spec.views[at.view].raw)? {
            return Err(refused(
                "No rows can match your key range, reverse your start_key and end_key or set descending=true",
            ));
        }
        Ok(())
    }

    fn check_reduction(&self, at: ViewAt) -> Result<(), Error> {
        if at.reduce.is_none() || self.reduce == Some(false) {
            if self.reduce == Some(true) {
                return Err(refused("Reduce is invalid for map-only views."));
            }
            if self.grouping != Grouping::None {
                return Err(refused("Invalid use of grouping on a map view."));
            }
            return Ok(());
        }
        if self.keys.is_some() && self.grouping != Grouping::By(GroupLevel::Exact) {
            return Err(refused(
                "Multi-key fetches for reduce views must use `group=true`",
            ));
        }
        if self.include_docs {
            return Err(refused("`include_docs` is invalid for reduce"));
        }
        if self.conflicts.is_some() {
            return Err(refused("`conflicts` is invalid for reduce views."));
        }
        Ok(())
    }

    /// Whether the range ends before it begins. `raw`: of the view's keys.
    fn is_reversed(&self, raw: bool) -> Result<bool, Error> {
        let (Some(start), Some(end)) = (&self.start, &self.end) else {
            return Ok(false);
        };
        // Sort keys of long keys take time, and those of `key` are equal.
        if start == end {
            return Ok(false);
        }
        let mut keys = [vec![], vec![]];
        for (key, out) in [start, end].into_iter().zip(&mut keys) {
            write_key_sort(key, raw, out)?;
        }
        let [start, end] = keys;
        Ok(if self.descending {
            end > start
        } else {
            end < start
        })
    }

    /// Whether it has too many keys, or too long ones, for a thread that serves requests.
    pub fn is_long(&self) -> bool {
        let keys = self.keys.as_ref();
        keys.is_some_and(|keys| keys.len() > KEYS_HERE_MAX) || self.has_long_keys()
    }

    /// Whether its keys together are too long for a thread that serves requests: sort keys are
    /// written when it is checked, and when its rows are opened.
    pub fn has_long_keys(&self) -> bool {
        let range = [&self.start, &self.end].into_iter().flatten();
        let keys = self.keys.as_ref().map_or(0, TextList::memory_bytes);
        range.map(Vec::len).sum::<usize>() + keys > KEY_BYTES_HERE_MAX
    }

    /// Memory of the sort keys that are held at a time, about, in bytes: those of the range, or of
    /// one of `keys`.
    pub fn sort_key_bytes(&self) -> usize {
        if !self.has_long_keys() {
            return 0;
        }
        let range = [&self.start, &self.end].into_iter().flatten();
        let keys = self.keys.iter().flat_map(TextList::iter);
        // Sort keys are at most about twice as long as the text. A range has two of each of `keys`.
        2 * range.map(Vec::len).sum::<usize>() + 4 * keys.map(<[u8]>::len).max().unwrap_or(0)
    }

    /// Memory that it takes, about, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let keys = [&self.start, &self.end].into_iter().flatten();
        let ids = [&self.start_id, &self.end_id, &self.partition];
        size_of::<ViewQuery>()
            + self.keys.as_ref().map_or(0, TextList::memory_bytes)
            + keys.map(Vec::capacity).sum::<usize>()
            + ids
                .into_iter()
                .flatten()
                .map(String::capacity)
                .sum::<usize>()
    }

    /// The prefix of every place of the query's partition.
    pub fn partition_prefix(&self) -> Vec<u8> {
        let mut prefix = vec![];
        if let Some(p) = &self.partition {
            put_terminated(p.as_bytes(), &mut prefix);
        }
        prefix
    }

    /// All places of the view, or of the partition.
    pub fn whole(&self) -> PlaceRange {
        let low = self.partition_prefix();
        PlaceRange {
            high: (!low.is_empty()).then(|| [&low[..], HIGHEST].concat()),
            low,
        }
    }

    /// Returns the requested ranges, in their order: one for each of `keys`, which are removed, or
    /// one.
    pub fn ranges(&mut self, raw: bool) -> Result<Ranges, index::Error> {
        let has_long_keys = self.has_long_keys();
        let Some(keys) = self.keys.take() else {
            let ends = Ends {
                start: self.start.as_deref(),
                start_id: self.start_id.as_deref(),
                end: self.end.as_deref(),
                end_id: self.end_id.as_deref(),
                inclusive_end: self.inclusive_end,
            };
            return Ok(Ranges {
                current: Some(self.range(&ends, raw)?),
                has_long_keys,
                ..Ranges::default()
            });
        };
        let mut ranges = Ranges {
            left: 0..keys.len(),
            keys,
            has_long_keys,
            raw,
            ..Ranges::default()
        };
        ranges.pop_front(self)?;
        Ok(ranges)
    }

    fn range_of_key(&self, key: &[u8], raw: bool) -> Result<PlaceRange, index::Error> {
        let ends = Ends {
            start: Some(key),
            start_id: self.start_id.as_deref(),
            end: Some(key),
            end_id: self.end_id.as_deref(),
            inclusive_end: self.inclusive_end,
        };
        self.range(&ends, raw)
    }

    fn range(&self, ends: &Ends<'_>, raw: bool) -> Result<PlaceRange, index::Error> {
        let prefix = self.partition_prefix();
        let place = |key: &[u8], id: Option<&str>| -> Result<Vec<u8>, index::Error> {
            let mut place = prefix.clone();
            write_key_sort(key, raw, &mut place)?;
            if let Some(id) = id {
                put_terminated(id.as_bytes(), &mut place);
            }
            Ok(place)
        };
        // Without a key the document id of a bound is ignored.
        let before = |key: &[u8], id| place(key, id);
        let after = |key: &[u8], id| place(key, id).map(|p| [&p[..], HIGHEST].concat());
        let mut range = self.whole();
        if self.descending {
            if let Some(key) = ends.start {
                range.high = Some(after(key, ends.start_id)?);
            }
            if let Some(key) = ends.end {
                range.low = if ends.inclusive_end {
                    before(key, ends.end_id)?
                } else {
                    after(key, ends.end_id)?
                };
            }
        } else {
            if let Some(key) = ends.start {
                range.low = before(key, ends.start_id)?;
            }
            if let Some(key) = ends.end {
                range.high = Some(if ends.inclusive_end {
                    after(key, ends.end_id)?
                } else {
                    before(key, ends.end_id)?
                });
            }
        }
        Ok(range)
    }
}

/// Ranges that are still to be read, in their order. Those of keys are created one by one.
#[derive(Default)]
pub struct Ranges {
    /// The first one.
    current: Option<PlaceRange>,
    /// The keys that those behind it are of.
    keys: TextList,
    left: std::ops::Range<usize>,
    /// The keys are too long for a thread that serves requests.
    has_long_keys: bool,
    /// From the last key to the first.
    reversed: bool,
    raw: bool,
}

impl Ranges {
    /// Reverses the order of ranges of which none was read.
    pub fn reverse(&mut self, query: &ViewQuery) -> Result<(), index::Error> {
        if !self.keys.is_empty() {
            self.reversed = !self.reversed;
            self.left = 0..self.keys.len();
            self.pop_front(query)?;
        }
        Ok(())
    }

    /// The first range.
    pub fn front(&self) -> Option<&PlaceRange> {
        self.current.as_ref()
    }

    /// The first range.
    pub fn front_mut(&mut self) -> Option<&mut PlaceRange> {
        self.current.as_mut()
    }

    /// Whether no range remains.
    pub fn is_empty(&self) -> bool {
        self.current.is_none()
    }

    /// Whether too many or too long keys are left for a thread that serves requests.
    pub fn are_long(&self) -> bool {
        self.has_long_keys && !self.is_empty() || self.len() > KEYS_HERE_MAX
    }

    /// Moves on to the next range.
    pub fn pop_front(&mut self, query: &ViewQuery) -> Result<(), index::Error> {
        let place = match self.reversed {
            false => self.left.next(),
            true => self.left.next_back(),
        };
        let key = place.and_then(|place| self.keys.get(place));
        self.current = key
            .map(|key| query.range_of_key(key, self.raw))
            .transpose()?;
        Ok(())
    }

    /// Moves on to the next range, past those of the same key.
    pub fn pop_equal(&mut self, query: &ViewQuery) -> Result<(), index::Error> {
        let others = self.count_equal(0) - 1;
        match self.reversed {
            false => self.left.start += others,
            true => self.left.end -= others,
        }
        self.pop_front(query)
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        match self.current {
            Some(_) => 1 + self.left.len(),
            None => 0,
        }
    }

    /// The range that has `n` ranges before it.
    pub fn get(&self, n: usize, query: &ViewQuery) -> Result<Option<PlaceRange>, index::Error> {
        if n == 0 {
            return Ok(self.current.clone());
        }
        let range = self.key(n).map(|key| query.range_of_key(key, self.raw));
        range.transpose()
    }

    /// How many ranges from the one that has `n` before it are of its key, one after the other.
    pub fn count_equal(&self, n: usize) -> usize {
        let key = self.key(n);
        let mut count = 1;
        while key.is_some() && self.key(n + count) == key {
            count += 1;
        }
        count
    }

    /// The key of the range that has `n` ranges before it.
    fn key(&self, n: usize) -> Option<&[u8]> {
        if n > self.left.len() {
            return None;
        }
        let place = match self.reversed {
            false => (self.left.start + n).checked_sub(1),
            true => self.left.end.checked_sub(n),
        };
        place.and_then(|place| self.keys.get(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes all ranges; if `equal`, those of one key together.
    fn lows(query: &mut ViewQuery, reversed: bool, equal: bool) -> Vec<Vec<u8>> {
        let mut ranges = query.ranges(false).unwrap();
        if reversed {
            ranges.reverse(query).unwrap();
        }
        let mut lows = vec![];
        while !ranges.is_empty() {
            let rest = 0..ranges.len();
            let rest = rest.map(|n| ranges.get(n, query).unwrap().unwrap().low);
            let rest: Vec<_> = rest.collect();
            assert_eq!(ranges.get(rest.len(), query).unwrap(), None);
            let same = rest.iter().take_while(|low| **low == rest[0]).count();
            assert_eq!(ranges.count_equal(0), same);
            assert_eq!(ranges.front().map(|range| &range.low), rest.first());
            lows.push(rest[0].clone());
            match equal {
                true => ranges.pop_equal(query).unwrap(),
                false => ranges.pop_front(query).unwrap(),
            }
            let popped = if equal { same } else { 1 };
            assert_eq!(ranges.len(), rest.len() - popped);
        }
        lows
    }

    proptest! {
        #[test]
        fn ranges_are_those_of_the_keys_in_either_direction(keys in prop::collection::vec(0_u8..3, 0..12)) {
            let of = |keys: &[u8]| ViewQuery {
                keys: Some(keys.iter().map(|key| key.to_string()).collect()),
                ..ViewQuery::default()
            };
            let low = |key: &u8| {
                let mut low = vec![];
                write_key_sort(key.to_string().as_bytes(), false, &mut low).unwrap();
                low
            };
            let mut wanted: Vec<_> = keys.iter().map(low).collect();
            prop_assert_eq!(&lows(&mut of(&keys), false, false), &wanted);
            wanted.reverse();
            prop_assert_eq!(&lows(&mut of(&keys), true, false), &wanted);
            wanted.dedup();
            prop_assert_eq!(&lows(&mut of(&keys), true, true), &wanted);
            wanted.reverse();
            prop_assert_eq!(&lows(&mut of(&keys), false, true), &wanted);
        }
    }

    /// A query from one key to another.
    fn between(start: &str, end: &str) -> ViewQuery {
        ViewQuery {
            start: Some(start.as_bytes().to_vec()),
            end: Some(end.as_bytes().to_vec()),
            ..ViewQuery::default()
        }
    }

    #[test]
    fn a_range_of_one_key_is_checked_without_sort_keys() {
        // No sort key can be written of these.
        let (one, other) = ("not JSON", "nor this");
        for raw in [false, true] {
            assert!(between(one, other).is_reversed(raw).is_err());
            assert!(!between(one, one).is_reversed(raw).unwrap());
            assert!(between("2", "1").is_reversed(raw).unwrap());
            assert!(!between("1", "2").is_reversed(raw).unwrap());
        }
    }

    #[test]
    fn queries_with_long_keys_are_long() {
        let key = |bytes: usize| format!("\"{}\"", "x".repeat(bytes));
        let keys = |count: usize, bytes: usize| ViewQuery {
            keys: Some((0..count).map(|_| key(bytes)).collect()),
            ..ViewQuery::default()
        };
        let start = |bytes: usize| ViewQuery {
            start: Some(key(bytes).into_bytes()),
            ..ViewQuery::default()
        };
        for short in [
            ViewQuery::default(),
            start(60_000),
            between(&key(30_000), &key(30_000)),
            keys(900, 40),
        ] {
            assert!(!short.is_long() && !short.has_long_keys());
            assert_eq!(short.sort_key_bytes(), 0);
        }
        for long in [
            start(70_000),
            between(&key(40_000), &key(40_000)),
            keys(2, 40_000),
            keys(900, 100),
        ] {
            assert!(long.is_long() && long.has_long_keys());
            assert!(long.sort_key_bytes() > 0);
        }
        assert!(start(70_000).sort_key_bytes() >= 140_000);
        assert!(keys(1001, 1).is_long() && !keys(1001, 1).has_long_keys());
    }

    #[test]
    fn a_query_without_keys_has_one_range() {
        let mut query = ViewQuery::default();
        assert_eq!(lows(&mut query, false, false), [Vec::<u8>::new()]);
        assert_eq!(lows(&mut query, true, true), [Vec::<u8>::new()]);
    }
}
