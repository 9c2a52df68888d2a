use std::cmp::Ordering;
use std::sync::OnceLock;

use regex::Regex;
use serde_json::Value;

use crate::compare::{Operand, Order};
use crate::json::{Elements, Kind, Members, integer, string};
use crate::selector::{At, Node};

/// What a value that is present has to fulfil.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    /// `$lt`, `$lte`, `$eq`, `$ne`, `$gte`, `$gt`.
    Is(Relation, Operand),
    In(Operands),
    NotIn(Operands),
    Exists(bool),
    Type(String),
    Modulo {
        divisor: i128,
        remainder: i128,
    },
    Regex(Regex),
    BeginsWith(String),
    All(Vec<Operand>),
    Size(u64),
    ElemMatch(Box<Node>),
    AllMatch(Box<Node>),
    KeyMapMatch(Box<Node>),
    Not(Box<Condition>),
}

/// The operands of `$in` and `$nin`, to be looked up.
#[derive(Clone, Debug)]
pub(crate) struct Operands {
    pub values: Vec<Value>,
    /// Their sort keys, in ascending order.
    pub sorts: Vec<Box<[u8]>>,
    /// The same in the order of ids.
    raws: OnceLock<Vec<Box<[u8]>>>,
}

impl Operands {
    pub fn new(values: Vec<Value>) -> Operands {
        Operands {
            sorts: sorted(&values, Order::Collated),
            raws: OnceLock::new(),
            values,
        }
    }

    fn hold(&self, text: &[u8], order: Order) -> bool {
        let sorts = match order {
            Order::Collated => &self.sorts,
            Order::Raw => self.raws.get_or_init(|| sorted(&self.values, order)),
        };
        if sorts.is_empty() {
            return false;
        }
        let mut key = Vec::with_capacity(2 * text.len() + 16);
        order.write(text, &mut key);
        sorts
            .binary_search_by(|s| (**s).cmp(key.as_slice()))
            .is_ok()
    }
}

fn sorted(values: &[Value], order: Order) -> Vec<Box<[u8]>> {
    let mut sorts: Vec<Box<[u8]>> = values
        .iter()
        .map(|value| {
            let mut key = vec![];
            order.write(value.to_string().as_bytes(), &mut key);
            key.into_boxed_slice()
        })
        .collect();
    sorts.sort_unstable();
    sorts.dedup();
    sorts
}

/// The place of a value relative to an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
}

impl Relation {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::GreaterOrEqual => order.is_ge(),
            Self::Greater => order.is_gt(),
        }
    }

    fn negated(self) -> Self {
        match self {
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::GreaterOrEqual => Self::Less,
            Self::Greater => Self::LessOrEqual,
        }
    }
}

impl Condition {
    /// The opposite, for a value that is present.
    pub(crate) fn negated(self) -> Self {
        match self {
            Self::Is(relation, operand) => Self::Is(relation.negated(), operand),
            Self::In(operands) => Self::NotIn(operands),
            Self::NotIn(operands) => Self::In(operands),
            Self::Exists(wanted) => Self::Exists(!wanted),
            Self::Not(condition) => *condition,
            other => Self::Not(Box::new(other)),
        }
    }

    /// Whether a field that is not there fulfils this.
    pub(crate) fn matches_missing(&self) -> bool {
        matches!(self, Self::Exists(false))
    }

    pub(crate) fn matches(&self, value: &[u8], order: Order) -> bool {
        match self {
            Self::Is(relation, operand) => relation.holds(operand.compare(value, order)),
            Self::In(operands) => is_in(value, operands, order),
            Self::NotIn(operands) => !is_in(value, operands, order),
            Self::Exists(wanted) => *wanted,
            Self::Type(name) => name == Kind::of(value).name(),
            Self::Modulo { divisor, remainder } => {
                integer(value).is_some_and(|n| n.checked_rem(*divisor) == Some(*remainder))
            }
            Self::Regex(regex) => string(value).is_some_and(|text| regex.is_match(&text)),
            Self::BeginsWith(prefix) => string(value).is_some_and(|text| text.starts_with(prefix)),
            Self::All(operands) => elements(value).is_some_and(|_| has_all(value, operands)),
            Self::Size(length) => {
                elements(value).is_some_and(|elements| elements.count() as u64 == *length)
            }
            Self::ElemMatch(node) => elements(value)
                .is_some_and(|mut all| all.any(|element| node.matches(At::Value(element), order))),
            Self::AllMatch(node) => elements(value).is_some_and(|all| {
                let mut all = all.peekable();
                all.peek().is_some() && all.all(|e| node.matches(At::Value(e), order))
            }),
            Self::KeyMapMatch(node) => {
                Kind::of(value) == Kind::Object && any_key(value, node, order)
            }
            Self::Not(condition) => !condition.matches(value, order),
        }
    }
}

fn elements(value: &[u8]) -> Option<Elements<'_>> {
    (Kind::of(value) == Kind::Array).then(|| Elements::of(value))
}

/// Of an array it is the elements that are looked up, not the array.
fn is_in(value: &[u8], operands: &Operands, order: Order) -> bool {
    match elements(value) {
        Some(mut all) => all.any(|element| operands.hold(element, order)),
        None => operands.hold(value, order),
    }
}

/// Looks for operands to the letter: types of numbers and order of members included. Equal values have one text.
fn has_all(array: &[u8], operands: &[Operand]) -> bool {
    let is_element = |operand: &Operand| Elements::of(array).any(|e| e == operand.text);
    let is_the_operand =
        || matches!(operands, [operand] if operand.value.is_array() && operand.text == array);
    // `$all: []` matches nothing, as recorded.
    !operands.is_empty() && (operands.iter().all(is_element) || is_the_operand())
}

fn any_key(object: &[u8], node: &Node, order: Order) -> bool {
    let mut members = Members::of(object);
    let mut quoted = vec![];
    while let Some((name, value)) = members.name() {
        quoted.clear();
        quoted.push(b'"');
        quoted.extend_from_slice(name);
        quoted.push(b'"');
        if node.matches(At::Value(&quoted), order) {
            return true;
        }
        match document::json::skip::value(object, value) {
            Some(end) if members.go_on(end) => {}
            _ => return false,
        }
    }
    false
}
