//! Merges the results of all segments of a database's shards.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::collect::{TopHits, check_counters, collect, compare, order_bytes};
use crate::reader::Reader;
use crate::request::{Request, SortBy, SortKey, SortValue};
use crate::schema::Types;
use crate::segment::Segment;
use crate::statistics::{Numbers, Statistics};
use crate::weigh::weigh;
use crate::{Effort, Error};

/// The result of a query.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The number of hits.
    pub total: u64,
    /// The first hits, in order.
    pub hits: Vec<Hit>,
    /// For each counted field: the number of hits per value.
    pub counts: Vec<FxHashMap<String, u64>>,
    /// For each field with ranges: the number of hits per range.
    pub ranges: Vec<Vec<u64>>,
    /// Corpus statistics to pass to the request for the next page.
    pub statistics: Statistics,
}

/// A document that matches.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// Its id.
    pub id: String,
    /// The values of its sort keys; the id comes last unless the order names it.
    pub order: Vec<SortValue>,
    /// The index of its reader.
    pub shard: usize,
    /// The segment, to read its stored fields.
    pub segment: u32,
    /// The document in the segment, to read its stored fields.
    pub doc: u32,
}

/// Memory of a counted value besides its text, in bytes.
pub(crate) const COUNT_BYTES: usize = 48;

impl Hit {
    /// Returns roughly how much memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Hit>() + self.id.len() + order_bytes(&self.order)
    }
}

/// Searches the shards of an index. `types` is the union over all shards ([`types_of`]), so that a
/// shard that has never seen a field sorts like the others.
///
/// # Errors
/// The request is invalid, or the files cannot be read.
pub fn search(
    readers: &[impl Borrow<Reader>],
    request: &Request,
    types: &Types,
    effort: &Rc<Effort>,
) -> Result<Answer, Error> {
    check_counters(request, types)?;
    let before = effort.taken();
    let mut answer = Answer::empty(request);
    let mut sources: Vec<Hits> = vec![];
    let numbers = Numbers::new(request.statistics.clone());
    for (shard, reader) in readers.iter().enumerate() {
        let reader: &Reader = reader.borrow();
        let so_far = effort.taken();
        let about = (request.similarity, &**effort);
        let scaled = weigh(
            &request.query,
            &request.filters,
            about,
            &numbers.of(shard, reader),
        )?;
        let of_query = effort.taken() - so_far;
        for (number, files) in reader.segments.iter().enumerate() {
            let segment = Segment::new(files, &reader.layout, effort)?;
            let Some(matcher) = segment.matcher(&scaled.weighed)? else {
                continue;
            };
            let matcher = (matcher, scaled.scale);
            let collected = collect(request, types, files, matcher, effort)?;
            answer.count(collected.total, collected.counts, collected.ranges);
            sources.push(Hits::OfSegment {
                shard,
                segment: number as u32,
                first: collected.first,
            });
            let kept = sources.iter().map(Hits::bytes);
            effort.give_back_to(before);
            effort.take(of_query + answer.bytes() + kept.sum::<usize>())?;
        }
    }
    answer.hits = merged(sources, request, effort)?;
    effort.give_back_to(before);
    effort.take(answer.bytes())?;
    answer.statistics = numbers.into_statistics();
    Ok(answer)
}

/// The first hits of a segment, or of several that are merged.
pub(crate) enum Hits {
    OfSegment {
        shard: usize,
        segment: u32,
        first: TopHits,
    },
    Merged(std::vec::IntoIter<Hit>),
}

impl Hits {
    /// Returns their number.
    pub fn len(&self) -> usize {
        match self {
            Hits::OfSegment { first, .. } => first.len(),
            Hits::Merged(hits) => hits.len(),
        }
    }

    /// Returns roughly how much memory they take, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Hits::OfSegment { first, .. } => first.bytes(),
            Hits::Merged(hits) => hits.as_slice().iter().map(Hit::bytes).sum(),
        }
    }

    fn next(&mut self, effort: &Effort) -> Result<Option<Hit>, Error> {
        effort.step()?;
        let (shard, segment, first) = match self {
            Hits::OfSegment {
                shard,
                segment,
                first,
            } => (*shard, *segment, first),
            Hits::Merged(hits) => return Ok(hits.next()),
        };
        let Some((id, order, doc)) = first.next(effort)? else {
            return Ok(None);
        };
        let hit = Hit {
            id,
            order,
            shard,
            segment,
            doc,
        };
        effort.take(hit.bytes())?;
        Ok(Some(hit))
    }
}

/// Merges hits of segments in order, up to the limit of the request.
pub(crate) fn merged(
    mut sources: Vec<Hits>,
    request: &Request,
    effort: &Effort,
) -> Result<Vec<Hit>, Error> {
    let by_id = SortKey {
        by: SortBy::Id,
        reversed: false,
    };
    let keys: Vec<&SortKey> = request.sort.iter().chain([&by_id]).collect();
    let order = |a: &Hit, b: &Hit| {
        let values = a.order.iter().zip(&b.order).zip(&keys);
        values
            .map(|((a, b), key)| compare(a, b, key))
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal)
    };
    // The next hit of each segment; the first of all is at the end.
    let mut heads: Vec<(Hit, usize)> = vec![];
    for (at, source) in sources.iter_mut().enumerate() {
        heads.extend(source.next(effort)?.map(|hit| (hit, at)));
    }
    heads.sort_by(|(a, _), (b, _)| order(b, a));
    let mut hits = vec![];
    while let Some((hit, at)) = heads.pop() {
        hits.push(hit);
        if hits.len() >= request.limit {
            break;
        }
        if let Some(next) = sources[at].next(effort)? {
            let place = heads.partition_point(|(other, _)| order(other, &next).is_gt());
            heads.insert(place, (next, at));
        }
    }
    Ok(hits)
}

impl Answer {
    fn empty(request: &Request) -> Answer {
        Answer {
            counts: vec![FxHashMap::default(); request.counts.len()],
            ranges: request
                .ranges
                .iter()
                .map(|(_, r)| vec![0; r.len()])
                .collect(),
            ..Answer::default()
        }
    }

    fn count(&mut self, total: u64, counts: Vec<FxHashMap<String, u64>>, ranges: Vec<Vec<u64>>) {
        self.total += total;
        for (all, of_one) in self.counts.iter_mut().zip(counts) {
            for (value, count) in of_one {
                *all.entry(value).or_default() += count;
            }
        }
        for (all, of_one) in self.ranges.iter_mut().zip(ranges) {
            for (all, count) in all.iter_mut().zip(of_one) {
                *all += count;
            }
        }
    }

    /// Returns roughly how much memory it takes, in bytes.
    fn bytes(&self) -> usize {
        let hits = self.hits.iter().map(Hit::bytes);
        let counted = self.counts.iter().flat_map(FxHashMap::keys);
        hits.sum::<usize>()
            + counted
                .map(|value| value.len() + COUNT_BYTES)
                .sum::<usize>()
    }
}

/// Returns the field types of several shards. Where they differ, the first shard wins.
pub fn types_of(readers: &[Arc<Reader>]) -> Cow<'_, Types> {
    let (first, others) = match readers.split_first() {
        None => return Cow::Owned(Types::new()),
        Some((first, others)) => (first.types(), others),
    };
    let mut all = Cow::Borrowed(first);
    for other in others.iter().filter(|other| other.types() != first) {
        for (name, field_type) in other.types() {
            if !all.contains_key(name) {
                all.to_mut().insert(name.clone(), *field_type);
            }
        }
    }
    all
}
