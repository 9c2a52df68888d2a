//! The end of a request: when its body is out, or its client has gone. Then it is counted and logged.

use std::cell::Cell;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use hyper::header::HeaderValue;
use routes::Class;
use telemetry::{Tick, Use};

use super::slow::{self, Detail};
use super::traced::Traced;
use super::{Counts, Stats, waits};
use crate::reply::{Pieces, StreamError, Timing};
use crate::request::keeps::Keeps;

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client has all of it.
    Whole,
    /// The client went before.
    Aborted,
    /// An error in the middle: the connection was cut.
    Cut,
}

impl End {
    /// The end as logs name it.
    pub fn name(self) -> &'static str {
        match self {
            End::Whole => "whole",
            End::Aborted => "aborted",
            End::Cut => "cut",
        }
    }
}

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
pub struct Told<'a> {
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

impl Told<'_> {
    /// Logs and counts it: it took `us` microseconds to the end, and `bytes` of the response's body
    /// were sent.
    pub fn tell(&self, stats: &Stats, end: End, bytes: u64, us: u64) {
        let since_start = stats.since_start();
        // Not an invented name.
        let is_index =
            self.numbers.route.is_of_index() && (200..400).contains(&self.numbers.status);
        let view = is_index.then(|| self.view());
        stats.count(|c| self.count(c, end, (bytes, us), (view.as_deref(), since_start)));
        let is_slow = us >= self.numbers.slow_us && !self.numbers.route.has_its_own_pace();
        if is_slow && !IS_WITHOUT_SLOW_LINES.get() {
            stats.log_slow(&slow::line(self, end, bytes, us));
        }
        if let Some(traced) = &self.numbers.traced {
            traced.tell(self, end, bytes, us);
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

    fn count(
        &self,
        c: &mut Counts,
        end: End,
        (bytes, us): (u64, u64),
        (view, since_start): (Option<&str>, Duration),
    ) {
        let numbers = &self.numbers;
        let route = numbers.route;
        c.head(self.method, numbers.status);
        c.ended += 1;
        c.bytes_sent += bytes;
        c.bytes_received += numbers.bytes_received;
        c.document_reads += numbers.document_reads;
        let is_index = || self.segments.get(3).is_some_and(|s| s == b"_index");
        if self.segments.get(1).is_some_and(|s| s == b"_partition") && !is_index() {
            c.of_partitions[route as usize] += 1;
        }
        if let Some(docs) = numbers.bulk_docs {
            c.bulk_docs.saturating_record(docs.max(1));
        }
        match end {
            End::Whole => {}
            // A feed continues until its client disconnects.
            End::Aborted if route.is_feed() => {}
            End::Aborted => c.aborted += 1,
            End::Cut => c.cut += 1,
        }
        let of = c.of_route(route);
        of.whole_us.saturating_record(us.max(1));
        match numbers.status {
            500.. => of.failed += 1,
            400.. => of.refused += 1,
            _ => {}
        }
        let Some(database) = self.database() else {
            return;
        };
        let used = Use {
            requests: 1,
            writes: u64::from(route.writes(self.method)),
            us: if route.is_feed() { 0 } else { us },
            bytes: bytes + numbers.bytes_received,
            ..Use::default()
        };
        c.usage.databases.count(database, &used, since_start);
        if let Some(view) = view {
            c.usage.views.count(view, &used, since_start);
        }
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
pub struct Ending {
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

impl Ending {
    /// Adds memory that is freed at the end of the response.
    pub fn with(self, keeps: Keeps) -> Ending {
        Ending {
            _keeps: Some(keeps),
            ..self
        }
    }

    /// A report of a request that was received at `received`.
    pub fn new(told: &Told<'_>, stats: Arc<Stats>, received: Tick) -> Ending {
        Ending {
            stats,
            received,
            id: told.id.clone(),
            peer: told.peer,
            user: told.user.map(str::to_owned),
            method: told.method.to_owned(),
            path: told.path.to_owned(),
            segments: told.segments.to_vec(),
            numbers: told.numbers,
            detail: told.detail.cloned(),
            _keeps: None,
        }
    }

    fn tell(&self, end: End, bytes: u64) {
        let told = Told {
            id: &self.id,
            peer: self.peer,
            user: self.user.as_deref(),
            method: &self.method,
            path: &self.path,
            segments: &self.segments,
            numbers: self.numbers,
            detail: self.detail.as_ref(),
        };
        told.tell(&self.stats, end, bytes, self.received.elapsed_us());
    }
}

/// Pieces of a response that report its end.
pub struct Watched {
    pieces: Pieces,
    sent: u64,
    /// Bytes of the whole response, if known. No piece is read after them.
    length: Option<u64>,
    ending: Option<Box<Ending>>,
}

impl Watched {
    /// Pieces whose end is reported.
    pub fn of(pieces: Pieces, length: Option<u64>, ending: Ending) -> Pieces {
        let ending = Some(Box::new(ending));
        let mut watched = Watched {
            pieces,
            sent: 0,
            length,
            ending,
        };
        watched.look_for_end();
        Box::pin(watched)
    }

    fn end(&mut self, end: End) {
        if let Some(ending) = self.ending.take() {
            ending.tell(end, self.sent);
        }
    }

    fn look_for_end(&mut self) {
        if self.length.is_some_and(|length| self.sent >= length) {
            self.end(End::Whole);
        }
    }
}

impl Stream for Watched {
    type Item = Result<Bytes, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.pieces.as_mut().poll_next(cx);
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

impl Drop for Watched {
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
