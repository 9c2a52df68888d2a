//! The process's use of its machine: memory, processors, files, disk, and the lengths of its
//! queues.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use parking_lot::Mutex;
use procfs::net::TcpState;
use procfs::process::Process;
use serde_json::{Value, json};

use super::prometheus::Text;
use crate::app::App;

/// A part of the server's memory.
pub struct MemoryPart {
    /// Its name in metrics.
    pub name: &'static str,
    /// Limit, current and largest use, in bytes.
    pub budget: u64,
    /// See `budget`.
    pub used: u64,
    /// See `budget`.
    pub peak: Option<u64>,
}

impl MemoryPart {
    /// As a member of a JSON object.
    pub fn to_member(&self) -> (String, Value) {
        let mut value = json!({"budget": self.budget, "used": self.used});
        if let Some(peak) = self.peak {
            value["peak"] = peak.into();
        }
        (self.name.to_owned(), value)
    }
}

/// The table of memory: every part that has a budget.
pub fn memory_parts(app: &App) -> [MemoryPart; 12] {
    let (plan, databases) = (&app.node.memory, &app.node.databases);
    let engine = databases.stats();
    let part = |name, budget: usize, used, peak| MemoryPart {
        name,
        budget: budget as u64,
        used,
        peak,
    };
    let cache = |name, budget, used| part(name, budget, used, None);
    let counted = |name, budget, (used, peak)| part(name, budget, used, Some(peak));
    let wide = |(used, peak): (usize, usize)| (used as u64, peak as u64);
    let groups = wide(databases.aggregate_memory().used_bytes());
    let searches = wide(databases.search_memory());
    let builds = wide(databases.build_memory().used_bytes());
    let selections = app.node.replicator.selection_bytes();
    let open = databases.open_memory();
    let open = (open.used_bytes, open.peak_bytes);
    [
        cache("block_cache", plan.block_cache, engine.block_cache_bytes),
        cache("documents", plan.documents, engine.documents_bytes),
        cache("index_rows", plan.index_rows, engine.index_rows_bytes),
        cache("write_buffers", plan.write_buffers, engine.memtable_bytes),
        counted("bodies", plan.bodies, app.bodies.used_bytes()),
        counted("answers", plan.answers, app.answers.used_bytes()),
        counted("aggregates", plan.aggregates, groups),
        counted("searches", plan.searches, searches),
        counted("replications", plan.replications, selections),
        counted("open_databases", plan.open_databases, open),
        counted("index_builds", plan.index_builds, builds),
        counted("workers", plan.workers, databases.worker_memory()),
    ]
}

/// Memory that the process has, in bytes.
pub fn resident_bytes() -> u64 {
    let statm = Process::myself().and_then(|me| me.statm());
    statm.map_or(0, |statm| statm.resident * procfs::page_size())
}

/// File descriptors that are open.
pub fn open_files() -> u64 {
    let count = Process::myself().and_then(|me| me.fd_count());
    count.map_or(0, |n| n as u64)
}

/// Waiting work, by queue.
pub fn queues(app: &App) -> [(&'static str, u64); 4] {
    let databases = &app.node.databases;
    [
        ("accept", waiting_connections(app)),
        ("commit", databases.commit_queue_length() as u64),
        ("index", databases.index_builds_waiting() as u64),
        (
            "replication",
            app.node.replicator.job_counts().pending as u64,
        ),
    ]
}

/// Connections that the kernel has made and the server has not accepted yet.
fn waiting_connections(app: &App) -> u64 {
    let ports: Vec<u16> = app.node.listening().iter().map(|a| a.port()).collect();
    let tables = [procfs::net::tcp(), procfs::net::tcp6()];
    let entries = tables.into_iter().flatten().flatten();
    let ours =
        entries.filter(|e| e.state == TcpState::Listen && ports.contains(&e.local_address.port()));
    ours.map(|e| u64::from(e.rx_queue)).sum()
}

/// CPU time in seconds.
pub struct CpuTimes {
    /// Times of this process's threads, by their names.
    pub threads: Vec<(String, f64)>,
    /// Times of child processes: workers and query servers, also those that have ended.
    pub workers: f64,
}

/// The last figures of threads and processes, so that no reported sum ever falls: the time of those
/// that end is no longer readable.
#[derive(Default)]
struct Seen {
    /// Name and ticks of each thread, when it was seen last. Whole numbers, whose sums do not depend on their order.
    threads: HashMap<i32, (String, u64)>,
    /// Ticks of threads that have ended, by name.
    ended: BTreeMap<String, u64>,
    /// The largest reported sum of workers, in ticks.
    workers: u64,
}

impl Seen {
    /// Updates the times of the present threads; returns the sums of all threads so far, by name.
    fn threads(&mut self, now: HashMap<i32, (String, u64)>) -> Vec<(String, u64)> {
        for (tid, (name, ticks)) in self.threads.drain() {
            // The kernel gives numbers again: a thread that has less than before is another one.
            let is_same = |(known, new): &(String, u64)| *known == name && *new >= ticks;
            if !now.get(&tid).is_some_and(is_same) {
                *self.ended.entry(name).or_default() += ticks;
            }
        }
        self.threads = now;
        let mut sums = self.ended.clone();
        for (name, ticks) in self.threads.values() {
            *sums.entry(name.clone()).or_default() += ticks;
        }
        sums.into_iter().collect()
    }
}

/// Processor times of the process and of its child processes so far; `None` when `/proc` is not
/// readable. A thread that ends between two calls is counted up to the first.
pub fn cpu_times() -> Option<CpuTimes> {
    static SEEN: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);
    let me = Process::myself().ok()?;
    let second = procfs::ticks_per_second() as f64;
    let mut seen = SEEN.lock();
    let mut threads = HashMap::new();
    let mut children = vec![];
    for task in me.tasks().ok()?.flatten() {
        children.extend(task.children().unwrap_or_default());
        let Ok(stat) = task.stat() else { continue };
        // Names like rocksdb:low0 are of one pool.
        let name = stat.comm.trim_end_matches(|c: char| c.is_ascii_digit());
        threads.insert(task.tid, (name.to_owned(), stat.utime + stat.stime));
    }
    let stat = me.stat().ok()?;
    let ended = u64::try_from(stat.cutime + stat.cstime).unwrap_or(0);
    let stats = children.iter().filter_map(|pid| {
        let stat = Process::new(i32::try_from(*pid).ok()?).ok()?.stat().ok()?;
        Some(stat.utime + stat.stime)
    });
    // One that ends just now may be in neither.
    seen.workers = seen.workers.max(ended + stats.sum::<u64>());
    Some(CpuTimes {
        threads: seen
            .threads(threads)
            .into_iter()
            .map(|(name, ticks)| (name, ticks as f64 / second))
            .collect(),
        workers: seen.workers as f64 / second,
    })
}

/// Appends all of it as metrics.
pub fn write(app: &App, text: &mut Text) {
    write_memory(&memory_parts(app), text);
    let process = [
        (
            "settee_process_resident_bytes",
            "memory that the process has",
            resident_bytes() as f64,
        ),
        (
            "settee_process_allocated_bytes",
            "memory that the allocator has given out, caches among it",
            app.allocated_bytes() as f64,
        ),
        (
            "settee_process_open_files",
            "file descriptors that the process has",
            open_files() as f64,
        ),
    ];
    for (name, help, value) in process {
        text.number(name, "gauge", help, value);
    }
    if let Some(limit) = open_files_max() {
        let help = "file descriptors that the process may have";
        text.number(
            "settee_process_open_files_limit",
            "gauge",
            help,
            limit as f64,
        );
    }
    if let Some((free, all)) = app.node.databases.disk_space() {
        let help = "free space of the data's file system";
        text.number("settee_disk_free_bytes", "gauge", help, free as f64);
        let help = "size of the data's file system";
        text.number("settee_disk_size_bytes", "gauge", help, all as f64);
    }
    let queues = queues(app).map(|(name, n)| (name, n as f64));
    let head = ("settee_queue_length", "gauge", "waiting work, by queue");
    text.by(head, "queue", queues);
    write_cpu_times(text);
    let files = app.node.databases.file_bytes();
    let head = (
        "settee_keyspace_bytes",
        "gauge",
        "bytes of the store's files, by content",
    );
    text.by(
        head,
        "keyspace",
        files.into_iter().map(|(name, n)| (name, n as f64)),
    );
}

fn write_cpu_times(text: &mut Text) {
    if let Some(cpu) = cpu_times() {
        let help = "CPU time of the process's threads by their names";
        text.by(
            ("settee_thread_cpu_seconds_total", "counter", help),
            "threads",
            cpu.threads,
        );
        let help = "CPU time of processes that run users' functions";
        text.number(
            "settee_worker_cpu_seconds_total",
            "counter",
            help,
            cpu.workers,
        );
    }
}

/// Limit of file descriptors; `None` without a limit.
pub fn open_files_max() -> Option<u64> {
    use procfs::process::LimitValue;
    match Process::myself()
        .ok()?
        .limits()
        .ok()?
        .max_open_files
        .soft_limit
    {
        LimitValue::Value(n) => Some(n),
        LimitValue::Unlimited => None,
    }
}

/// The table of memory.
fn write_memory(parts: &[MemoryPart], text: &mut Text) {
    type Of = fn(&MemoryPart) -> Option<u64>;
    let columns: [(&str, &str, Of); 3] = [
        (
            "settee_memory_budget_bytes",
            "memory that a part may take",
            |part| Some(part.budget),
        ),
        (
            "settee_memory_used_bytes",
            "memory that a part takes",
            |part| Some(part.used),
        ),
        (
            "settee_memory_peak_bytes",
            "the most memory that a part took",
            |part| part.peak,
        ),
    ];
    for (name, help, of) in columns {
        let values = parts
            .iter()
            .filter_map(|part| Some((part.name, of(part)? as f64)));
        text.by((name, "gauge", help), "part", values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_threads_that_ended_stay() {
        let mut seen = Seen::default();
        let of = |all: &[(i32, &str, u64)]| -> HashMap<i32, (String, u64)> {
            let all = all.iter();
            all.map(|(tid, name, s)| (*tid, ((*name).to_owned(), *s)))
                .collect()
        };
        seen.threads(of(&[(1, "serve", 50), (2, "serve", 30)]));
        assert_eq!(
            seen.threads(of(&[(1, "serve", 60)])),
            [("serve".to_owned(), 90)]
        );
        // Its number is another thread's now.
        let told = seen.threads(of(&[(1, "index", 10), (2, "serve", 5)]));
        assert_eq!(told, [("index".to_owned(), 10), ("serve".to_owned(), 95)]);
        let told = seen.threads(of(&[(2, "serve", 1)]));
        assert_eq!(told, [("index".to_owned(), 10), ("serve".to_owned(), 96)]);
    }
}
