//! Sets of keys: the values of a field that can match a selector, as ranges of bytes that compare
//! as the values do.

use document::collation::HIGHEST;

use crate::compare::{Operand, Order};
use crate::condition::{Condition, Relation};
use crate::json::{Kind, string};
use crate::path::FieldPath;
use crate::selector::{Selector, SelectorNode};

/// Disjoint ranges `[low, high)` of byte strings, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intervals(Vec<(Vec<u8>, Vec<u8>)>);

/// The meaning of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Sort keys of a field's values, as in an index.
    SortKeys,
    /// Document ids.
    Ids,
}

impl Intervals {
    /// Returns the full set.
    pub fn full() -> Intervals {
        Intervals(vec![(vec![], HIGHEST.to_vec())])
    }

    /// Returns the empty set.
    pub fn none() -> Intervals {
        Intervals(vec![])
    }

    fn one(low: Vec<u8>, high: Vec<u8>) -> Intervals {
        Intervals(vec![(low, high)])
    }

    /// Returns whether it is the full set.
    pub fn is_full(&self) -> bool {
        matches!(self.0.as_slice(), [(low, high)] if low.is_empty() && high == HIGHEST)
    }

    /// Returns whether it is empty.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the ranges, in ascending order.
    pub fn ranges(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.0
    }

    /// Returns the index of the range that contains `key` (`Ok`), or where it would be inserted.
    pub fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let after = self.0.partition_point(|(low, _)| low.as_slice() <= key);
        match after.checked_sub(1) {
            Some(i) if key < self.0[i].1.as_slice() => Ok(i),
            _ => Err(after),
        }
    }

    fn union(sets: impl IntoIterator<Item = Intervals>) -> Intervals {
        let mut all: Vec<_> = sets.into_iter().flat_map(|set| set.0).collect();
        all.sort_unstable();
        let mut merged: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(all.len());
        for (low, high) in all {
            match merged.last_mut() {
                Some(last) if low <= last.1 => last.1 = high.max(std::mem::take(&mut last.1)),
                _ => merged.push((low, high)),
            }
        }
        Intervals(merged)
    }

    /// Returns the part from `low` to `high` (exclusive).
    pub fn within(&self, low: &[u8], high: &[u8]) -> Intervals {
        self.clone()
            .intersect(Self::one(low.to_vec(), high.to_vec()))
    }

    fn intersect(self, other: Intervals) -> Intervals {
        if self.is_full() {
            return other;
        }
        if other.is_full() {
            return self;
        }
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = vec![];
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            let (low, high) = ((&x.0).max(&y.0), (&x.1).min(&y.1));
            if low < high {
                both.push((low.clone(), high.clone()));
            }
            if x.1 < y.1 {
                a.next();
            } else {
                b.next();
            }
        }
        Intervals(both)
    }

    /// Returns the intersection of the sets. Small ones come first, so that a large one is
    /// traversed once.
    fn common(sets: impl Iterator<Item = Intervals>) -> Intervals {
        let mut sets: Vec<_> = sets.filter(|set| !set.is_full()).collect();
        sets.sort_by_key(|set| set.0.len());
        sets.into_iter()
            .fold(Intervals::full(), Intervals::intersect)
    }
}

/// Returns the values of a field in documents that match the selector and have the field, or a
/// superset.
pub fn intervals(selector: &Selector, field: &FieldPath, space: Space) -> Intervals {
    of_node(&selector.root, field, space)
}

fn of_node(node: &SelectorNode, field: &FieldPath, space: Space) -> Intervals {
    match node {
        SelectorNode::All(nodes) => {
            Intervals::common(nodes.iter().map(|n| of_node(n, field, space)))
        }
        SelectorNode::Any(nodes) if nodes.is_empty() => Intervals::full(),
        SelectorNode::Any(nodes) => {
            Intervals::union(nodes.iter().map(|n| of_node(n, field, space)))
        }
        SelectorNode::Field(at, condition) if at.path == *field => match space {
            Space::Ids => of_id(condition),
            // Conditions on ids compare bytes, an index collates.
            Space::SortKeys if field.is_id() => of_collated_id(condition),
            Space::SortKeys => of_condition(condition),
        },
        _ => Intervals::full(),
    }
}

/// Returns all values of a kind, as sort keys start with tags.
fn of_kind(kind: Kind) -> Intervals {
    // Null, false, true; three signs of numbers; strings, arrays, objects.
    let (low, high) = match kind {
        Kind::Null => (0x10, 0x11),
        Kind::False => (0x11, 0x12),
        Kind::True => (0x12, 0x13),
        Kind::Number => (0x13, 0x16),
        Kind::String => (0x16, 0x17),
        Kind::Array => (0x17, 0x18),
        Kind::Object => (0x18, 0x19),
    };
    Intervals::one(vec![low], vec![high])
}

fn above(key: &[u8]) -> Vec<u8> {
    [key, HIGHEST].concat()
}

fn of_condition(condition: &Condition) -> Intervals {
    match condition {
        Condition::Is(relation, operand) => of_relation(*relation, &operand.sort),
        Condition::In(operands) => {
            let points = operands.sorts.iter();
            let points = points.map(|sort| Intervals::one(sort.to_vec(), above(sort)));
            // For an array the elements are looked up.
            Intervals::union(points.chain([of_kind(Kind::Array)]))
        }
        Condition::Exists(true) | Condition::NotIn(_) | Condition::Not(_) => Intervals::full(),
        Condition::Exists(false) => Intervals::none(),
        Condition::Type(name) => match name.as_str() {
            "null" => of_kind(Kind::Null),
            "boolean" => Intervals::one(vec![0x11], vec![0x13]),
            "number" => of_kind(Kind::Number),
            "string" => of_kind(Kind::String),
            "array" => of_kind(Kind::Array),
            "object" => of_kind(Kind::Object),
            _ => Intervals::none(),
        },
        Condition::Modulo { .. } => of_kind(Kind::Number),
        Condition::Regex(_) => of_kind(Kind::String),
        Condition::BeginsWith(prefix) => of_prefix(prefix),
        Condition::All(_)
        | Condition::Size(_)
        | Condition::ElemMatch(_)
        | Condition::AllMatch(_) => of_kind(Kind::Array),
        Condition::KeyMapMatch(_) => of_kind(Kind::Object),
    }
}

/// Bounds are in the range even where the relation excludes them: CouchDB counts examined keys this
/// way.
fn of_relation(relation: Relation, key: &[u8]) -> Intervals {
    match relation {
        Relation::Equal => Intervals::one(key.to_vec(), above(key)),
        Relation::NotEqual => Intervals::full(),
        Relation::Greater | Relation::GreaterOrEqual => {
            Intervals::one(key.to_vec(), HIGHEST.to_vec())
        }
        Relation::Less | Relation::LessOrEqual => Intervals::one(vec![], above(key)),
    }
}

/// Returns strings with this prefix. A sort key starts with the string's primary weights, and those
/// of an ASCII text are a prefix of those of any longer text; after other characters the weights
/// can change.
fn of_prefix(prefix: &str) -> Intervals {
    let plain = prefix.bytes().take_while(u8::is_ascii).count();
    let plain = if plain < prefix.len() {
        &prefix[..plain.saturating_sub(1)]
    } else {
        prefix
    };
    let sort = Operand::string(plain).sort;
    // Primary weights end with `01`; an empty text has none.
    let end = sort.iter().skip(1).position(|&b| b <= 1);
    let low = sort[..end.map_or(1, |end| end + 1)].to_vec();
    if low.len() == 1 {
        return of_kind(Kind::String);
    }
    // Weights can start with any byte, so the end is the next greater prefix. The tag is never the
    // highest byte.
    let mut high = low.clone();
    while high.pop_if(|last| *last == 0xff).is_some() {}
    if let Some(last) = high.last_mut() {
        *last += 1;
    }
    Intervals::one(low, high)
}

/// Returns the values of `_id` in an index that collates it: only equality has the same meaning
/// there as for bytes.
fn of_collated_id(condition: &Condition) -> Intervals {
    match condition {
        Condition::Is(Relation::Equal, _) | Condition::In(_) => of_condition(condition),
        _ => of_kind(Kind::String),
    }
}

/// Returns the document ids.
fn of_id(condition: &Condition) -> Intervals {
    let after = |id: &str| [id.as_bytes(), &[0]].concat();
    match condition {
        Condition::Is(relation, operand) => match string(&operand.text).as_deref() {
            Some(id) => match relation {
                Relation::Equal => Intervals::one(id.into(), after(id)),
                Relation::NotEqual => Intervals::full(),
                Relation::Greater | Relation::GreaterOrEqual => {
                    Intervals::one(id.into(), HIGHEST.to_vec())
                }
                Relation::Less | Relation::LessOrEqual => Intervals::one(vec![], after(id)),
            },
            // In the order of ids, strings are above everything else.
            None => match relation {
                Relation::NotEqual | Relation::Greater | Relation::GreaterOrEqual => {
                    Intervals::full()
                }
                Relation::Equal | Relation::Less | Relation::LessOrEqual => Intervals::none(),
            },
        },
        Condition::In(operands) => {
            let ids = operands.values().filter_map(string);
            Intervals::union(ids.map(|id| Intervals::one((*id).into(), after(&id))))
        }
        Condition::BeginsWith(prefix) if !prefix.is_empty() => {
            Intervals::one(prefix.as_bytes().to_vec(), above(prefix.as_bytes()))
        }
        Condition::Exists(wanted) if !wanted => Intervals::none(),
        _ => Intervals::full(),
    }
}

/// Returns the sort key of a value.
pub fn sort_key(text: &[u8]) -> Vec<u8> {
    let mut key = vec![];
    Order::Collated.write(text, &mut key);
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn of(selector: Value, space: Space) -> Intervals {
        let field = if space == Space::Ids { "_id" } else { "a" };
        let selector = Selector::parse(&selector).unwrap();
        intervals(&selector, &FieldPath::parse(field).unwrap(), space)
    }

    fn holds(set: &Intervals, value: &Value) -> bool {
        set.find(&sort_key(value.to_string().as_bytes())).is_ok()
    }

    #[test]
    fn or_and_in_are_several_ranges() {
        let set = of(
            json!({"$or": [{"a": 1}, {"a": {"$gt": 7, "$lt": 9}}, {"a": 1.0}]}),
            Space::SortKeys,
        );
        assert_eq!(set.ranges().len(), 2);
        for (value, expected) in [
            (json!(1), true),
            (json!(2), false),
            (json!(8), true),
            (json!("x"), false),
        ] {
            assert_eq!(holds(&set, &value), expected, "{value}");
        }
        let set = of(json!({"a": {"$in": [5, 3, "x"]}}), Space::SortKeys);
        assert!(holds(&set, &json!(3)) && !holds(&set, &json!(4)) && holds(&set, &json!([9])));
        assert!(of(json!({"$or": [{"a": 1}, {"b": 1}]}), Space::SortKeys).is_full());
        assert!(
            of(json!({"a": 1, "b": {"a": 2}}), Space::SortKeys)
                .ranges()
                .len()
                == 1
        );
        assert!(of(json!({"$and": [{"a": 1}, {"a": 2}]}), Space::SortKeys).is_none());
    }

    #[test]
    fn common_parts_do_not_depend_on_the_order_of_conditions() {
        let values: Vec<u32> = (0..20_000).collect();
        let mut conditions = vec![json!({"a": {"$ne": 1}}); 2_000];
        conditions.push(json!({"a": {"$in": values}}));
        conditions.push(json!({"a": {"$lt": 100}}));
        conditions.push(json!({"$or": []}));
        let one = of(json!({"$and": conditions.clone()}), Space::SortKeys);
        conditions.reverse();
        assert_eq!(one, of(json!({"$and": conditions}), Space::SortKeys));
        assert!(holds(&one, &json!(7)) && !holds(&one, &json!(7.5)) && !holds(&one, &json!(200)));
    }

    #[test]
    fn ids_are_ranges_of_bytes() {
        let set = of(json!({"_id": {"$gte": "b", "$lt": "d"}}), Space::Ids);
        assert_eq!(set.ranges(), [(b"b".to_vec(), b"d\0".to_vec())]);
        assert!(of(json!({"_id": {"$gt": null}}), Space::Ids).is_full());
        assert!(of(json!({"_id": {"$lt": {}}}), Space::Ids).is_none());
        assert_eq!(
            of(json!({"_id": {"$in": ["x", 1, "a"]}}), Space::Ids)
                .ranges()
                .len(),
            2
        );
    }

    proptest! {
        #[test]
        fn every_text_with_a_prefix_is_in_its_range(prefix in "[a-zA-Z '-]{0,4}\\PC{0,2}", rest in "\\PC{0,6}") {
            let text = format!("{prefix}{rest}");
            let set = of_prefix(&prefix);
            prop_assert!(holds(&set, &Value::from(text.as_str())), "{} {}", prefix, text);
        }
    }
}
