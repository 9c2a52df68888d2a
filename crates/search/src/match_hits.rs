//! Finds the hits of an answer that match another query as well.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::answer::Hit;
use crate::matcher::Doc;
use crate::query::Query;
use crate::reader::Reader;
use crate::segment::Segment;
use crate::similarity::Similarity;
use crate::statistics::{Numbers, Statistics};
use crate::weigh::weigh;
use crate::{Effort, Error};

/// Documents with their positions among the hits, by shard and segment.
pub(crate) type Places = BTreeMap<usize, BTreeMap<u32, Vec<(Doc, usize)>>>;

/// Groups hits by segment, in document order.
pub(crate) fn places_of(hits: &[Hit]) -> Places {
    let mut places = Places::new();
    for (at, hit) in hits.iter().enumerate() {
        let of_shard = places.entry(hit.shard).or_default();
        of_shard.entry(hit.segment).or_default().push((hit.doc, at));
    }
    for docs in places.values_mut().flat_map(BTreeMap::values_mut) {
        docs.sort_unstable();
    }
    places
}

/// Returns for each hit whether it matches a query. `readers` are those of the answer.
///
/// # Errors
/// Errors of a search. It is charged to the search's effort.
pub fn match_hits(
    readers: &[impl Borrow<Reader>],
    (query, similarity): (&Query, Similarity),
    hits: &[Hit],
    effort: &Rc<Effort>,
) -> Result<Vec<bool>, Error> {
    let mut all = vec![false; hits.len()];
    let numbers = Numbers::new(Statistics::default());
    for (shard, segments) in places_of(hits) {
        let Some(reader) = readers.get(shard) else {
            continue;
        };
        let reader: &Reader = reader.borrow();
        let before_query = effort.taken();
        let about = (similarity, &**effort);
        let scaled = weigh(query, &[], about, &numbers.of(shard, reader))?;
        for (number, docs) in segments {
            let Some(files) = reader.segments.get(number as usize) else {
                continue;
            };
            let segment = Segment::new(files, &reader.layout, effort)?;
            let before = effort.taken();
            if let Some(mut matcher) = segment.matcher(&scaled.weighed)? {
                for (doc, at) in docs {
                    all[at] = matcher.has(doc);
                }
            }
            // A cursor that ran out of time or memory finds nothing.
            effort.step()?;
            effort.give_back_to(before);
        }
        effort.give_back_to(before_query);
    }
    Ok(all)
}
