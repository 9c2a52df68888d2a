//! Bodies that pass through while they are copied, up to a limit.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::class;
use super::entry::{BODY_BYTES_MAX, Entry, Named};
use super::recorder::Recorder;
use super::secrets::{self, Shown};

/// A copy of a body.
#[derive(Debug, Default)]
struct Copied {
    bytes: Vec<u8>,
    is_too_long: bool,
    is_whole: bool,
}

impl Copied {
    fn take(&mut self, piece: &[u8]) {
        if self.is_too_long || self.bytes.len() + piece.len() > BODY_BYTES_MAX {
            self.is_too_long = true;
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(piece);
        }
    }
}

/// A request on its way, and its answer.
pub(super) struct Exchange {
    recorder: Arc<Recorder>,
    entry: Entry,
    content_type: String,
    is_compressed: bool,
    /// Whether the answer's body names revisions.
    wants_answer: bool,
    request: Copied,
    answer: Copied,
}

impl Exchange {
    pub(super) fn new(recorder: Arc<Recorder>, entry: Entry, is_compressed: bool) -> Self {
        let content_type = entry
            .headers
            .iter()
            .find(|(name, _)| name == "content-type");
        let content_type = content_type.map(|(_, value)| value.to_lowercase());
        Self {
            recorder,
            content_type: content_type.unwrap_or_default(),
            wants_answer: matches!(
                class::of(&entry.method, &entry.path),
                "document_write" | "document_delete" | "attachment_write" | "bulk_docs"
            ),
            entry,
            is_compressed,
            request: Copied::default(),
            answer: Copied::default(),
        }
    }

    /// The answer's head. `etag` is the header of that name.
    pub(super) fn answered(&mut self, status: u16, etag: Option<&str>) {
        self.entry.status = status;
        self.wants_answer &= (200..300).contains(&status);
        // A document's ETag is its revision. Of a view it is something else, which no later request names.
        let rev = etag.and_then(revision).filter(|_| status == 200);
        let path = self.entry.path.split('?').next().unwrap_or_default();
        let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        if let (Some(rev), [_, id @ ..]) = (rev, segments.as_slice())
            && !id.is_empty()
            && matches!(&*self.entry.method, "GET" | "HEAD")
        {
            self.entry.named = vec![Named {
                id: percent_encoding::percent_decode_str(&id.join("/"))
                    .decode_utf8_lossy()
                    .into_owned(),
                rev: Some(rev.to_owned()),
            }];
        }
    }

    /// Writes the request down, or counts why not.
    fn end(&mut self, is_whole: bool) {
        let reason = secrets::reason(&Shown {
            method: &self.entry.method,
            path: &self.entry.path,
            content_type: &self.content_type,
            is_compressed: self.is_compressed,
            body: &self.request.bytes,
        });
        let reason = match reason {
            // An incomplete body cannot be checked.
            None if self.request.is_too_long => Some("a body of more than 8 MiB"),
            None if !self.request.is_whole => Some("a body that was not sent to its end"),
            None if self.entry.status == 0 => Some("no answer from the server"),
            reason => reason,
        };
        if let Some(reason) = reason {
            self.recorder.leave_out(reason);
            return;
        }
        let took = self.recorder.now_us().saturating_sub(self.entry.at_us);
        self.entry.took_us = took;
        self.entry.aborted = !is_whole;
        self.entry.set_body(std::mem::take(&mut self.request.bytes));
        if self.wants_answer {
            self.entry.named = named(&self.answer.bytes);
        }
        self.recorder.write(&self.entry);
    }
}

/// A document's revision in an ETag: a generation, a hyphen and a hash.
fn revision(etag: &str) -> Option<&str> {
    let rev = etag.trim().trim_start_matches("W/").trim_matches('"');
    let (generation, hash) = rev.split_once('-')?;
    let is_number = !generation.is_empty() && generation.bytes().all(|b| b.is_ascii_digit());
    (is_number && !hash.is_empty()).then_some(rev)
}

/// The documents that the answer to a write names: one, or the rows of a bulk.
pub(super) fn named(answer: &[u8]) -> Vec<Named> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Answer {
        One(Named),
        Many(Vec<Named>),
    }
    match serde_json::from_slice(answer) {
        // Databases are answered with `ok` alone, and have no revision.
        Ok(Answer::One(one)) if one.rev.is_some() => vec![one],
        Ok(Answer::Many(many)) => many,
        _ => Vec::new(),
    }
}

/// Which body of an exchange passes here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Request,
    Answer,
}

/// A body that is copied into its exchange. When the answer's is dropped, the exchange is over.
pub(super) struct Tee {
    inner: Option<Incoming>,
    exchange: Arc<Mutex<Exchange>>,
    way: Way,
    is_over: bool,
}

impl Tee {
    pub(super) fn new(inner: Incoming, exchange: &Arc<Mutex<Exchange>>, way: Way) -> Self {
        Self {
            inner: Some(inner),
            exchange: Arc::clone(exchange),
            way,
            is_over: false,
        }
    }

    /// A response without a body, for a request without a response from the server.
    pub(super) fn empty(exchange: &Arc<Mutex<Exchange>>) -> Self {
        Self {
            inner: None,
            exchange: Arc::clone(exchange),
            way: Way::Answer,
            is_over: true,
        }
    }
}

pub(super) fn lock(exchange: &Mutex<Exchange>) -> MutexGuard<'_, Exchange> {
    exchange.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Body for Tee {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(inner) = self.inner.as_mut() else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(inner).poll_frame(context);
        match &polled {
            Poll::Ready(None) => self.is_over = true,
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(piece) = frame.data_ref() {
                    let mut exchange = lock(&self.exchange);
                    match self.way {
                        Way::Request => exchange.request.take(piece),
                        Way::Answer if exchange.wants_answer => exchange.answer.take(piece),
                        Way::Answer => {}
                    }
                }
            }
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Some(inner) => inner.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl Drop for Tee {
    fn drop(&mut self) {
        let is_whole = self.is_over || self.is_end_stream();
        let mut exchange = lock(&self.exchange);
        match self.way {
            Way::Request => exchange.request.is_whole = is_whole,
            Way::Answer => exchange.end(is_whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_name_documents_with_revisions() {
        let one = named(br#"{"ok":true,"id":"a","rev":"1-x"}"#);
        assert_eq!(one[0].rev.as_deref(), Some("1-x"));
        let rows = named(
            br#"[{"ok":true,"id":"a","rev":"1-x"},{"id":"b","error":"conflict","reason":"?"}]"#,
        );
        assert_eq!((rows.len(), rows[1].rev.as_deref()), (2, None));
        for other in [&b"{\"ok\":true}"[..], b"[]", b"{\"docs\":[]}", b"no json"] {
            assert!(named(other).is_empty());
        }
    }

    #[test]
    fn only_a_revision_is_one() {
        assert_eq!(revision("\"3-abc\""), Some("3-abc"));
        assert_eq!(revision("W/\"3-abc\""), Some("3-abc"));
        for etag in ["\"EWMDCX0\"", "\"-abc\"", "\"3-\"", "\"x-abc\"", ""] {
            assert_eq!(revision(etag), None, "{etag}");
        }
    }

    #[test]
    fn a_body_beyond_the_limit_is_forgotten() {
        let mut copied = Copied::default();
        copied.take(&vec![0; BODY_BYTES_MAX]);
        assert!(!copied.is_too_long);
        copied.take(b"x");
        copied.take(b"y");
        assert!(copied.is_too_long && copied.bytes.is_empty());
    }
}
