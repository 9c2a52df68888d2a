use std::cmp::Ordering;

use regex::Regex;
use serde_json::Value;

use crate::collate::{identical, integer};
use crate::selector::Node;

/// How two values compare: collated, or byte by byte for ids.
pub(crate) type Compare = fn(&Value, &Value) -> Ordering;

/// What a value that is present has to fulfil.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    /// `$lt`, `$lte`, `$eq`, `$ne`, `$gte`, `$gt`.
    Is(Relation, Value),
    In(Vec<Value>),
    NotIn(Vec<Value>),
    Exists(bool),
    Type(String),
    Modulo {
        divisor: i128,
        remainder: i128,
    },
    Regex(Regex),
    BeginsWith(String),
    All(Vec<Value>),
    Size(u64),
    ElemMatch(Box<Node>),
    AllMatch(Box<Node>),
    KeyMapMatch(Box<Node>),
    Not(Box<Condition>),
}

/// The place of a value relative to an operand.
#[derive(Clone, Copy, Debug)]
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

    pub(crate) fn matches(&self, value: &Value, compare: Compare) -> bool {
        match self {
            Self::Is(relation, operand) => relation.holds(compare(value, operand)),
            Self::In(operands) => is_in(value, operands, compare),
            Self::NotIn(operands) => !is_in(value, operands, compare),
            Self::Exists(wanted) => *wanted,
            Self::Type(name) => name == type_name(value),
            Self::Modulo { divisor, remainder } => is_congruent(value, *divisor, *remainder),
            Self::Regex(regex) => value.as_str().is_some_and(|text| regex.is_match(text)),
            Self::BeginsWith(prefix) => value.as_str().is_some_and(|text| text.starts_with(prefix)),
            Self::All(operands) => value
                .as_array()
                .is_some_and(|elements| has_all(elements, operands)),
            Self::Size(length) => value
                .as_array()
                .is_some_and(|elements| elements.len() as u64 == *length),
            Self::ElemMatch(node) => value.as_array().is_some_and(|elements| {
                elements
                    .iter()
                    .any(|element| node.matches(element, compare))
            }),
            Self::AllMatch(node) => value.as_array().is_some_and(|elements| {
                !elements.is_empty()
                    && elements
                        .iter()
                        .all(|element| node.matches(element, compare))
            }),
            Self::KeyMapMatch(node) => value.as_object().is_some_and(|members| {
                members
                    .keys()
                    .any(|key| node.matches(&Value::String(key.clone()), compare))
            }),
            Self::Not(condition) => !condition.matches(value, compare),
        }
    }
}

/// Of an array it is the elements that are looked up, not the array.
fn is_in(value: &Value, operands: &[Value], compare: Compare) -> bool {
    let is_operand = |value: &Value| {
        operands
            .iter()
            .any(|operand| compare(value, operand).is_eq())
    };
    match value {
        Value::Array(elements) => elements.iter().any(is_operand),
        other => is_operand(other),
    }
}

fn has_all(elements: &[Value], operands: &[Value]) -> bool {
    let is_element = |operand: &Value| elements.iter().any(|element| identical(element, operand));
    let is_the_operand = || match operands {
        [Value::Array(operand)] => {
            operand.len() == elements.len()
                && operand
                    .iter()
                    .zip(elements)
                    .all(|(operand, element)| identical(operand, element))
        }
        _ => false,
    };
    // `$all: []` matches nothing, as recorded.
    !operands.is_empty() && (operands.iter().all(is_element) || is_the_operand())
}

fn is_congruent(value: &Value, divisor: i128, remainder: i128) -> bool {
    match value {
        Value::Number(number) => {
            integer(number).is_some_and(|number| number.checked_rem(divisor) == Some(remainder))
        }
        _ => false,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
