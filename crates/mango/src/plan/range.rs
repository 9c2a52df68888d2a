//! CouchDB's own range of an index: which index it chooses depends on it, and `_explain` shows it.
//!
//! It sees through `$and` and comparisons alone, and takes the range of each leading field of the index for one range of
//! keys. What is read is narrower ([`super::intervals`]).

use std::cmp::Ordering;

use serde_json::{Value, json};

use crate::compare::{Operand, Order};
use crate::condition::{Condition, Relation};
use crate::selector::{Node, Selector};

/// Stands for the highest key in what `_explain` shows.
pub(crate) const MAX: &str = "<MAX>";

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Without the bound itself.
    Open,
    /// With it.
    Closed,
    /// The range is this value alone.
    Equal,
}

/// The values of one field; no bound is the lowest or the highest.
#[derive(Clone, Debug)]
pub struct Range {
    low: (End, Option<Operand>),
    high: (End, Option<Operand>),
}

/// Where an operand lies relative to the ends of a range.
enum Position {
    Below,
    Low,
    Between,
    High,
    Above,
}

/// The fields of a selector that an index can find, and the range of each. One without values is there alone, with `None`.
pub(crate) fn field_ranges(selector: &Selector) -> Vec<(String, Option<Range>)> {
    let mut ranges = vec![];
    for field in indexable_fields(selector) {
        let whole = Range {
            low: (End::Open, None),
            high: (End::Open, None),
        };
        match narrow(&selector.root, &field, whole) {
            None => return vec![(field, None)],
            Some(range) => ranges.push((field, Some(range))),
        }
    }
    ranges
}

/// The fields that comparisons are about, in order.
pub(crate) fn indexable_fields(selector: &Selector) -> Vec<String> {
    let mut fields = vec![];
    collect(&selector.root, &mut fields);
    fields.sort();
    fields.dedup();
    fields
}

fn collect(node: &Node, fields: &mut Vec<String>) {
    match node {
        Node::All(nodes) => nodes.iter().for_each(|n| collect(n, fields)),
        Node::Field(field, condition) if is_indexable(condition) => {
            fields.push(field.name.clone());
        }
        _ => {}
    }
}

fn is_indexable(condition: &Condition) -> bool {
    match condition {
        Condition::Is(relation, _) => *relation != Relation::NotEqual,
        // It restricts no range, but an index with the field serves the query better than one without.
        Condition::BeginsWith(_) | Condition::Exists(true) => true,
        _ => false,
    }
}

fn narrow(node: &Node, field: &str, range: Range) -> Option<Range> {
    match node {
        Node::All(nodes) => nodes
            .iter()
            .try_fold(range, |range, node| narrow(node, field, range)),
        Node::Field(at, condition) if at.name == field => match condition {
            Condition::Is(relation, operand) => range.and(*relation, operand),
            Condition::BeginsWith(prefix) => {
                let from = Operand::new(Value::from(prefix.as_str()));
                let to = Operand::new(Value::from(format!("{prefix}\u{ffff}")));
                range
                    .and(Relation::GreaterOrEqual, &from)?
                    .and(Relation::LessOrEqual, &to)
            }
            _ => Some(range),
        },
        _ => Some(range),
    }
}

impl Range {
    fn position(&self, operand: &Operand) -> Position {
        let to = |bound: &Operand| bound.compare(&operand.text, Order::Collated);
        match self.low.1.as_ref().map_or(Ordering::Greater, to) {
            Ordering::Less => Position::Below,
            Ordering::Equal => Position::Low,
            Ordering::Greater => match self.high.1.as_ref().map_or(Ordering::Less, to) {
                Ordering::Less => Position::Between,
                Ordering::Equal => Position::High,
                Ordering::Greater => Position::Above,
            },
        }
    }

    /// The part of the range that the relation leaves; `None` when it leaves nothing.
    fn and(self, relation: Relation, operand: &Operand) -> Option<Range> {
        use Position as P;
        let low_is_in = self.low.0 != End::Open;
        let high_is_in = self.high.0 != End::Open;
        let alone = || Range {
            low: (End::Equal, Some(operand.clone())),
            high: (End::Equal, Some(operand.clone())),
        };
        let position = self.position(operand);
        let low = |end, range: Range| Range {
            low: (end, Some(operand.clone())),
            ..range
        };
        let high = |end, range: Range| Range {
            high: (end, Some(operand.clone())),
            ..range
        };
        match (relation, position) {
            (Relation::Less, P::Below | P::Low) => None,
            (Relation::Less, P::Between | P::High) => Some(high(End::Open, self)),
            (Relation::LessOrEqual, P::Below) => None,
            (Relation::LessOrEqual, P::Low) => low_is_in.then(alone),
            (Relation::LessOrEqual, P::Between) => Some(high(End::Closed, self)),
            (Relation::Equal, P::Below | P::Above) => None,
            (Relation::Equal, P::Low) => low_is_in.then(alone),
            (Relation::Equal, P::Between) => Some(alone()),
            (Relation::Equal, P::High) => high_is_in.then(alone),
            (Relation::GreaterOrEqual, P::Between) => Some(low(End::Closed, self)),
            (Relation::GreaterOrEqual, P::High) => high_is_in.then(alone),
            (Relation::GreaterOrEqual | Relation::Greater, P::Above) => None,
            (Relation::Greater, P::Low | P::Between) => Some(low(End::Open, self)),
            (Relation::Greater, P::High) => None,
            (Relation::NotEqual, _) | (_, P::Below | P::Low | P::High | P::Above) => Some(self),
        }
    }
}

/// The ranges of an index's leading fields, as far as the selector names them.
pub(crate) fn composite(
    columns: &[(String, crate::sort::Direction)],
    ranges: &[(String, Option<Range>)],
) -> Vec<Option<Range>> {
    let range = |(name, _): &(String, _)| {
        let known = ranges.iter().find(|(field, _)| field == name);
        known.map(|(_, range)| range.clone())
    };
    columns.iter().map_while(range).collect()
}

/// The first key that CouchDB reads of these ranges.
pub(crate) fn start_key(ranges: &[Option<Range>]) -> Value {
    let bounds = ranges.iter().flatten().map(|range| range.low.1.as_ref());
    let keys = bounds.map_while(|bound| bound.map(|b| b.value.clone()));
    Value::Array(keys.collect())
}

/// The last one.
pub(crate) fn end_key(ranges: &[Option<Range>]) -> Value {
    let bounds = ranges.iter().flatten().map(|range| range.high.1.as_ref());
    let keys = bounds.map_while(|bound| bound.map(|b| b.value.clone()));
    let mut keys: Vec<Value> = keys.collect();
    keys.push(json!(MAX));
    Value::Array(keys)
}

/// The ends of a range of ids: `null` and the highest where there is no bound.
pub(crate) fn id_keys(range: Option<&Range>) -> (Value, Value) {
    let low = range.and_then(|r| r.low.1.as_ref());
    let high = range.and_then(|r| r.high.1.as_ref());
    (
        low.map_or(Value::Null, |o| o.value.clone()),
        high.map_or(json!(MAX), |o| o.value.clone()),
    )
}
