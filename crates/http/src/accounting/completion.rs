//! The end of a request: when its body is out, or its client has gone. Then it is counted and logged.

use std::cell::Cell;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use hyper::header::HeaderValue;
use metrics::{CompletedRequest, End, Stats};
use profiler::Label;
use routes::Class;
use telemetry::Tick;

use super::route_label::label_of;
use super::slow::{self, Detail};
use super::traced::Traced;
use super::waits;
use crate::errors::StreamError;
use crate::reply::Timing;
use crate::reply::body::Pieces;
use crate::request::keeps::Keeps;

thread_local! {
    static IS_WITHOUT_SLOW_LINES: Cell<bool> = const { Cell::new(false) };
}

/// Runs `end`, which ends requests, without logging any of them as slow.
pub fn without_slow_lines(end: impl FnOnce()) {
    /// Restores the thread's slow lines, also if `end` panics.
    struct Restores;
    impl Drop for Restores {
        fn drop(&mut self) {
            IS_WITHOUT_SLOW_LINES.set(false);
        }
    }
    IS_WITHOUT_SLOW_LINES.set(true);
    let _restores = Restores;
    end();
}

/// Facts about a request for logs and counters.
pub struct RequestFacts<'a> {
    /// Its id.
    pub id: &'a HeaderValue,
    /// The client's address.
    pub peer: Option<IpAddr>,
    /// The user.
    pub user: Option<&'a str>,
    /// The method, after `X-HTTP-Method-Override`.
    pub method: &'a str,
    /// The path as sent.
    pub path: &'a str,
    /// The decoded segments of its path, or of where rules led.
    pub segments: &'a [Vec<u8>],
    /// Its figures.
    pub numbers: Numbers,
    /// Its use of an index.
    pub detail: Option<&'a Arc<Detail>>,
}

/// Figures of a request.
#[derive(Clone, Copy)]
pub struct Numbers {
    /// The class of its route.
    pub route: Class,
    /// The first segment is a database that its user may use.
    pub is_of_database: bool,
    /// The answer's status; 0 when the client went before there was one.
    pub status: u16,
    /// Slower ones go to the slow log, in microseconds.
    pub slow_us: u64,
    /// Its phases.
    pub timing: Timing,
    /// Time until the head of the response was made, in microseconds.
    pub head_us: u64,
    /// Bytes of its body.
    pub bytes_received: u64,
    /// Documents that it read by their ids.
    pub document_reads: u64,
    /// Documents that a bulk brought.
    pub bulk_docs: Option<u64>,
    /// Its place in a trace.
    pub traced: Option<Traced>,
}

impl RequestFacts<'_> {
    /// Logs and counts it: it took `us` microseconds to the end, and `bytes` of the response's body
    /// were sent.
    pub fn report(&self, stats: &Stats, end: End, bytes: u64, us: u64) {
        self.count(stats, end, bytes, us);
        let is_slow = us >= self.numbers.slow_us && !self.numbers.route.has_its_own_pace();
        if is_slow && !IS_WITHOUT_SLOW_LINES.get() {
            stats.log_slow(&slow::line(self, end, bytes, us));
        }
        if let Some(traced) = &self.numbers.traced {
            traced.report(self, end, bytes, us);
        }
        waits::note(&self.numbers, us);
        let status = self.numbers.status;
        let traced = self.numbers.traced.filter(Traced::is_known);
        tracing::info!(
            target: "request",
            id = self.id.to_str().unwrap_or_default(),
            peer = self.peer.map(tracing::field::display),
            user = self.user.unwrap_or("-"),
            method = self.method,
            path = self.path,
            status = (status > 0).then_some(status),
            bytes,
            us,
            end = (end != End::Whole).then_some(end.name()),
            trace = traced.map(|traced| tracing::field::display(traced.id())),
        );
    }

    fn count(&self, stats: &Stats, end: End, bytes: u64, us: u64) {
        let numbers = &self.numbers;
        // Not an invented name.
        let is_index = numbers.route.is_of_index() && (200..400).contains(&numbers.status);
        let view = is_index.then(|| self.view());
        let segment_is = |at: usize, name: &[u8]| self.segments.get(at).is_some_and(|s| s == name);
        stats.count(&CompletedRequest {
            class: numbers.route,
            method: self.method,
            status: numbers.status,
            end,
            us,
            bytes_sent: bytes,
            bytes_received: numbers.bytes_received,
            document_reads: numbers.document_reads,
            bulk_docs: numbers.bulk_docs,
            is_of_partition: segment_is(1, b"_partition") && !segment_is(3, b"_index"),
            database: self.database(),
            view: view.as_deref(),
        });
    }

    /// The database, when the path names one that exists.
    pub fn database(&self) -> Option<&str> {
        let first = self.segments.first();
        let first = first.filter(|_| self.numbers.is_of_database)?;
        str::from_utf8(first).ok()
    }

    /// Database, design document and view or text index, as a path.
    pub fn view(&self) -> String {
        let segment = |s: &Vec<u8>| String::from_utf8_lossy(s).into_owned();
        let parts: Vec<String> = self.segments.iter().map(segment).collect();
        let design = parts.iter().position(|part| part == "_design").unwrap_or(1);
        let below = parts.get(design..parts.len().min(design + 4));
        let name = parts.first().map_or("", String::as_str);
        format!("{name}/{}", below.unwrap_or_default().join("/"))
    }
}

/// Reports a request when its response has ended.
pub struct Completion {
    stats: Arc<Stats>,
    received: Tick,
    id: HeaderValue,
    peer: Option<IpAddr>,
    user: Option<String>,
    method: String,
    path: String,
    segments: Vec<Vec<u8>>,
    numbers: Numbers,
    detail: Option<Arc<Detail>>,
    /// Memory of the response.
    _keeps: Option<Keeps>,
}

impl Completion {
    /// Adds memory that is freed at the end of the response.
    pub fn with(self, keeps: Keeps) -> Completion {
        Completion {
            _keeps: Some(keeps),
            ..self
        }
    }

    /// A report of a request that was received at `received`.
    pub fn new(facts: &RequestFacts<'_>, stats: Arc<Stats>, received: Tick) -> Completion {
        Completion {
            stats,
            received,
            id: facts.id.clone(),
            peer: facts.peer,
            user: facts.user.map(str::to_owned),
            method: facts.method.to_owned(),
            path: facts.path.to_owned(),
            segments: facts.segments.to_vec(),
            numbers: facts.numbers,
            detail: facts.detail.cloned(),
            _keeps: None,
        }
    }

    fn report(&self, end: End, bytes: u64) {
        let facts = RequestFacts {
            id: &self.id,
            peer: self.peer,
            user: self.user.as_deref(),
            method: &self.method,
            path: &self.path,
            segments: &self.segments,
            numbers: self.numbers,
            detail: self.detail.as_ref(),
        };
        facts.report(&self.stats, end, bytes, self.received.elapsed_us());
    }
}

/// Pieces of a response that report its end.
pub struct ObservedPieces {
    pieces: Pieces,
    sent: u64,
    /// Bytes of the whole response, if known. No piece is read after them.
    length: Option<u64>,
    /// The label of the request's route.
    label: &'static Label,
    completion: Option<Box<Completion>>,
}

impl ObservedPieces {
    /// Pieces whose end is reported.
    pub fn of(pieces: Pieces, length: Option<u64>, completion: Completion) -> Pieces {
        let label = label_of(completion.numbers.route);
        let completion = Some(Box::new(completion));
        let mut watched = ObservedPieces {
            pieces,
            sent: 0,
            length,
            label,
            completion,
        };
        watched.look_for_end();
        Box::pin(watched)
    }

    fn end(&mut self, end: End) {
        if let Some(completion) = self.completion.take() {
            completion.report(end, self.sent);
        }
    }

    fn look_for_end(&mut self) {
        if self.length.is_some_and(|length| self.sent >= length) {
            self.end(End::Whole);
        }
    }
}

impl Stream for ObservedPieces {
    type Item = Result<Bytes, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let label = self.label;
        let next = profiler::labelled(label, || self.pieces.as_mut().poll_next(cx));
        match &next {
            Poll::Ready(Some(Ok(piece))) => {
                self.sent += piece.len() as u64;
                self.look_for_end();
            }
            Poll::Ready(Some(Err(_))) => self.end(End::Cut),
            Poll::Ready(None) => {
                let is_short = self.length.is_some_and(|length| self.sent < length);
                self.end(if is_short { End::Cut } else { End::Whole });
            }
            Poll::Pending => {}
        }
        next
    }
}

impl Drop for ObservedPieces {
    fn drop(&mut self) {
        self.end(End::Aborted);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_panic_leaves_the_thread_its_slow_lines() {
        without_slow_lines(|| assert!(IS_WITHOUT_SLOW_LINES.get()));
        let panics = || without_slow_lines(|| panic!("as it should"));
        assert!(catch_unwind(panics).is_err());
        assert!(!IS_WITHOUT_SLOW_LINES.get());
    }
}
