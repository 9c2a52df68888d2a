//! What the segments of an index come to together, and what the shards of a database do.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::collect::{
    Request, SortBy, SortKey, SortValue, check_counters, collect, compare, order_bytes,
};
use crate::reader::Reader;
use crate::schema::Types;
use crate::weigh::{Segment, weigh};
use crate::{Effort, Error};

/// What a query found.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// How many hits there are.
    pub total: u64,
    /// The first of them, in their order.
    pub hits: Vec<Hit>,
    /// Of each field that is counted: how many hits have each value.
    pub counts: Vec<FxHashMap<String, u64>>,
    /// Of each field with ranges: how many hits are in each.
    pub ranges: Vec<Vec<u64>>,
}

/// A document that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// Its id.
    pub id: String,
    /// What it is ordered by; the id comes last when the order does not name it.
    pub order: Vec<SortValue>,
    /// Which of the answers that were put together it is from.
    pub shard: usize,
    /// Where its stored fields are.
    pub segment: u32,
    /// Where its stored fields are.
    pub doc: u32,
}

/// What a counted value takes besides its text.
pub(crate) const COUNT_BYTES: usize = 48;

impl Hit {
    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Hit>() + self.id.len() + order_bytes(&self.order)
    }
}

impl Reader {
    /// Asks the index. `types`: of all shards together ([`types_of`]), so that a shard which has never seen a field has no
    /// value of it, and no other order than the rest.
    ///
    /// # Errors
    /// What is asked for cannot be, or of the files.
    pub fn search(
        &self,
        request: &Request,
        types: &Types,
        effort: &Rc<Effort>,
    ) -> Result<Answer, Error> {
        check_counters(request, types)?;
        let before = effort.taken();
        let about = (request.similarity, &**effort);
        let scaled = weigh(&request.query, &request.filters, about, self)?;
        let of_query = effort.taken() - before;
        let mut answer = Answer::empty(request);
        for (number, files) in self.searcher.segment_readers().iter().enumerate() {
            let segment = Segment::new(files, &self.layout, effort)?;
            let Some(matcher) = segment.matcher(&scaled.weighed)? else {
                continue;
            };
            let matcher = (matcher, scaled.scale);
            let collected = collect(request, types, files, matcher, effort)?;
            let hits = collected.hits.into_iter().map(|(order, id, doc)| Hit {
                id,
                order,
                shard: 0,
                segment: number as u32,
                doc,
            });
            answer.add(Answer {
                total: collected.total,
                hits: hits.collect(),
                counts: collected.counts,
                ranges: collected.ranges,
            });
            if answer.hits.len() > request.limit {
                answer.arrange(request);
            }
            effort.give_back_to(before);
            effort.take(of_query + answer.bytes())?;
        }
        answer.arrange(request);
        effort.give_back_to(before);
        effort.take(answer.bytes())?;
        Ok(answer)
    }
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

    fn add(&mut self, other: Answer) {
        self.total += other.total;
        self.hits.extend(other.hits);
        for (all, of_one) in self.counts.iter_mut().zip(other.counts) {
            for (value, count) in of_one {
                *all.entry(value).or_default() += count;
            }
        }
        for (all, of_one) in self.ranges.iter_mut().zip(other.ranges) {
            for (all, count) in all.iter_mut().zip(of_one) {
                *all += count;
            }
        }
    }

    /// About how much memory it takes.
    fn bytes(&self) -> usize {
        let hits = self.hits.iter().map(Hit::bytes);
        let counted = self.counts.iter().flat_map(FxHashMap::keys);
        hits.sum::<usize>()
            + counted
                .map(|value| value.len() + COUNT_BYTES)
                .sum::<usize>()
    }

    fn arrange(&mut self, request: &Request) {
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
        self.hits.sort_by(order);
        self.hits.truncate(request.limit);
    }
}

/// The types of fields of several shards. Where they differ, the first has its way.
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

/// Puts the answers of a database's shards together.
pub fn merge(request: &Request, answers: Vec<Answer>) -> Answer {
    let mut all = Answer::empty(request);
    for (shard, mut answer) in answers.into_iter().enumerate() {
        for hit in &mut answer.hits {
            hit.shard = shard;
        }
        all.add(answer);
    }
    all.arrange(request);
    all
}
