//! Requests that have an answer.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, Method, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::{Body, BodyError, NodeId};

/// A request.
#[derive(Debug)]
pub struct Call {
    /// What is done; `POST` unless a client's request is passed on.
    pub method: Method,
    /// Begins with `/`; may have a query.
    pub path: String,
    /// Those of connections are left out.
    pub headers: HeaderMap,
    /// What is sent along.
    pub body: Body,
}

impl Call {
    /// A `POST` without headers.
    pub fn new(path: impl Into<String>, body: impl Into<Body>) -> Call {
        Call {
            method: Method::POST,
            path: path.into(),
            headers: HeaderMap::new(),
            body: body.into(),
        }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    /// The status that the handler gave.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// What it sends. Dropped before its end, the request is cancelled.
    pub body: Body,
}

impl Reply {
    /// An answer with status 200 and without headers.
    pub fn ok(body: impl Into<Body>) -> Reply {
        Reply {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: body.into(),
        }
    }
}

/// A request that is not answered, and why.
#[derive(Clone, Debug, Error)]
#[error("{text} ({status})")]
pub struct Refusal {
    /// What kind of refusal.
    pub status: StatusCode,
    /// For people.
    pub text: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(status: StatusCode, text: impl Into<String>) -> Refusal {
        let text = text.into();
        Refusal { status, text }
    }
}

/// Why a call has no answer.
#[derive(Debug, Error)]
pub enum CallError {
    /// The request was **not sent**.
    #[error("node {node:x} cannot be reached: {why}")]
    Unreachable {
        /// Whom.
        node: NodeId,
        /// What the last attempt to connect came to.
        why: String,
    },
    /// No answer in time. The request was cancelled; it may have been done.
    #[error("node {node:x} did not answer within {after:?}")]
    TimedOut {
        /// Who.
        node: NodeId,
        /// The time it had.
        after: Duration,
    },
    /// The other side took the request and refused it.
    #[error("node {node:x} refused: {refusal}")]
    Refused {
        /// Who.
        node: NodeId,
        /// Why.
        refusal: Refusal,
    },
    /// The connection or the stream broke. The request may have been done.
    #[error("node {node:x} broke off: {why}")]
    Reset {
        /// Who.
        node: NodeId,
        /// What is known of it.
        why: String,
    },
}

/// Has a request's body end when the caller gives up: hyper would send on.
pub(crate) struct UntilDropped {
    body: Body,
    caller: oneshot::Receiver<()>,
}

/// Held by who waits for the answer or reads it.
pub(crate) struct Waiting(oneshot::Sender<()>);

impl UntilDropped {
    /// The body to send, and what keeps it going.
    pub fn wrap(body: Body) -> (Body, Waiting) {
        let (waiting, caller) = oneshot::channel();
        (Body::of(UntilDropped { body, caller }), Waiting(waiting))
    }
}

impl http_body::Body for UntilDropped {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.caller.poll_unpin(cx).is_ready() {
            let gone = BodyError::Broken("the caller gave up".into());
            return Poll::Ready(Some(Err(gone)));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer's body that keeps the request going.
pub(crate) struct Read {
    body: Body,
    waiting: Option<Waiting>,
}

impl Read {
    pub fn new(body: Body, waiting: Waiting) -> Read {
        let waiting = Some(waiting);
        Read { body, waiting }
    }
}

impl Drop for Read {
    /// A stream is reset when nobody holds a half of it. Who still sends the request holds one, and notices that nobody wants the
    /// answer when it may send more: which it may, mostly, once the other side has got rid of more of its answer.
    fn drop(&mut self) {
        let uploading = self.waiting.take().is_some_and(|w| !w.0.is_closed());
        if !uploading || self.body.is_end_stream() {
            return;
        }
        let mut body = std::mem::replace(&mut self.body, Body::empty());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { while let Some(Ok(_)) = body.next().await {} });
        }
    }
}

impl http_body::Body for Read {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
