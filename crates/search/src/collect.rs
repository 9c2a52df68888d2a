//! Collects the first hits of a segment in an order, the number of hits, and counts by value.
//!
//! A hit's position in the order is a key of integers, one for each sort key; smaller ones come
//! first. A string's integer is its ordinal in the segment's dictionary, doubled, so that a string
//! that is not in it falls between two.

use std::collections::BinaryHeap;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use tantivy::columnar::{Column, Dictionary};

use crate::answer::COUNT_BYTES;
use crate::column::{self, Strings};
use crate::matcher::{BoxMatcher, END};
use crate::query::Query;
use crate::reader::SegmentFiles;
use crate::request::{Distance, Range, Request, SortBy, SortKey, SortValue};
use crate::schema::{FieldType, ID, Types};
use crate::similarity::Similarity;
use crate::{Effort, Error};

/// The result of a segment.
pub(crate) struct SegmentHits {
    pub total: u64,
    pub first: TopHits,
    pub counts: Vec<FxHashMap<String, u64>>,
    pub ranges: Vec<Vec<u64>>,
}

/// A sort key in a segment.
pub(crate) enum KeyColumn {
    Score {
        reversed: bool,
    },
    Strings {
        column: Option<Strings>,
        reversed: bool,
    },
    Numbers {
        column: Option<Column<f64>>,
        greatest: bool,
        reversed: bool,
    },
    Distance {
        lon: Option<Column<f64>>,
        lat: Option<Column<f64>>,
        of: Distance,
        reversed: bool,
    },
    /// A field that the index does not have.
    Nothing,
}

impl KeyColumn {
    pub fn open(key: &SortKey, types: &Types, segment: &SegmentFiles) -> Result<KeyColumn, Error> {
        let reversed = key.reversed;
        let field = match &key.by {
            SortBy::Score => return Ok(KeyColumn::Score { reversed }),
            SortBy::Id => {
                let column = column::ids(segment)?;
                return Ok(KeyColumn::Strings { column, reversed });
            }
            SortBy::Field(field) => field,
            SortBy::Strings(field) => {
                let column = column::strings_or_ids(segment, field)?;
                return Ok(KeyColumn::Strings { column, reversed });
            }
            SortBy::Numbers(field) => {
                return Ok(KeyColumn::Numbers {
                    column: column::numbers(segment, field)?,
                    greatest: true,
                    reversed,
                });
            }
            SortBy::Distance(of) => {
                return Ok(KeyColumn::Distance {
                    lon: column::numbers(segment, &of.lon_field)?,
                    lat: column::numbers(segment, &of.lat_field)?,
                    of: of.clone(),
                    reversed,
                });
            }
        };
        Ok(match types.get(field) {
            None => KeyColumn::Nothing,
            Some(FieldType::Text) => return Err(Error::Unsortable(field.clone())),
            Some(FieldType::String) => KeyColumn::Strings {
                column: column::strings(segment, field)?,
                reversed,
            },
            Some(FieldType::Double) => KeyColumn::Numbers {
                column: column::numbers(segment, field)?,
                greatest: false,
                reversed,
            },
        })
    }

    pub fn key(&self, doc: u32, score: f32, effort: &Effort) -> u64 {
        match self {
            KeyColumn::Score { reversed } => turned(by_number(f64::from(score)), !reversed),
            KeyColumn::Strings { column, reversed } => {
                let ord = column.as_ref().and_then(|c| least(c, doc, effort));
                turned(ord.map_or(0, by_ord), *reversed)
            }
            KeyColumn::Numbers { reversed, .. } | KeyColumn::Distance { reversed, .. } => {
                turned(by_number(self.number(doc, effort)), *reversed)
            }
            KeyColumn::Nothing => 0,
        }
    }

    /// Returns the number that a document is sorted by; 0 when it has none, as in Lucene.
    fn number(&self, doc: u32, effort: &Effort) -> f64 {
        match self {
            KeyColumn::Numbers {
                column, greatest, ..
            } => {
                let values = column.iter().flat_map(|c| c.values_for_doc(doc));
                let values = effort.values(values);
                let found = match greatest {
                    true => values.max_by(f64::total_cmp),
                    false => values.min_by(f64::total_cmp),
                };
                found.unwrap_or(0.0)
            }
            KeyColumn::Distance { lon, lat, of, .. } => {
                let first = |column: &Option<Column<f64>>| column.as_ref()?.first(doc);
                match (first(lon), first(lat)) {
                    (Some(lon), Some(lat)) => of.to(lon, lat),
                    _ => of.farthest(),
                }
            }
            KeyColumn::Score { .. } | KeyColumn::Strings { .. } | KeyColumn::Nothing => 0.0,
        }
    }

    pub fn value(&self, doc: u32, score: f32, effort: &Effort) -> Result<SortValue, Error> {
        Ok(match self {
            KeyColumn::Score { .. } => SortValue::Score(score),
            KeyColumn::Strings { column, .. } => {
                let Some(column) = column else {
                    return Ok(SortValue::Null);
                };
                match least(column, doc, effort) {
                    None => SortValue::Null,
                    Some(ord) => SortValue::Text(column.text(ord)?),
                }
            }
            KeyColumn::Numbers { .. } | KeyColumn::Distance { .. } => {
                SortValue::Number(self.number(doc, effort))
            }
            KeyColumn::Nothing => SortValue::Null,
        })
    }

    /// Returns the key that a value would have.
    fn key_of(&self, value: &SortValue) -> Result<u64, Error> {
        Ok(match (self, value) {
            (KeyColumn::Score { reversed }, SortValue::Score(score)) => {
                turned(by_number(f64::from(*score)), !reversed)
            }
            (KeyColumn::Score { reversed }, SortValue::Number(score)) => {
                turned(by_number(f64::from(*score as f32)), !reversed)
            }
            (KeyColumn::Strings { reversed, .. }, SortValue::Null) => turned(0, *reversed),
            (KeyColumn::Strings { column, reversed }, SortValue::Text(text)) => {
                let place = match column {
                    None => 1,
                    Some(column) => place_of(column, text)?,
                };
                turned(place, *reversed)
            }
            (
                KeyColumn::Numbers { reversed, .. } | KeyColumn::Distance { reversed, .. },
                SortValue::Number(n),
            ) => turned(by_number(*n), *reversed),
            // Another shard may have the field that this one lacks.
            (KeyColumn::Nothing, _) => 0,
            (KeyColumn::Numbers { reversed, .. }, SortValue::Null) => turned(0, *reversed),
            _ => return Err(Error::Bookmark),
        })
    }
}

/// Returns the number of the least string of a document.
fn least(column: &Strings, doc: u32, effort: &Effort) -> Option<u64> {
    effort.values(column.ords().values_for_doc(doc)).min()
}

fn turned(key: u64, reversed: bool) -> u64 {
    if reversed { !key } else { key }
}

fn by_ord(ord: u64) -> u64 {
    2 * (ord + 1)
}

/// Maps numbers to integers from 1 on that sort alike.
fn by_number(n: f64) -> u64 {
    let bits = (n + 0.0).to_bits();
    if bits >> 63 == 0 {
        bits | 1 << 63
    } else {
        !bits
    }
}

/// Returns the position of a string in the order of a dictionary, whether it is there or not.
fn place_of(column: &Strings, text: &str) -> Result<u64, Error> {
    let dictionary: &Dictionary = column.dictionary();
    if let Some(ord) = dictionary.term_ord(text.as_bytes())? {
        return Ok(by_ord(ord));
    }
    // Binary search for the number of smaller strings.
    let (mut low, mut high) = (0, dictionary.num_terms() as u64);
    let mut known = vec![];
    while low < high {
        let middle = u64::midpoint(low, high);
        known.clear();
        dictionary.ord_to_term(middle, &mut known)?;
        match known.as_slice() < text.as_bytes() {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    Ok(2 * low + 1)
}

/// A hit in a heap: its key, its document in the segment, its score. The last in the order is at
/// the top.
pub(crate) type Candidate = (Box<[u64]>, u32, u32);

/// The first hits so far.
pub(crate) type Heap = BinaryHeap<Candidate>;

/// The first hits of a segment, in order. Sort values are read only for the hits that are taken.
pub(crate) struct TopHits {
    keys: Rc<[KeyColumn]>,
    candidates: std::vec::IntoIter<Candidate>,
    /// The index of the sort key that is the id.
    id: usize,
}

impl TopHits {
    /// Returns the memory of one hit, in bytes.
    fn bytes_of_one(keys: usize) -> usize {
        size_of::<Candidate>() + keys * size_of::<u64>()
    }

    /// Returns their number.
    pub fn len(&self) -> usize {
        self.candidates.len()
    }

    /// Returns roughly how much memory they take, in bytes.
    pub fn bytes(&self) -> usize {
        self.len() * TopHits::bytes_of_one(self.keys.len())
    }

    /// Returns the next hit: its id, its sort values, and its document in the segment.
    pub fn next(
        &mut self,
        effort: &Effort,
    ) -> Result<Option<(String, Vec<SortValue>, u32)>, Error> {
        let Some((_, doc, score)) = self.candidates.next() else {
            return Ok(None);
        };
        let score = f32::from_bits(score);
        let order = (self.keys.iter()).map(|key| key.value(doc, score, effort));
        let order = order.collect::<Result<Vec<_>, _>>()?;
        let id = match order.get(self.id) {
            Some(SortValue::Text(id)) => id.clone(),
            _ => String::new(),
        };
        Ok(Some((id, order, doc)))
    }
}

/// The order of hits in a segment.
pub(crate) struct Ranking {
    keys: Rc<[KeyColumn]>,
    /// The key that hits must come after.
    after: Option<Vec<u64>>,
    /// The key of the current hit.
    key: Vec<u64>,
    limit: usize,
    scores: bool,
    /// The index of the sort key that is the id.
    id: usize,
}

impl Ranking {
    /// Opens the sort keys of a request. Only hits after the position `after` are chosen.
    pub fn open(
        request: &Request,
        after: Option<&[SortValue]>,
        types: &Types,
        segment: &SegmentFiles,
    ) -> Result<Ranking, Error> {
        let keys = keys_of(request, types, segment)?;
        let after = after
            .map(|values| place_of_hit(values, &keys))
            .transpose()?;
        let is_id = |key: &SortKey| key.by == SortBy::Id;
        let id = request.sort.iter().position(is_id);
        Ok(Ranking {
            after,
            key: vec![0; keys.len()],
            limit: request.limit,
            scores: request.sort.iter().any(|key| key.by == SortBy::Score),
            id: id.unwrap_or(request.sort.len()),
            keys: keys.into(),
        })
    }

    /// Adds the current document of a cursor to the first hits, if it is one of them.
    #[inline]
    pub fn offer(
        &mut self,
        (matcher, scale): (&mut BoxMatcher, f32),
        doc: u32,
        heap: &mut Heap,
        effort: &Effort,
    ) -> Result<(), Error> {
        let score = if self.scores {
            scaled_score(matcher, scale)
        } else {
            0.0
        };
        let full = heap.len() >= self.limit;
        // Most hits are rejected by the first sort key alone.
        self.key[0] = self.keys[0].key(doc, score, effort);
        let last = heap.peek().filter(|_| full);
        if self.limit == 0 || last.is_some_and(|last| self.key[0] > last.0[0]) {
            return Ok(());
        }
        for (key, column) in self.key.iter_mut().zip(self.keys.iter()).skip(1) {
            *key = column.key(doc, score, effort);
        }
        let is_behind = self.after.as_ref().is_none_or(|after| self.key > *after);
        if is_behind && last.is_none_or(|last| self.key.as_slice() < &*last.0) {
            if full {
                heap.pop();
            } else {
                effort.take(TopHits::bytes_of_one(self.keys.len()))?;
            }
            heap.push((self.key.as_slice().into(), doc, score.to_bits()));
        }
        Ok(())
    }

    /// Returns the first hits in order.
    pub fn first(&self, heap: Heap) -> TopHits {
        TopHits {
            keys: self.keys.clone(),
            candidates: heap.into_sorted_vec().into_iter(),
            id: self.id,
        }
    }
}

/// Collects the hits of a segment.
pub(crate) fn collect(
    request: &Request,
    types: &Types,
    segment: &SegmentFiles,
    (mut matcher, scale): (BoxMatcher, f32),
    effort: &Effort,
) -> Result<SegmentHits, Error> {
    let mut ranking = Ranking::open(request, request.after.as_deref(), types, segment)?;
    let mut counters = Counters::open(request, types, segment, effort)?;
    let alive = segment.reader.alive_bitset();
    let mut total = 0;
    let mut heap = Heap::new();
    let mut doc = matcher.doc();
    while doc != END {
        effort.step()?;
        if alive.is_none_or(|alive| alive.is_alive(doc)) {
            total += 1;
            counters.count(doc, effort)?;
            ranking.offer((&mut matcher, scale), doc, &mut heap, effort)?;
        }
        doc = matcher.advance();
    }
    // Cursors report their end when time runs out.
    effort.step()?;
    let (counts, ranges) = counters.finish(effort)?;
    Ok(SegmentHits {
        total,
        first: ranking.first(heap),
        counts,
        ranges,
    })
}

/// Returns a score. An infinite score, from an unbounded boost, becomes the greatest finite one:
/// bookmarks hold finite numbers.
pub(crate) fn scaled_score(matcher: &mut BoxMatcher, scale: f32) -> f32 {
    (matcher.score() * scale).min(f32::MAX)
}

/// Returns the columns of the sort keys; the id is added last unless it is one of them.
fn keys_of(
    request: &Request,
    types: &Types,
    segment: &SegmentFiles,
) -> Result<Vec<KeyColumn>, Error> {
    let mut keys = vec![];
    for key in &request.sort {
        keys.push(KeyColumn::open(key, types, segment)?);
    }
    if request.sort.iter().all(|key| key.by != SortBy::Id) {
        let column = column::ids(segment)?;
        keys.push(KeyColumn::Strings {
            column,
            reversed: false,
        });
    }
    Ok(keys)
}

/// Returns the key of a hit that has these sort values.
fn place_of_hit(values: &[SortValue], keys: &[KeyColumn]) -> Result<Vec<u64>, Error> {
    if values.len() != keys.len() {
        return Err(Error::Bookmark);
    }
    let places = keys
        .iter()
        .zip(values)
        .map(|(key, value)| key.key_of(value));
    places.collect()
}

/// Returns roughly how much memory the sort values of a hit take, in bytes.
pub(crate) fn order_bytes(order: &[SortValue]) -> usize {
    let texts = order.iter().map(|value| match value {
        SortValue::Text(text) => text.len(),
        _ => 0,
    });
    size_of_val(order) + texts.sum::<usize>()
}

/// A numeric column, its ranges, and the number of hits in each.
type OfRanges<'a> = (Option<Column<f64>>, &'a [Range], Vec<u64>);

/// Counts of values and ranges.
struct Counters<'a> {
    counts: Vec<Option<(Strings, Vec<u64>)>>,
    ranges: Vec<OfRanges<'a>>,
}

impl<'a> Counters<'a> {
    fn open(
        request: &'a Request,
        types: &Types,
        segment: &SegmentFiles,
        effort: &Effort,
    ) -> Result<Counters<'a>, Error> {
        check_counters(request, types)?;
        let mut counts = vec![];
        for field in &request.counts {
            let column = match field.as_str() {
                ID => column::ids(segment)?,
                field => column::of_strings(segment, column::facets_of(request.similarity), field)?,
            };
            if let Some(column) = &column {
                effort.take(column.num_terms() * size_of::<u64>())?;
            }
            counts.push(column.map(|column| {
                let values = column.num_terms();
                (column, vec![0; values])
            }));
        }
        let mut ranges = vec![];
        for (field, of_field) in &request.ranges {
            let column = column::numbers(segment, field)?;
            ranges.push((column, of_field.as_slice(), vec![0; of_field.len()]));
        }
        Ok(Counters { counts, ranges })
    }

    fn count(&mut self, doc: u32, effort: &Effort) -> Result<(), Error> {
        for (column, counts) in self.counts.iter_mut().flatten() {
            let mut values = 0;
            for ord in column.ords().values_for_doc(doc) {
                counts[ord as usize] += 1;
                values += 1;
            }
            spend(values, effort)?;
        }
        for (column, ranges, counts) in &mut self.ranges {
            let Some(column) = column else {
                continue;
            };
            for (range, count) in ranges.iter().zip(counts) {
                let is_in = |n: f64| std::ops::RangeBounds::contains(&(range.low, range.high), &n);
                let mut values = 0;
                let mut numbers = column.values_for_doc(doc);
                let found = numbers.by_ref().inspect(|_| values += 1).any(is_in);
                *count += u64::from(found);
                spend(values, effort)?;
            }
        }
        Ok(())
    }

    #[expect(clippy::type_complexity)]
    fn finish(
        self,
        effort: &Effort,
    ) -> Result<(Vec<FxHashMap<String, u64>>, Vec<Vec<u64>>), Error> {
        let mut counts = vec![];
        for counted in self.counts {
            let mut of_field = FxHashMap::default();
            if let Some((column, counted)) = counted {
                for (ord, count) in counted.iter().enumerate().filter(|(_, n)| **n > 0) {
                    effort.step()?;
                    let value = column.text(ord as u64)?;
                    effort.take(value.len() + COUNT_BYTES)?;
                    of_field.insert(value, *count);
                }
            }
            counts.push(of_field);
        }
        let ranges = self.ranges.into_iter().map(|(.., counts)| counts);
        Ok((counts, ranges.collect()))
    }
}

/// Counts the values that were read of a document, which may have many.
fn spend(values: usize, effort: &Effort) -> Result<(), Error> {
    match values == 0 || effort.spend(values) {
        true => Ok(()),
        // Time has run out; this step returns the reason.
        false => effort.step(),
    }
}

/// Checks that counted fields have the type that is counted.
pub(crate) fn check_counters(request: &Request, types: &Types) -> Result<(), Error> {
    check_sort(&request.sort, types)?;
    if request.similarity == Similarity::TfIdf {
        return Ok(());
    }
    check_facets(request.similarity, &request.filters, types)?;
    are_strings(&request.counts, types)?;
    for (field, _) in &request.ranges {
        if types.get(field).is_some_and(|t| *t != FieldType::Double) {
            return Err(Error::NoNumbers(field.clone()));
        }
    }
    Ok(())
}

/// Checks that fields used as facet filters have strings.
fn check_facets(similarity: Similarity, filters: &[Query], types: &Types) -> Result<(), Error> {
    if similarity == Similarity::TfIdf {
        return Ok(());
    }
    are_strings(
        filters.iter().filter_map(|filter| match filter {
            Query::Facet { field, .. } => Some(field),
            _ => None,
        }),
        types,
    )
}

pub(crate) fn are_strings<'a>(
    fields: impl IntoIterator<Item = &'a String>,
    types: &Types,
) -> Result<(), Error> {
    let has_others = |field: &&String| types.get(*field).is_some_and(|t| *t != FieldType::String);
    match fields.into_iter().find(has_others) {
        Some(field) => Err(Error::NoStrings(field.clone())),
        None => Ok(()),
    }
}

/// Checks that hits can be sorted by these keys.
pub(crate) fn check_sort(sort: &[SortKey], types: &Types) -> Result<(), Error> {
    for key in sort {
        match &key.by {
            SortBy::Field(field) if types.get(field) == Some(&FieldType::Text) => {
                return Err(Error::Unsortable(field.clone()));
            }
            SortBy::Numbers(field) if types.get(field).is_some_and(|t| *t != FieldType::Double) => {
                return Err(Error::NotNumeric);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Compares values in the same order as the keys of a segment.
pub(crate) fn compare(a: &SortValue, b: &SortValue, key: &SortKey) -> std::cmp::Ordering {
    let number = |value: &SortValue| match value {
        SortValue::Score(score) => Some(f64::from(*score)),
        SortValue::Number(n) => Some(*n),
        _ => None,
    };
    let ordering = match (a, b) {
        (SortValue::Null, SortValue::Null) => std::cmp::Ordering::Equal,
        (SortValue::Null, _) => std::cmp::Ordering::Less,
        (_, SortValue::Null) => std::cmp::Ordering::Greater,
        (SortValue::Text(a), SortValue::Text(b)) => a.cmp(b),
        (a, b) => {
            by_number(number(a).unwrap_or_default()).cmp(&by_number(number(b).unwrap_or_default()))
        }
    };
    match key.reversed != (key.by == SortBy::Score) {
        true => ordering.reverse(),
        false => ordering,
    }
}
