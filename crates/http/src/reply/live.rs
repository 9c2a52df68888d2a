//! Feeds that wait for changes: `_changes` of a database and `_db_updates`.

use std::time::Duration;

use bytes::Bytes;
use database::Framing;
use futures_util::stream;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use node::Query;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::errors::ApiError;
use crate::reply::Reply;
use crate::reply::answers::Answers;
use crate::reply::stream::LONG_BYTES;
use crate::shares::OpenFeed;

/// The beginning of the feeds `normal` and `longpoll`.
pub const HEAD: &[u8] = b"{\"results\":[\n";

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FeedKind {
    Normal,
    Longpoll,
    Continuous,
    EventSource,
}

impl FeedKind {
    pub fn of(query: &Query) -> Result<FeedKind, ApiError> {
        match query.last(&["feed"]) {
            Some("live") => Ok(FeedKind::Continuous),
            name => FeedKind::named(name).ok_or_else(|| {
                ApiError::bad_request(
                    "Supported `feed` types: normal, continuous, live, longpoll, eventsource",
                )
            }),
        }
    }

    /// Returns the feed of `_db_updates` that a query names.
    pub fn of_updates(query: &Query) -> Result<FeedKind, ApiError> {
        FeedKind::named(query.get("feed")).ok_or_else(|| {
            ApiError::bad_request(
                "Supported `feed` types: normal, continuous, longpoll, eventsource",
            )
        })
    }

    fn named(name: Option<&str>) -> Option<FeedKind> {
        match name {
            None | Some("normal") => Some(FeedKind::Normal),
            Some("longpoll") => Some(FeedKind::Longpoll),
            Some("continuous") => Some(FeedKind::Continuous),
            Some("eventsource") => Some(FeedKind::EventSource),
            Some(_) => None,
        }
    }

    pub fn framing(self) -> Framing {
        match self {
            FeedKind::Normal | FeedKind::Longpoll => Framing::Array,
            FeedKind::Continuous => Framing::Lines,
            FeedKind::EventSource => Framing::Events,
        }
    }
}

/// Timeout and heartbeat of a live feed.
#[derive(Clone, Copy)]
pub struct FeedTimes {
    timeout: Option<Duration>,
    heartbeat: Option<Duration>,
}

impl FeedTimes {
    /// Reads the times of `_changes`. `max`, of `[chttpd] changes_timeout`, is the default and the longest of both, as in CouchDB.
    pub fn of(query: &Query, max: Duration) -> Result<FeedTimes, ApiError> {
        let max_ms = u64::try_from(max.as_millis()).unwrap_or(u64::MAX);
        let (mut heartbeat_ms, mut timeout_ms) = (None, None);
        // As in CouchDB, the first parameter that is wrong is reported, and the last of several
        // equal ones counts.
        for (name, text) in &query.0 {
            match name.to_ascii_lowercase().as_str() {
                "limit" => drop(natural("limit", text)?),
                "timeout" => timeout_ms = Some(natural("timeout", text)?),
                "heartbeat" => heartbeat_ms = Some(parse_heartbeat(text, max_ms)?),
                _ => {}
            }
        }
        Ok(FeedTimes::within(max_ms, heartbeat_ms, timeout_ms))
    }

    /// Reads the times of `_db_updates`, where `heartbeat=false` and 0 mean none.
    pub fn of_updates(query: &Query, max: Duration) -> Result<FeedTimes, ApiError> {
        let max_ms = u64::try_from(max.as_millis()).unwrap_or(u64::MAX);
        let (mut heartbeat, mut timeout) = (None, None);
        for (name, text) in &query.0 {
            match (name.as_str(), text.as_str()) {
                ("heartbeat", "false") => {}
                ("heartbeat", "true") => heartbeat = Some(max_ms),
                ("heartbeat", text) => heartbeat = Some(integer_of_updates(text)?),
                ("timeout", text) => timeout = Some(integer_of_updates(text)?),
                _ => {}
            }
        }
        let heartbeat = heartbeat.filter(|ms| *ms > 0);
        let heartbeat = heartbeat.map(|ms| ms.max(HEARTBEAT_MIN_MS).min(max_ms));
        Ok(FeedTimes::within(max_ms, heartbeat, timeout))
    }

    /// Returns the times of a feed, in milliseconds, that waits for at most `max_ms`.
    fn within(max_ms: u64, heartbeat: Option<u64>, timeout: Option<u64>) -> FeedTimes {
        // A heartbeat overrides any timeout: such a feed ends only when the client or the server
        // ends it.
        let timeout = match heartbeat {
            Some(_) => None,
            None => Some(timeout.map_or(max_ms, |t: u64| t.min(max_ms))),
        };
        FeedTimes {
            timeout: timeout.map(Duration::from_millis),
            heartbeat: heartbeat.map(Duration::from_millis),
        }
    }
}

/// A shorter `heartbeat` counts as this one, in milliseconds: each beat is work, for as long as the feed is open.
const HEARTBEAT_MIN_MS: u64 = 100;

/// Reads a whole number from 0 of `_db_updates`.
///
/// # Errors
/// CouchDB's `invalid_integer`.
pub fn integer_of_updates(text: &str) -> Result<u64, ApiError> {
    natural("", text).map_err(|_| ApiError::bad_request("invalid_integer"))
}

/// Reads a `heartbeat` of a feed, in milliseconds.
fn parse_heartbeat(text: &str, max_ms: u64) -> Result<u64, ApiError> {
    if text == "true" {
        return Ok(max_ms);
    }
    match signed(text) {
        Some((false, n)) if n > 0 => Ok(n.max(HEARTBEAT_MIN_MS).min(max_ms)),
        Some(_) => Err(ApiError::bad_request(
            "The heartbeat value should be a positive integer (in milliseconds).",
        )),
        None => Err(ApiError::bad_request(
            "Invalid heartbeat value. Expecting a positive integer value (in milliseconds).",
        )),
    }
}

/// Reads a whole number: whether it is negative, and its digits. One beyond 64 bits is the greatest.
fn signed(text: &str) -> Option<(bool, u64)> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    Some((text.starts_with('-'), digits.parse().unwrap_or(u64::MAX)))
}

/// Reads a `limit` or a `timeout` of a feed. Numbers beyond 64 bits are the greatest one.
///
/// # Errors
/// CouchDB's errors for a negative number, and for a value that is not a whole number.
pub fn natural(name: &str, text: &str) -> Result<u64, ApiError> {
    let Some((is_negative, number)) = signed(text) else {
        let reason = format!("The {name} parameter should be a non-negative integer");
        return Err(ApiError::bad_request(reason));
    };
    if is_negative && number > 0 {
        let reason = format!("The {name} value should be a non-negative integer");
        return Err(ApiError::bad_request(reason));
    }
    Ok(number)
}

/// The contents of a live feed.
pub trait LiveSource: Send + 'static {
    /// Appends a piece of the available rows; returns false when that was all.
    fn read(&mut self, out: &mut Vec<u8>) -> impl Future<Output = Result<bool, ApiError>> + Send;

    /// How many rows were read.
    fn rows(&self) -> u64;

    /// Whether no row can follow, whatever happens.
    fn is_final(&self) -> bool;

    /// Takes a snapshot of the current state.
    fn refresh(&mut self) -> Result<(), ApiError>;

    /// Releases the snapshot while the feed waits.
    fn release(&mut self);

    /// Appends the end of the feed.
    fn write_end(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError>;
}

/// Returns the result of reading a database. The feed of a deleted one ends as after a time-out.
pub fn until_deleted<T: Default>(read: Result<T, database::Error>) -> Result<T, ApiError> {
    match read {
        Err(database::Error::NoDatabase) => Ok(T::default()),
        other => Ok(other?),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Running,
    Done,
}

/// A feed that waits for changes.
pub struct LiveFeed<S> {
    source: S,
    kind: FeedKind,
    times: FeedTimes,
    changed: watch::Receiver<u64>,
    /// Changes when accounts do, for a feed that ends when its user has other rights.
    accounts: Option<watch::Receiver<u64>>,
    stopping: watch::Receiver<bool>,
    state: State,
    answers: Answers,
    _place: OpenFeed,
}

/// Why the wait of a live feed ended.
enum Woken {
    Changed,
    Heartbeat,
    /// Timed out, the server stops, or the database is gone.
    Ended,
}

/// Waits for a change of accounts; for ever, if there is nothing to wait for.
async fn account_changed(accounts: &mut Option<watch::Receiver<u64>>) {
    let is_gone = match accounts {
        Some(changed) => changed.changed().await.is_err(),
        None => std::future::pending().await,
    };
    if is_gone {
        *accounts = None;
    }
}

/// Waits for a change of `changed` or of accounts, as long as `times` allow.
async fn wait(
    changed: &mut watch::Receiver<u64>,
    accounts: &mut Option<watch::Receiver<u64>>,
    stopping: &mut watch::Receiver<bool>,
    times: FeedTimes,
    waiting_since: Instant,
) -> Woken {
    let timeout = times.timeout.map(|t| waiting_since + t);
    let beat = times.heartbeat.map(|h| Instant::now() + h);
    let sleep_until = |at: Option<Instant>| async move {
        match at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        c = changed.changed() => if c.is_ok() { Woken::Changed } else { Woken::Ended },
        () = account_changed(accounts) => Woken::Changed,
        _ = stopping.wait_for(|s| *s) => Woken::Ended,
        () = sleep_until(timeout) => Woken::Ended,
        () = sleep_until(beat) => Woken::Heartbeat,
    }
}

impl<S: LiveSource> LiveFeed<S> {
    /// A feed of `source`, woken by `changed`; it keeps its place among the open feeds.
    pub fn new(
        source: S,
        kind: FeedKind,
        times: FeedTimes,
        changed: watch::Receiver<u64>,
        stopping: watch::Receiver<bool>,
        (place, answers): (OpenFeed, &Answers),
    ) -> Self {
        LiveFeed {
            source,
            kind,
            times,
            changed,
            accounts: None,
            stopping,
            state: State::Head,
            answers: answers.clone(),
            _place: place,
        }
    }

    /// Wakes the feed whenever `accounts` changes too.
    pub fn woken_by(self, accounts: Option<watch::Receiver<u64>>) -> Self {
        LiveFeed { accounts, ..self }
    }

    /// The answer that shows the feed.
    pub fn reply(self) -> Reply {
        let kind = self.kind;
        let pieces = stream::unfold(self, |mut feed| async move {
            let mut out = Vec::new();
            let next = feed.next(&mut out).await;
            // While a feed waits it has nothing; what it made is counted until the connection has written it.
            let bytes = out.capacity();
            let held = (bytes > LONG_BYTES).then(|| feed.answers.count(bytes as u64));
            match next {
                Ok(()) if out.is_empty() => None,
                Ok(()) => {
                    let piece = Bytes::from(out);
                    let piece = match held {
                        Some(held) => held.with(piece),
                        None => piece,
                    };
                    Some((Ok(piece), feed))
                }
                Err(e) => {
                    feed.state = State::Done;
                    let e = e.into_stream_error();
                    Some((Err(e), feed))
                }
            }
        });
        let content_type = match kind {
            FeedKind::EventSource => "text/event-stream",
            _ => "application/json",
        };
        let reply = Reply::stream(HeaderValue::from_static(content_type), Box::pin(pieces));
        match kind {
            FeedKind::EventSource => reply.header(CACHE_CONTROL, "no-cache"),
            _ => reply,
        }
    }

    /// Appends the next rows, waiting for them; nothing at the end.
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        self.answers.admit().await?;
        match self.state {
            State::Done => return Ok(()),
            State::Head if self.kind == FeedKind::Longpoll => out.extend_from_slice(HEAD),
            State::Head | State::Running => {}
        }
        self.state = State::Running;
        let waiting_since = Instant::now();
        loop {
            while self.source.read(out).await? {
                if !out.is_empty() {
                    return Ok(());
                }
                // A filter passed over many rows: others get their turn, and the client a sign of life.
                tokio::task::yield_now().await;
                let due = |h: Duration| waiting_since.elapsed() >= h;
                if self.times.heartbeat.is_some_and(due) {
                    out.extend_from_slice(self.heartbeat());
                    return Ok(());
                }
            }
            if self.has_enough() {
                return self.end(out);
            }
            if !out.is_empty() {
                return Ok(());
            }
            self.source.release();
            match self.wait(waiting_since).await {
                Woken::Changed => self.source.refresh()?,
                Woken::Heartbeat => {
                    out.extend_from_slice(self.heartbeat());
                    return Ok(());
                }
                Woken::Ended => return self.end(out),
            }
        }
    }

    async fn wait(&mut self, waiting_since: Instant) -> Woken {
        wait(
            &mut self.changed,
            &mut self.accounts,
            &mut self.stopping,
            self.times,
            waiting_since,
        )
        .await
    }

    fn heartbeat(&self) -> &'static [u8] {
        match self.kind {
            FeedKind::EventSource => b"event: heartbeat\ndata: \n\n",
            _ => b"\n",
        }
    }

    /// Whether the feed has come to its end, or a longpoll has a row.
    fn has_enough(&self) -> bool {
        self.source.is_final() || self.kind == FeedKind::Longpoll && self.source.rows() > 0
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        self.state = State::Done;
        self.source.write_end(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_has_a_least_time() {
        let parse = |text| parse_heartbeat(text, 60_000).unwrap();
        assert_eq!(["1", "100", "70000"].map(parse), [100, 100, 60_000]);
        assert_eq!(parse_heartbeat("1", 50).unwrap(), 50);
        assert!(parse_heartbeat("0", 60_000).is_err());
        let of_updates = |text: &str| {
            let times = FeedTimes::of_updates(&Query::parse(Some(text)), Duration::from_secs(60));
            times.unwrap().heartbeat
        };
        let least = Some(Duration::from_millis(HEARTBEAT_MIN_MS));
        assert_eq!(of_updates("heartbeat=1"), least);
        assert_eq!(of_updates("heartbeat=0"), None);
    }
}
