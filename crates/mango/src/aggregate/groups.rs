//! Groups of documents.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use document::write_json_string;
use foldhash::fast::RandomState;

use super::memory::Share;
use super::state::{ALLOCATION_BYTES, State};
use super::{Aggregate, AggregateLimits, AggregateMemory, Growth};
use crate::compare::Order;
use crate::error::FindError;
use crate::lift::{Doc, FoundSpan, LiftedValue};

/// Groups as they grow.
#[derive(Debug)]
pub struct Groups {
    aggregate: Arc<Aggregate>,
    pub(super) limits: AggregateLimits,
    groups: Vec<Group>,
    /// Index of groups by the concatenated sort keys of their values; a missing field sorts below
    /// all values.
    by_key: HashMap<Box<[u8]>, usize>,
    /// Index of groups by the texts of their values, for a limited number of texts: most documents
    /// of a group have equal ones, and making a sort key costs more than everything else.
    by_text: HashMap<Box<[u8]>, usize, RandomState>,
    held: Held,
    spans: Vec<FoundSpan>,
    key: Vec<u8>,
}

/// Maximum number of texts remembered, and maximum length of each.
const TEXTS_MAX: usize = 1 << 14;
const TEXT_BYTES_MAX: usize = 256;
/// Separates texts; JSON texts have no such byte.
const TEXT_END: u8 = 0;

/// The memory of these groups, and that of all parts of the same answer.
#[derive(Debug)]
struct Held {
    values: usize,
    bytes: usize,
    bytes_of_all: Arc<AtomicUsize>,
    /// The memory of all aggregates of the server.
    share: Share,
}

impl Held {
    fn of(share: Share, bytes_of_all: Arc<AtomicUsize>) -> Held {
        Held {
            values: 0,
            bytes: 0,
            bytes_of_all,
            share,
        }
    }

    fn add(&mut self, bytes: usize) {
        // Other threads update the counters too.
        if bytes > 0 {
            self.bytes += bytes;
            self.bytes_of_all.fetch_add(bytes, Relaxed);
            self.share.add(bytes);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.bytes_of_all.fetch_sub(self.bytes, Relaxed);
    }
}

#[derive(Debug)]
struct Group {
    /// The texts of the fields' values.
    values: Vec<Option<Box<[u8]>>>,
    states: Vec<State>,
}

impl Group {
    fn bytes(&self) -> usize {
        let values = self.values.iter().flatten();
        size_of::<Group>()
            + values.map(|v| v.len() + ALLOCATION_BYTES).sum::<usize>()
            + self.states.iter().map(State::bytes).sum::<usize>()
    }

    /// Keeps one of equal values, the one with the lowest text, so that the order of documents has
    /// no effect.
    fn show(&mut self, field: usize, text: Option<&[u8]>) -> usize {
        match (&mut self.values[field], text) {
            (Some(held), Some(text)) if *text < **held => {
                let more = text.len().saturating_sub(held.len());
                *held = text.into();
                more
            }
            _ => 0,
        }
    }
}

impl Groups {
    /// Creates an empty set of groups.
    pub fn new(aggregate: &Aggregate, limits: AggregateLimits) -> Groups {
        Groups::within(aggregate, limits, None)
    }

    /// Creates an empty set of groups that shares memory with those of other aggregates.
    pub fn within(
        aggregate: &Aggregate,
        limits: AggregateLimits,
        memory: Option<Arc<AggregateMemory>>,
    ) -> Groups {
        Groups {
            aggregate: Arc::new(aggregate.clone()),
            limits,
            groups: vec![],
            by_key: HashMap::new(),
            by_text: HashMap::default(),
            held: Held::of(Share::of(memory, limits.user), Arc::default()),
            spans: vec![],
            key: vec![],
        }
    }

    /// Creates an empty set of groups for another part of the documents, to be merged into this
    /// one.
    pub fn part(&self) -> Groups {
        let bytes_of_all = self.held.bytes_of_all.clone();
        Groups {
            aggregate: self.aggregate.clone(),
            limits: self.limits,
            groups: vec![],
            by_key: HashMap::new(),
            by_text: HashMap::default(),
            held: Held::of(self.held.share.another(), bytes_of_all),
            spans: vec![],
            key: vec![],
        }
    }

    /// Whether they may grow, for threads that have parts of them.
    pub fn growth(&self) -> &Growth {
        self.held.share.growth()
    }

    /// Adds a document.
    ///
    /// # Errors
    /// [`FindError::AggregateTooLarge`]
    pub fn add(&mut self, doc: &Doc<'_>) -> Result<(), FindError> {
        let mut spans = std::mem::take(&mut self.spans);
        self.aggregate.lifter.lift(doc, &mut spans);
        let added = self.add_found(&|span| spans[span].of(doc));
        self.spans = spans;
        added
    }

    /// Adds a document, given the fields in [`Aggregate::paths`].
    ///
    /// # Errors
    /// [`FindError::AggregateTooLarge`]
    pub fn add_found<'a>(
        &mut self,
        found: &dyn Fn(usize) -> LiftedValue<'a>,
    ) -> Result<(), FindError> {
        let value = |span: usize| match found(span) {
            LiftedValue::Value(text) => Some(text),
            LiftedValue::Missing | LiftedValue::NoWay => None,
        };
        self.key.clear();
        for (_, span) in &self.aggregate.group_by {
            self.key.extend_from_slice(value(*span).unwrap_or_default());
            self.key.push(TEXT_END);
        }
        let place = match self.by_text.get(self.key.as_slice()) {
            Some(place) => *place,
            None => self.place_of(&value)?,
        };
        let states = &mut self.groups[place].states;
        for ((_, function), state) in self.aggregate.compute.iter().zip(states) {
            let more = state.add(*function, &value);
            self.held.values += more.values;
            self.held.add(more.bytes);
        }
        self.check()
    }

    /// Returns the index of the group of these values, which may be new, and whose texts, in `key`,
    /// are not remembered.
    fn place_of<'a>(
        &mut self,
        value: &impl Fn(usize) -> Option<&'a [u8]>,
    ) -> Result<usize, FindError> {
        let text = std::mem::take(&mut self.key);
        for (_, span) in &self.aggregate.group_by {
            match value(*span) {
                Some(text) => Order::Collated.write(text, &mut self.key),
                None => self.key.push(0),
            }
        }
        let group_by = self.aggregate.group_by.iter();
        let place = match self.by_key.get(self.key.as_slice()) {
            Some(place) => {
                for (field, (_, span)) in group_by.enumerate() {
                    let more = self.groups[*place].show(field, value(*span));
                    self.held.add(more);
                }
                *place
            }
            None => {
                let values = group_by.map(|(_, span)| value(*span).map(Into::into));
                let group = Group {
                    values: values.collect(),
                    states: self.new_states(),
                };
                self.insert(self.key.clone().into(), group)?
            }
        };
        // These are few bytes, and no query is refused because of them alone.
        if self.by_text.len() < TEXTS_MAX && text.len() <= TEXT_BYTES_MAX {
            self.held.share.add(text.len() + 2 * ALLOCATION_BYTES);
            self.by_text.insert(text.into(), place);
        }
        Ok(place)
    }

    /// Adds a group; returns its index.
    fn insert(&mut self, key: Box<[u8]>, group: Group) -> Result<usize, FindError> {
        let max = self.limits.groups_max;
        if self.groups.len() >= max {
            let text = format!("there are more groups than [mango] max_aggregate_groups ({max})");
            return Err(FindError::AggregateTooLarge(text));
        }
        self.held
            .add(key.len() + 2 * ALLOCATION_BYTES + group.bytes());
        let place = self.groups.len();
        self.groups.push(group);
        self.by_key.insert(key, place);
        Ok(place)
    }

    fn check(&self) -> Result<(), FindError> {
        let AggregateLimits {
            values_max,
            bytes_max,
            ..
        } = self.limits;
        let text = if self.held.values > values_max {
            format!(
                "there are more distinct values than [mango] max_aggregate_values ({values_max})"
            )
        } else if self.held.bytes_of_all.load(Relaxed) > bytes_max {
            format!("groups hold more than [mango] max_aggregate_bytes ({bytes_max})")
        } else {
            return self.check_share();
        };
        Err(FindError::AggregateTooLarge(text))
    }

    /// Checks whether these groups may grow in addition to those of other aggregates, for documents
    /// that are examined but not added.
    ///
    /// # Errors
    /// [`FindError::AggregatesFull`], and [`FindError::AggregateTooLarge`] when they hold more than one user's may.
    pub fn check_share(&self) -> Result<(), FindError> {
        let Some(memory) = self.held.share.refused() else {
            return Ok(());
        };
        let budget = memory.budget_bytes();
        let (most, of) = match self.limits.user {
            Some(_) => (budget / 2, "half of "),
            None => (budget, ""),
        };
        if self.held.bytes_of_all.load(Relaxed) > most {
            let text = format!("groups hold more than {of}[memory] aggregates ({budget})");
            return Err(FindError::AggregateTooLarge(text));
        }
        Err(FindError::AggregatesFull(format!(
            "the aggregates under way hold more than [memory] aggregates ({budget}) together. Try again later."
        )))
    }

    fn new_states(&self) -> Vec<State> {
        let functions = self.aggregate.compute.iter();
        functions
            .map(|(_, function)| State::new(*function))
            .collect()
    }

    /// Merges the groups of another part of the documents.
    ///
    /// # Errors
    /// [`FindError::AggregateTooLarge`]
    pub fn merge(&mut self, mut other: Groups) -> Result<(), FindError> {
        let groups = other.take_groups();
        // Its bytes are counted again where they are kept.
        drop(other);
        for (key, group) in groups {
            let Some(place) = self.by_key.get(&key) else {
                self.held.values += group.states.iter().map(State::values).sum::<usize>();
                self.insert(key, group)?;
                continue;
            };
            let own = &mut self.groups[*place];
            for (field, value) in group.values.iter().enumerate() {
                let more = own.show(field, value.as_deref());
                self.held.add(more);
            }
            let functions = self.aggregate.compute.iter();
            for ((_, function), (own, state)) in
                functions.zip(own.states.iter_mut().zip(group.states))
            {
                let more = own.merge(*function, state);
                self.held.values += more.values;
                self.held.add(more.bytes);
            }
            self.check()?;
        }
        self.check()
    }

    /// Returns the groups in the order of their values, skipping the first `skip`, at most `limit`.
    /// Without `group_by` there is one, even for no documents.
    pub fn sorted(mut self, skip: u64, limit: u64) -> SortedGroups {
        if self.aggregate.group_by.is_empty() && self.groups.is_empty() {
            let states = self.new_states();
            let values = vec![];
            self.groups.push(Group { values, states });
            self.by_key.insert(Box::default(), 0);
        }
        let mut all = self.take_groups();
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        self.held.share.stop_growing();
        all.drain(..skip.min(all.len()));
        all.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        SortedGroups {
            groups: all.into_iter(),
            written: 0,
            of: self,
        }
    }

    /// Removes and returns the groups, with their keys.
    fn take_groups(&mut self) -> Vec<(Box<[u8]>, Group)> {
        self.by_text.clear();
        let mut places: Vec<_> = std::mem::take(&mut self.by_key).into_iter().collect();
        places.sort_unstable_by_key(|(_, place)| *place);
        let groups = std::mem::take(&mut self.groups).into_iter();
        let keys = places.into_iter().map(|(key, _)| key);
        keys.zip(groups).collect()
    }

    fn write_group(&self, group: &Group, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"key\":{");
        let fields = self.aggregate.group_by.iter().zip(&group.values);
        let mut first = true;
        for ((name, _), value) in fields {
            // A missing field is left out, unlike null.
            if let Some(value) = value {
                write_name(name, &mut first, out);
                out.extend_from_slice(value);
            }
        }
        out.extend_from_slice(b"},\"value\":{");
        let mut first = true;
        for ((name, function), state) in self.aggregate.compute.iter().zip(&group.states) {
            write_name(name, &mut first, out);
            state.write(*function, out);
        }
        out.extend_from_slice(b"}}");
    }
}

/// Groups being written.
#[derive(Debug)]
pub struct SortedGroups {
    groups: std::vec::IntoIter<(Box<[u8]>, Group)>,
    written: u64,
    of: Groups,
}

impl SortedGroups {
    /// Appends groups joined by `,\r\n`, until `out` has `enough` bytes; returns false when there
    /// are no more.
    pub fn write(&mut self, out: &mut Vec<u8>, enough: usize) -> bool {
        while out.len() < enough {
            let Some((_, group)) = self.groups.next() else {
                return false;
            };
            if self.written > 0 {
                out.extend_from_slice(b",\r\n");
            }
            self.written += 1;
            self.of.write_group(&group, out);
        }
        self.groups.len() > 0
    }

    /// Returns the number written.
    pub fn written(&self) -> u64 {
        self.written
    }
}

fn write_name(name: &str, first: &mut bool, out: &mut Vec<u8>) {
    if !std::mem::take(first) {
        out.push(b',');
    }
    write_json_string(name, out);
    out.push(b':');
}
