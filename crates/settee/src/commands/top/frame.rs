//! The displayed figures: rates between two snapshots.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde_json::Value;

use super::snapshot::{Snapshot, UseSums};
use super::threads::{LanguageRates, ThreadRates, languages, states, threads};
use super::times::{Wait, grown, longest, quantile};

/// Changes between two snapshots of a server, per second, and its state at the second.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Frame {
    pub node: String,
    pub version: String,
    pub uptime_s: f64,
    /// Seconds between the snapshots.
    pub interval_s: f64,
    pub processors: u64,
    pub requests_per_s: f64,
    pub aborted_per_s: f64,
    pub connections_per_s: f64,
    /// Connections that the kernel dropped, since too many waited to be accepted.
    pub dropped_per_s: f64,
    pub sent_bytes_per_s: f64,
    pub received_bytes_per_s: f64,
    pub document_writes_per_s: f64,
    pub syncs_per_s: f64,
    /// Requests that one batch of the commit thread had.
    pub requests_a_batch: f64,
    pub in_flight: u64,
    pub connections: u64,
    pub feeds: u64,
    pub all_databases: u64,
    pub open_databases: u64,
    pub open_indexes: u64,
    pub replications_running: u64,
    pub replications_pending: u64,
    pub replications_crashing: u64,
    /// Processors that the server's threads were busy on, and those that users' functions were.
    pub cpu: f64,
    pub worker_cpu: f64,
    /// Threads' time by kind of work: all threads of the server are 100 together.
    pub states_percent: BTreeMap<String, f64>,
    pub routes: Vec<RouteRates>,
    pub databases: Vec<UseRates>,
    pub views: Vec<ViewRates>,
    pub threads: Vec<ThreadRates>,
    pub languages: Vec<LanguageRates>,
    pub queues: BTreeMap<String, Queue>,
    /// Waits before requests are read.
    pub waits: BTreeMap<String, Wait>,
    /// Threads that could have run, and waited for a processor, in the mean.
    pub run_queue: f64,
    pub tasks: Vec<Task>,
    pub resident_bytes: u64,
    pub memory_limit_bytes: u64,
    pub memory: BTreeMap<String, (u64, u64)>,
    pub disk_free_bytes: Option<u64>,
    pub disk_size_bytes: Option<u64>,
    pub files: BTreeMap<String, u64>,
    /// The nodes of a cluster that were asked, and those that do not answer.
    pub nodes: Vec<NodeRates>,
}

/// A node of a cluster.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NodeRates {
    pub name: String,
    /// Its worst problem, in a few words, or `ok`.
    pub state: String,
    pub per_s: f64,
    pub writes_per_s: f64,
    /// Processors that it keeps busy.
    pub cpu: f64,
    pub lag_s: f64,
    pub lag_records: u64,
    /// Slots whose replicas it changes when that is necessary.
    pub slots_led: u64,
    /// Messages for other nodes that wait.
    pub messages_waiting: u64,
    /// Bytes of messages to other nodes.
    pub messages_bytes_per_s: f64,
}

/// Requests of a class.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RouteRates {
    pub route: String,
    pub per_s: f64,
    pub refused_per_s: f64,
    pub failed_per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// Microseconds, and the number of events that took this time.
    #[serde(skip)]
    pub times: Vec<(u64, u64)>,
}

impl RouteRates {
    /// Sets the times of the requests.
    pub fn set_times(&mut self, times: Vec<(u64, u64)>) {
        self.p50_ms = quantile(&times, 0.5);
        self.p99_ms = quantile(&times, 0.99);
        self.max_ms = longest(&times);
        self.times = times;
    }
}

/// How much a database or a view is used.
#[derive(Clone, Debug, Serialize)]
pub struct UseRates {
    pub name: String,
    pub per_s: f64,
    pub writes_per_s: f64,
    /// Seconds that its requests took, for each second that passed.
    pub busy: f64,
    pub bytes_per_s: f64,
}

/// How much a view or a text index is used.
#[derive(Clone, Debug, Serialize)]
pub struct ViewRates {
    pub name: String,
    pub per_s: f64,
    /// Seconds that its requests took, for each second that passed.
    pub busy: f64,
    /// Seconds that its map function ran, for each second that passed.
    pub functions: f64,
    pub bytes_per_s: f64,
}

/// Work that waits.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Queue {
    pub now: u64,
    /// Most that `top` has seen.
    pub max: u64,
}

/// Something that runs in the background.
#[derive(Clone, Debug, Serialize)]
pub struct Task {
    pub kind: String,
    pub what: String,
    pub percent: Option<u64>,
    pub done: u64,
    pub total: u64,
    /// Seconds until it has ended, at the rate of the last interval.
    pub eta_s: Option<f64>,
    /// Changes that a replication has not copied yet.
    pub pending: Option<u64>,
}

impl Frame {
    /// The changes from `a` to `b`; `before` is the previous frame.
    pub fn between(a: &Snapshot, b: &Snapshot, before: Option<&Frame>) -> Frame {
        let interval = (b.at - a.at).max(1e-6);
        let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 / interval;
        let batches = rate(a.commit_batches, b.commit_batches);
        let cpu = |s: &Snapshot| s.threads.cpu_seconds.values().sum::<f64>();
        let workers = |s: &Snapshot| s.threads.worker_cpu_seconds.unwrap_or(0.0);
        let threads = threads(a, b, interval);
        Frame {
            node: b.node.clone(),
            version: b.version.clone(),
            uptime_s: b.at,
            interval_s: interval,
            processors: b.processors,
            requests_per_s: rate(a.requests, b.requests),
            aborted_per_s: rate(a.aborted, b.aborted),
            connections_per_s: rate(a.connections_accepted, b.connections_accepted),
            dropped_per_s: match (a.connections_dropped, b.connections_dropped) {
                (Some(from), Some(to)) => rate(from, to),
                _ => 0.0,
            },
            sent_bytes_per_s: rate(a.sent_bytes, b.sent_bytes),
            received_bytes_per_s: rate(a.received_bytes, b.received_bytes),
            document_writes_per_s: rate(a.document_writes, b.document_writes),
            syncs_per_s: rate(a.syncs, b.syncs),
            requests_a_batch: match batches > 0.0 {
                true => rate(a.commit_requests, b.commit_requests) / batches,
                false => 0.0,
            },
            in_flight: b.in_flight,
            connections: b.connections,
            feeds: b.feeds,
            all_databases: b.all_databases,
            open_databases: b.open_databases,
            open_indexes: b.open_indexes,
            replications_running: b.replications.running,
            replications_pending: b.replications.pending,
            replications_crashing: b.replications.crashing,
            cpu: (cpu(b) - cpu(a)).max(0.0) / interval,
            worker_cpu: (workers(b) - workers(a)).max(0.0) / interval,
            states_percent: states(&a.threads.clocks, &b.threads.clocks, |_| true),
            routes: routes(a, b, interval),
            databases: uses(&a.databases, &b.databases, a.at, interval),
            views: views(a, b, interval),
            languages: languages(a, b, interval),
            queues: queues(b, before),
            waits: waits(a, b),
            run_queue: threads.iter().map(|of| of.run_queue).sum(),
            tasks: tasks(a, b, interval),
            resident_bytes: b.memory.resident,
            memory_limit_bytes: b.memory.limit,
            memory: memory(b),
            disk_free_bytes: b.disk.free,
            disk_size_bytes: b.disk.size,
            files: b.disk.files.clone(),
            threads,
            nodes: vec![],
        }
    }
}

/// Used bytes and the budget of each part.
fn memory(b: &Snapshot) -> BTreeMap<String, (u64, u64)> {
    let parts = b.memory.parts.iter();
    parts
        .map(|(name, part)| (name.clone(), (part.used, part.budget)))
        .collect()
}

fn routes(a: &Snapshot, b: &Snapshot, interval: f64) -> Vec<RouteRates> {
    let before: HashMap<&str, _> = a.routes.iter().map(|r| (r.route.as_str(), r)).collect();
    let mut all: Vec<RouteRates> = b
        .routes
        .iter()
        .map(|now| {
            let was = before.get(now.route.as_str());
            let rate =
                |to: u64, from: Option<u64>| to.saturating_sub(from.unwrap_or(0)) as f64 / interval;
            let times = grown(was.map_or(&[], |was| &was.times), &now.times);
            let mut rates = RouteRates {
                route: now.route.clone(),
                per_s: rate(now.requests, was.map(|was| was.requests)),
                refused_per_s: rate(now.refused, was.map(|was| was.refused)),
                failed_per_s: rate(now.failed, was.map(|was| was.failed)),
                ..RouteRates::default()
            };
            rates.set_times(times);
            rates
        })
        .collect();
    all.sort_by(|a, b| b.per_s.total_cmp(&a.per_s));
    all
}

/// `told_at` is the time of `a`, in seconds since the server's start.
fn uses(a: &[UseSums], b: &[UseSums], told_at: f64, interval: f64) -> Vec<UseRates> {
    let before: HashMap<&str, &UseSums> = a.iter().map(|of| (of.name.as_str(), of)).collect();
    let mut all: Vec<UseRates> = b
        .iter()
        .filter_map(|now| {
            let was = match before.get(now.name.as_str()) {
                Some(was) if was.since == now.since => (*was).clone(),
                // All of it happened since.
                _ if now.since >= told_at => UseSums::default(),
                // An index that was not listed before may have been used long ago: it counts from
                // the next time on.
                _ => return None,
            };
            let rate = |to: u64, from: u64| to.saturating_sub(from) as f64 / interval;
            Some(UseRates {
                name: now.name.clone(),
                per_s: rate(now.requests, was.requests),
                writes_per_s: rate(now.writes, was.writes),
                busy: (now.seconds - was.seconds).max(0.0) / interval,
                bytes_per_s: rate(now.bytes, was.bytes),
            })
        })
        .collect();
    all.sort_by(|a, b| b.busy.total_cmp(&a.busy));
    all
}

/// Views with queries, and those whose functions run.
fn views(a: &Snapshot, b: &Snapshot, interval: f64) -> Vec<ViewRates> {
    let asked = uses(&a.views, &b.views, a.at, interval);
    let functions = uses(&a.functions, &b.functions, a.at, interval);
    let mut all: BTreeMap<String, ViewRates> = BTreeMap::new();
    let asked = asked.into_iter().map(|of| (of, 0.0));
    let functions = functions.into_iter().map(|of| {
        let functions = of.busy;
        let nobody_asks = UseRates { busy: 0.0, ..of };
        (nobody_asks, functions)
    });
    for (of, functions) in asked.chain(functions) {
        let view = all.entry(of.name.clone()).or_insert(ViewRates {
            name: of.name,
            per_s: of.per_s,
            busy: of.busy,
            functions: 0.0,
            bytes_per_s: of.bytes_per_s,
        });
        view.functions += functions;
    }
    let mut all: Vec<ViewRates> = all.into_values().collect();
    all.sort_by(|a, b| (b.busy + b.functions).total_cmp(&(a.busy + a.functions)));
    all
}

fn waits(a: &Snapshot, b: &Snapshot) -> BTreeMap<String, Wait> {
    let all = b.waits.iter().map(|(name, now)| {
        let was = a.waits.get(name).map_or(&[][..], Vec::as_slice);
        (name.clone(), Wait::of(grown(was, now)))
    });
    all.collect()
}

fn queues(b: &Snapshot, before: Option<&Frame>) -> BTreeMap<String, Queue> {
    let all = b.queues.iter().map(|(name, now)| {
        let seen = before.and_then(|frame| frame.queues.get(name));
        let max = seen.map_or(0, |queue| queue.max).max(*now);
        (name.clone(), Queue { now: *now, max })
    });
    all.collect()
}

fn tasks(a: &Snapshot, b: &Snapshot, interval: f64) -> Vec<Task> {
    let text = |task: &Value, name: &str| task[name].as_str().unwrap_or_default().to_owned();
    let what = |task: &Value| match text(task, "type").as_str() {
        "replication" => format!("{} -> {}", text(task, "source"), text(task, "target")),
        _ => {
            let words = ["database", "design_document", "index"].map(|name| text(task, name));
            words.join(" ")
        }
    };
    let number = |task: &Value, name: &str| task[name].as_u64();
    let all = b.tasks.iter().map(|task| {
        let (kind, what_now) = (text(task, "type"), what(task));
        let done = number(task, "changes_done").or(number(task, "docs_written"));
        let (done, total) = (
            done.unwrap_or(0),
            number(task, "total_changes").unwrap_or(0),
        );
        let was = a.tasks.iter().find(|was| {
            text(was, "type") == kind
                && what(was) == what_now
                && was["started_on"] == task["started_on"]
        });
        let speed = was.and_then(|was| number(was, "changes_done"));
        let speed = speed.map(|before| done.saturating_sub(before) as f64 / interval);
        Task {
            percent: number(task, "progress"),
            eta_s: speed
                .filter(|speed| *speed > 0.0 && total >= done)
                .map(|speed| (total - done) as f64 / speed),
            pending: number(task, "changes_pending"),
            what: what_now.trim().to_owned(),
            kind,
            done,
            total,
        }
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_between() {
        let a = Snapshot {
            at: 10.0,
            requests: 100,
            ..Snapshot::default()
        };
        let b = Snapshot {
            at: 12.0,
            requests: 300,
            ..Snapshot::default()
        };
        assert_eq!(Frame::between(&a, &b, None).requests_per_s, 100.0);
    }

    #[test]
    fn what_began_in_between_counts_from_nothing() {
        let of = |name: &str, since, requests| UseSums {
            name: name.into(),
            since,
            requests,
            ..UseSums::default()
        };
        let before = [of("known", 1.0, 10), of("forgotten", 1.0, 90)];
        let now = [
            of("known", 1.0, 30),
            of("forgotten", 11.0, 4),
            of("new", 12.0, 6),
            of("quiet", 2.0, 700),
        ];
        let rates = uses(&before, &now, 10.0, 2.0);
        let rates: BTreeMap<&str, f64> = rates.iter().map(|r| (r.name.as_str(), r.per_s)).collect();
        assert_eq!(
            rates,
            [("known", 10.0), ("forgotten", 2.0), ("new", 3.0)].into()
        );
    }

    #[test]
    fn waits_before_requests_are_of_what_came_to_them() {
        let of = |at, times: &[(u64, u64)], dropped| Snapshot {
            at,
            waits: [("socket".to_owned(), times.to_vec())].into(),
            connections_dropped: dropped,
            ..Snapshot::default()
        };
        let a = of(10.0, &[(1_000, 5)], Some(4));
        let b = of(12.0, &[(1_000, 6), (266_000, 9)], Some(10));
        let frame = Frame::between(&a, &b, None);
        let wait = &frame.waits["socket"];
        assert_eq!((wait.samples, wait.p50_ms, wait.max_ms), (10, 266.0, 266.0));
        assert_eq!(frame.dropped_per_s, 3.0);
        let unknown = of(12.0, &[], None);
        assert_eq!(Frame::between(&a, &unknown, None).dropped_per_s, 0.0);
    }

    #[test]
    fn queues_remember_their_longest() {
        let of = |n| Snapshot {
            queues: [("commit".to_owned(), n)].into(),
            ..Snapshot::default()
        };
        let first = Frame::between(&of(0), &of(7), None);
        let second = Frame::between(&of(7), &of(2), Some(&first));
        assert_eq!(
            (second.queues["commit"].now, second.queues["commit"].max),
            (2, 7)
        );
    }
}
