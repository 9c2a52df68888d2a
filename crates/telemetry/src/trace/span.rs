//! Finished work, and its exporter.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use super::Context;
use crate::Counter;

/// The role of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It answered a request.
    Server,
    /// It sent a request to another server.
    Client,
    /// No other process was involved.
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
    /// The kind of work.
    pub name: &'static str,
    /// The total duration.
    pub took: Duration,
}

/// A piece of work that is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The kind of work.
    pub name: Cow<'static, str>,
    /// The role of this process.
    pub kind: Kind,
    /// Its place.
    pub context: Context,
    /// The span that it belongs to.
    pub parent: Option<NonZeroU64>,
    /// When it ended.
    pub ended: SystemTime,
    /// The duration.
    pub took: Duration,
    /// Further attributes.
    pub attributes: Vec<(&'static str, Value)>,
    /// Its parts, in the order of their start.
    pub parts: Vec<SpanPart>,
    /// Why it failed.
    pub failed: Option<String>,
}

/// An exporter of spans.
pub trait Export: Send + Sync {
    /// Returns the share of the traces of the server's own work to export.
    fn ratio(&self) -> f64;
    /// Takes a span. It must not wait.
    fn export(&self, span: Span);
}

/// Spans exported, including parts of others.
pub static MADE: Counter = Counter::new();
/// Spans that the receiver accepted.
pub static SENT: Counter = Counter::new();
/// Spans that could not be sent.
pub static FAILED: Counter = Counter::new();

static EXPORT: OnceLock<Box<dyn Export>> = OnceLock::new();

/// Exports spans from now on. Only the first call has an effect, for the lifetime of the process.
pub fn export_to(to: Box<dyn Export>) {
    // A second one changes nothing.
    let _ = EXPORT.set(to);
}

/// Returns whether spans are exported.
#[inline]
pub fn is_wanted() -> bool {
    EXPORT.get().is_some()
}

/// Creates the root of a trace of the server's own work, if spans are exported.
pub fn root() -> Option<Context> {
    EXPORT.get().map(|to| root_of(to.ratio()))
}

/// Creates the root of a trace of which this share is exported.
pub fn root_of(ratio: f64) -> Context {
    Context::root(fastrand::f64() < ratio)
}

/// Work of the background that took less is not worth a trace.
const BACKGROUND_MIN: Duration = Duration::from_millis(100);

/// Exports background work that has just finished, if its duration reaches the threshold.
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

/// Exports a span, if spans are exported and its trace is sampled.
pub fn export(span: Span) {
    if let Some(to) = EXPORT.get().filter(|_| span.context.is_sampled) {
        to.export(span);
    }
}
