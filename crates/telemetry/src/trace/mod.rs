//! Traces: what happened for one request, over all servers that it came to.
//!
//! A [`Context`] is a place in a trace, as the header `traceparent` says it (W3C Trace Context). A [`Span`] is a piece of work that
//! is done, told to whoever [`export_to`] named. While nobody is named, nothing is made.

mod context;
mod span;

pub use context::Context;
pub use span::{
    Export, FAILED, Kind, MADE, SENT, Span, SpanPart, Value, export, export_background, export_to,
    is_wanted, root, root_of,
};
