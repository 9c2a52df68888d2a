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
use crate::lift::{Doc, Found, Slot};

/// Groups as they grow.
#[derive(Debug)]
pub struct Groups {
    aggregate: Arc<Aggregate>,
    pub(super) limits: AggregateLimits,
    groups: Vec<Group>,
    /// The places of groups by the sort keys of their values, one behind the other; a field that is not there is below all values.
    by_key: HashMap<Box<[u8]>, usize>,
    /// The same by the texts of their values, as far as these were seen and there are not too many: most documents of a group have the same,
    /// and making a sort key costs more than all the rest.
    by_text: HashMap<Box<[u8]>, usize, RandomState>,
    held: Held,
    slots: Vec<Slot>,
    key: Vec<u8>,
}

/// Texts that are remembered, and the length of one at most.
const TEXTS_MAX: usize = 1 << 14;
const TEXT_BYTES_MAX: usize = 256;
/// Between texts, which as JSON have no such byte.
const TEXT_END: u8 = 0;

/// What these groups hold, and what all parts of the same answer hold together.
#[derive(Debug)]
struct Held {
    values: usize,
    bytes: usize,
    bytes_of_all: Arc<AtomicUsize>,
    /// What the server's aggregates hold together.
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
        // Other threads have the counters too.
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

    /// Of values that are equal it is the one whose text comes first that is shown, so that the order in which documents are
    /// looked at does not show.
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
    /// No groups yet.
    pub fn new(aggregate: &Aggregate, limits: AggregateLimits) -> Groups {
        Groups::within(aggregate, limits, None)
    }

    /// No groups yet, which share memory with those of other aggregates.
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
            slots: vec![],
            key: vec![],
        }
    }

    /// No groups yet of another part of the documents, to be merged into these.
    pub fn part(&self) -> Groups {
        let bytes_of_all = self.held.bytes_of_all.clone();
        Groups {
            aggregate: self.aggregate.clone(),
            limits: self.limits,
            groups: vec![],
            by_key: HashMap::new(),
            by_text: HashMap::default(),
            held: Held::of(self.held.share.another(), bytes_of_all),
            slots: vec![],
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
        let mut slots = std::mem::take(&mut self.slots);
        self.aggregate.lifter.lift(doc, &mut slots);
        let added = self.add_found(&|slot| slots[slot].of(doc));
        self.slots = slots;
        added
    }

    /// Adds a document of which the fields in [`Aggregate::paths`] were found.
    ///
    /// # Errors
    /// [`FindError::AggregateTooLarge`]
    pub fn add_found<'a>(&mut self, found: &dyn Fn(usize) -> Found<'a>) -> Result<(), FindError> {
        let value = |slot: usize| match found(slot) {
            Found::Value(text) => Some(text),
            Found::Missing | Found::NoWay => None,
        };
        self.key.clear();
        for (_, slot) in &self.aggregate.group_by {
            self.key.extend_from_slice(value(*slot).unwrap_or_default());
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

    /// The place of the group of these values, which may be a new one, and whose texts, in `key`, have not been seen.
    fn place_of<'a>(
        &mut self,
        value: &impl Fn(usize) -> Option<&'a [u8]>,
    ) -> Result<usize, FindError> {
        let text = std::mem::take(&mut self.key);
        for (_, slot) in &self.aggregate.group_by {
            match value(*slot) {
                Some(text) => Order::Collated.write(text, &mut self.key),
                None => self.key.push(0),
            }
        }
        let group_by = self.aggregate.group_by.iter();
        let place = match self.by_key.get(self.key.as_slice()) {
            Some(place) => {
                for (field, (_, slot)) in group_by.enumerate() {
                    let more = self.groups[*place].show(field, value(*slot));
                    self.held.add(more);
                }
                *place
            }
            None => {
                let values = group_by.map(|(_, slot)| value(*slot).map(Into::into));
                let group = Group {
                    values: values.collect(),
                    states: self.new_states(),
                };
                self.insert(self.key.clone().into(), group)?
            }
        };
        // These are few bytes, and no query is refused for them alone.
        if self.by_text.len() < TEXTS_MAX && text.len() <= TEXT_BYTES_MAX {
            self.held.share.add(text.len() + 2 * ALLOCATION_BYTES);
            self.by_text.insert(text.into(), place);
        }
        Ok(place)
    }

    /// Adds a group; answers its place.
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

    /// Checks whether these groups may grow beside those of other aggregates, for who looks at documents of which none is added.
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

    /// Puts the groups of another part of the documents in.
    ///
    /// # Errors
    /// [`FindError::AggregateTooLarge`]
    pub fn merge(&mut self, mut other: Groups) -> Result<(), FindError> {
        let groups = other.take_groups();
        // Its bytes are counted again, as far as they are kept.
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

    /// The groups in the order of their values, but for the first `skip`, at most `limit`. Without `group_by` there is one,
    /// also of no documents.
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

    /// Takes the groups out, with their keys.
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
            // A field that the documents have not is left out, which tells it from null.
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

/// Groups to be written.
#[derive(Debug)]
pub struct SortedGroups {
    groups: std::vec::IntoIter<(Box<[u8]>, Group)>,
    written: u64,
    of: Groups,
}

impl SortedGroups {
    /// Appends groups joined by `,\r\n`, until `out` is as long as `enough`; false when there are no more.
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

    /// How many were written.
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
