//! `"aggregate"`: groups of documents, and what they come to.
//!
//! ```json
//! {"selector": {"type": "order"},
//!  "aggregate": {"group_by": ["country"], "compute": {"orders": {"$count": true}, "revenue": {"$sum": "total"}}}}
//! ```
//!
//! CouchDB refuses a query with such a member, so none of its queries means anything else here.

use std::collections::{BTreeMap, HashMap};

use document::write_json_string;
use serde_json::{Map, Value};

use crate::error::FindError;
use crate::json::{Kind, integer};
use crate::lift::{Doc, Found, Lifter, Slot};
use crate::options::Find;
use crate::path::{FieldPath, PATH_PARTS_MAX};
use crate::plan::intervals::sort_key;

/// The `aggregate` member, read.
#[derive(Clone, Debug)]
pub struct Aggregate {
    written: Value,
    lifter: Lifter,
    group_by: Vec<(String, usize)>,
    compute: Vec<(String, Function)>,
}

/// What is computed of a group; numbers are slots of fields.
#[derive(Clone, Copy, Debug)]
enum Function {
    /// Documents.
    Count,
    /// Documents that have the field.
    CountField(usize),
    Sum(usize),
    Minimum(usize),
    Maximum(usize),
    Average(usize),
    Distinct(usize),
}

/// How large groups may grow.
#[derive(Clone, Copy, Debug)]
pub struct AggregateLimits {
    /// Groups (`[mango] max_aggregate_groups`).
    pub groups_max: usize,
    /// Values that `$distinct` holds, in all groups (`[mango] max_aggregate_values`).
    pub values_max: usize,
}

impl Aggregate {
    /// Reads the member.
    ///
    /// # Errors
    /// [`FindError::InvalidAggregate`], or of a field's name.
    pub fn parse(value: &Value) -> Result<Aggregate, FindError> {
        let Value::Object(members) = value else {
            return Err(invalid("`aggregate` must be a JSON object"));
        };
        if let Some(name) = members.keys().find(|k| *k != "group_by" && *k != "compute") {
            return Err(invalid(&format!("`aggregate` has no member `{name}`")));
        }
        let mut aggregate = Aggregate {
            written: value.clone(),
            lifter: Lifter::default(),
            group_by: vec![],
            compute: vec![],
        };
        match members.get("group_by") {
            None => {}
            Some(Value::Array(names)) if names.len() <= PATH_PARTS_MAX => {
                for name in names {
                    let slot = aggregate.field(name)?;
                    let name = name.as_str().unwrap_or_default().to_owned();
                    aggregate.group_by.push((name, slot));
                }
            }
            Some(_) => return Err(invalid("`group_by` must be an array of fields")),
        }
        let empty = Map::new();
        let compute = match members.get("compute") {
            None => &empty,
            Some(Value::Object(compute)) => compute,
            Some(_) => return Err(invalid("`compute` must be a JSON object")),
        };
        for (name, function) in compute {
            let function = aggregate.function(name, function)?;
            aggregate.compute.push((name.clone(), function));
        }
        if aggregate.compute.is_empty() && aggregate.group_by.is_empty() {
            return Err(invalid("`aggregate` needs `group_by` or `compute`"));
        }
        Ok(aggregate)
    }

    fn field(&mut self, name: &Value) -> Result<usize, FindError> {
        let Value::String(name) = name else {
            return Err(invalid(&format!("a field must be a string, not: {name}")));
        };
        Ok(self.lifter.add(&FieldPath::parse(name)?))
    }

    fn function(&mut self, name: &str, value: &Value) -> Result<Function, FindError> {
        let one = value.as_object().filter(|m| m.len() == 1);
        let Some((function, field)) = one.and_then(|m| m.iter().next()) else {
            let text = format!("`{name}` must be an object of one function and its field");
            return Err(invalid(&text));
        };
        if function == "$count" && *field == true {
            return Ok(Function::Count);
        }
        let slot = self.field(field)?;
        Ok(match function.as_str() {
            "$count" => Function::CountField(slot),
            "$sum" => Function::Sum(slot),
            "$min" => Function::Minimum(slot),
            "$max" => Function::Maximum(slot),
            "$average" => Function::Average(slot),
            "$distinct" => Function::Distinct(slot),
            _ => {
                return Err(invalid(&format!(
                    "no function `{function}`: there are $count, $sum, $min, $max, $average and $distinct"
                )));
            }
        })
    }

    /// The member as it was written.
    pub fn written(&self) -> &Value {
        &self.written
    }

    /// The fields that it names, each once.
    pub fn paths(&self) -> &[FieldPath] {
        self.lifter.paths()
    }
}

fn invalid(reason: &str) -> FindError {
    FindError::InvalidAggregate(reason.to_owned())
}

/// Refuses options that mean nothing beside an aggregate.
pub(crate) fn check(find: &Find) -> Result<(), FindError> {
    let refused = [
        ("sort", !find.sort.fields.is_empty()),
        ("fields", !find.fields.is_all()),
        ("bookmark", find.bookmark.is_some()),
        ("conflicts", find.conflicts),
    ];
    match refused.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(invalid(&format!(
            "`{name}` means nothing together with `aggregate`"
        ))),
        None => Ok(()),
    }
}

/// Groups as they grow.
#[derive(Debug)]
pub struct Groups {
    aggregate: Aggregate,
    limits: AggregateLimits,
    /// By the sort keys of their values, one behind the other; a field that is not there is below all values.
    groups: HashMap<Box<[u8]>, Group>,
    values: usize,
    slots: Vec<Slot>,
    key: Vec<u8>,
}

#[derive(Debug)]
struct Group {
    /// The texts of the fields' values.
    values: Vec<Option<Box<[u8]>>>,
    states: Vec<State>,
}

#[derive(Debug)]
enum State {
    Count(u64),
    Number(Sum),
    /// Sort key and text.
    Extreme(Option<(Vec<u8>, Vec<u8>)>),
    Distinct(BTreeMap<Vec<u8>, Vec<u8>>),
}

/// A sum that is exact while only integers are in it.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    integers: i128,
    floats: f64,
    has_floats: bool,
    count: u64,
}

impl Sum {
    fn add(&mut self, text: &[u8]) {
        let sum = integer(text).and_then(|n| self.integers.checked_add(n));
        match sum {
            Some(sum) => self.integers = sum,
            None => {
                let number = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
                self.floats += number.unwrap_or(0.0);
                self.has_floats = true;
            }
        }
        self.count += 1;
    }

    fn merge(&mut self, other: &Sum) {
        match self.integers.checked_add(other.integers) {
            Some(sum) => self.integers = sum,
            None => {
                self.floats += other.integers as f64;
                self.has_floats = true;
            }
        }
        self.floats += other.floats;
        self.has_floats |= other.has_floats;
        self.count += other.count;
    }

    fn float(&self) -> f64 {
        self.integers as f64 + self.floats
    }

    fn write(&self, out: &mut Vec<u8>) {
        if self.has_floats {
            write_float(self.float(), out);
        } else {
            out.extend_from_slice(self.integers.to_string().as_bytes());
        }
    }

    fn write_average(&self, out: &mut Vec<u8>) {
        match self.count {
            0 => out.extend_from_slice(b"null"),
            n => write_float(self.float() / n as f64, out),
        }
    }
}

fn write_float(number: f64, out: &mut Vec<u8>) {
    if number.is_finite() {
        document::json::write_float(number, out);
    } else {
        out.extend_from_slice(b"null");
    }
}

impl Groups {
    /// No groups yet.
    pub fn new(aggregate: &Aggregate, limits: AggregateLimits) -> Groups {
        Groups {
            aggregate: aggregate.clone(),
            limits,
            groups: HashMap::new(),
            values: 0,
            slots: vec![],
            key: vec![],
        }
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
            match value(*slot) {
                Some(text) => crate::compare::Order::Collated.write(text, &mut self.key),
                None => self.key.push(0),
            }
        }
        if !self.groups.contains_key(self.key.as_slice()) {
            let group_by = self.aggregate.group_by.iter();
            let group = Group {
                values: group_by
                    .map(|(_, slot)| value(*slot).map(Into::into))
                    .collect(),
                states: self.new_states(),
            };
            self.insert(self.key.clone().into(), group)?;
        }
        let Some(group) = self.groups.get_mut(self.key.as_slice()) else {
            return Ok(());
        };
        for ((_, function), state) in self.aggregate.compute.iter().zip(&mut group.states) {
            self.values += state.add(*function, &value);
        }
        self.check_values()
    }

    fn insert(&mut self, key: Box<[u8]>, group: Group) -> Result<(), FindError> {
        let max = self.limits.groups_max;
        if self.groups.len() >= max {
            let text = format!("there are more groups than [mango] max_aggregate_groups ({max})");
            return Err(FindError::AggregateTooLarge(text));
        }
        self.groups.insert(key, group);
        Ok(())
    }

    fn check_values(&self) -> Result<(), FindError> {
        let max = self.limits.values_max;
        if self.values > max {
            let text =
                format!("there are more distinct values than [mango] max_aggregate_values ({max})");
            return Err(FindError::AggregateTooLarge(text));
        }
        Ok(())
    }

    fn new_states(&self) -> Vec<State> {
        let state = |(_, function): &(String, Function)| match function {
            Function::Count | Function::CountField(_) => State::Count(0),
            Function::Sum(_) | Function::Average(_) => State::Number(Sum::default()),
            Function::Minimum(_) | Function::Maximum(_) => State::Extreme(None),
            Function::Distinct(_) => State::Distinct(BTreeMap::new()),
        };
        self.aggregate.compute.iter().map(state).collect()
    }

    /// Puts the groups of another part of the documents in.
    ///
    /// # Errors
    /// [`FindError::AggregateTooLarge`]
    pub fn merge(&mut self, other: Groups) -> Result<(), FindError> {
        for (key, group) in other.groups {
            let Some(own) = self.groups.get_mut(&key) else {
                let distinct = |s: &State| match s {
                    State::Distinct(values) => values.len(),
                    _ => 0,
                };
                self.values += group.states.iter().map(distinct).sum::<usize>();
                self.insert(key, group)?;
                continue;
            };
            let functions = self.aggregate.compute.iter();
            for ((_, function), (own, state)) in
                functions.zip(own.states.iter_mut().zip(group.states))
            {
                self.values += own.merge(*function, state);
            }
        }
        self.check_values()
    }

    /// The groups in the order of their values, but for the first `skip`, at most `limit`: objects joined by commas.
    pub fn write(&self, skip: u64, limit: u64, out: &mut Vec<u8>) -> u64 {
        let mut all: Vec<_> = self.groups.iter().collect();
        all.sort_unstable_by(|a, b| a.0.cmp(b.0));
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut written = 0;
        for (_, group) in all.into_iter().skip(skip).take(limit) {
            if written > 0 {
                out.extend_from_slice(b",\r\n");
            }
            written += 1;
            self.write_group(group, out);
        }
        written
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

fn write_name(name: &str, first: &mut bool, out: &mut Vec<u8>) {
    if !std::mem::take(first) {
        out.push(b',');
    }
    write_json_string(name, out);
    out.push(b':');
}

impl State {
    /// Takes a document's value; answers how many values are held more than before.
    fn add<'a>(&mut self, function: Function, value: &dyn Fn(usize) -> Option<&'a [u8]>) -> usize {
        let slot = match function {
            Function::Count => {
                if let State::Count(n) = self {
                    *n += 1;
                }
                return 0;
            }
            Function::CountField(slot)
            | Function::Sum(slot)
            | Function::Minimum(slot)
            | Function::Maximum(slot)
            | Function::Average(slot)
            | Function::Distinct(slot) => slot,
        };
        let Some(text) = value(slot) else {
            return 0;
        };
        match self {
            State::Count(n) => *n += 1,
            State::Number(sum) => {
                if Kind::of(text) == Kind::Number {
                    sum.add(text);
                }
            }
            State::Extreme(held) => keep(held, function, (sort_key(text), text.to_vec())),
            State::Distinct(values) => {
                let before = values.len();
                values
                    .entry(sort_key(text))
                    .or_insert_with(|| text.to_vec());
                return values.len() - before;
            }
        }
        0
    }

    fn merge(&mut self, function: Function, other: State) -> usize {
        match (self, other) {
            (State::Count(own), State::Count(n)) => *own += n,
            (State::Number(own), State::Number(sum)) => own.merge(&sum),
            (State::Extreme(own), State::Extreme(Some(other))) => keep(own, function, other),
            (State::Distinct(own), State::Distinct(values)) => {
                let before = own.len();
                for (key, text) in values {
                    own.entry(key).or_insert(text);
                }
                return own.len() - before;
            }
            _ => {}
        }
        0
    }

    fn write(&self, function: Function, out: &mut Vec<u8>) {
        match self {
            State::Count(n) => out.extend_from_slice(n.to_string().as_bytes()),
            State::Number(sum) if matches!(function, Function::Average(_)) => {
                sum.write_average(out);
            }
            State::Number(sum) => sum.write(out),
            State::Extreme(None) => out.extend_from_slice(b"null"),
            State::Extreme(Some((_, text))) => out.extend_from_slice(text),
            State::Distinct(values) => {
                out.push(b'[');
                for (i, text) in values.values().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(text);
                }
                out.push(b']');
            }
        }
    }
}

/// Keeps the lower or the higher of two values; of equal ones the one whose text comes first, so that the order in which
/// documents are looked at does not show.
fn keep(held: &mut Option<(Vec<u8>, Vec<u8>)>, function: Function, other: (Vec<u8>, Vec<u8>)) {
    let replaces = held.as_ref().is_none_or(|held| {
        let order = other.0.cmp(&held.0);
        match function {
            Function::Maximum(_) => order.is_gt() || (order.is_eq() && other.1 < held.1),
            _ => order.is_lt() || (order.is_eq() && other.1 < held.1),
        }
    });
    if replaces {
        *held = Some(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LIMITS: AggregateLimits = AggregateLimits {
        groups_max: 3,
        values_max: 4,
    };

    fn answer(groups: &Groups) -> Value {
        let mut out = b"[".to_vec();
        groups.write(0, u64::MAX, &mut out);
        out.push(b']');
        serde_json::from_slice(&out).unwrap()
    }

    fn groups(aggregate: Value, docs: &[Value]) -> Result<Groups, FindError> {
        let aggregate = Aggregate::parse(&aggregate)?;
        let mut halves = [
            Groups::new(&aggregate, LIMITS),
            Groups::new(&aggregate, LIMITS),
        ];
        for (i, doc) in docs.iter().enumerate() {
            halves[i % 2].add(&Doc::whole(doc.to_string().as_bytes()))?;
        }
        let [mut first, second] = halves;
        first.merge(second)?;
        Ok(first)
    }

    #[test]
    fn groups_come_in_the_order_of_their_values() {
        let docs = [
            json!({"c": "b", "n": 1}),
            json!({"c": "a", "n": 2.5, "x": {"y": 1}}),
            json!({"c": "b", "n": 3, "x": {"y": 2}}),
            json!({"n": 7}),
            json!({"c": "b", "n": "text"}),
        ];
        let aggregate = json!({"group_by": ["c"], "compute": {
            "docs": {"$count": true}, "with": {"$count": "x.y"}, "sum": {"$sum": "n"}, "lowest": {"$min": "n"},
            "highest": {"$max": "n"}, "mean": {"$average": "n"}, "all": {"$distinct": "n"}}});
        let mut limited = groups(aggregate.clone(), &docs[..4]).unwrap();
        limited.limits.values_max = 9;
        limited
            .add(&Doc::whole(docs[4].to_string().as_bytes()))
            .unwrap();
        assert_eq!(
            answer(&limited),
            json!([
                {"key": {}, "value": {"docs": 1, "with": 0, "sum": 7, "lowest": 7, "highest": 7, "mean": 7.0, "all": [7]}},
                {"key": {"c": "a"}, "value": {"docs": 1, "with": 1, "sum": 2.5, "lowest": 2.5, "highest": 2.5, "mean": 2.5, "all": [2.5]}},
                {"key": {"c": "b"}, "value": {"docs": 3, "with": 1, "sum": 4, "lowest": 1, "highest": "text", "mean": 2.0,
                    "all": [1, 3, "text"]}},
            ])
        );
        assert!(matches!(
            groups(aggregate, &docs),
            Err(FindError::AggregateTooLarge(_))
        ));
    }

    #[test]
    fn more_groups_than_allowed_are_refused() {
        let docs: Vec<Value> = (0..4).map(|n| json!({"n": n})).collect();
        let refused = groups(json!({"group_by": ["n"]}), &docs);
        assert!(matches!(refused, Err(FindError::AggregateTooLarge(_))));
        let one = groups(json!({"compute": {"n": {"$sum": "n"}}}), &docs).unwrap();
        assert_eq!(answer(&one), json!([{"key": {}, "value": {"n": 6}}]));
    }

    #[test]
    fn what_is_no_aggregate_is_refused() {
        for wrong in [
            json!(1),
            json!({}),
            json!({"group_by": "a"}),
            json!({"group_by": [1]}),
            json!({"compute": []}),
            json!({"compute": {"a": "b"}}),
            json!({"compute": {"a": {"$median": "b"}}}),
            json!({"compute": {"a": {"$sum": 1}}}),
            json!({"compute": {"a": {"$sum": "b", "$min": "b"}}}),
            json!({"groups": []}),
            json!({"group_by": ["a..b"]}),
        ] {
            assert!(Aggregate::parse(&wrong).is_err(), "{wrong}");
        }
    }
}
