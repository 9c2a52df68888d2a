//! The counters of a server, in parts, so that threads seldom meet at one.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use telemetry::Tick;

use crate::completed::CompletedRequest;
use crate::counts::Counts;
use crate::slow_log::{self, RecentLines, Writer};
use crate::usage::Usage;

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
    slow_log: OnceLock<Mutex<Writer>>,
    recent_slow: Mutex<RecentLines>,
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

/// A connection that is open.
pub struct OpenConnection(Arc<Stats>);

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
            recent_slow: Mutex::default(),
            sockets: Mutex::default(),
            started: Tick::now(),
        }
    }
}

impl Stats {
    /// Counts a request whose head was read. Returns a number that is unique, also across restarts.
    pub fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Relaxed)
    }

    /// Sets the output for the lines of slow requests; only the first call has an effect.
    pub fn log_slow_to(&self, writer: Writer) {
        self.slow_log.get_or_init(|| Mutex::new(writer));
    }

    /// Writes a line to the slow log, or to the server's log while no other output is set, and keeps it for
    /// [`Stats::recent_slow`].
    pub fn log_slow(&self, line: &serde_json::Value) {
        let line = slow_log::text(line);
        let mut writer = self.slow_log.get().map(Mutex::lock);
        slow_log::write(writer.as_deref_mut(), &line);
        drop(writer);
        self.recent_slow.lock().add(line);
    }

    /// Returns the last lines of the slow log since the start, at most 100, the latest first.
    pub fn recent_slow(&self) -> Vec<String> {
        self.recent_slow.lock().latest_first()
    }

    /// Counts an accepted connection; it is open until the result is dropped.
    pub fn connect(self: &Arc<Self>) -> OpenConnection {
        self.connections.fetch_add(1, Relaxed);
        self.connections_accepted.fetch_add(1, Relaxed);
        OpenConnection(self.clone())
    }

    /// Sets the listening sockets; none when the server ends: they stay open while they are here.
    pub fn listen_at(&self, sockets: Vec<Socket>) {
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
    pub fn usage(&self) -> Usage {
        let mut all = Usage::default();
        for part in &self.parts {
            let usage = part.0.lock().usage.clone();
            all.add(&usage);
        }
        all
    }

    /// Counts a request that is over, on the part of this thread.
    pub fn count(&self, request: &CompletedRequest<'_>) {
        let since_start = self.since_start();
        let part = telemetry::part_of(PARTS);
        self.parts[part].0.lock().count(request, since_start);
    }
}

#[cfg(test)]
mod tests {
    use routes::Class;

    use super::*;
    use crate::completed::End;

    /// A request for a view that was answered in `us` microseconds.
    fn request(us: u64) -> CompletedRequest<'static> {
        CompletedRequest {
            class: Class::View,
            method: "GET",
            status: 200,
            end: End::Whole,
            us,
            bytes_sent: 0,
            bytes_received: 0,
            document_reads: 0,
            bulk_docs: None,
            is_of_partition: false,
            database: None,
            view: None,
        }
    }

    #[test]
    fn parts_add_up_over_threads() {
        let stats = Stats::default();
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    for us in 0..100 {
                        stats.begin();
                        stats.count(&request(us));
                    }
                });
            }
        });
        let counts = stats.counts();
        assert_eq!((counts.requests, counts.of(Class::View)), (4000, 4000));
        assert_eq!(stats.in_flight(&counts), 0);
    }

    #[test]
    fn used_databases_and_views_are_counted_apart_from_the_other_counters() {
        let stats = Stats::default();
        for view in [None, Some("db/_design/d/_view/v")] {
            stats.count(&CompletedRequest {
                database: Some("db"),
                view,
                bytes_sent: 5,
                ..request(10)
            });
        }
        let usage = stats.usage();
        assert_eq!(usage.databases.most_used(9), ["db"]);
        assert_eq!(usage.views.most_used(9), ["db/_design/d/_view/v"]);
        assert!(stats.counts().usage.databases.most_used(9).is_empty());
        let busiest = usage.databases.busiest(1, stats.since_start());
        assert_eq!((busiest[0].1.requests, busiest[0].1.bytes), (2, 10));
    }
}
