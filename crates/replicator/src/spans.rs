//! Traces of replications: a span for each piece of work, and one for each request to another
//! server, which receives the trace context.

use std::cell::Cell;
use std::future::Future;
use std::time::{Instant, SystemTime};

use reqwest::Request;
use reqwest::header::{HeaderName, HeaderValue};
use telemetry::trace::{Context, Kind, Span, Value, export, root};

use crate::error::Error;

const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

tokio::task_local! {
    /// The trace context of the task.
    static CURRENT: Context;
}

/// A span of a replication's work.
pub struct TaskSpan {
    name: &'static str,
    replication: String,
    changes: Cell<Option<u64>>,
}

impl TaskSpan {
    /// Creates a span for the replication with this id.
    pub fn of(name: &'static str, replication: &str) -> TaskSpan {
        TaskSpan {
            name,
            replication: replication.to_owned(),
            changes: Cell::new(None),
        }
    }

    /// Records the number of changes.
    pub fn of_changes(&self, count: usize) {
        self.changes.set(Some(count as u64));
    }
}

/// Runs work as the root of a trace, if traces are exported.
pub async fn record<T>(
    work: TaskSpan,
    does: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let Some(context) = root() else {
        return does.await;
    };
    let began = Instant::now();
    let result = CURRENT.scope(context, does).await;
    let mut attributes = vec![("settee.replication", Value::from(work.replication))];
    let changes = work.changes.get();
    attributes.extend(changes.map(|count| ("settee.changes", count.into())));
    export(Span {
        name: work.name.into(),
        kind: Kind::Internal,
        context,
        parent: None,
        ended: SystemTime::now(),
        took: began.elapsed(),
        attributes,
        parts: Vec::new(),
        // Only its name: the rest may be another server's text.
        failed: result.as_ref().err().map(|e| e.name().to_owned()),
    });
    result
}

/// A request to another server, as part of the task's work.
pub struct RequestSpan {
    context: Context,
    parent: Context,
    began: Instant,
    method: String,
    host: String,
    path: String,
}

impl RequestSpan {
    /// Adds the trace context to a request.
    pub fn of(request: &mut Request) -> Option<RequestSpan> {
        let parent = CURRENT.try_with(|current| *current).ok()?;
        let context = parent.child();
        let header = HeaderValue::from_str(&context.header()).ok()?;
        request.headers_mut().insert(TRACE_PARENT, header);
        // Neither credentials nor parameters: those are in other parts of the URL.
        let url = request.url();
        Some(RequestSpan {
            context,
            parent,
            began: Instant::now(),
            method: request.method().to_string(),
            host: url.host_str().unwrap_or_default().to_owned(),
            path: url.path().to_owned(),
        })
    }

    /// Records the status of the response.
    pub fn answered(&self, status: u16) {
        let failed = (status >= 400).then(|| format!("status {status}"));
        self.tell(Some(status), failed);
    }

    /// Records that there is no response.
    pub fn failed(&self, why: String) {
        self.tell(None, Some(why));
    }

    fn tell(&self, status: Option<u16>, failed: Option<String>) {
        if !self.context.is_sampled {
            return;
        }
        let mut attributes: Vec<(&'static str, Value)> = vec![
            ("http.request.method", self.method.clone().into()),
            ("server.address", self.host.clone().into()),
            ("url.path", self.path.clone().into()),
        ];
        let status = status.map(|status| ("http.response.status_code", u64::from(status).into()));
        attributes.extend(status);
        export(Span {
            name: self.method.clone().into(),
            kind: Kind::Client,
            context: self.context,
            parent: Some(self.parent.span),
            ended: SystemTime::now(),
            took: self.began.elapsed(),
            attributes,
            parts: Vec::new(),
            failed,
        });
    }
}
