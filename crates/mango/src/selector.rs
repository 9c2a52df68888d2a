use serde_json::Value;

use crate::collate::{compare, compare_raw};
use crate::condition::{Compare, Condition};
use crate::error::SelectorError;
use crate::parse;
use crate::path::{FieldPath, Found};

/// A selector that has been read and checked.
#[derive(Clone, Debug)]
pub struct Selector {
    root: Node,
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
    /// The field at the path fulfils the condition.
    Field(FieldPath, Condition),
    /// The value itself fulfils the condition.
    Here(Condition),
    /// Matches: the empty selector and `$text`.
    Everything,
}

impl Selector {
    /// Reads a selector.
    ///
    /// Negations are moved into the conditions, as CouchDB does it: so `$ne`, `$not` and `$nor` never match a document that
    /// has not the field in question.
    ///
    /// # Errors
    ///
    /// Any [`SelectorError`] but those of `fields`.
    pub fn parse(value: &Value) -> Result<Self, SelectorError> {
        let root = match value {
            Value::Object(members) if members.is_empty() => Node::Everything,
            Value::Object(_) => parse::root(value)?,
            other => return Err(SelectorError::NotAnObject(other.clone())),
        };
        match root {
            Node::Here(_) => Err(SelectorError::MissingFieldName),
            // An empty `$and` or `$nor` that is the whole selector finds nothing, as recorded; further down it is no
            // restriction.
            Node::All(nodes) if nodes.is_empty() => Ok(Self {
                root: Node::Any(Vec::new()),
            }),
            root => Ok(Self { root }),
        }
    }

    /// Whether the document, with its `_id` and `_rev` as members, is asked for.
    pub fn matches(&self, document: &Value) -> bool {
        self.root.matches(document, compare)
    }

    /// Whether this is the empty selector, which matches every document.
    pub fn is_everything(&self) -> bool {
        matches!(self.root, Node::Everything)
    }

    /// Whether no document can match, because the whole selector is an empty `$and`, `$or` or `$nor`. `_find` then answers
    /// with `docs` alone.
    pub fn is_nothing(&self) -> bool {
        matches!(&self.root, Node::Any(nodes) if nodes.is_empty())
    }
}

impl Node {
    pub(crate) fn matches(&self, value: &Value, compare: Compare) -> bool {
        match self {
            Self::All(nodes) => nodes.iter().all(|node| node.matches(value, compare)),
            Self::Any(nodes) => nodes.iter().any(|node| node.matches(value, compare)),
            Self::Not(node) => !node.matches(value, compare),
            Self::Field(path, condition) => field_matches(path, condition, value, compare),
            Self::Here(condition) => condition.matches(value, compare),
            Self::Everything => true,
        }
    }
}

fn field_matches(path: &FieldPath, condition: &Condition, value: &Value, compare: Compare) -> bool {
    match path.find(value) {
        Found::Value(value) if path.is_id() => condition.matches(value, compare_raw),
        Found::Value(value) => condition.matches(value, compare),
        Found::Missing => condition.matches_missing(),
        Found::NoWay => false,
    }
}
