//! CouchDB's own range of an index: its choice of an index depends on it, and `_explain` shows it.
//!
//! It considers only `$and` and comparisons, and takes the ranges of the leading fields of the
//! index for one range of keys. The range that is read is narrower ([`super::intervals`]).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use document::collation::HIGHEST;

use crate::compare::{Operand, Order};
use crate::condition::{Condition, Relation};
use crate::json::{array, string};
use crate::selector::{Selector, SelectorNode};

/// Stands for the highest key in `_explain`.
const MAX: &[u8] = b"\"<MAX>\"";

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Exclusive.
    Open,
    /// Inclusive.
    Closed,
    /// The range is only this value.
    Equal,
}

/// The values of one field; without a bound, from the lowest or to the highest.
#[derive(Clone, Debug)]
pub struct Range {
    low: Bound,
    high: Bound,
}

/// An end of a range. The ranges of all indexes share the value.
type Bound = (End, Option<Arc<Operand>>);

/// The position of an operand relative to the ends of a range.
enum Position {
    Below,
    Low,
    Between,
    High,
    Above,
}

/// Returns the fields of a selector that an index can find, in order, with their ranges. A field
/// without values is the only one, with `None`.
pub(crate) fn field_ranges(selector: &Selector) -> Vec<(String, Option<Range>)> {
    let mut fields = BTreeMap::new();
    collect(&selector.root, &mut fields);
    let mut ranges = vec![];
    for (field, Field { conditions, .. }) in fields.iter().filter(|(_, f)| f.is_indexable) {
        let mut all = conditions.iter();
        let range = all.try_fold(Range::WHOLE, |range, c| narrow(c, range, Order::Collated));
        if range.is_none() {
            return vec![((*field).to_owned(), None)];
        }
        ranges.push(((*field).to_owned(), range));
    }
    ranges
}

/// Returns whether no value of a field satisfies all its comparisons. CouchDB's range can be empty
/// though some do: it collates ids, and takes `$beginsWith` for a range.
pub(crate) fn is_unsatisfiable(selector: &Selector, field: &str) -> bool {
    let mut fields = BTreeMap::new();
    collect(&selector.root, &mut fields);
    let order = if field == "_id" {
        Order::Raw
    } else {
        Order::Collated
    };
    let conditions = fields.get(field).map_or(&[][..], |f| &f.conditions);
    let mut all = conditions.iter().filter(|c| matches!(c, Condition::Is(..)));
    all.try_fold(Range::WHOLE, |range, c| narrow(c, range, order))
        .is_none()
}

/// Returns the fields of comparisons, in order.
pub(crate) fn indexable_fields(selector: &Selector) -> Vec<&str> {
    let mut fields = BTreeMap::new();
    collect(&selector.root, &mut fields);
    let indexable = fields.into_iter().filter(|(_, field)| field.is_indexable);
    indexable.map(|(name, _)| name).collect()
}

/// Returns the fields that CouchDB suggests for an index: those, and fields that must not exist,
/// though no index has documents without them.
pub(crate) fn hinted_fields(selector: &Selector) -> Vec<&str> {
    let mut fields = BTreeMap::new();
    collect(&selector.root, &mut fields);
    let is_absent = |condition: &&Condition| matches!(condition, Condition::Exists(false));
    let hinted = fields
        .into_iter()
        .filter(|(_, field)| field.is_indexable || field.conditions.iter().any(is_absent));
    hinted.map(|(name, _)| name).collect()
}

/// The conditions on a field.
#[derive(Default)]
struct Field<'a> {
    conditions: Vec<&'a Condition>,
    is_indexable: bool,
}

fn collect<'a>(node: &'a SelectorNode, fields: &mut BTreeMap<&'a str, Field<'a>>) {
    let (name, condition) = match node {
        SelectorNode::All(nodes) => return nodes.iter().for_each(|n| collect(n, fields)),
        SelectorNode::Field(field, condition) => (&*field.name, condition),
        // To CouchDB, a field without a name.
        SelectorNode::Here(condition) => ("", condition),
        _ => return,
    };
    let field = fields.entry(name).or_default();
    field.is_indexable |= is_indexable(condition);
    field.conditions.push(condition);
}

fn is_indexable(condition: &Condition) -> bool {
    match condition {
        Condition::Is(relation, _) => *relation != Relation::NotEqual,
        // It restricts no range, but an index with the field fits the query better than one
        // without.
        Condition::BeginsWith(_) | Condition::Exists(true) => true,
        _ => false,
    }
}

fn narrow(condition: &Condition, range: Range, order: Order) -> Option<Range> {
    match condition {
        Condition::Is(relation, operand) => range.and(*relation, operand, order),
        Condition::BeginsWith(prefix) => range
            .and(Relation::GreaterOrEqual, &Operand::string(prefix), order)?
            .and(
                Relation::LessOrEqual,
                &Operand::string(&format!("{prefix}\u{ffff}")),
                order,
            ),
        _ => Some(range),
    }
}

impl Range {
    const WHOLE: Range = Range {
        low: (End::Open, None),
        high: (End::Open, None),
    };

    fn position(&self, operand: &Operand, order: Order) -> Position {
        let to = |bound: &Operand| bound.compare(&operand.text, order);
        match self.low.1.as_deref().map_or(Ordering::Greater, to) {
            Ordering::Less => Position::Below,
            Ordering::Equal => Position::Low,
            Ordering::Greater => match self.high.1.as_deref().map_or(Ordering::Less, to) {
                Ordering::Less => Position::Between,
                Ordering::Equal => Position::High,
                Ordering::Greater => Position::Above,
            },
        }
    }

    /// Returns the part of the range that satisfies the relation; `None` when it is empty.
    fn and(self, relation: Relation, operand: &Operand, order: Order) -> Option<Range> {
        use Position as P;
        let low_is_in = self.low.0 != End::Open;
        let high_is_in = self.high.0 != End::Open;
        let bound = |end| (end, Some(Arc::new(operand.clone())));
        let alone = || {
            let bound = bound(End::Equal);
            Range {
                low: bound.clone(),
                high: bound,
            }
        };
        let position = self.position(operand, order);
        let low = |end, range: Range| Range {
            low: bound(end),
            ..range
        };
        let high = |end, range: Range| Range {
            high: bound(end),
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

/// Returns the ranges of an index's leading fields, as far as the selector names them.
pub(crate) fn composite(
    columns: &[(String, crate::sort::Direction)],
    ranges: &[(String, Option<Range>)],
) -> Vec<Option<Range>> {
    let range = |(name, _): &(String, _)| {
        let known = ranges.binary_search_by(|(field, _)| field.cmp(name));
        known.ok().map(|i| ranges[i].1.clone())
    };
    columns.iter().map_while(range).collect()
}

/// Returns the first key that CouchDB reads of these ranges.
pub(crate) fn start_key(ranges: &[Option<Range>]) -> Vec<u8> {
    let bounds = ranges.iter().flatten().map(|range| range.low.1.as_deref());
    array(bounds.map_while(|bound| bound.map(|b| &*b.text)))
}

/// Returns the last key that CouchDB reads of these ranges.
pub(crate) fn end_key(ranges: &[Option<Range>]) -> Vec<u8> {
    let bounds = ranges.iter().flatten().map(|range| range.high.1.as_deref());
    let keys = bounds.map_while(|bound| bound.map(|b| &*b.text));
    array(keys.chain([MAX]))
}

/// Returns the ends of a range of ids: `null` and the highest where there is no bound.
pub(crate) fn id_keys(range: Option<&Range>) -> (Vec<u8>, Vec<u8>) {
    let low = range.and_then(|r| r.low.1.as_deref());
    let high = range.and_then(|r| r.high.1.as_deref());
    (
        low.map_or(&b"null"[..], |o| &o.text).to_vec(),
        high.map_or(MAX, |o| &o.text).to_vec(),
    )
}

/// Returns the bytes of the keys from [`start_key`] to [`end_key`].
pub(crate) fn key_bytes(ranges: &[Option<Range>]) -> (Vec<u8>, Vec<u8>) {
    let bytes = |bound: fn(&Range) -> Option<&Operand>| {
        let bounds = ranges.iter().flatten().map(bound);
        let sorts = bounds.map_while(|operand| operand.map(|o| &*o.sort));
        sorts.collect::<Vec<_>>().concat()
    };
    let low = bytes(|range| range.low.1.as_deref());
    let mut high = bytes(|range| range.high.1.as_deref());
    high.extend_from_slice(HIGHEST);
    (low, high)
}

/// Returns the bytes of the ids between the [`id_keys`]. A bound that is not a string restricts no
/// ids.
pub(crate) fn id_bytes(range: Option<&Range>) -> (Vec<u8>, Vec<u8>) {
    let id = |bound: Option<&Operand>| string(&bound?.text).map(|id| id.as_bytes().to_vec());
    let low = id(range.and_then(|r| r.low.1.as_deref())).unwrap_or_default();
    let high = id(range.and_then(|r| r.high.1.as_deref())).map(|mut id| {
        id.push(0);
        id
    });
    (low, high.unwrap_or_else(|| HIGHEST.to_vec()))
}
