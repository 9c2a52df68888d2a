//! Work that is done, and who is told of it.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use super::Context;
use crate::Counter;

/// What part this process had in the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It answered somebody's request.
    Server,
    /// It asked another server.
    Client,
    /// Nobody else was there.
    Internal,
}

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(u64),
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text.into())
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Value {
        Value::Text(text.into())
    }
}

/// A part of a span, by how long it took. When it began was not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanPart {
    /// What was done.
    pub name: &'static str,
    /// How long it took in all.
    pub took: Duration,
}

/// A piece of work that is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// What was done.
    pub name: Cow<'static, str>,
    /// What part this process had in it.
    pub kind: Kind,
    /// Its place.
    pub context: Context,
    /// The span that it belongs to.
    pub parent: Option<NonZeroU64>,
    /// When it ended.
    pub ended: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// What else is known of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// What it consisted of, in the order in which it began.
    pub parts: Vec<SpanPart>,
    /// Why it failed.
    pub failed: Option<String>,
}

/// Who is told of spans.
pub trait Export: Send + Sync {
    /// The share of the traces of the server's own work that is to be told.
    fn ratio(&self) -> f64;
    /// Takes a span. It must not wait.
    fn export(&self, span: Span);
}

/// Spans that were told, parts of others included.
pub static MADE: Counter = Counter::new();
/// Spans that were taken by whom they were sent to.
pub static SENT: Counter = Counter::new();
/// Spans that could not be sent.
pub static FAILED: Counter = Counter::new();

static EXPORT: OnceLock<Box<dyn Export>> = OnceLock::new();

/// From now on spans are told. The first call counts, for as long as the process lives.
pub fn export_to(to: Box<dyn Export>) {
    // A second one changes nothing.
    let _ = EXPORT.set(to);
}

/// Whether anybody wants spans.
#[inline]
pub fn is_wanted() -> bool {
    EXPORT.get().is_some()
}

/// The beginning of a trace of work of the server's own, if anybody wants spans.
pub fn root() -> Option<Context> {
    EXPORT.get().map(|to| root_of(to.ratio()))
}

/// The beginning of a trace of which this share is told.
pub fn root_of(ratio: f64) -> Context {
    Context::root(fastrand::f64() < ratio)
}

/// Work of the background that took less is not worth a trace.
const BACKGROUND_MIN: Duration = Duration::from_millis(100);

/// Tells of work that nobody asked for, and that is done now, if it took long enough to matter.
pub fn export_background(
    name: &'static str,
    began: Instant,
    attributes: impl FnOnce() -> Vec<(&'static str, Value)>,
    failed: Option<String>,
) {
    let took = began.elapsed();
    if !is_wanted() || took < BACKGROUND_MIN {
        return;
    }
    export(Span {
        name: name.into(),
        kind: Kind::Internal,
        context: Context::root(true),
        parent: None,
        ended: SystemTime::now(),
        took,
        attributes: attributes(),
        parts: Vec::new(),
        failed,
    });
}

/// Tells of a span, if anybody wants spans and its trace is sampled.
pub fn export(span: Span) {
    if let Some(to) = EXPORT.get().filter(|_| span.context.is_sampled) {
        to.export(span);
    }
}
