//! Groups hits: hits with the same string form a group, which ranks by its best hit.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::collect::{
    KeyColumn, SortBy, SortKey, SortValue, are_strings, check_facets, check_sort, compare,
    order_bytes, scaled_score,
};
use crate::column;
use crate::matcher::{BoxMatcher, END};
use crate::query::Query;
use crate::reader::{Reader, SegmentFiles};
use crate::schema::Types;
use crate::segment::Segment;
use crate::similarity::Similarity;
use crate::statistics::{Numbers, Statistics};
use crate::weigh::weigh;
use crate::{Effort, Error};

/// A request for groups.
#[derive(Clone, Debug)]
pub struct GroupRequest {
    /// The query.
    pub query: Query,
    /// Queries that hits must match as well.
    pub filters: Vec<Query>,
    /// The scoring model.
    pub similarity: Similarity,
    /// The field whose greatest string is the group of a hit.
    pub field: String,
    /// The order of groups.
    pub sort: Vec<SortKey>,
    /// The maximum number of groups.
    pub limit: usize,
}

/// A group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The string that its hits share; `None` for hits without one.
    pub by: Option<String>,
    /// The sort values of its first hit.
    pub order: Vec<SortValue>,
}

/// A group's best hit: its key, the ordinal of the group's string from 1 on (0 for hits without
/// one), the document and its score.
type Place = (Box<[u64]>, u64, u32, u32);

/// The first groups of a segment. Only the requested number is kept: a group that belongs to the
/// first ones in the end is inserted with its best hit, whenever that comes.
struct TopGroups {
    limit: usize,
    places: BTreeSet<Place>,
    of_group: FxHashMap<u64, Place>,
}

impl TopGroups {
    fn new(limit: usize) -> TopGroups {
        TopGroups {
            limit,
            places: BTreeSet::new(),
            of_group: FxHashMap::default(),
        }
    }

    fn put(&mut self, key: &[u64], group: u64, doc: u32, score: f32) {
        if let Some(known) = self.of_group.get(&group) {
            if *known.0 <= *key {
                return;
            }
            self.places.remove(known);
        } else if self.places.len() >= self.limit {
            match self.places.last() {
                Some(last) if (key, group) < (&*last.0, last.1) => {}
                _ => return,
            }
            if let Some((_, group, ..)) = self.places.pop_last() {
                self.of_group.remove(&group);
            }
        }
        let place: Place = (key.into(), group, doc, score.to_bits());
        self.places.insert(place.clone());
        self.of_group.insert(group, place);
    }
}

impl Reader {
    /// Returns the first groups, and the number of hits.
    ///
    /// # Errors
    /// The request is invalid, or the files cannot be read.
    pub fn groups(
        &self,
        request: &GroupRequest,
        types: &Types,
        effort: &Rc<Effort>,
    ) -> Result<(Vec<Group>, u64), Error> {
        check_sort(&request.sort, types)?;
        check_facets(request.similarity, &request.filters, types)?;
        if request.similarity == Similarity::Bm25 {
            are_strings([&request.field], types)?;
        }
        let before = effort.taken();
        let about = (request.similarity, &**effort);
        let numbers = Numbers::new(Statistics::default());
        let scaled = weigh(
            &request.query,
            &request.filters,
            about,
            &numbers.of(0, self),
        )?;
        let of_query = effort.taken();
        let (mut groups, mut total) = (vec![], 0);
        for files in &self.segments {
            let segment = Segment::new(files, &self.layout, effort)?;
            let Some(matcher) = segment.matcher(&scaled.weighed)? else {
                continue;
            };
            let matcher = (matcher, scaled.scale);
            total += groups_of(request, types, files, matcher, effort, &mut groups)?;
            groups = merge_groups(groups, request);
            effort.give_back_to(of_query);
            effort.take(groups.iter().map(Group::bytes).sum())?;
        }
        effort.give_back_to(before);
        effort.take(groups.iter().map(Group::bytes).sum())?;
        Ok((groups, total))
    }
}

/// Adds the first groups of a segment; returns the number of hits.
fn groups_of(
    request: &GroupRequest,
    types: &Types,
    files: &SegmentFiles,
    (mut matcher, scale): (BoxMatcher, f32),
    effort: &Effort,
    groups: &mut Vec<Group>,
) -> Result<u64, Error> {
    let scores = request.sort.iter().any(|key| key.by == SortBy::Score);
    let keys = request.sort.iter();
    let keys = keys.map(|key| KeyColumn::open(key, types, files));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let strings = column::strings_or_ids(files, &request.field)?;
    let alive = files.reader.alive_bitset();
    let mut first = TopGroups::new(request.limit);
    let mut key = vec![0; keys.len()];
    let mut total = 0;
    let mut doc = matcher.doc();
    while doc != END {
        effort.step()?;
        if alive.is_none_or(|alive| alive.is_alive(doc)) {
            total += 1;
            let score = if scores {
                scaled_score(&mut matcher, scale)
            } else {
                0.0
            };
            for (key, column) in key.iter_mut().zip(&keys) {
                *key = column.key(doc, score, effort);
            }
            let ords = strings.iter().flat_map(|s| s.ords().values_for_doc(doc));
            let group = effort.values(ords).max().map_or(0, |ord| ord + 1);
            first.put(&key, group, doc, score);
        }
        doc = matcher.advance();
    }
    // Cursors report their end when time runs out.
    effort.step()?;
    for (_, group, doc, score) in first.places {
        let score = f32::from_bits(score);
        let order = keys.iter().map(|key| key.value(doc, score, effort));
        let by = match (&strings, group) {
            (Some(strings), 1..) => Some(strings.text(group - 1)?),
            _ => None,
        };
        let order = order.collect::<Result<_, _>>()?;
        let group = Group { by, order };
        effort.take(group.bytes())?;
        groups.push(group);
    }
    Ok(total)
}

impl Group {
    /// Returns roughly how much memory it takes, in bytes.
    fn bytes(&self) -> usize {
        let by = self.by.as_ref().map_or(0, String::len);
        size_of::<Group>() + by + order_bytes(&self.order)
    }
}

/// Merges groups of segments, or of shards.
pub fn merge_groups(groups: Vec<Group>, request: &GroupRequest) -> Vec<Group> {
    let order = |a: &Group, b: &Group| {
        let values = a.order.iter().zip(&b.order).zip(&request.sort);
        values
            .map(|((a, b), key)| compare(a, b, key))
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal)
    };
    let mut all: Vec<Group> = vec![];
    let mut known: FxHashMap<Option<String>, usize> = FxHashMap::default();
    for group in groups {
        match known.get(&group.by) {
            None => {
                known.insert(group.by.clone(), all.len());
                all.push(group);
            }
            Some(at) if order(&group, &all[*at]).is_lt() => all[*at] = group,
            Some(_) => {}
        }
    }
    // Equal groups are ordered by name, so that the order is stable.
    all.sort_by(|a, b| order(a, b).then_with(|| a.by.cmp(&b.by)));
    all.truncate(request.limit);
    all
}
