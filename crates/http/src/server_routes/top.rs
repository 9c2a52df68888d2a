//! `/_settee/top`: the data of `settee top`, as sums since the start. Two requests give rates.

use std::sync::LazyLock;

use hdrhistogram::Histogram;
use member::ClusterFigures;
use metrics::{Counts, MemoryPart, process};
use peers::Traffic;
use serde_json::{Map, Value, json};
use telemetry::UsageByName;

use crate::app::App;
use crate::clustered;
use crate::connection::arrival::ARRIVAL_WAITS;
use crate::errors::ApiError;
use crate::metric_catalogue::machine;
use crate::reply::Reply;
use crate::request::Request;
use crate::server_routes::{root, this_node};

/// Most databases, and views, that are listed: those that recently took the most time.
const BUSIEST_MAX: usize = 100;
/// Most tasks that are listed.
const TASKS_MAX: usize = 200;

/// A random number that identifies this start of the server: sums restart with it. JSON numbers are
/// exact up to 53 bits.
static STARTED: LazyLock<u64> = LazyLock::new(|| fastrand::u64(..1 << 53));

/// The path of the answer of one node.
const PATH: &str = "/_settee/top";

/// Answers clients that may read metrics. With `all=true`, all nodes of the cluster answer.
pub async fn route(app: &App, req: &Request) -> Result<Reply, ApiError> {
    let shared = app.shared()?;
    let is_admin = req.user.is_admin();
    let own = this_node::off_thread(move || told(&shared, is_admin)).await?;
    if req.query.get("all") != Some("true") {
        return Ok(Reply::json(200, &own));
    }
    let mut nodes = vec![own];
    nodes.extend(clustered::gather(app, req, PATH).await);
    let members = app.node.member().map_or(vec![], |member| member.nodes());
    let has_answered = |name: &str| nodes.iter().any(|node| node["node"] == name);
    let silent = members.into_iter().map(|member| member.name);
    let silent: Vec<String> = silent.filter(|name| !has_answered(name)).collect();
    Ok(Reply::json(200, &json!({"nodes": nodes, "silent": silent})))
}

fn told(app: &App, is_admin: bool) -> Value {
    let counts = app.stats.counts();
    let mut told = sums(app, &counts);
    told["routes"] = routes(&counts);
    told["threads"] = threads();
    told["languages"] = languages();
    let usage = app.stats.usage();
    told["databases"] = busiest(app, &usage.databases);
    told["views"] = busiest(app, &usage.views);
    told["functions"] = busiest(app, &functions::times::told());
    told["tasks"] = tasks(app, is_admin);
    told["waits"] = object(ARRIVAL_WAITS.iter().map(|wait| {
        let times = wait.times.snapshot();
        (wait.name, times_of(&times).into())
    }));
    told["queues"] = object(machine::queues(app).map(|(name, n)| (name, n.into())));
    told["memory"] = memory(app);
    told["disk"] = disk(app);
    told["cluster"] = app
        .node
        .member()
        .map_or(Value::Null, |member| cluster(&member.figures()));
    told
}

/// The node's part in its cluster.
fn cluster(figures: &ClusterFigures) -> Value {
    let (slots, peers) = (&figures.slots, &figures.peers);
    let sum = |of: fn(&Traffic) -> u64| peers.iter().map(|peer| of(&peer.traffic)).sum::<u64>();
    json!({
        "log_up": figures.is_log_up,
        "fit": figures.is_fit,
        "members": figures.members,
        "members_down": figures.members.saturating_sub(figures.live),
        "slots": slots.all,
        "slots_led": slots.led,
        "slots_under_replicated": slots.under_replicated,
        "slots_halted": slots.halted,
        "slots_refusing": slots.refusing,
        "lag_records": slots.lag_records,
        "lag_seconds": slots.lag.as_secs_f64(),
        "messages_waiting": sum(|of| of.waiting),
        "messages_waiting_bytes": sum(|of| of.waiting_bytes),
        "messages_sent_bytes": sum(|of| of.sent_bytes),
    })
}

fn object(members: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let members = members.into_iter();
    members
        .map(|(name, value)| (name.to_owned(), value))
        .collect::<Map<_, _>>()
        .into()
}

/// Numbers of the server as a whole. `at` is when, in seconds since its start.
fn sums(app: &App, c: &Counts) -> Value {
    let engine = app.node.databases.stats();
    let jobs = app.node.replicator.job_counts();
    json!({
        "node": app.node.name,
        "version": env!("CARGO_PKG_VERSION"),
        "started": *STARTED,
        "at": app.stats.since_start().as_secs_f64(),
        "processors": std::thread::available_parallelism().map_or(1, |n| n.get()),
        "requests": c.requests,
        "aborted": c.aborted,
        "in_flight": app.stats.in_flight(c),
        "connections": app.stats.connections(),
        "connections_accepted": app.stats.connections_accepted(),
        "connections_dropped": app.stats.connections_dropped(),
        "feeds": app.open_feeds(),
        "sent_bytes": c.bytes_sent,
        "received_bytes": c.bytes_received,
        "document_writes": engine.document_writes,
        "commit_requests": engine.commits,
        "commit_batches": engine.commit_batches,
        "syncs": database::Databases::sync_times().len(),
        "all_databases": app.node.databases.count(),
        "open_databases": app.node.databases.open_memory().databases,
        "open_indexes": app.node.databases.open_memory().indexes,
        "replications": {"running": jobs.running, "pending": jobs.pending, "crashing": jobs.crashing},
    })
}

/// How many took how long: pairs of microseconds and a number.
fn times_of(h: &Histogram<u64>) -> Vec<Value> {
    let steps = h.iter_recorded();
    steps
        .map(|step| json!([step.value_iterated_to(), step.count_at_value()]))
        .collect()
}

/// Each class of requests, with how many took how long.
fn routes(c: &Counts) -> Value {
    let all = c.routes().map(|(route, r)| {
        json!({
            "route": route.name(),
            "requests": r.whole_us.len(),
            "refused": r.refused,
            "failed": r.failed,
            "times": times_of(&r.whole_us),
        })
    });
    all.collect()
}

fn threads() -> Value {
    let all = telemetry::threads().into_iter().map(|of| {
        let spent = of.spent.iter();
        let spent = spent.map(|(state, time)| (state.name(), time.as_secs_f64().into()));
        json!({"name": of.name, "alive": of.alive, "states": object(spent)})
    });
    let cpu = process::cpu_times();
    let of_threads = || cpu.iter().flat_map(|cpu| &cpu.threads);
    let cpu_of_threads = of_threads().map(|of| (of.name.clone(), of.cpu_seconds.into()));
    let run_queue = of_threads().map(|of| (of.name.clone(), of.run_queue_seconds.into()));
    let each = cpu.iter().flat_map(|cpu| &cpu.each);
    let each = each.map(|of| json!({"id": of.id, "name": of.name, "cpu_seconds": of.cpu_seconds}));
    json!({
        "clocks": all.collect::<Vec<_>>(),
        "cpu_seconds": cpu_of_threads.collect::<Map<_, _>>(),
        "run_queue_seconds": run_queue.collect::<Map<_, _>>(),
        "each": each.collect::<Vec<_>>(),
        "worker_cpu_seconds": cpu.as_ref().map(|cpu| cpu.workers),
    })
}

/// The processes that run users' functions, by language.
fn languages() -> Value {
    let all = functions::query_server::usage_by_language().into_iter();
    let told = all.map(|of| {
        json!({
            "language": &*of.language,
            "process_ids": of.process_ids,
            "private_bytes": of.private_bytes,
            "cpu_seconds": of.cpu.as_secs_f64(),
        })
    });
    told.collect()
}

fn busiest(app: &App, used: &UsageByName) -> Value {
    let busiest = used.busiest(BUSIEST_MAX, app.stats.since_start());
    let told = busiest.into_iter().map(|(name, of)| {
        json!({
            "name": name,
            "since": of.since_s,
            "requests": of.requests,
            "writes": of.writes,
            "seconds": of.us as f64 * 1e-6,
            "bytes": of.bytes,
        })
    });
    told.collect()
}

/// Members of a task that all users with access to metrics see. The owner, source and target of a
/// replication are only for admins.
const TOLD_OF_TASKS: [&str; 10] = [
    "type",
    "database",
    "design_document",
    "index",
    "progress",
    "changes_done",
    "total_changes",
    "changes_pending",
    "docs_written",
    "started_on",
];

/// Index builds, compactions, scans and replications that run, the oldest first.
fn tasks(app: &App, is_admin: bool) -> Value {
    let mut tasks = root::tasks(app);
    tasks.sort_by_key(|task| task["started_on"].as_u64());
    tasks.truncate(TASKS_MAX);
    for task in tasks.iter_mut().filter(|_| !is_admin) {
        if let Some(task) = task.as_object_mut() {
            task.retain(|name, _| TOLD_OF_TASKS.contains(&name.as_str()));
        }
    }
    tasks.into()
}

fn memory(app: &App) -> Value {
    let parts = machine::memory_parts(app);
    json!({
        "resident": process::resident_bytes(),
        "limit": app.node.memory.limit,
        "parts": parts.iter().map(MemoryPart::to_member).collect::<Map<_, _>>(),
    })
}

fn disk(app: &App) -> Value {
    let space = app.node.databases.disk_space();
    let files = app.node.databases.file_bytes();
    json!({
        "free": space.map(|(free, _)| free),
        "size": space.map(|(_, size)| size),
        "files": object(files.into_iter().map(|(name, n)| (name, n.into()))),
    })
}
