use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use document::write_json_string;
use serde_json::Value;

use crate::compare::Order;
use crate::condition::{Condition, Relation};
use crate::error::SelectorError;
use crate::json::{Kind, member, shown, text_of};
use crate::lift::{Doc, FoundSpan, LiftedValue, Lifter};
use crate::limits::Limits;
use crate::parse::{self, Parsed};
use crate::path::FieldPath;
use crate::work::{self, TookTooLong};

/// A parsed and checked selector.
#[derive(Clone, Debug)]
pub struct Selector {
    pub(crate) root: SelectorNode,
    /// The fields of the root's conditions.
    pub(crate) lifter: Lifter,
    /// A condition concerns the document as a whole.
    needs_whole: bool,
    /// How many conditions it has, if these are few and quick.
    light_conditions: Option<usize>,
    memory_bytes: usize,
}

/// A node of a selector, evaluated for a document or, below `$elemMatch` and similar operators, for
/// an element.
#[derive(Clone, Debug)]
pub(crate) enum SelectorNode {
    /// Every node matches. Without nodes this matches everything.
    All(Vec<SelectorNode>),
    /// Any node matches. Without nodes this matches everything too, as in CouchDB.
    Any(Vec<SelectorNode>),
    /// The node does not match. Only below `$elemMatch` and similar operators: elsewhere negations
    /// are moved into the conditions.
    Not(Box<SelectorNode>),
    /// The field satisfies the condition.
    Field(Field, Condition),
    /// The value itself satisfies the condition.
    Here(Condition),
    /// `$text`, which restricts nothing without a text index: with one, its hits are evaluated.
    Text(TextNode),
    /// The empty selector.
    Everything,
}

/// A `$text` operator.
#[derive(Clone, Debug)]
pub(crate) struct TextNode {
    /// Its number in the selector, below [`TextHits::TEXTS_MAX`].
    pub number: usize,
    /// Its operand as text.
    pub operand: Box<[u8]>,
}

/// Maximum length of all operands of `$text` of a selector together, in bytes.
pub const TEXTS_BYTES_MAX: usize = 1 << 20;

/// The `$text` operators of a selector that a document matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextHits(u64);

impl TextHits {
    /// Maximum number of `$text` operators of a selector.
    pub const TEXTS_MAX: usize = u64::BITS as usize;
    /// A document that matches all.
    pub const ALL: TextHits = TextHits(u64::MAX);

    /// Removes the `$text` with this number.
    pub fn remove(&mut self, number: usize) {
        self.0 &= !(1 << number);
    }

    fn has(self, number: usize) -> bool {
        self.0 & (1 << number) != 0
    }
}

/// The field of a condition.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// As written, dotted.
    pub name: Arc<str>,
    pub path: FieldPath,
    /// The span of its value in the document or element.
    pub span: usize,
}

/// The selector of `$elemMatch` and similar operators, for elements or for names of members.
#[derive(Clone, Debug)]
pub(crate) struct ElementSelector {
    pub node: SelectorNode,
    /// The fields of its conditions.
    pub lifter: Lifter,
}

/// The subject of a node: a document, or an element of an array.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// Its fields, by span.
    found: &'a dyn Fn(usize) -> LiftedValue<'a>,
    /// `None` where only fields are known.
    whole: Option<&'a Whole<'a>>,
    /// The `$text` operators that it matches.
    texts: TextHits,
}

/// The text of a document or element, whose parts are joined when a condition needs it.
struct Whole<'a> {
    doc: &'a Doc<'a>,
    text: OnceCell<Cow<'a, [u8]>>,
}

impl<'a> Whole<'a> {
    fn of(doc: &'a Doc<'a>) -> Whole<'a> {
        Whole {
            doc,
            text: OnceCell::new(),
        }
    }

    /// Returns the text; `None` when the time is over.
    fn text(&self) -> Option<&[u8]> {
        if self.doc.members.is_empty() {
            return Some(self.doc.body);
        }
        if let Some(text) = self.text.get() {
            return Some(text);
        }
        if work::is_over(self.doc.body.len()) {
            return None;
        }
        Some(self.text.get_or_init(|| self.doc.text()))
    }
}

thread_local! {
    /// Reused for each document, and for the elements below it.
    static SPANS: RefCell<Vec<Vec<FoundSpan>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with a buffer that is reused.
fn with_spans<T>(work: impl FnOnce(&mut Vec<FoundSpan>) -> T) -> T {
    let mut spans = SPANS.with_borrow_mut(|free| free.pop()).unwrap_or_default();
    let done = work(&mut spans);
    SPANS.with_borrow_mut(|free| free.push(spans));
    done
}

/// To set a span or a branch takes about as long as to read this number of bytes.
const BYTES_PER_SPAN: usize = 16;

impl ElementSelector {
    /// Returns whether an element matches, or the time is over.
    pub fn any_matches<'a>(
        &self,
        mut elements: impl Iterator<Item = &'a [u8]>,
        order: Order,
    ) -> bool {
        with_spans(|spans| elements.any(|e| self.judge(e, order, spans) != Some(false)))
    }

    /// Returns whether all elements match; false when the time is over.
    pub fn all_match<'a>(
        &self,
        mut elements: impl Iterator<Item = &'a [u8]>,
        order: Order,
    ) -> bool {
        with_spans(|spans| elements.all(|e| self.judge(e, order, spans) == Some(true)))
    }

    /// Returns whether one element matches; `None` when the time is over.
    pub fn judge(&self, element: &[u8], order: Order, spans: &mut Vec<FoundSpan>) -> Option<bool> {
        let set_count = self.lifter.lift_value(element, spans);
        if work::is_over(element.len() + BYTES_PER_SPAN * set_count) {
            return None;
        }
        let doc = Doc::whole(element);
        let found = |span: usize| spans[span].of(&doc);
        let at = Subject {
            found: &found,
            whole: Some(&Whole::of(&doc)),
            texts: TextHits::ALL,
        };
        Some(self.node.matches(at, order))
    }
}

impl Selector {
    /// Parses a selector, with the default limits.
    ///
    /// # Errors
    /// Errors of [`Selector::parse_within`].
    pub fn parse(value: &Value) -> Result<Self, SelectorError> {
        Self::parse_within(value, &Limits::default())
    }

    /// Parses a selector.
    ///
    /// Negations are moved into the conditions, as CouchDB does: so `$ne`, `$not` and `$nor` never
    /// match a document without the field.
    ///
    /// # Errors
    ///
    /// Any [`SelectorError`] except those of `fields`.
    pub fn parse_within(value: &Value, limits: &Limits) -> Result<Self, SelectorError> {
        Self::read(&text_of(value), limits)
    }

    /// Parses a text in the normal form of [`document::normalise`], whose integers may have any
    /// length.
    ///
    /// # Errors
    ///
    /// Errors of [`Selector::parse_within`].
    pub fn read(text: &[u8], limits: &Limits) -> Result<Self, SelectorError> {
        let Parsed {
            root,
            lifter,
            memory_bytes,
        } = match Kind::of(text) {
            Kind::Object if text == b"{}" => Parsed {
                root: SelectorNode::Everything,
                lifter: Lifter::default(),
                memory_bytes: 0,
            },
            Kind::Object => parse::root(text, limits)?,
            _ => return Err(SelectorError::NotAnObject(shown(text))),
        };
        if matches!(root, SelectorNode::Here(_)) {
            return Err(SelectorError::MissingFieldName);
        }
        let mut left = LIGHT_CONDITIONS_MAX;
        let is_light = root.is_light(&mut left);
        Ok(Self {
            needs_whole: root.needs_whole(),
            light_conditions: is_light.then_some(LIGHT_CONDITIONS_MAX - left),
            root,
            lifter,
            memory_bytes,
        })
    }

    /// Parses the member `selector` of a request's body, an object in that normal form.
    ///
    /// # Errors
    ///
    /// Errors of [`Selector::parse_within`]; [`SelectorError::NotAnObject`] for a body without one.
    pub fn of_body(body: &[u8], limits: &Limits) -> Result<Self, SelectorError> {
        Self::read(member(body, "selector").unwrap_or(b"null"), limits)
    }

    /// Returns whether the document, with its `_id` and `_rev` as members, matches.
    pub fn matches(&self, document: &Value) -> bool {
        self.matches_doc(&Doc::whole(document.to_string().as_bytes())) == Ok(true)
    }

    /// Returns whether the selector matches a stored document.
    ///
    /// # Errors
    /// [`TookTooLong`].
    pub fn matches_doc(&self, doc: &Doc<'_>) -> Result<bool, TookTooLong> {
        self.matches_hit(doc, TextHits::ALL)
    }

    /// Returns whether the selector matches a stored document that has the words of these `$text` operators.
    ///
    /// # Errors
    /// [`TookTooLong`].
    pub fn matches_hit(&self, doc: &Doc<'_>, texts: TextHits) -> Result<bool, TookTooLong> {
        match &self.root {
            SelectorNode::Everything => Ok(true),
            SelectorNode::Text(text) => Ok(texts.has(text.number)),
            root => with_spans(|spans| {
                self.lifter.lift(doc, spans);
                let found = |span: usize| spans[span].of(doc);
                let at = Subject {
                    found: &found,
                    whole: Some(&Whole::of(doc)),
                    texts,
                };
                work::bounded(|| root.matches(at, Order::Collated))
            }),
        }
    }

    /// Whether the values of the fields in [`Selector::fields`], in that order, are those of a
    /// matching document. Not for a selector that [`Selector::needs_whole`].
    ///
    /// # Errors
    /// [`TookTooLong`].
    pub fn matches_found<'a>(
        &self,
        found: &'a dyn Fn(usize) -> LiftedValue<'a>,
    ) -> Result<bool, TookTooLong> {
        let at = Subject {
            found,
            whole: None,
            texts: TextHits::ALL,
        };
        work::bounded(|| self.root.matches(at, Order::Collated))
    }

    /// Returns whether a condition concerns the document as a whole, such as `$type` in `{"$or":
    /// [{"$type": "object"}, {"a": 1}]}`.
    pub fn needs_whole(&self) -> bool {
        self.needs_whole
    }

    /// Returns whether it contains `$text`.
    pub fn has_text(&self) -> bool {
        fn has_text(node: &SelectorNode) -> bool {
            match node {
                SelectorNode::All(nodes) | SelectorNode::Any(nodes) => nodes.iter().any(has_text),
                SelectorNode::Text(_) => true,
                _ => false,
            }
        }
        has_text(&self.root)
    }

    /// Returns the length of all operands of `$text` together, in bytes: at most
    /// [`TEXTS_BYTES_MAX`].
    pub fn texts_bytes(&self) -> usize {
        fn bytes(node: &SelectorNode) -> usize {
            match node {
                SelectorNode::All(nodes) | SelectorNode::Any(nodes) => {
                    nodes.iter().map(bytes).sum()
                }
                SelectorNode::Text(text) => text.operand.len(),
                _ => 0,
            }
        }
        bytes(&self.root)
    }

    /// Returns the `$text` operators below an `$or`: matching documents may lack their words. All
    /// others are in all matching documents.
    pub(crate) fn text_nodes_in_or(&self) -> Vec<&TextNode> {
        fn collect<'a>(node: &'a SelectorNode, is_in_or: bool, texts: &mut Vec<&'a TextNode>) {
            match node {
                SelectorNode::All(nodes) => nodes.iter().for_each(|n| collect(n, is_in_or, texts)),
                SelectorNode::Any(nodes) => {
                    let is_in_or = is_in_or || nodes.len() > 1;
                    nodes.iter().for_each(|n| collect(n, is_in_or, texts));
                }
                SelectorNode::Text(text) if is_in_or => texts.push(text),
                _ => {}
            }
        }
        let mut texts = vec![];
        collect(&self.root, false, &mut texts);
        texts
    }

    /// Returns the `$text` whose words every matching document has: a query that leaves one out finds
    /// documents that the selector does not test for it.
    pub(crate) fn required_texts(&self) -> Vec<&TextNode> {
        fn collect<'a>(node: &'a SelectorNode, texts: &mut Vec<&'a TextNode>) {
            match node {
                SelectorNode::All(nodes) => nodes.iter().for_each(|n| collect(n, texts)),
                SelectorNode::Any(nodes) if nodes.len() == 1 => collect(&nodes[0], texts),
                SelectorNode::Text(text) => texts.push(text),
                _ => {}
            }
        }
        let mut texts = vec![];
        collect(&self.root, &mut texts);
        texts
    }

    /// Returns about how much memory it takes, in bytes, with its compiled regular expressions, but
    /// without the caches of threads that match them.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Selector>() + self.memory_bytes
    }

    /// Returns whether evaluating a short document takes no longer than reading it, roughly.
    pub fn is_light(&self) -> bool {
        self.light_conditions.is_some()
    }

    /// Returns whether evaluating a document of this length is quick enough for a thread that serves
    /// requests.
    pub fn is_light_for(&self, document_bytes: usize) -> bool {
        let bytes = self
            .light_conditions
            .map(|n| n.saturating_mul(document_bytes));
        bytes.is_some_and(|bytes| bytes <= LIGHT_BYTES_MAX)
    }

    /// Returns the fields of conditions, without those below `$elemMatch` and similar operators;
    /// each once.
    pub fn fields(&self) -> &[FieldPath] {
        self.lifter.paths()
    }

    /// Returns these fields as they are written.
    pub fn field_names(&self) -> Vec<&str> {
        let mut names = vec![];
        collect_names(&self.root, &mut names);
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns whether this is the empty selector, which matches every document.
    pub fn is_everything(&self) -> bool {
        matches!(self.root, SelectorNode::Everything)
    }

    /// Returns whether the whole selector is an empty `$and`, `$or` or `$nor`. `_find` responds to
    /// it with an empty `docs` alone, as recorded; `_changes` passes every document.
    pub fn is_empty_combination(&self) -> bool {
        matches!(&self.root, SelectorNode::All(nodes) | SelectorNode::Any(nodes) if nodes.is_empty())
    }

    /// Appends the selector in CouchDB's normal form, as in `_explain`.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        self.root.write_json(out);
    }
}

/// Number of conditions that take about as long as reading a document.
const LIGHT_CONDITIONS_MAX: usize = 64;
/// Bytes that conditions read together in a few milliseconds; each reads a document once at most.
const LIGHT_BYTES_MAX: usize = 1 << 20;

impl SelectorNode {
    /// Returns whether the subject matches. The result does not count when the time is over.
    pub(crate) fn matches(&self, at: Subject<'_>, order: Order) -> bool {
        if work::is_over(0) {
            return false;
        }
        match self {
            Self::All(nodes) => nodes.iter().all(|node| node.matches(at, order)),
            Self::Any(nodes) => {
                nodes.is_empty() || nodes.iter().any(|node| node.matches(at, order))
            }
            Self::Not(node) => !node.matches(at, order),
            Self::Field(field, condition) => match (at.found)(field.span) {
                LiftedValue::Value(value) if field.path.is_id() => {
                    condition.matches(value, Order::Raw)
                }
                LiftedValue::Value(value) => condition.matches(value, order),
                LiftedValue::Missing => condition.matches_missing(),
                LiftedValue::NoWay => false,
            },
            Self::Here(condition) => {
                let text = at.whole.and_then(Whole::text);
                text.is_some_and(|text| condition.matches(text, order))
            }
            Self::Text(text) => at.texts.has(text.number),
            Self::Everything => true,
        }
    }

    fn needs_whole(&self) -> bool {
        match self {
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().any(SelectorNode::needs_whole),
            Self::Not(node) => node.needs_whole(),
            Self::Here(_) => true,
            Self::Field(..) | Self::Text(_) | Self::Everything => false,
        }
    }

    fn is_light(&self, left: &mut usize) -> bool {
        *left = left.saturating_sub(1);
        *left > 0
            && match self {
                Self::All(nodes) | Self::Any(nodes) => nodes.iter().all(|n| n.is_light(left)),
                Self::Not(node) => node.is_light(left),
                Self::Field(_, condition) | Self::Here(condition) => condition.is_light(),
                Self::Text(_) | Self::Everything => true,
            }
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::All(nodes) => write_list("$and", nodes, out),
            Self::Any(nodes) => write_list("$or", nodes, out),
            Self::Not(node) => write_object("$not", out, |out| node.write_json(out)),
            Self::Field(field, condition) => {
                write_object(&field.name, out, |out| condition.write_json(out));
            }
            Self::Here(condition) => write_object("", out, |out| condition.write_json(out)),
            Self::Text(text) => write_object("$default", out, |out| {
                write_object("$text", out, |out| out.extend_from_slice(&text.operand));
            }),
            Self::Everything => out.extend_from_slice(b"{}"),
        }
    }
}

impl Condition {
    fn write_json(&self, out: &mut Vec<u8>) {
        let text = |operator, text: &[u8], out: &mut _| {
            write_object(operator, out, |out: &mut Vec<u8>| {
                out.extend_from_slice(text)
            });
        };
        let string = |operator, text: &str, out: &mut _| {
            write_object(operator, out, |out| write_json_string(text, out));
        };
        let node = |operator, node: &SelectorNode, out: &mut _| {
            write_object(operator, out, |out| node.write_json(out));
        };
        match self {
            Self::Is(relation, operand) => text(relation.operator(), &operand.text, out),
            Self::In(operands) => text("$in", &operands.text, out),
            Self::NotIn(operands) => text("$nin", &operands.text, out),
            Self::Exists(wanted) => text("$exists", wanted.to_string().as_bytes(), out),
            Self::Type(name) => string("$type", name, out),
            Self::Modulo { divisor, remainder } => {
                text("$mod", format!("[{divisor},{remainder}]").as_bytes(), out);
            }
            Self::Regex(regex) => string("$regex", regex.as_str(), out),
            Self::BeginsWith(prefix) => string("$beginsWith", prefix, out),
            Self::All(operands) => text("$all", &operands.text, out),
            Self::Size(length) => text("$size", length.to_string().as_bytes(), out),
            Self::ElemMatch(below) => node("$elemMatch", &below.node, out),
            Self::AllMatch(below) => node("$allMatch", &below.node, out),
            Self::KeyMapMatch(below) => node("$keyMapMatch", &below.node, out),
            Self::Not(condition) => write_object("$not", out, |out| condition.write_json(out)),
        }
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

fn collect_names<'a>(node: &'a SelectorNode, names: &mut Vec<&'a str>) {
    match node {
        SelectorNode::All(nodes) | SelectorNode::Any(nodes) => {
            nodes.iter().for_each(|n| collect_names(n, names))
        }
        SelectorNode::Not(node) => collect_names(node, names),
        SelectorNode::Field(field, _) => names.push(&field.name),
        SelectorNode::Here(_) => names.push(""),
        SelectorNode::Text(_) | SelectorNode::Everything => {}
    }
}

fn write_object(name: &str, out: &mut Vec<u8>, value: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'{');
    write_json_string(name, out);
    out.push(b':');
    value(out);
    out.push(b'}');
}

fn write_list(operator: &str, nodes: &[SelectorNode], out: &mut Vec<u8>) {
    write_object(operator, out, |out| {
        out.push(b'[');
        for (i, node) in nodes.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            node.write_json(out);
        }
        out.push(b']');
    });
}
