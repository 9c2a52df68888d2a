//! Finds groups of hits, and the first hits of each group, in two passes over the matches.
//!
//! Which groups are first is known when all hits were seen; the second pass collects their hits. It
//! reads the matches that the first pass kept. Only segments whose matches take too much memory are
//! searched again, once for all groups.

use std::borrow::Borrow;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::answer::{Hit, Hits, merged};
use crate::collect::{
    Heap, KeyColumn, Ranking, are_strings, check_counters, check_sort, scaled_score,
};
use crate::column::{self, Strings};
use crate::group::{Group, GroupRequest, TopGroups, merge_groups};
use crate::matcher::{BoxMatcher, END, KeptMatches, MatchKeeper};
use crate::reader::{Reader, SegmentFiles};
use crate::request::{Request, SortBy, SortKey};
use crate::schema::Types;
use crate::segment::Segment;
use crate::similarity::Similarity;
use crate::statistics::{Numbers, Statistics};
use crate::weigh::{ScaledQuery, weigh};
use crate::{Effort, Error};

/// The maximum memory of the matches that are kept for the second pass, in bytes.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// Hits of segments are merged when there are this many times as many as all groups may have.
const MERGED_AT: usize = 4;

/// The result of a search for groups.
#[derive(Clone, Debug, Default)]
pub struct GroupAnswer {
    /// The number of hits.
    pub total: u64,
    /// The first groups, in order.
    pub groups: Vec<GroupHits>,
    /// The corpus statistics that the hits were scored with.
    pub statistics: Statistics,
}

/// A group and its hits.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupHits {
    /// The string that its hits share; `None` for hits without one.
    pub by: Option<String>,
    /// The number of hits.
    pub total: u64,
    /// The first hits, in order.
    pub hits: Vec<Hit>,
}

impl GroupHits {
    /// Returns roughly how much memory it takes, in bytes.
    fn bytes(&self) -> usize {
        let by = self.by.as_ref().map_or(0, String::len);
        size_of::<GroupHits>() + by + self.hits.iter().map(Hit::bytes).sum::<usize>()
    }
}

/// Searches the shards of an index for groups, and for the first hits of each: `request.limit` at
/// most, from the beginning of the order. Hits are not counted by value or range.
///
/// # Errors
/// The request is invalid, or the files cannot be read.
pub fn search_groups(
    readers: &[impl Borrow<Reader>],
    request: &Request,
    groups: &GroupRequest,
    types: &Types,
    effort: &Rc<Effort>,
) -> Result<GroupAnswer, Error> {
    check_sort(&groups.sort, types)?;
    check_counters(request, types)?;
    if request.similarity == Similarity::Bm25 {
        are_strings([&groups.field], types)?;
    }
    let search = GroupSearch {
        request,
        groups,
        types,
        effort,
        numbers: Numbers::new(request.statistics.clone()),
        taken_before: effort.taken(),
    };
    let mut found = FirstGroups::default();
    for (shard, reader) in readers.iter().enumerate() {
        let reader: &Reader = reader.borrow();
        search.find_groups(shard, reader, &mut found)?;
    }
    let total = found.total;
    let groups = search.find_hits(readers, found)?;
    Ok(GroupAnswer {
        total,
        groups,
        statistics: search.numbers.into_statistics(),
    })
}

/// The result of the first pass.
#[derive(Default)]
struct FirstGroups {
    /// The number of hits.
    total: u64,
    groups: Vec<Group>,
    /// The matches of each segment, by shard; `None` when they take too much memory.
    kept: Vec<Vec<Option<KeptMatches>>>,
    kept_bytes: usize,
}

impl FirstGroups {
    fn bytes(&self) -> usize {
        self.kept_bytes + self.groups.iter().map(Group::bytes).sum::<usize>()
    }
}

/// The hits of a group in the second pass.
struct HitList {
    by: Option<String>,
    total: u64,
    /// The first hits of each segment.
    sources: Vec<Hits>,
}

impl HitList {
    fn new(group: Group) -> HitList {
        HitList {
            by: group.by,
            total: 0,
            sources: vec![],
        }
    }

    fn len(&self) -> usize {
        self.sources.iter().map(Hits::len).sum()
    }

    fn bytes(&self) -> usize {
        let by = self.by.as_ref().map_or(0, String::len);
        size_of::<HitList>() + by + self.sources.iter().map(Hits::bytes).sum::<usize>()
    }

    /// Returns the group with its first hits.
    fn finish(self, request: &Request, effort: &Effort) -> Result<GroupHits, Error> {
        Ok(GroupHits {
            by: self.by,
            total: self.total,
            hits: merged(self.sources, request, effort)?,
        })
    }
}

/// A search for groups.
struct GroupSearch<'a> {
    request: &'a Request,
    groups: &'a GroupRequest,
    types: &'a Types,
    effort: &'a Rc<Effort>,
    numbers: Numbers,
    /// The memory that was taken before, in bytes.
    taken_before: usize,
}

impl GroupSearch<'_> {
    fn weigh(&self, shard: usize, reader: &Reader) -> Result<ScaledQuery, Error> {
        let about = (self.request.similarity, &**self.effort);
        let numbers = self.numbers.of(shard, reader);
        weigh(&self.request.query, &self.request.filters, about, &numbers)
    }

    /// Reduces the memory that the search takes to `bytes` bytes.
    fn hold(&self, bytes: usize) -> Result<(), Error> {
        self.effort.give_back_to(self.taken_before);
        self.effort.take(bytes)
    }

    /// Adds the groups of a shard to the first ones, and keeps its matches.
    fn find_groups(
        &self,
        shard: usize,
        reader: &Reader,
        found: &mut FirstGroups,
    ) -> Result<(), Error> {
        let so_far = self.effort.taken();
        let scaled = self.weigh(shard, reader)?;
        let of_query = self.effort.taken() - so_far;
        let mut kept = vec![];
        for files in &reader.segments {
            let segment = Segment::new(files, &reader.layout, self.effort)?;
            let mut keeper = MatchKeeper::new(KEPT_BYTES_MAX - found.kept_bytes, self.effort);
            if let Some(matcher) = segment.matcher(&scaled.weighed)? {
                let matcher = (matcher, scaled.scale);
                self.add_groups(files, matcher, &mut keeper, found)?;
            }
            let (matches, bytes) = keeper.finish();
            kept.push(matches);
            found.kept_bytes += bytes;
            self.hold(of_query + found.bytes())?;
        }
        found.kept.push(kept);
        self.hold(found.bytes())
    }

    /// Adds the groups of a segment to the first ones.
    fn add_groups(
        &self,
        files: &SegmentFiles,
        (mut matcher, scale): (BoxMatcher, f32),
        keeper: &mut MatchKeeper<'_>,
        found: &mut FirstGroups,
    ) -> Result<(), Error> {
        let effort = &**self.effort;
        let is_score = |key: &SortKey| key.by == SortBy::Score;
        let scores =
            self.groups.sort.iter().any(is_score) || self.request.sort.iter().any(is_score);
        let keys = self.groups.sort.iter();
        let keys = keys.map(|key| KeyColumn::open(key, self.types, files));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let strings = column::strings_or_ids(files, &self.groups.field)?;
        let alive = files.reader.alive_bitset();
        let mut first = TopGroups::new(self.groups.limit);
        let mut key = vec![0; keys.len()];
        let mut doc = matcher.doc();
        while doc != END {
            effort.step()?;
            if alive.is_none_or(|alive| alive.is_alive(doc)) {
                found.total += 1;
                let score = if scores {
                    scaled_score(&mut matcher, scale)
                } else {
                    0.0
                };
                keeper.put(doc, score);
                for (key, column) in key.iter_mut().zip(&keys) {
                    *key = column.key(doc, score, effort);
                }
                let group = group_of(strings.as_ref(), doc, effort);
                first.put(&key, group, doc, score);
            }
            doc = matcher.advance();
        }
        // Cursors report their end when time runs out.
        effort.step()?;
        for (group, doc, score) in first.into_best_hits() {
            let order = keys.iter().map(|key| key.value(doc, score, effort));
            let by = match (&strings, group) {
                (Some(strings), 1..) => Some(strings.text(group - 1)?),
                _ => None,
            };
            let order = order.collect::<Result<_, _>>()?;
            let group = Group { by, order };
            effort.take(group.bytes())?;
            found.groups.push(group);
        }
        found.groups = merge_groups(std::mem::take(&mut found.groups), self.groups);
        Ok(())
    }

    /// Finds the first hits of the groups.
    fn find_hits(
        &self,
        readers: &[impl Borrow<Reader>],
        found: FirstGroups,
    ) -> Result<Vec<GroupHits>, Error> {
        let kept_bytes = found.kept_bytes;
        let mut lists: Vec<HitList> = found.groups.into_iter().map(HitList::new).collect();
        if lists.is_empty() {
            self.hold(0)?;
            return Ok(vec![]);
        }
        for (shard, (reader, kept)) in readers.iter().zip(found.kept).enumerate() {
            let reader: &Reader = reader.borrow();
            let so_far = self.effort.taken();
            let scaled = match kept.iter().all(Option::is_some) {
                true => None,
                false => Some(self.weigh(shard, reader)?),
            };
            let of_query = self.effort.taken() - so_far;
            for (number, (files, kept)) in reader.segments.iter().zip(kept).enumerate() {
                let Some(matcher) = self.matcher((reader, files), kept, scaled.as_ref())? else {
                    continue;
                };
                self.add_hits((shard, number as u32), files, matcher, &mut lists)?;
                self.merge_if_many(&mut lists)?;
                self.hold(of_query + kept_bytes + bytes_of(&lists))?;
            }
            self.hold(kept_bytes + bytes_of(&lists))?;
        }
        let lists = lists.into_iter();
        let groups = lists.map(|list| list.finish(self.request, self.effort));
        let groups = groups.collect::<Result<Vec<_>, Error>>()?;
        self.hold(groups.iter().map(GroupHits::bytes).sum())?;
        Ok(groups)
    }

    /// Returns a cursor over the matches of a segment, and the factor of their scores.
    fn matcher(
        &self,
        (reader, files): (&Reader, &SegmentFiles),
        kept: Option<KeptMatches>,
        scaled: Option<&ScaledQuery>,
    ) -> Result<Option<(BoxMatcher, f32)>, Error> {
        match (kept, scaled) {
            (Some(kept), _) => {
                let matcher: BoxMatcher = Box::new(kept);
                Ok(Some((matcher, 1.0)))
            }
            (None, Some(scaled)) => {
                let segment = Segment::new(files, &reader.layout, self.effort)?;
                let matcher = segment.matcher(&scaled.weighed)?;
                Ok(matcher.map(|matcher| (matcher, scaled.scale)))
            }
            (None, None) => Ok(None),
        }
    }

    /// Adds the first hits of a segment to the groups.
    fn add_hits(
        &self,
        (shard, segment): (usize, u32),
        files: &SegmentFiles,
        (mut matcher, scale): (BoxMatcher, f32),
        lists: &mut [HitList],
    ) -> Result<(), Error> {
        let effort = &**self.effort;
        let mut ranking = Ranking::open(self.request, None, self.types, files)?;
        let strings = column::strings_or_ids(files, &self.groups.field)?;
        let places = self.places_of(lists, strings.as_ref())?;
        let mut heaps: Vec<Heap> = lists.iter().map(|_| Heap::new()).collect();
        let alive = files.reader.alive_bitset();
        let mut doc = matcher.doc();
        while doc != END {
            effort.step()?;
            if alive.is_none_or(|alive| alive.is_alive(doc)) {
                let group = group_of(strings.as_ref(), doc, effort);
                if let Some(&at) = places.get(&group) {
                    lists[at].total += 1;
                    ranking.offer((&mut matcher, scale), doc, &mut heaps[at], effort)?;
                }
            }
            doc = matcher.advance();
        }
        // Cursors report their end when time runs out.
        effort.step()?;
        for (list, heap) in lists.iter_mut().zip(heaps) {
            if !heap.is_empty() {
                list.sources.push(Hits::OfSegment {
                    shard,
                    segment,
                    first: ranking.first(heap),
                });
            }
        }
        Ok(())
    }

    /// Returns the groups that a segment has, by the numbers that [`group_of`] returns for their
    /// documents.
    fn places_of(
        &self,
        lists: &[HitList],
        strings: Option<&Strings>,
    ) -> Result<FxHashMap<u64, usize>, Error> {
        let mut places = FxHashMap::default();
        for (at, list) in lists.iter().enumerate() {
            self.effort.step()?;
            let group = match (&list.by, strings) {
                (None, _) => Some(0),
                (Some(_), None) => None,
                (Some(by), Some(strings)) => {
                    let ord = strings.dictionary().term_ord(by.as_bytes())?;
                    ord.map(|ord| ord + 1)
                }
            };
            places.extend(group.map(|group| (group, at)));
        }
        Ok(places)
    }

    /// Merges the hits of all segments so far, if there are many more than the groups may have.
    fn merge_if_many(&self, lists: &mut [HitList]) -> Result<(), Error> {
        let wanted = self.request.limit.saturating_mul(lists.len());
        let all: usize = lists.iter().map(HitList::len).sum();
        if all <= wanted.saturating_mul(MERGED_AT) {
            return Ok(());
        }
        for list in lists {
            let sources = std::mem::take(&mut list.sources);
            let hits = merged(sources, self.request, self.effort)?;
            list.sources.push(Hits::Merged(hits.into_iter()));
        }
        Ok(())
    }
}

fn bytes_of(lists: &[HitList]) -> usize {
    lists.iter().map(HitList::bytes).sum()
}

/// Returns the number of a document's group in its segment: the ordinal of its greatest string from
/// 1 on, and 0 for a document without one.
fn group_of(strings: Option<&Strings>, doc: u32, effort: &Effort) -> u64 {
    let strings = strings.into_iter();
    let ords = strings.flat_map(|strings| strings.ords().values_for_doc(doc));
    effort.values(ords).max().map_or(0, |ord| ord + 1)
}
