use std::cell::RefCell;

use serde_json::{Map, Value, json};

use crate::compare::Order;
use crate::condition::{Condition, Relation};
use crate::error::SelectorError;
use crate::lift::{Doc, Found, Lifter, Slot};
use crate::limits::Limits;
use crate::parse;
use crate::path::FieldPath;

/// A selector that has been read and checked.
#[derive(Clone, Debug)]
pub struct Selector {
    pub(crate) root: Node,
    /// The fields that the root's conditions are about.
    pub(crate) lifter: Lifter,
    /// Finds nothing, whatever `root` says.
    nothing: bool,
}

/// A part of a selector, judged against a document or, below `$elemMatch` and its like, against an element.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// Every node matches. Without nodes this matches everything.
    All(Vec<Node>),
    /// Any node matches. Without nodes this matches nothing.
    Any(Vec<Node>),
    /// The node does not match. Only below `$elemMatch` and its like: elsewhere negations are moved into the conditions.
    Not(Box<Node>),
    /// The field fulfils the condition.
    Field(Field, Condition),
    /// The value itself fulfils the condition.
    Here(Condition),
    /// `$text`, which restricts nothing without a text index.
    Text(Value),
    /// The empty selector.
    Everything,
}

/// A field that a condition is about.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// As it is written, dotted.
    pub name: String,
    pub path: FieldPath,
    /// Where the document's lifted value is; `None` below `$elemMatch` and its like.
    pub slot: Option<usize>,
}

/// What a node is judged against.
#[derive(Clone, Copy)]
pub(crate) enum At<'a> {
    /// A document whose fields were found, by slot.
    Slots(&'a dyn Fn(usize) -> Found<'a>),
    /// A value.
    Value(&'a [u8]),
}

thread_local! {
    /// Used again for each document.
    static SLOTS: RefCell<Vec<Slot>> = const { RefCell::new(Vec::new()) };
}

impl Selector {
    /// Reads a selector, with the default limits.
    ///
    /// # Errors
    /// As [`Selector::parse_within`].
    pub fn parse(value: &Value) -> Result<Self, SelectorError> {
        Self::parse_within(value, &Limits::default())
    }

    /// Reads a selector.
    ///
    /// Negations are moved into the conditions, as CouchDB does it: so `$ne`, `$not` and `$nor` never match a document that
    /// has not the field in question.
    ///
    /// # Errors
    ///
    /// Any [`SelectorError`] but those of `fields`.
    pub fn parse_within(value: &Value, limits: &Limits) -> Result<Self, SelectorError> {
        let (root, lifter) = match value {
            Value::Object(members) if members.is_empty() => (Node::Everything, Lifter::default()),
            Value::Object(_) => parse::root(value, limits)?,
            other => return Err(SelectorError::NotAnObject(other.clone())),
        };
        if matches!(root, Node::Here(_)) {
            return Err(SelectorError::MissingFieldName);
        }
        // An empty `$and`, `$or` or `$nor` that is the whole selector finds nothing, as recorded; further down an empty
        // `$and` is no restriction.
        let nothing = matches!(&root, Node::All(nodes) | Node::Any(nodes) if nodes.is_empty());
        Ok(Self {
            root,
            lifter,
            nothing,
        })
    }

    /// Whether the document, with its `_id` and `_rev` as members, is asked for.
    pub fn matches(&self, document: &Value) -> bool {
        self.matches_doc(&Doc::whole(document.to_string().as_bytes()))
    }

    /// Whether a stored document is asked for.
    pub fn matches_doc(&self, doc: &Doc<'_>) -> bool {
        match &self.root {
            _ if self.nothing => false,
            Node::Everything | Node::Text(_) => true,
            root => SLOTS.with_borrow_mut(|slots| {
                self.lifter.lift(doc, slots);
                let found = |slot: usize| slots[slot].of(doc);
                root.matches(At::Slots(&found), Order::Collated)
            }),
        }
    }

    /// Whether the values of the fields in [`Selector::fields`], in that order, are those of a document that is asked for.
    pub fn matches_found<'a>(&self, found: &'a dyn Fn(usize) -> Found<'a>) -> bool {
        !self.nothing && self.root.matches(At::Slots(found), Order::Collated)
    }

    /// The fields that conditions are about, without those below `$elemMatch` and its like; each once.
    pub fn fields(&self) -> &[FieldPath] {
        self.lifter.paths()
    }

    /// The same fields as they are written.
    pub(crate) fn field_names(&self) -> Vec<&str> {
        let mut names = vec![];
        collect_names(&self.root, &mut names);
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Whether this is the empty selector, which matches every document.
    pub fn is_everything(&self) -> bool {
        matches!(self.root, Node::Everything)
    }

    /// Whether no document can match, because the whole selector is an empty `$and`, `$or` or `$nor`. `_find` then answers
    /// with `docs` alone.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// The selector in CouchDB's normal form, as `_explain` shows it.
    pub fn to_json(&self) -> Value {
        self.root.to_json()
    }
}

impl Node {
    pub(crate) fn matches(&self, at: At<'_>, order: Order) -> bool {
        match self {
            Self::All(nodes) => nodes.iter().all(|node| node.matches(at, order)),
            Self::Any(nodes) => nodes.iter().any(|node| node.matches(at, order)),
            Self::Not(node) => !node.matches(at, order),
            Self::Field(field, condition) => {
                let found = match (at, field.slot) {
                    (At::Slots(found), Some(slot)) => found(slot),
                    (At::Value(value), _) => field.path.find(value),
                    (At::Slots(_), None) => Found::NoWay,
                };
                match found {
                    Found::Value(value) if field.path.is_id() => {
                        condition.matches(value, Order::Raw)
                    }
                    Found::Value(value) => condition.matches(value, order),
                    Found::Missing => condition.matches_missing(),
                    Found::NoWay => false,
                }
            }
            Self::Here(condition) => match at {
                At::Value(value) => condition.matches(value, order),
                At::Slots(_) => false,
            },
            Self::Text(_) | Self::Everything => true,
        }
    }

    fn to_json(&self) -> Value {
        let list = |nodes: &[Node]| Value::Array(nodes.iter().map(Node::to_json).collect());
        match self {
            Self::All(nodes) => json!({"$and": list(nodes)}),
            Self::Any(nodes) => json!({"$or": list(nodes)}),
            Self::Not(node) => json!({"$not": node.to_json()}),
            Self::Field(field, condition) => object(&field.name, condition.to_json()),
            Self::Here(condition) => object("", condition.to_json()),
            Self::Text(text) => json!({"$default": {"$text": text}}),
            Self::Everything => json!({}),
        }
    }
}

impl Condition {
    fn to_json(&self) -> Value {
        let (operator, operand) = match self {
            Self::Is(relation, operand) => (relation.operator(), operand.value.clone()),
            Self::In(operands) => ("$in", Value::Array(operands.values.clone())),
            Self::NotIn(operands) => ("$nin", Value::Array(operands.values.clone())),
            Self::Exists(wanted) => ("$exists", Value::Bool(*wanted)),
            Self::Type(name) => ("$type", Value::from(name.as_str())),
            // Both were read from 64-bit integers.
            Self::Modulo { divisor, remainder } => {
                ("$mod", json!([*divisor as i64, *remainder as i64]))
            }
            Self::Regex(regex) => ("$regex", Value::from(regex.as_str())),
            Self::BeginsWith(prefix) => ("$beginsWith", Value::from(prefix.as_str())),
            Self::All(operands) => {
                let values = operands.iter().map(|o| o.value.clone());
                ("$all", Value::Array(values.collect()))
            }
            Self::Size(length) => ("$size", Value::from(*length)),
            Self::ElemMatch(node) => ("$elemMatch", node.to_json()),
            Self::AllMatch(node) => ("$allMatch", node.to_json()),
            Self::KeyMapMatch(node) => ("$keyMapMatch", node.to_json()),
            Self::Not(condition) => ("$not", condition.to_json()),
        };
        object(operator, operand)
    }
}

impl Relation {
    fn operator(self) -> &'static str {
        match self {
            Self::Less => "$lt",
            Self::LessOrEqual => "$lte",
            Self::Equal => "$eq",
            Self::NotEqual => "$ne",
            Self::GreaterOrEqual => "$gte",
            Self::Greater => "$gt",
        }
    }
}

fn collect_names<'a>(node: &'a Node, names: &mut Vec<&'a str>) {
    match node {
        Node::All(nodes) | Node::Any(nodes) => nodes.iter().for_each(|n| collect_names(n, names)),
        Node::Not(node) => collect_names(node, names),
        Node::Field(field, _) => names.push(&field.name),
        Node::Here(_) | Node::Text(_) | Node::Everything => {}
    }
}

fn object(name: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}
