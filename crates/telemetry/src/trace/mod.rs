//! Traces: the events of one request, over all servers that it reached.
//!
//! A [`Context`] is a place in a trace, as in the header `traceparent` (W3C Trace Context). A
//! [`Span`] is a finished piece of work, which is sent to the exporter set by [`export_to`].
//! Without an exporter, none is created.

mod context;
mod span;

pub use context::Context;
pub use span::{
    Export, FAILED, Kind, MADE, SENT, Span, SpanPart, Value, export, export_background, export_to,
    is_wanted, root, root_of,
};
