//! A request's place in a trace: from its `traceparent` header, or in a trace of its own.

use std::num::NonZeroU64;
use std::time::{Duration, SystemTime};

use config::settings::Tracing;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use metrics::End;
use telemetry::trace::{Context, Kind, Span, SpanPart, Value, export, is_wanted, root_of};

use super::completion::RequestFacts;
use super::slow;

/// The header of requests with their place in a trace.
pub const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// A request in a trace.
#[derive(Clone, Copy)]
pub struct Traced {
    context: Context,
    /// The client's span.
    parent: Option<NonZeroU64>,
    /// Whether it is exported only if it is slow or fails.
    if_slow: bool,
}

impl Traced {
    /// Returns the place of a request with these headers; `None` when it is in no trace and none is
    /// recorded.
    #[inline]
    pub fn of(headers: &HeaderMap, settings: &Tracing) -> Option<Traced> {
        let mut said = headers.get_all(TRACE_PARENT).iter();
        let said = match (said.next(), said.next()) {
            (None, _) if !is_wanted() => return None,
            (Some(one), None) => Context::parse(one.as_bytes()),
            // Two of them say nothing.
            _ => None,
        };
        match said {
            Some(parent) => Some(Traced {
                context: parent.child(),
                parent: Some(parent.span),
                if_slow: false,
            }),
            None => is_wanted().then(|| Traced {
                context: root_of(settings.sample_ratio),
                parent: None,
                if_slow: settings.always_slow,
            }),
        }
    }

    /// The trace as logs name it.
    pub fn id(&self) -> String {
        format!("{:032x}", self.context.trace)
    }

    /// Whether the client, or a collector, knows the trace already.
    pub fn is_known(&self) -> bool {
        self.parent.is_some() || self.context.is_sampled
    }

    /// The header for the client, and for servers that answer in this one's place: its own trace,
    /// or one that was started for it. `None` if this server does not export its part.
    pub fn header(self) -> Option<HeaderValue> {
        let is_told = is_wanted() && self.is_known();
        // Hexadecimal digits and dashes always make one.
        is_told.then(|| HeaderValue::from_str(&self.context.header()).ok())?
    }

    /// Exports the request's span when it has ended.
    pub fn report(&self, facts: &RequestFacts<'_>, end: End, bytes: u64, us: u64) {
        if !is_wanted() {
            return;
        }
        let numbers = &facts.numbers;
        let mut context = self.context;
        let is_slow = us >= numbers.slow_us && !numbers.route.has_its_own_pace();
        context.is_sampled |= self.if_slow && (is_slow || numbers.status >= 500);
        if context.is_sampled {
            export(self.span(context, facts, end, (bytes, us)));
        }
    }

    /// By the semantic conventions for HTTP servers, which want failures of the server alone to be failures of the span.
    fn span(
        &self,
        context: Context,
        facts: &RequestFacts<'_>,
        end: End,
        (bytes, us): (u64, u64),
    ) -> Span {
        let numbers = &facts.numbers;
        let mut attributes: Vec<(&'static str, Value)> = vec![
            ("http.request.method", method_name(facts.method).into()),
            ("http.route", numbers.route.name().into()),
            ("url.path", beginning(facts.path).to_owned().into()),
            ("http.request.body.size", numbers.bytes_received.into()),
            ("http.response.body.size", bytes.into()),
            ("settee.request_id", header_text(facts.id)),
        ];
        if numbers.status > 0 {
            let status = u64::from(numbers.status);
            attributes.push(("http.response.status_code", status.into()));
        }
        if let Some(peer) = facts.peer {
            attributes.push(("client.address", peer.to_string().into()));
        }
        if let Some(database) = facts.database() {
            attributes.push(("db.namespace", database.to_owned().into()));
        }
        if let Some(docs) = numbers.bulk_docs {
            attributes.push(("settee.documents", docs.into()));
        }
        if let Some(detail) = facts.detail {
            let find = detail.find.as_ref();
            attributes.extend(find.map(|f| ("settee.index", f.index_name().to_owned().into())));
            attributes.extend(detail.counts().map(|(name, n)| (attribute(name), n.into())));
        }
        let failed = match (numbers.status, end) {
            (500.., _) => Some(format!("status {}", numbers.status)),
            (_, End::Cut) => Some("cut".to_owned()),
            _ => None,
        };
        let happened = slow::happened(&numbers.timing, numbers.head_us, us);
        Span {
            name: format!("{} {}", method_name(facts.method), numbers.route.name()).into(),
            kind: Kind::Server,
            context,
            parent: self.parent,
            ended: SystemTime::now(),
            took: Duration::from_micros(us),
            attributes,
            parts: happened
                .map(|(name, us)| SpanPart {
                    name,
                    took: Duration::from_micros(us),
                })
                .collect(),
            failed,
        }
    }
}

/// Names of spans are few: an unknown method is not in one.
fn method_name(method: &str) -> &'static str {
    let known = ["GET", "HEAD", "PUT", "POST", "DELETE", "COPY", "OPTIONS"];
    let known = known.into_iter().find(|m| *m == method);
    known.unwrap_or("_OTHER")
}

/// Longest path in a span, in bytes: spans wait in memory.
const PATH_BYTES_MAX: usize = 1024;

fn beginning(path: &str) -> &str {
    &path[..path.floor_char_boundary(PATH_BYTES_MAX)]
}

fn attribute(count: &str) -> &'static str {
    match count {
        "keys" => "settee.keys",
        "rows" => "settee.rows",
        "docs_examined" => "settee.docs_examined",
        _ => "settee.keys_examined",
    }
}

fn header_text(value: &HeaderValue) -> Value {
    let text = value.to_str().unwrap_or_default();
    text.to_owned().into()
}
