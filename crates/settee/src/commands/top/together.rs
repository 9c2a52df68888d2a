//! The frames of several nodes as one.

use std::collections::BTreeMap;

use super::frame::{Frame, NodeRates, Queue, RouteRates, UseRates, ViewRates};
use super::snapshot::{ClusterPart, Snapshot, Snapshots};
use super::threads::{LanguageRates, ThreadRates};
use super::times::Wait;

impl Frame {
    /// The changes of all nodes together, of those that both answers have; `None` without one. A
    /// restarted node begins again. `before` is the previous frame.
    pub fn of_all(a: &Snapshots, b: &Snapshots, before: Option<&Frame>) -> Option<Frame> {
        let mut frames = vec![];
        let mut nodes = vec![];
        for now in &b.nodes {
            let is_same = |was: &&Snapshot| was.node == now.node && was.started == now.started;
            let Some(was) = a.nodes.iter().find(is_same) else {
                continue;
            };
            let frame = Frame::between(was, now, None);
            nodes.extend(node(was, now, &frame));
            frames.push(frame);
        }
        let mut frame = together(frames)?;
        for (name, queue) in &mut frame.queues {
            let seen = before.and_then(|frame| frame.queues.get(name));
            queue.max = seen.map_or(0, |seen| seen.max).max(queue.now);
        }
        nodes.extend(b.silent.iter().map(|name| NodeRates {
            name: name.clone(),
            state: "no answer".to_owned(),
            ..NodeRates::default()
        }));
        frame.nodes = nodes;
        Some(frame)
    }
}

fn node(was: &Snapshot, now: &Snapshot, frame: &Frame) -> Option<NodeRates> {
    let cluster = now.cluster.as_ref()?;
    let sent_before = was.cluster.as_ref().map_or(0, |of| of.messages_sent_bytes);
    let sent = cluster.messages_sent_bytes.saturating_sub(sent_before);
    Some(NodeRates {
        name: now.node.clone(),
        state: state(cluster),
        per_s: frame.requests_per_s,
        writes_per_s: frame.document_writes_per_s,
        cpu: frame.cpu + frame.worker_cpu,
        lag_s: cluster.lag_seconds,
        lag_records: cluster.lag_records,
        slots_led: cluster.slots_led,
        messages_waiting: cluster.messages_waiting,
        messages_bytes_per_s: sent as f64 / frame.interval_s,
    })
}

/// The worst that is wrong with a node.
fn state(of: &ClusterPart) -> String {
    match of {
        of if !of.log_up => "no log".to_owned(),
        of if !of.fit => "unfit".to_owned(),
        of if of.slots_halted > 0 => format!("{} halted", of.slots_halted),
        of if of.slots_refusing > 0 => format!("{} refuse", of.slots_refusing),
        of if of.members_down > 0 => format!("misses {}", of.members_down),
        of if of.slots_under_replicated > 0 => format!("{} copying", of.slots_under_replicated),
        _ => "ok".to_owned(),
    }
}

/// Sums and means of all frames; `None` without one.
fn together(frames: Vec<Frame>) -> Option<Frame> {
    let count = frames.len();
    let mut frames = frames.into_iter();
    let mut all = frames.next()?;
    let mut batches = all.requests_a_batch * all.syncs_per_s;
    for frame in frames {
        batches += frame.requests_a_batch * frame.syncs_per_s;
        add(&mut all, frame);
    }
    if count == 1 {
        return Some(all);
    }
    all.node = format!("{count} nodes,");
    all.interval_s /= count as f64;
    all.requests_a_batch = match all.syncs_per_s > 0.0 {
        true => batches / all.syncs_per_s,
        false => 0.0,
    };
    whole(&mut all.states_percent);
    for threads in &mut all.threads {
        whole(&mut threads.states_percent);
    }
    all.routes.sort_by(|a, b| b.per_s.total_cmp(&a.per_s));
    all.databases.sort_by(|a, b| b.busy.total_cmp(&a.busy));
    let busy = |view: &ViewRates| view.busy + view.functions;
    all.views.sort_by(|a, b| busy(b).total_cmp(&busy(a)));
    all.threads.sort_by(|a, b| b.cpu.total_cmp(&a.cpu));
    all.languages.sort_by(|a, b| b.cpu.total_cmp(&a.cpu));
    Some(all)
}

/// Scales shares so that they sum up to 100 again.
fn whole(shares: &mut BTreeMap<String, f64>) {
    let sum: f64 = shares.values().sum();
    shares.values_mut().for_each(|share| *share *= 100.0 / sum);
}

fn add(all: &mut Frame, of: Frame) {
    for (sum, n) in [
        (&mut all.interval_s, of.interval_s),
        (&mut all.requests_per_s, of.requests_per_s),
        (&mut all.aborted_per_s, of.aborted_per_s),
        (&mut all.connections_per_s, of.connections_per_s),
        (&mut all.dropped_per_s, of.dropped_per_s),
        (&mut all.run_queue, of.run_queue),
        (&mut all.sent_bytes_per_s, of.sent_bytes_per_s),
        (&mut all.received_bytes_per_s, of.received_bytes_per_s),
        (&mut all.document_writes_per_s, of.document_writes_per_s),
        (&mut all.syncs_per_s, of.syncs_per_s),
        (&mut all.cpu, of.cpu),
        (&mut all.worker_cpu, of.worker_cpu),
    ] {
        *sum += n;
    }
    for (sum, n) in [
        (&mut all.processors, of.processors),
        (&mut all.in_flight, of.in_flight),
        (&mut all.connections, of.connections),
        (&mut all.feeds, of.feeds),
        (&mut all.open_databases, of.open_databases),
        (&mut all.open_indexes, of.open_indexes),
        (&mut all.replications_running, of.replications_running),
        (&mut all.replications_pending, of.replications_pending),
        (&mut all.replications_crashing, of.replications_crashing),
        (&mut all.resident_bytes, of.resident_bytes),
        (&mut all.memory_limit_bytes, of.memory_limit_bytes),
    ] {
        *sum += n;
    }
    // Each node has all of them.
    all.all_databases = all.all_databases.max(of.all_databases);
    all.uptime_s = all.uptime_s.min(of.uptime_s);
    let sum = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
    all.disk_free_bytes = sum(all.disk_free_bytes, of.disk_free_bytes);
    all.disk_size_bytes = sum(all.disk_size_bytes, of.disk_size_bytes);
    add_tables(all, of);
}

fn add_tables(all: &mut Frame, of: Frame) {
    for (state, share) in of.states_percent {
        *all.states_percent.entry(state).or_default() += share;
    }
    for (name, (used, budget)) in of.memory {
        let sum = all.memory.entry(name).or_default();
        *sum = (sum.0 + used, sum.1 + budget);
    }
    for (name, bytes) in of.files {
        *all.files.entry(name).or_default() += bytes;
    }
    for (name, Queue { now, .. }) in of.queues {
        all.queues.entry(name).or_default().now += now;
    }
    all.tasks.extend(of.tasks);
    for rates in of.routes {
        add_or_push(&mut all.routes, rates, |r| &r.route, add_route);
    }
    for rates in of.databases {
        let add = |sum: &mut UseRates, of: UseRates| {
            sum.per_s += of.per_s;
            sum.writes_per_s += of.writes_per_s;
            sum.busy += of.busy;
            sum.bytes_per_s += of.bytes_per_s;
        };
        add_or_push(&mut all.databases, rates, |r| &r.name, add);
    }
    for rates in of.views {
        let add = |sum: &mut ViewRates, of: ViewRates| {
            sum.per_s += of.per_s;
            sum.busy += of.busy;
            sum.functions += of.functions;
            sum.bytes_per_s += of.bytes_per_s;
        };
        add_or_push(&mut all.views, rates, |r| &r.name, add);
    }
    for rates in of.languages {
        let add = |sum: &mut LanguageRates, of: LanguageRates| {
            sum.processes += of.processes;
            sum.private_bytes += of.private_bytes;
            sum.cpu += of.cpu;
        };
        add_or_push(&mut all.languages, rates, |r| &r.language, add);
    }
    for (name, wait) in of.waits {
        let sum = all.waits.entry(name).or_default();
        *sum = Wait::of(sum_of_times(&sum.times, wait.times));
    }
    for rates in of.threads {
        let add = |sum: &mut ThreadRates, of: ThreadRates| {
            sum.alive += of.alive;
            sum.cpu += of.cpu;
            sum.run_queue += of.run_queue;
            sum.each.extend(of.each);
            sum.each.sort_by(|a, b| b.cpu.total_cmp(&a.cpu));
            for (state, share) in of.states_percent {
                *sum.states_percent.entry(state).or_default() += share;
            }
        };
        add_or_push(&mut all.threads, rates, |r| &r.name, add);
    }
}

fn add_route(sum: &mut RouteRates, of: RouteRates) {
    sum.per_s += of.per_s;
    sum.refused_per_s += of.refused_per_s;
    sum.failed_per_s += of.failed_per_s;
    sum.set_times(sum_of_times(&sum.times, of.times));
}

/// The sum of two distributions: pairs of a value and its count, by value.
fn sum_of_times(a: &[(u64, u64)], b: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut times: BTreeMap<u64, u64> = a.iter().copied().collect();
    for (us, n) in b {
        *times.entry(us).or_default() += n;
    }
    times.into_iter().collect()
}

/// Adds an item to the one with the same name, if there is one.
fn add_or_push<T>(
    all: &mut Vec<T>,
    item: T,
    name: impl Fn(&T) -> &String,
    add: impl Fn(&mut T, T),
) {
    match all.iter_mut().find(|other| name(other) == name(&item)) {
        Some(same) => add(same, item),
        None => all.push(item),
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::RouteSums;
    use super::*;

    fn snapshot(node: &str, at: f64, requests: u64, times: &[(u64, u64)]) -> Snapshot {
        Snapshot {
            node: node.to_owned(),
            at,
            requests,
            routes: vec![RouteSums {
                route: "view".to_owned(),
                requests,
                refused: 0,
                failed: 0,
                times: times.to_vec(),
            }],
            queues: [("commit".to_owned(), requests / 100)].into(),
            waits: [("accept".to_owned(), times.to_vec())].into(),
            cluster: Some(ClusterPart {
                log_up: true,
                fit: true,
                messages_sent_bytes: requests,
                ..ClusterPart::default()
            }),
            ..Snapshot::default()
        }
    }

    fn snapshots(nodes: Vec<Snapshot>) -> Snapshots {
        Snapshots {
            nodes,
            silent: vec!["c".to_owned()],
        }
    }

    #[test]
    fn nodes_are_added_up() {
        let a = [snapshot("a", 10.0, 100, &[]), snapshot("b", 50.0, 0, &[])];
        let fast = [(1_000, 90)];
        let slow = [(1_000, 5), (9_000, 105)];
        let b = [
            snapshot("a", 12.0, 280, &fast),
            snapshot("b", 52.0, 220, &slow),
        ];
        let (a, b) = (snapshots(a.to_vec()), snapshots(b.to_vec()));
        let frame = Frame::of_all(&a, &b, None).unwrap();
        assert_eq!((frame.requests_per_s, frame.interval_s), (200.0, 2.0));
        assert_eq!(frame.uptime_s, 12.0);
        let [view] = &frame.routes[..] else {
            panic!("{:?}", frame.routes)
        };
        assert_eq!((view.per_s, view.p50_ms, view.p99_ms), (200.0, 9.0, 9.0));
        let rows: Vec<_> = frame
            .nodes
            .iter()
            .map(|n| (&*n.name, &*n.state, n.per_s, n.messages_bytes_per_s))
            .collect();
        assert_eq!(
            rows,
            [
                ("a", "ok", 90.0, 90.0),
                ("b", "ok", 110.0, 110.0),
                ("c", "no answer", 0.0, 0.0)
            ]
        );
        let wait = &frame.waits["accept"];
        assert_eq!((wait.samples, wait.p50_ms), (200, 9.0));
        let queue = frame.queues["commit"];
        assert_eq!((queue.now, queue.max), (4, 4));
        let next = Frame::of_all(&b, &b, Some(&frame)).unwrap();
        assert_eq!(next.queues["commit"].max, 4);
    }

    #[test]
    fn a_restarted_node_begins_again() {
        let a = snapshot("a", 10.0, 100, &[]);
        let restarted = Snapshot {
            started: 7,
            ..snapshot("a", 1.0, 5, &[])
        };
        let of = |nodes: &[&Snapshot]| snapshots(nodes.iter().map(|n| (*n).clone()).collect());
        assert!(Frame::of_all(&of(&[&a]), &of(&[&restarted]), None).is_none());
        let b = [snapshot("b", 10.0, 0, &[]), snapshot("b", 12.0, 10, &[])];
        let (was, now) = (of(&[&a, &b[0]]), of(&[&restarted, &b[1]]));
        let frame = Frame::of_all(&was, &now, None).unwrap();
        assert_eq!(frame.requests_per_s, 5.0);
    }

    #[test]
    fn the_worst_is_the_state() {
        let mut of = ClusterPart {
            log_up: true,
            fit: true,
            ..ClusterPart::default()
        };
        assert_eq!(state(&of), "ok");
        of.members_down = 1;
        of.slots_under_replicated = 5;
        assert_eq!(state(&of), "misses 1");
        of.slots_halted = 2;
        assert_eq!(state(&of), "2 halted");
        of.fit = false;
        assert_eq!(state(&of), "unfit");
        of.log_up = false;
        assert_eq!(state(&of), "no log");
    }
}
