//! The server's use of its machine: memory, processors, files, disk, and the lengths of its queues.

use functions::query_server::{LanguageUsage, usage_by_language};
use metrics::prometheus::Text;
use metrics::{MemoryPart, labelled, process};

use crate::app::App;
use crate::connection::arrival::ARRIVAL_WAITS;

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
    let replications = app.node.replicator.memory_bytes();
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
        counted("replications", plan.replications, replications),
        counted("open_databases", plan.open_databases, open),
        counted("index_builds", plan.index_builds, builds),
        counted("workers", plan.workers, databases.worker_memory()),
    ]
}

/// Waiting work, by queue.
pub fn queues(app: &App) -> [(&'static str, u64); 4] {
    let databases = &app.node.databases;
    let ports: Vec<u16> = app.node.listening().iter().map(|a| a.port()).collect();
    [
        ("accept", process::waiting_connections(&ports)),
        ("commit", databases.commit_queue_length() as u64),
        ("index", databases.index_builds_waiting() as u64),
        (
            "replication",
            app.node.replicator.job_counts().pending as u64,
        ),
    ]
}

/// Appends all of it as metrics.
pub fn write(app: &App, text: &mut Text) {
    labelled::write_memory(&memory_parts(app), text);
    let numbers = [
        (
            "settee_process_resident_bytes",
            "memory that the process has",
            process::resident_bytes() as f64,
        ),
        (
            "settee_process_allocated_bytes",
            "memory that the allocator has given out, caches among it",
            app.allocated_bytes() as f64,
        ),
        (
            "settee_process_open_files",
            "file descriptors that the process has",
            process::open_files() as f64,
        ),
    ];
    for (name, help, value) in numbers {
        text.number(name, "gauge", help, value);
    }
    if let Some(limit) = process::open_files_max() {
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
    for wait in &ARRIVAL_WAITS {
        text.head(wait.metric, "histogram", wait.help);
        text.buckets(wait.metric, &[], &wait.times.snapshot());
    }
    labelled::write_cpu_times(text);
    write_languages(text);
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

/// Appends the resources of the processes that run users' functions, by language.
fn write_languages(text: &mut Text) {
    type Of = fn(&LanguageUsage) -> f64;
    let usage = usage_by_language();
    let metrics: [(&str, &str, &str, Of); 3] = [
        (
            "settee_function_processes",
            "gauge",
            "processes that run users' functions, by language",
            |of| of.process_ids.len() as f64,
        ),
        (
            "settee_function_private_bytes",
            "gauge",
            "memory that these processes and those that they started share with no other",
            |of| of.private_bytes as f64,
        ),
        (
            "settee_function_cpu_seconds_total",
            "counter",
            "CPU time of processes that run users' functions, by language, also of those that ended",
            |of| of.cpu.as_secs_f64(),
        ),
    ];
    for (name, kind, help, value) in metrics {
        let values = usage.iter().map(|of| (&*of.language, value(of)));
        text.by((name, kind, help), "language", values);
    }
}
