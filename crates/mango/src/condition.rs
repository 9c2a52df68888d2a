use std::cmp::Ordering;
use std::sync::OnceLock;

use crate::compare::{Operand, Order};
use crate::json::{self, Elements, Kind, MemberIter, string};
use crate::pcre::Pattern;
use crate::selector::ElementSelector;
use crate::work;

/// A condition on a value that is present.
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
    Regex(Pattern),
    BeginsWith(String),
    All(Literals),
    Size(u64),
    ElemMatch(Box<ElementSelector>),
    AllMatch(Box<ElementSelector>),
    KeyMapMatch(Box<ElementSelector>),
    Not(Box<Condition>),
}

/// The operands of `$in` and `$nin`, prepared for lookups.
#[derive(Clone, Debug)]
pub(crate) struct Operands {
    /// The array's text.
    pub text: Box<[u8]>,
    /// Their sort keys, in ascending order.
    pub sorts: Vec<Box<[u8]>>,
    /// Their keys in the order of ids, sorted.
    raws: OnceLock<Vec<Box<[u8]>>>,
}

impl Operands {
    /// Creates them from a normalised array text.
    pub fn new(text: &[u8]) -> Operands {
        Operands {
            sorts: sorted(text, Order::Collated),
            raws: OnceLock::new(),
            text: text.into(),
        }
    }

    pub fn values(&self) -> Elements<'_> {
        Elements::of(&self.text)
    }

    fn hold(&self, text: &[u8], order: Order) -> bool {
        let sorts = match order {
            Order::Collated => &self.sorts,
            Order::Raw => self.raws.get_or_init(|| sorted(&self.text, order)),
        };
        if sorts.is_empty() {
            return false;
        }
        order.with_key(text, |key| {
            sorts.binary_search_by(|s| (**s).cmp(key)).is_ok()
        })
    }
}

fn sorted(array: &[u8], order: Order) -> Vec<Box<[u8]>> {
    let mut sorts: Vec<Box<[u8]>> = Elements::of(array)
        .map(|value| {
            let mut key = vec![];
            order.write(value, &mut key);
            key.into_boxed_slice()
        })
        .collect();
    sorts.sort_unstable();
    sorts.dedup();
    sorts
}

/// The operands of `$all`, which are compared literally, including types of numbers and order of
/// members. Equal values have equal texts.
#[derive(Clone, Debug)]
pub(crate) struct Literals {
    /// The array's text.
    pub text: Box<[u8]>,
    /// The texts of the values, sorted and without duplicates.
    sorted: Vec<Box<[u8]>>,
}

impl Literals {
    /// Creates them from a normalised array text.
    pub fn new(text: &[u8]) -> Literals {
        let mut sorted: Vec<Box<[u8]>> = Elements::of(text).map(Into::into).collect();
        sorted.sort_unstable();
        sorted.dedup();
        Literals {
            text: text.into(),
            sorted,
        }
    }

    /// Returns whether all of them are elements of the array; or the only one is an array, and
    /// equals this one.
    fn are_in(&self, array: &[u8]) -> bool {
        // `$all: []` matches nothing, as recorded.
        let mut missing = self.sorted.len();
        if missing == 0 || work::is_over(missing) {
            return false;
        }
        let mut found = vec![false; missing];
        for element in Elements::of(array) {
            if let Ok(i) = self.sorted.binary_search_by(|own| (**own).cmp(element))
                && !std::mem::replace(&mut found[i], true)
            {
                missing -= 1;
                if missing == 0 {
                    return true;
                }
            }
        }
        self.text
            .strip_prefix(b"[")
            .and_then(|t| t.strip_suffix(b"]"))
            == Some(array)
    }
}

/// The relation of a value to an operand.
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
    /// Returns the opposite, for a value that is present.
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

    /// Returns whether a missing field matches.
    pub(crate) fn matches_missing(&self) -> bool {
        matches!(self, Self::Exists(false))
    }

    /// Returns whether evaluating it takes no longer than reading the value, roughly.
    pub(crate) fn is_light(&self) -> bool {
        match self {
            Self::Regex(_) | Self::ElemMatch(_) | Self::AllMatch(_) | Self::KeyMapMatch(_) => false,
            Self::Not(condition) => condition.is_light(),
            _ => true,
        }
    }

    pub(crate) fn matches(&self, value: &[u8], order: Order) -> bool {
        if work::is_over(value.len()) {
            return false;
        }
        match self {
            Self::Is(relation, operand) => relation.holds(operand.compare(value, order)),
            Self::In(operands) => is_in(value, operands, order),
            Self::NotIn(operands) => !is_in(value, operands, order),
            Self::Exists(wanted) => *wanted,
            Self::Type(name) => name == Kind::of(value).name(),
            Self::Modulo { divisor, remainder } => {
                Kind::of(value) == Kind::Number
                    && json::remainder(value, *divisor) == Some(*remainder)
            }
            Self::Regex(regex) => string(value).is_some_and(|text| regex.is_match(&text)),
            Self::BeginsWith(prefix) => string(value).is_some_and(|text| text.starts_with(prefix)),
            Self::All(operands) => Kind::of(value) == Kind::Array && operands.are_in(value),
            Self::Size(length) => {
                elements(value).is_some_and(|elements| elements.count() as u64 == *length)
            }
            Self::ElemMatch(below) => {
                elements(value).is_some_and(|all| below.any_matches(all, order))
            }
            Self::AllMatch(below) => elements(value).is_some_and(|all| {
                let mut all = all.peekable();
                all.peek().is_some() && below.all_match(all, order)
            }),
            Self::KeyMapMatch(below) => {
                Kind::of(value) == Kind::Object
                    && work::without_keys(|| any_key(value, below, order))
            }
            Self::Not(condition) => !condition.matches(value, order),
        }
    }
}

fn elements(value: &[u8]) -> Option<Elements<'_>> {
    (Kind::of(value) == Kind::Array).then(|| Elements::of(value))
}

/// For an array the elements are looked up, not the array.
fn is_in(value: &[u8], operands: &Operands, order: Order) -> bool {
    match elements(value) {
        Some(mut all) => {
            all.any(|element| work::is_over(element.len()) || operands.hold(element, order))
        }
        None => operands.hold(value, order),
    }
}

fn any_key(object: &[u8], below: &ElementSelector, order: Order) -> bool {
    let mut members = MemberIter::of(object);
    let (mut quoted, mut spans) = (vec![], vec![]);
    while let Some((name, value)) = members.name() {
        quoted.clear();
        quoted.push(b'"');
        quoted.extend_from_slice(name);
        quoted.push(b'"');
        if below.judge(&quoted, order, &mut spans) != Some(false) {
            return true;
        }
        match document::json::skip::value(object, value) {
            Some(end) if members.go_on(end) => {}
            _ => return false,
        }
    }
    false
}
