//! Groups hits: hits with the same string form a group, which ranks by its best hit.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::collect::{compare, order_bytes};
use crate::request::{SortKey, SortValue};

/// A request for groups.
#[derive(Clone, Debug)]
pub struct GroupRequest {
    /// The field whose greatest string is the group of a hit.
    pub field: String,
    /// The order of groups.
    pub sort: Vec<SortKey>,
    /// The maximum number of groups.
    pub limit: usize,
}

/// A group.
pub(crate) struct Group {
    /// The string that its hits share; `None` for hits without one.
    pub by: Option<String>,
    /// The sort values of its first hit.
    pub order: Vec<SortValue>,
}

impl Group {
    /// Returns roughly how much memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        let by = self.by.as_ref().map_or(0, String::len);
        size_of::<Group>() + by + order_bytes(&self.order)
    }
}

/// A group's best hit: its key, the ordinal of the group's string from 1 on (0 for hits without
/// one), the document and its score.
type Place = (Box<[u64]>, u64, u32, u32);

/// The first groups of a segment. Only the requested number is kept: a group that belongs to the
/// first ones in the end is inserted with its best hit, whenever that comes.
pub(crate) struct TopGroups {
    limit: usize,
    places: BTreeSet<Place>,
    of_group: FxHashMap<u64, Place>,
}

impl TopGroups {
    pub fn new(limit: usize) -> TopGroups {
        TopGroups {
            limit,
            places: BTreeSet::new(),
            of_group: FxHashMap::default(),
        }
    }

    pub fn put(&mut self, key: &[u64], group: u64, doc: u32, score: f32) {
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

    /// Returns the groups in order, by their numbers, each with its best hit and the score of that.
    pub fn into_best_hits(self) -> impl Iterator<Item = (u64, u32, f32)> {
        let places = self.places.into_iter();
        places.map(|(_, group, doc, score)| (group, doc, f32::from_bits(score)))
    }
}

/// Merges groups of segments, or of shards.
pub(crate) fn merge_groups(groups: Vec<Group>, request: &GroupRequest) -> Vec<Group> {
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
