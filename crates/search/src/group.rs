//! Which groups of hits are first: hits with one string are a group, and the best of its hits is the group's place.

use std::cmp::Ordering;
use std::time::Instant;

use rustc_hash::FxHashMap;

use crate::Error;
use crate::clock::Clock;
use crate::collect::{KeyColumn, SortBy, SortKey, SortValue, check_sort, compare};
use crate::column;
use crate::matcher::END;
use crate::query::Query;
use crate::reader::Reader;
use crate::schema::Types;
use crate::similarity::Similarity;
use crate::weigh::{Segment, weigh};

/// What is asked for groups.
#[derive(Clone, Debug)]
pub struct GroupRequest {
    /// What hits are.
    pub query: Query,
    /// What they are to match besides.
    pub filters: Vec<Query>,
    /// What a score is.
    pub similarity: Similarity,
    /// When it is given up.
    pub until: Option<Instant>,
    /// The field whose greatest string says which group a hit is of.
    pub field: String,
    /// The order of groups.
    pub sort: Vec<SortKey>,
    /// Groups at most.
    pub limit: usize,
}

/// A group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The string that its hits have; `None`: they have none.
    pub by: Option<String>,
    /// What it is ordered by: of its first hit.
    pub order: Vec<SortValue>,
}

/// The best place of each group of a segment, by the ordinal of its string; 0 for hits without one.
type Best = FxHashMap<u64, (Box<[u64]>, u32, f32)>;

impl Reader {
    /// The first groups, and how many hits there are in all.
    ///
    /// # Errors
    /// What is asked for cannot be, or of the files.
    pub fn groups(
        &self,
        request: &GroupRequest,
        types: &Types,
    ) -> Result<(Vec<Group>, u64), Error> {
        check_sort(&request.sort, types)?;
        let clock = Clock::new(request.until);
        let about = (request.similarity, &clock);
        let scaled = weigh(&request.query, &request.filters, about, self)?;
        let scores = request.sort.iter().any(|key| key.by == SortBy::Score);
        let (mut groups, mut total) = (vec![], 0);
        for files in self.searcher.segment_readers() {
            let segment = Segment::new(files, &self.layout, &clock)?;
            let Some(mut matcher) = segment.matcher(&scaled.weighed)? else {
                continue;
            };
            let keys = request.sort.iter();
            let keys = keys.map(|key| KeyColumn::open(key, types, files));
            let keys = keys.collect::<Result<Vec<_>, _>>()?;
            let strings = column::strings(files, &request.field)?;
            let alive = files.alive_bitset();
            let mut best = Best::default();
            let mut key = vec![0; keys.len()];
            let mut doc = matcher.doc();
            while doc != END {
                clock.step()?;
                if alive.is_none_or(|alive| alive.is_alive(doc)) {
                    total += 1;
                    let score = if scores {
                        matcher.score() * scaled.scale
                    } else {
                        0.0
                    };
                    for (key, column) in key.iter_mut().zip(&keys) {
                        *key = column.key(doc, score);
                    }
                    let ords = strings.iter().flat_map(|s| s.ords().values_for_doc(doc));
                    let group = ords.max().map_or(0, |ord| ord + 1);
                    let known = best.get(&group);
                    if known.is_none_or(|known| key.as_slice() < &*known.0) {
                        best.insert(group, (key.as_slice().into(), doc, score));
                    }
                }
                doc = matcher.advance();
            }
            let mut best: Vec<_> = best.into_iter().collect();
            best.sort_unstable_by(|a, b| a.1.0.cmp(&b.1.0));
            best.truncate(request.limit);
            for (group, (_, doc, score)) in best {
                let order = keys.iter().map(|key| key.value(doc, score));
                let by = match (&strings, group) {
                    (Some(strings), 1..) => Some(column::text_of(strings, group - 1)?),
                    _ => None,
                };
                groups.push(Group {
                    by,
                    order: order.collect::<Result<_, _>>()?,
                });
            }
        }
        Ok((merge_groups(groups, request), total))
    }
}

/// Puts groups of segments, or of shards, together.
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
    // Groups of one place are in the order of their names, so that it is the same each time.
    all.sort_by(|a, b| order(a, b).then_with(|| a.by.cmp(&b.by)));
    all.truncate(request.limit);
    all
}
