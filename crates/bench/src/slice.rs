//! A loop of clients over a period, and its measurements.

use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::client::{Connection, Discard, Occurrences, add_close};
use crate::error::{BenchError, ClientError};
use crate::pace::{ClientTime, OpenLoop, Pace, Pacing, Turns};
use crate::target::Target;

/// Latencies are kept with this many significant digits.
const SIGNIFICANT_DIGITS: u8 = 3;
const LATENCY_US_MAX: u64 = 3_600_000_000;
/// A client gives up after 100 failed requests in a row.
const FAILURES_IN_A_ROW_MAX: u32 = 100;

/// Errors, and their numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Errors {
    pub(crate) count: u64,
    pub(crate) first: Option<String>,
}

impl Errors {
    pub(crate) fn add(&mut self, count: u64, what: impl FnOnce() -> String) {
        self.count += count;
        if self.first.is_none() && count > 0 {
            self.first = Some(what());
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.take().or(other.first);
    }
}

/// The measurement of one stretch of a workload.
#[derive(Debug, Clone)]
pub(crate) struct Slice {
    /// Documents, requests or rows that succeeded.
    pub(crate) count: u64,
    pub(crate) seconds: f64,
    /// One entry a request that succeeded, in microseconds.
    pub(crate) latencies_us: Histogram<u64>,
    pub(crate) errors: Errors,
    /// Bytes sent and received by the load client; 0 where it was not the load client that measured.
    pub(crate) bytes: u64,
    /// Time that sending took; `None` where the load client did not measure.
    pub(crate) client: Option<ClientTime>,
    /// The figures of a loop at a rate.
    pub(crate) open: Option<OpenLoop>,
}

impl Slice {
    pub(crate) fn new() -> Self {
        Self {
            count: 0,
            seconds: 0.0,
            latencies_us: new_histogram(),
            errors: Errors::default(),
            bytes: 0,
            client: None,
            open: None,
        }
    }

    /// One piece of work of `units` units that took this time.
    pub(crate) fn of_one(units: u64, took: Duration) -> Self {
        let mut slice = Self::new();
        slice.record(units, took);
        slice.seconds = took.as_secs_f64();
        slice
    }

    /// Records one request of that many units.
    pub(crate) fn record(&mut self, units: u64, latency: Duration) {
        self.count += units;
        self.record_latency(latency);
    }

    fn record_latency(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(LATENCY_US_MAX);
        self.latencies_us.saturating_record(us.max(1));
    }

    /// Adds the result of a rate: a request that was not sent has waited until now.
    pub(crate) fn take_unsent(&mut self, open: OpenLoop, waits: Vec<Duration>) {
        self.open = Some(open);
        waits.into_iter().for_each(|wait| self.record_latency(wait));
    }

    /// Units a second.
    pub(crate) fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            self.count as f64 / self.seconds
        } else {
            0.0
        }
    }

    /// Appends a measurement of another time.
    pub(crate) fn append(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.merge(other);
    }

    /// Adds the measurements of another client, or of another round. Seconds do not change.
    pub(crate) fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.errors.merge(other.errors);
        // Both have the same bounds, so that nothing can be out of range.
        let _ = self.latencies_us.add(&other.latencies_us);
        self.bytes += other.bytes;
        self.client = together(self.client, other.client, ClientTime::and);
        self.open = together(self.open, other.open, OpenLoop::and);
    }
}

/// Combines both, or returns the one that exists.
fn together<T>(one: Option<T>, other: Option<T>, and: fn(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(and(one, other)),
        (one, other) => one.or(other),
    }
}

pub(crate) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, SIGNIFICANT_DIGITS)
        .expect("the bounds and the digits are constants that hdrhistogram accepts")
}

/// How a reply is judged and counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Check {
    /// 2xx is a success of as many units as the request has.
    Status,
    /// 2xx is a success, and so is 404: the object to delete does not exist.
    Gone,
    /// A reply of `_bulk_docs`: documents with an `error` were refused.
    Bulk,
    /// The units are the occurrences of this text, of which there must be as many as the request expects.
    Rows(&'static [u8]),
}

/// Writes the next request into the empty buffer and returns its number of units; `None` ends the
/// client.
pub(crate) type Requests = Box<dyn FnMut(&mut Vec<u8>) -> Option<u64>>;

/// Clients that each send a request after the reply to the previous one; or, when its target
/// has a [`Pace`] with a rate and the loop is timed, at the time that the rate sets. Latency counts from
/// when a request was due, so that the wait behind a slow one is included.
pub(crate) struct ClosedLoop {
    pub(crate) target: Rc<Target>,
    /// The loop ends after this time, or when the requests run out. The target's pace may define a
    /// number of requests instead.
    pub(crate) length: Option<Duration>,
    pub(crate) check: Check,
    /// Sent after every request; both together are one operation.
    pub(crate) follow_up: Option<Rc<Vec<u8>>>,
}

impl ClosedLoop {
    /// A loop that ends after `length`.
    pub(crate) fn timed(target: &Rc<Target>, length: Duration, check: Check) -> Self {
        Self {
            target: Rc::clone(target),
            length: Some(length),
            check,
            follow_up: None,
        }
    }

    /// A loop that ends when its requests do.
    pub(crate) fn exhaustive(target: &Rc<Target>, check: Check) -> Self {
        Self {
            target: Rc::clone(target),
            length: None,
            check,
            follow_up: None,
        }
    }

    /// Connects `clients` clients and lets them run.
    pub(crate) async fn run(
        self,
        clients: usize,
        requests: impl FnMut(usize) -> Requests,
    ) -> Result<Slice, BenchError> {
        let connections = connect(&self.target, clients).await?;
        self.run_on(connections, requests).await
    }

    /// Lets one client run on each of the connections. The clock starts here.
    pub(crate) async fn run_on(
        self,
        connections: Vec<Connection>,
        requests: impl FnMut(usize) -> Requests,
    ) -> Result<Slice, BenchError> {
        let pace = self.target.pace();
        self.run_paced(connections, pace, requests).await
    }

    async fn run_paced(
        self,
        connections: Vec<Connection>,
        pace: Pace,
        mut requests: impl FnMut(usize) -> Requests,
    ) -> Result<Slice, BenchError> {
        let client_before = ClientTime::now();
        let pacing = Pacing::start(pace, self.length, connections.len())?;
        let has_new_connections = pace.new_connections && self.length.is_some();
        let mut clients = tokio::task::JoinSet::new();
        for (at, connection) in connections.into_iter().enumerate() {
            let client = Client {
                connection,
                target: Rc::clone(&self.target),
                check: self.check,
                follow_up: self.follow_up.clone(),
                has_new_connections,
                slice: Slice::new(),
            };
            clients.spawn_local(client.run(requests(at), pacing.turns()));
        }
        let mut whole = Slice::new();
        while let Some(joined) = clients.join_next().await {
            match joined {
                Ok(slice) => whole.merge(slice),
                Err(failed) => std::panic::resume_unwind(failed.into_panic()),
            }
        }
        whole.seconds = pacing.seconds();
        whole.client = Some(ClientTime::now().since(client_before));
        if let Some((open, waits)) = pacing.end() {
            whole.take_unsent(open, waits);
        }
        Ok(whole)
    }
}

/// Takes `count` connections that the target has kept, or opens them, one after the other so that the listener's backlog holds them.
pub(crate) async fn connect(target: &Target, count: usize) -> Result<Vec<Connection>, BenchError> {
    let mut connections = target.kept().take(count);
    while connections.len() < count {
        connections.push(Connection::open(target).await?);
    }
    Ok(connections)
}

/// Clients on several nodes at the same time, distributed evenly, for `length`. Fewer clients than
/// nodes are on one node after the other, in equal shares of the time.
pub(crate) async fn spread(
    nodes: &[Rc<Target>],
    clients: usize,
    length: Duration,
    check: Check,
    requests: impl Fn(&Rc<Target>, usize) -> Requests,
) -> Result<Slice, BenchError> {
    let mut whole = Slice::new();
    for turn in nodes.chunks(clients.clamp(1, nodes.len())) {
        let share = length.mul_f64(turn.len() as f64 / nodes.len() as f64);
        let slice = at_once(turn, clients, share, check, &requests).await?;
        whole.seconds += slice.seconds;
        whole.merge(slice);
    }
    Ok(whole)
}

async fn at_once(
    nodes: &[Rc<Target>],
    clients: usize,
    length: Duration,
    check: Check,
    requests: &impl Fn(&Rc<Target>, usize) -> Requests,
) -> Result<Slice, BenchError> {
    let mut connected = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        let more = usize::from(at < clients % nodes.len());
        connected.push((node, connect(node, clients / nodes.len() + more).await?));
    }
    let running = connected.into_iter().map(|(node, connections)| {
        let pace = node.pace().shared_by(nodes.len());
        ClosedLoop::timed(node, length, check)
            .run_paced(connections, pace, move |client| requests(node, client))
    });
    let client_before = ClientTime::now();
    let mut whole = Slice::new();
    for slice in futures_util::future::try_join_all(running).await? {
        whole.seconds = whole.seconds.max(slice.seconds);
        whole.merge(slice);
    }
    // All were on this thread, and each has counted all of it.
    whole.client = Some(ClientTime::now().since(client_before));
    Ok(whole)
}

struct Client {
    connection: Connection,
    target: Rc<Target>,
    check: Check,
    follow_up: Option<Rc<Vec<u8>>>,
    /// Each operation begins with a new connection.
    has_new_connections: bool,
    slice: Slice,
}

impl Client {
    async fn run(mut self, mut requests: Requests, mut turns: Turns) -> Slice {
        let mut request = Vec::new();
        let mut failures_in_a_row = 0;
        while let Some(turn) = turns.next().await {
            request.clear();
            let Some(units) = requests(&mut request) else {
                break;
            };
            // Two requests of one operation share a connection, which the client closes.
            if self.has_new_connections && self.follow_up.is_none() {
                add_close(&mut request);
            }
            let start = turn.start();
            let sending = self.operate(&request, units, start, &mut failures_in_a_row);
            if !sending.await {
                break;
            }
        }
        self.slice.bytes += self.connection.take_bytes();
        self.target.kept().put(self.connection);
        self.slice
    }

    /// Sends one operation and counts it, its latency from `start`. False when no further request can be sent, or too many have
    /// failed.
    async fn operate(
        &mut self,
        request: &[u8],
        units: u64,
        start: Instant,
        failures_in_a_row: &mut u32,
    ) -> bool {
        let errors_before = self.slice.errors.count;
        if !self.has_new_connections || self.reconnect().await {
            match self.exchange(request, units).await {
                Ok(Some(done)) => self.slice.record(done, start.elapsed()),
                Ok(None) => {}
                Err(error) => self.slice.errors.add(1, || error.to_string()),
            }
        }
        let ready =
            self.has_new_connections || self.connection.is_usable() || self.reconnect().await;
        let failed = self.slice.errors.count > errors_before;
        *failures_in_a_row = if failed { *failures_in_a_row + 1 } else { 0 };
        ready && *failures_in_a_row < FAILURES_IN_A_ROW_MAX
    }

    async fn exchange(&mut self, request: &[u8], units: u64) -> Result<Option<u64>, ClientError> {
        let done = match self.check {
            Check::Status => {
                let status = self.connection.exchange(request, &mut Discard).await?;
                self.accept(status, units)
            }
            Check::Gone => match self.connection.exchange(request, &mut Discard).await? {
                404 => Some(0),
                status => self.accept(status, units),
            },
            Check::Bulk => {
                let mut refused = Occurrences::of(br#""error":"#);
                let status = self.connection.exchange(request, &mut refused).await?;
                let first = refused.first.unwrap_or_default();
                self.slice.errors.add(refused.count, || first);
                self.accept(status, units.saturating_sub(refused.count))
            }
            Check::Rows(needle) => {
                let mut rows = Occurrences::of(needle);
                let status = self.connection.exchange(request, &mut rows).await?;
                let accepted = self.accept(status, rows.count);
                if accepted.is_some() && rows.count != units {
                    self.slice
                        .errors
                        .add(1, || format!("{units} rows expected, {} came", rows.count));
                }
                accepted
            }
        };
        if done.is_none() {
            return Ok(None);
        }
        let Some(follow_up) = self.follow_up.clone() else {
            return Ok(done);
        };
        let status = self.connection.exchange(&follow_up, &mut Discard).await?;
        Ok(self.accept(status, 0).and(done))
    }

    fn accept(&mut self, status: u16, units: u64) -> Option<u64> {
        if (200..300).contains(&status) {
            return Some(units);
        }
        let body = self.connection.refusal();
        self.slice.errors.add(1, || format!("{status}: {body}"));
        None
    }

    async fn reconnect(&mut self) -> bool {
        match self.connection.renew(&self.target).await {
            Ok(()) => true,
            Err(error) => {
                self.slice.errors.add(1, || error.to_string());
                false
            }
        }
    }
}
