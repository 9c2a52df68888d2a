//! `settee bench replay`: recorded requests, sent again.
//!
//! Each recorded connection is one here, with its requests in their order. A request is due at its
//! recorded time, at the chosen speed, and its latency counts from then: a server that falls behind
//! shows it. At full speed, a request is due when all requests that had ended before it started
//! have ended: a client's reaction to a response is not sent before that response.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use command_line::Speed;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, ETAG, HOST};
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::LocalSet;

use super::class;
use super::compare::{Comparison, Outcome, ReplayReport, print};
use super::entry::{BODY_BYTES_MAX, Entry, HEADERS, Named};
use super::recording::Recording;
use super::revs::{Names, Promise, of_id, of_rev};
use super::rewrite::{Rewritten, rewrite};
use super::tee::named;
use crate::error::BenchError;
use crate::run::interrupted;
use crate::target::Target;

/// Requests that are read from the file and not answered yet, at most.
const READ_AHEAD: usize = 4_096;
/// Requests to read ahead when there are no times to keep: no more than connections can use.
const READ_AHEAD_AT_FULL_SPEED: usize = 512;
/// A request may take this much longer than the recorded one did.
const PATIENCE: Duration = Duration::from_secs(60);
/// Least time before a replayed client leaves, if the recorded one left.
const ABORTED_AFTER_MIN: Duration = Duration::from_millis(20);
/// 1,000 requests without a response in a row end the replay.
const ERRORS_IN_A_ROW_MAX: u64 = 1_000;

/// Recording, server and speed of a replay.
#[derive(Debug, Clone)]
pub struct ReplayOptions {
    /// A file of [`record`](super::record).
    pub file: PathBuf,
    /// The server, `http://user:password@host:port`: all requests are this user's.
    pub server: String,
    /// How fast.
    pub speed: Speed,
    /// Print the report as one JSON object.
    pub json: bool,
    /// The longest line of the report's table.
    pub width: Option<usize>,
}

/// Replays a recording, prints the report to `out`, and returns it.
///
/// # Errors
/// [`BenchError`]: a file that is damaged, before anything is sent; a server that cannot be reached or refuses the credentials; interruption;
/// 1,000 requests in a row without an answer.
pub async fn replay(
    options: ReplayOptions,
    out: &mut (dyn Write + Send),
) -> Result<ReplayReport, BenchError> {
    let (json, width) = (options.json, options.width);
    let report = LocalSet::new()
        .run_until(async {
            tokio::select! {
                report = replay_all(options) => report,
                () = interrupted() => Err(BenchError::Interrupted),
            }
        })
        .await?;
    if json {
        serde_json::to_writer(&mut *out, &report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&report, out, width)?;
    }
    Ok(report)
}

async fn replay_all(options: ReplayOptions) -> Result<ReplayReport, BenchError> {
    let mut recording = Recording::open(&options.file)?;
    let target = Target::resolve(&options.server).await?;
    crate::system::System::welcome(&target).await?;
    let shared = Rc::new(Shared {
        target,
        names: Names::default(),
        comparison: RefCell::default(),
        speed: options.speed,
        open: Open::default(),
    });
    let start = Instant::now();
    let late = dispatch(&mut recording, &shared, start).await?;
    let seconds = start.elapsed().as_secs_f64();
    let mut notes = Vec::new();
    if recording.is_cut {
        notes.push("the recording's last line was cut off, and is left out".to_owned());
    }
    let report = ReplayReport {
        server: shared.target.label.clone(),
        recorded_server: recording.server.clone(),
        requests: 0,
        same_status: 0,
        errors: 0,
        first_error: None,
        seconds,
        recorded_seconds: recording.length_us() as f64 / 1e6,
        names_replaced: shared.names.differing(),
        client_late_ms_max: late.as_secs_f64() * 1e3,
        classes: Vec::new(),
        differences: Vec::new(),
        notes,
    };
    let comparison = shared.comparison.take();
    if comparison.errors_in_a_row() >= ERRORS_IN_A_ROW_MAX {
        let reason = comparison
            .into_report(report)
            .first_error
            .unwrap_or_default();
        return Err(BenchError::Options(format!(
            "replay: {ERRORS_IN_A_ROW_MAX} requests in a row got no answer; the first: {reason}"
        )));
    }
    Ok(comparison.into_report(report))
}

struct Shared {
    target: Target,
    names: Names,
    comparison: RefCell<Comparison>,
    speed: Speed,
    open: Open,
}

/// Requests that have not ended, each with the time at which its answer ended in the recording.
#[derive(Default)]
struct Open {
    ends: RefCell<BTreeSet<(u64, usize)>>,
    changed: Notify,
}

impl Open {
    fn begin(&self, end_us: u64, number: usize) {
        self.ends.borrow_mut().insert((end_us, number));
    }

    fn end(&self, end_us: u64, number: usize) {
        self.ends.borrow_mut().remove(&(end_us, number));
        self.changed.notify_one();
    }

    /// Waits until all have ended that had ended by `at_us` in the recording. Only one may wait.
    async fn until_ended(&self, at_us: u64) {
        let first = || self.ends.borrow().first().map(|(end_us, _)| *end_us);
        while first().is_some_and(|end_us| end_us <= at_us) {
            self.changed.notified().await;
        }
    }
}

/// A request to send.
struct Job {
    entry: Entry,
    number: usize,
    /// When the answer ended in the recording, in microseconds.
    end_us: u64,
    /// None at full speed: when the connection is free.
    due: Option<Instant>,
    /// As this request sees them.
    names: Names,
    promises: Vec<Promised>,
    /// Released when the response has ended.
    _permit: OwnedSemaphorePermit,
}

/// Names that the request's answer will have for those that a document had when it was recorded.
struct Promised {
    id: Option<Promise>,
    rev: Option<Promise>,
}

/// Hands requests to their connections when they are due, until all have ended. Returns how late it was at most.
async fn dispatch(
    recording: &mut Recording,
    shared: &Rc<Shared>,
    start: Instant,
) -> Result<Duration, BenchError> {
    let room = match shared.speed {
        Speed::Full => READ_AHEAD_AT_FULL_SPEED,
        Speed::Times(_) => READ_AHEAD,
    };
    let room = Arc::new(Semaphore::new(room));
    let mut connections: HashMap<u64, mpsc::UnboundedSender<Job>> = HashMap::new();
    let mut running = tokio::task::JoinSet::new();
    let mut late = Duration::ZERO;
    let first_us = recording.first_us();
    for number in 0..recording.len() {
        let (entry, is_last) = recording.read(number)?;
        let permit = Arc::clone(&room).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        if shared.comparison.borrow().errors_in_a_row() >= ERRORS_IN_A_ROW_MAX {
            break;
        }
        let due = match shared.speed {
            Speed::Full => {
                shared.open.until_ended(entry.at_us).await;
                None
            }
            Speed::Times(times) => {
                let since = Duration::from_micros(entry.at_us - first_us).div_f64(times);
                tokio::time::sleep_until((start + since).into()).await;
                late = late.max((start + since).elapsed());
                Some(start + since)
            }
        };
        let names = shared.names.of_request(number);
        let end_us = entry.at_us.saturating_add(entry.took_us);
        shared.open.begin(end_us, number);
        let job = Job {
            number,
            end_us,
            promises: promises(&entry, &names),
            names,
            entry,
            due,
            _permit: permit,
        };
        let conn = job.entry.conn;
        let sender = connections.entry(conn).or_insert_with(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            running.spawn_local(connection(Rc::clone(shared), receiver));
            sender
        });
        // A connection ends only when its sender is dropped.
        let _ = sender.send(job);
        if is_last {
            connections.remove(&conn);
        }
        while running.try_join_next().is_some() {}
    }
    drop(connections);
    all_ended(running).await;
    Ok(late)
}

async fn all_ended(mut running: tokio::task::JoinSet<()>) {
    while let Some(joined) = running.join_next().await {
        if let Err(failed) = joined {
            std::panic::resume_unwind(failed.into_panic());
        }
    }
}

/// Names that a request will make known: those in its recorded answer.
fn promises(entry: &Entry, names: &Names) -> Vec<Promised> {
    let Some(database) = entry.database() else {
        return Vec::new();
    };
    // Only for a POST the server generates an id.
    let makes_ids = entry.method == "POST";
    let promised = entry.named.iter().map(|named| Promised {
        id: makes_ids.then(|| names.promise(of_id(&database, &named.id))),
        rev: named
            .rev
            .as_ref()
            .map(|rev| names.promise(of_rev(&database, &named.id, rev))),
    });
    promised.collect()
}

async fn connection(shared: Rc<Shared>, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let mut sender = None;
    while let Some(mut job) = jobs.recv().await {
        let due = job.due.unwrap_or_else(Instant::now);
        let took = Duration::from_micros(job.entry.took_us);
        let answered = answer(&shared, &mut sender, &job, took).await;
        let latency = due.elapsed();
        let status = match answered {
            Ok(answer) => {
                keep(&mut job, &answer);
                Ok(answer.status)
            }
            // No request waits for its promise.
            Err(reason) => {
                job.promises.clear();
                sender = None;
                Err(reason)
            }
        };
        shared.comparison.borrow_mut().add(Outcome {
            class: class::of(&job.entry.method, &job.entry.path),
            request: format!("{} {}", job.entry.method, job.entry.path),
            recorded_status: job.entry.status,
            recorded_took: took,
            status,
            latency,
        });
        shared.open.end(job.end_us, job.number);
    }
}

/// An answer that has ended.
struct Answer {
    status: u16,
    etag: Option<String>,
    body: Vec<u8>,
}

type Sender = SendRequest<Full<Bytes>>;

async fn answer(
    shared: &Shared,
    sender: &mut Option<Sender>,
    job: &Job,
    took: Duration,
) -> Result<Answer, String> {
    let entry = &job.entry;
    let rewriting = tokio::time::timeout(PATIENCE, rewrite(entry, &job.names)).await;
    let rewritten = rewriting.map_err(|_| "the request that it depends on has no answer")??;
    let request = request(&shared.target, entry, rewritten)?;
    if let Some(open) = sender
        && open.ready().await.is_err()
    {
        *sender = None;
    }
    let mut open = match sender.take() {
        Some(open) => open,
        None => connect(&shared.target).await?,
    };
    let sending = async {
        let response = open.send_request(request).await;
        response.map_err(|error| error.to_string())
    };
    let response = tokio::time::timeout(took + PATIENCE, sending).await;
    let response = response.map_err(|_| "no answer in time")??;
    let mut answer = head(&response);
    let wants_body = !entry.named.is_empty();
    let reading = read(response, wants_body, &mut answer.body);
    if entry.aborted {
        // The client left a feed: so does this one, after the same time.
        let after = match shared.speed {
            Speed::Times(times) => took.div_f64(times).max(ABORTED_AFTER_MIN),
            Speed::Full => ABORTED_AFTER_MIN,
        };
        let _ = tokio::time::timeout(after, reading).await;
        return Ok(answer);
    }
    let read = tokio::time::timeout(took + PATIENCE, reading).await;
    read.map_err(|_| "the answer did not end in time")??;
    *sender = Some(open);
    Ok(answer)
}

async fn connect(target: &Target) -> Result<Sender, String> {
    let stream = TcpStream::connect(target.address).await;
    let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
    // Without it small requests wait; that it is refused is no reason to end.
    let _ = stream.set_nodelay(true);
    let (sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    tokio::task::spawn_local(connection);
    Ok(sender)
}

fn request(
    target: &Target,
    entry: &Entry,
    rewritten: Rewritten,
) -> Result<Request<Full<Bytes>>, String> {
    let mut request = Request::builder()
        .method(entry.method.as_str())
        .uri(format!("{}{}", target.prefix(), rewritten.path));
    for name in [HOST, AUTHORIZATION] {
        if let Some(value) = target.header(name.as_str()) {
            request = request.header(name, value);
        }
    }
    for (name, value) in rewritten.headers {
        // A recording that a user has written by hand may have others.
        if HEADERS.contains(&name.as_str()) {
            request = request.header(name, value);
        }
    }
    let body = Full::new(Bytes::from(rewritten.body));
    request.body(body).map_err(|error| error.to_string())
}

fn head(response: &Response<Incoming>) -> Answer {
    let etag = response
        .headers()
        .get(ETAG)
        .and_then(|etag| etag.to_str().ok());
    Answer {
        status: response.status().as_u16(),
        etag: etag.map(|etag| etag.trim_matches('"').to_owned()),
        body: Vec::new(),
    }
}

async fn read(
    response: Response<Incoming>,
    wants_body: bool,
    body: &mut Vec<u8>,
) -> Result<(), String> {
    let mut incoming = response.into_body();
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        if let Some(piece) = frame.data_ref().filter(|_| wants_body)
            && body.len() + piece.len() <= BODY_BYTES_MAX
        {
            body.extend_from_slice(piece);
        }
    }
    Ok(())
}

/// Keeps the promises of a request. Rows of a bulk are in the order of its documents, in both
/// responses.
fn keep(job: &mut Job, answer: &Answer) {
    let promised = std::mem::take(&mut job.promises);
    if !(200..300).contains(&answer.status) {
        return;
    }
    let recorded = &job.entry.named;
    let mut replayed = named(&answer.body);
    if replayed.is_empty()
        && let Some(rev) = &answer.etag
        && let [one] = recorded.as_slice()
    {
        replayed = vec![Named {
            id: one.id.clone(),
            rev: Some(rev.clone()),
        }];
    }
    if replayed.len() != recorded.len() {
        return;
    }
    for ((recorded, promised), replayed) in recorded.iter().zip(promised).zip(replayed) {
        if let Some(promise) = promised.id {
            job.names.keep(promise, &recorded.id, Some(&replayed.id));
        }
        if let (Some(promise), Some(rev)) = (promised.rev, &recorded.rev) {
            job.names.keep(promise, rev, replayed.rev.as_deref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_a_factor_or_max() {
        assert_eq!("2".parse(), Ok(Speed::Times(2.0)));
        assert_eq!("0.5".parse(), Ok(Speed::Times(0.5)));
        assert_eq!("max".parse(), Ok(Speed::Full));
        for wrong in ["0", "-1", "nan", "inf", "fast", "1e9", ""] {
            assert!(wrong.parse::<Speed>().is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn at_full_speed_a_request_waits_for_those_that_had_ended_before_it() {
        let open = Open::default();
        open.begin(10, 0);
        open.begin(30, 1);
        let mut waiting = Box::pin(open.until_ended(20));
        assert!(
            std::future::Future::poll(
                waiting.as_mut(),
                &mut std::task::Context::from_waker(std::task::Waker::noop())
            )
            .is_pending()
        );
        open.end(10, 0);
        assert!(
            std::future::Future::poll(
                waiting.as_mut(),
                &mut std::task::Context::from_waker(std::task::Waker::noop())
            )
            .is_ready()
        );
        open.until_ended(29).await;
    }
}
