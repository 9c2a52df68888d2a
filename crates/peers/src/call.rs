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
    /// The method; `POST` unless a client's request is forwarded.
    pub method: Method,
    /// Starts with `/`; may have a query.
    pub path: String,
    /// Headers of connections are left out.
    pub headers: HeaderMap,
    /// The request body.
    pub body: Body,
}

impl Call {
    /// Returns a `POST` without headers.
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
    /// The response body. If it is dropped before its end, the request is cancelled.
    pub body: Body,
}

impl Reply {
    /// Returns an answer with status 200 and without headers.
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
    /// The kind of refusal.
    pub status: StatusCode,
    /// For people.
    pub text: String,
}

impl Refusal {
    /// Returns a refusal.
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
        /// The node.
        node: NodeId,
        /// The result of the last attempt to connect.
        why: String,
    },
    /// No answer in time. The request was cancelled; it may have been done.
    #[error("node {node:x} did not answer within {after:?}")]
    TimedOut {
        /// The node.
        node: NodeId,
        /// The time it had.
        after: Duration,
    },
    /// The other side took the request and refused it.
    #[error("node {node:x} refused: {refusal}")]
    Refused {
        /// The node.
        node: NodeId,
        /// Why.
        refusal: Refusal,
    },
    /// The connection or the stream broke. The request may have been done.
    #[error("node {node:x} broke off: {why}")]
    Reset {
        /// The node.
        node: NodeId,
        /// The reason, if known.
        why: String,
    },
}

/// Ends a request's body when the caller gives up: hyper would continue to send it.
pub(crate) struct UntilDropped {
    body: Body,
    caller: oneshot::Receiver<()>,
}

/// Held while a client waits for the response or reads it.
pub(crate) struct PendingCall(oneshot::Sender<()>);

impl UntilDropped {
    /// Returns the body to send, and what keeps it going.
    pub fn wrap(body: Body) -> (Body, PendingCall) {
        let (waiting, caller) = oneshot::channel();
        (
            Body::of(UntilDropped { body, caller }),
            PendingCall(waiting),
        )
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
    waiting: Option<PendingCall>,
}

impl Read {
    pub fn new(body: Body, waiting: PendingCall) -> Read {
        let waiting = Some(waiting);
        Read { body, waiting }
    }
}

impl Drop for Read {
    /// A stream is reset when both halves are dropped. The task that still sends the request holds
    /// one, and notices that the answer is no longer needed when it may send more: usually once the
    /// other side has sent more of its answer.
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
