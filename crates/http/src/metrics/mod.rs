//! Counters of requests, and their output.
//!
//! Requests are counted when their bodies have ended: [`ending`]. [`routes::Class`] has the classes that are counted separately, [`catalogue`] is
//! the list of all metrics, [`prometheus`] and [`tree`] are its two forms.

pub mod catalogue;
pub mod ending;
pub mod machine;
pub mod prometheus;
pub mod slow;
pub mod stat;
pub mod traced;
pub mod tree;
pub mod usage;
pub mod waits;

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use routes::{CLASSES, Class};
use telemetry::{Tick, distribution};

/// The methods that are counted separately; others are the last.
pub const METHODS: [&str; 8] = [
    "COPY", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "other",
];
/// Statuses that an answer can have.
const STATUS_MIN: u16 = 100;
const STATUS_MAX: u16 = 599;
/// Parts of the counters, so that threads seldom meet at one. A part has some 26 KB for each class that it has seen.
const PARTS: usize = 8;

/// All counters.
pub struct Stats {
    parts: [Part; PARTS],
    /// Requests whose heads were read, and a random number: where their ids begin.
    begun: AtomicU64,
    first: u64,
    connections: AtomicU64,
    connections_accepted: AtomicU64,
    slow_log: OnceLock<Mutex<slow::Writer>>,
    sockets: Mutex<Vec<Socket>>,
    started: Tick,
}

/// A socket that connections come in at.
pub struct Socket {
    /// Where.
    pub address: SocketAddr,
    /// With TLS.
    pub is_secured: bool,
    /// A duplicate of the socket, to read the kernel's counters of it.
    pub descriptor: OwnedFd,
}

/// Counters of some threads, on cache lines of their own.
#[repr(align(128))]
struct Part(Mutex<Counts>);

/// Counters of requests.
#[derive(Clone)]
pub struct Counts {
    /// Requests that were answered, or whose clients had gone before.
    pub requests: u64,
    /// Requests by method.
    pub methods: [u64; METHODS.len()],
    /// Responses by status.
    statuses: Vec<u64>,
    /// Requests whose clients went before they had the whole answer.
    pub aborted: u64,
    /// Responses that were cut because of an error in the middle.
    pub cut: u64,
    /// Requests that are over.
    pub ended: u64,
    /// Bytes of answers' bodies.
    pub bytes_sent: u64,
    /// Bytes of requests' bodies.
    pub bytes_received: u64,
    /// Documents read one by one.
    pub document_reads: u64,
    /// Requests for a partition, by class.
    of_partitions: [u64; CLASSES.len()],
    /// Requests by class.
    routes: Vec<Option<Box<OfRoute>>>,
    /// Documents of `_bulk_docs` requests.
    pub bulk_docs: Histogram<u64>,
    /// By database and by view.
    pub usage: usage::Usage,
}

/// Requests of a class.
#[derive(Clone)]
pub struct OfRoute {
    /// Time to the end of the body, in microseconds.
    pub whole_us: Histogram<u64>,
    /// Responses with a status of 500 and above.
    pub failed: u64,
    /// Responses with a status of 400 to 499.
    pub refused: u64,
}

impl OfRoute {
    fn new() -> OfRoute {
        OfRoute {
            whole_us: distribution(),
            failed: 0,
            refused: 0,
        }
    }

    fn add(&mut self, other: &OfRoute) {
        add(&mut self.whole_us, &other.whole_us);
        self.failed += other.failed;
        self.refused += other.refused;
    }
}

/// Adds a histogram to one with the same bounds.
fn add(to: &mut Histogram<u64>, from: &Histogram<u64>) {
    if let Err(e) = to.add(from) {
        tracing::error!(error = %e, "histograms of different bounds");
    }
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            requests: 0,
            methods: [0; METHODS.len()],
            statuses: vec![0; usize::from(STATUS_MAX - STATUS_MIN + 1)],
            aborted: 0,
            cut: 0,
            ended: 0,
            bytes_sent: 0,
            bytes_received: 0,
            document_reads: 0,
            of_partitions: [0; CLASSES.len()],
            routes: CLASSES.iter().map(|_| None).collect(),
            bulk_docs: distribution(),
            usage: usage::Usage::default(),
        }
    }
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.requests += other.requests;
        self.aborted += other.aborted;
        self.cut += other.cut;
        self.ended += other.ended;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.document_reads += other.document_reads;
        for (to, from) in self.of_partitions.iter_mut().zip(&other.of_partitions) {
            *to += from;
        }
        for (to, from) in self.methods.iter_mut().zip(&other.methods) {
            *to += from;
        }
        for (to, from) in self.statuses.iter_mut().zip(&other.statuses) {
            *to += from;
        }
        for (to, from) in self.routes.iter_mut().zip(&other.routes) {
            if let Some(from) = from {
                to.get_or_insert_with(|| Box::new(OfRoute::new())).add(from);
            }
        }
        add(&mut self.bulk_docs, &other.bulk_docs);
    }

    /// Counts a response's head.
    fn head(&mut self, method: &str, status: u16) {
        self.method(method);
        if let Some(n) = self
            .statuses
            .get_mut(usize::from(status.wrapping_sub(STATUS_MIN)))
        {
            *n += 1;
        }
    }

    fn method(&mut self, method: &str) {
        self.requests += 1;
        let others = METHODS.len() - 1;
        let at = METHODS[..others].binary_search(&method).unwrap_or(others);
        self.methods[at] += 1;
    }

    fn of_route(&mut self, route: Class) -> &mut OfRoute {
        self.routes[route as usize].get_or_insert_with(|| Box::new(OfRoute::new()))
    }

    /// Statuses that were answered, with how often.
    pub fn statuses(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        (STATUS_MIN..=STATUS_MAX).zip(self.statuses.iter().copied())
    }

    /// How often a status was answered.
    pub fn status(&self, status: u16) -> u64 {
        let at = usize::from(status.wrapping_sub(STATUS_MIN));
        self.statuses.get(at).copied().unwrap_or(0)
    }

    /// The classes that had requests.
    pub fn routes(&self) -> impl Iterator<Item = (Class, &OfRoute)> {
        let all = CLASSES.iter().copied().zip(&self.routes);
        all.filter_map(|(route, of)| Some((route, of.as_deref()?)))
    }

    /// Time of all requests but feeds to the end of their answers' bodies, in microseconds.
    pub fn request_us(&self) -> Histogram<u64> {
        let mut all = distribution();
        let routes = self.routes().filter(|(route, _)| !route.is_feed());
        routes.for_each(|(_, of)| add(&mut all, &of.whole_us));
        all
    }

    /// Counters of a class, if it had requests.
    pub fn route(&self, route: Class) -> Option<&OfRoute> {
        self.routes[route as usize].as_deref()
    }

    /// Requests of a class for a partition.
    pub fn of_partitions(&self, route: Class) -> u64 {
        self.of_partitions[route as usize]
    }

    /// Requests of a class that are over.
    pub fn of(&self, route: Class) -> u64 {
        self.route(route).map_or(0, |of| of.whole_us.len())
    }
}

/// A connection that is open.
pub(crate) struct OpenConnection(Arc<Stats>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

impl Default for Stats {
    fn default() -> Self {
        let mut first = [0; 8];
        // Without random numbers the ids begin at 0: they stay distinct.
        let _ = getrandom::fill(&mut first);
        let first = u64::from_ne_bytes(first);
        Stats {
            parts: std::array::from_fn(|_| Part(Mutex::default())),
            begun: AtomicU64::new(first),
            first,
            connections: AtomicU64::default(),
            connections_accepted: AtomicU64::default(),
            slow_log: OnceLock::new(),
            sockets: Mutex::default(),
            started: Tick::now(),
        }
    }
}

impl Stats {
    /// Counts a request whose head was read. Returns a number that is unique, also across restarts.
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Relaxed)
    }

    /// Sets the output for the lines of slow requests; only the first call has an effect.
    pub fn log_slow_to(&self, writer: slow::Writer) {
        self.slow_log.get_or_init(|| Mutex::new(writer));
    }

    fn log_slow(&self, line: &serde_json::Value) {
        let mut writer = self.slow_log.get().map(Mutex::lock);
        slow::write(writer.as_deref_mut(), line);
    }

    /// Counts an accepted connection; it is open until the result is dropped.
    pub(crate) fn connect(self: &Arc<Self>) -> OpenConnection {
        self.connections.fetch_add(1, Relaxed);
        self.connections_accepted.fetch_add(1, Relaxed);
        OpenConnection(self.clone())
    }

    /// Sets the listening sockets; none when the server ends: they stay open while they are here.
    pub(crate) fn listen_at(&self, sockets: Vec<Socket>) {
        *self.sockets.lock() = sockets;
    }

    /// Where connections come in: addresses, each with whether it has TLS.
    pub fn sockets(&self) -> Vec<(SocketAddr, bool)> {
        let sockets = self.sockets.lock();
        sockets
            .iter()
            .map(|socket| (socket.address, socket.is_secured))
            .collect()
    }

    /// Connections that the kernel dropped since the start, since too many waited to be accepted.
    /// `None` when unknown.
    pub fn connections_dropped(&self) -> Option<u64> {
        let sockets = self.sockets.lock();
        let of = |socket: &Socket| telemetry::dropped_connections(socket.descriptor.as_fd());
        sockets.iter().map(|socket| of(socket).map(u64::from)).sum()
    }

    /// Connections that are open.
    pub fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    /// Connections since the start.
    pub fn connections_accepted(&self) -> u64 {
        self.connections_accepted.load(Relaxed)
    }

    /// How long it has been counted.
    pub fn since_start(&self) -> Duration {
        Duration::from_micros(self.started.elapsed_us())
    }

    /// Requests whose answers are under way, given those that are over.
    pub fn in_flight(&self, counts: &Counts) -> u64 {
        let begun = self.begun.load(Relaxed).wrapping_sub(self.first);
        begun.saturating_sub(counts.ended)
    }

    /// All counters, except those of used databases and indexes.
    pub fn counts(&self) -> Counts {
        let mut all = Counts::default();
        for part in &self.parts {
            // Copied while it is held: adding up takes longer.
            let counts = {
                let mut held = part.0.lock();
                let usage = std::mem::take(&mut held.usage);
                let counts = held.clone();
                held.usage = usage;
                counts
            };
            all.add(&counts);
        }
        all
    }

    /// The used databases and indexes.
    pub fn usage(&self) -> usage::Usage {
        let mut all = usage::Usage::default();
        for part in &self.parts {
            let usage = part.0.lock().usage.clone();
            all.add(&usage);
        }
        all
    }

    /// Counts on the part of this thread.
    fn count(&self, f: impl FnOnce(&mut Counts)) {
        let part = telemetry::part_of(PARTS);
        f(&mut self.parts[part].0.lock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_that_are_searched_are_sorted() {
        assert!(METHODS[..METHODS.len() - 1].is_sorted());
    }

    #[test]
    fn every_status_and_method_counts() {
        let stats = Stats::default();
        for status in [100, 299, 417, 508, 599, 600, 99, 0, u16::MAX] {
            stats.count(|c| c.head("PATCH", status));
        }
        let counts = stats.counts();
        assert_eq!(counts.requests, 9);
        assert_eq!(counts.methods[METHODS.len() - 1], 9);
        assert_eq!(counts.statuses().map(|(_, n)| n).sum::<u64>(), 5);
        assert_eq!(counts.status(508), 1);
    }

    #[test]
    fn parts_add_up_over_threads() {
        let stats = Stats::default();
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    for us in 0..100 {
                        stats.begin();
                        stats.count(|c| {
                            c.head("GET", 200);
                            c.ended += 1;
                            c.of_route(Class::View)
                                .whole_us
                                .saturating_record(us.max(1));
                        });
                    }
                });
            }
        });
        let counts = stats.counts();
        assert_eq!((counts.requests, counts.of(Class::View)), (4000, 4000));
        assert_eq!(stats.in_flight(&counts), 0);
    }
}
