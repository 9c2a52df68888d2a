//! Collects facts: from counters, settings and `/proc`, and from some databases. Nothing is
//! written.

mod databases;
mod operation;

use std::path::Path;
use std::time::{Duration, Instant};

use database::Databases;
use doctor::facts::{Bulks, Cluster, Facts, Find, Machine, Slot};
use metrics::process;

use crate::app::App;
use crate::metric_catalogue::machine;

/// Least time between the two samples of queues.
const LOOKS_APART: Duration = Duration::from_millis(300);

/// Everything that can be found out until a moment, a little more at most. Blocks.
pub fn facts(app: &App, began: Instant, until: Instant) -> Facts {
    let settings = app.node.settings();
    let first = waiting(app);
    let databases = databases::look(app, until);
    let operation = operation::look(app, until);
    // Work that waits in only one sample is momentary.
    std::thread::sleep(LOOKS_APART.saturating_sub(began.elapsed()));
    let second = waiting(app);
    let finds = app.node.databases.find_uses().into_iter();
    let finds = finds.map(|((database, index), queries)| Find {
        database,
        index,
        queries,
    });
    let bulks = app.stats.counts().bulk_docs;
    Facts {
        node: app.node.name.clone(),
        uptime: app.node.started.elapsed(),
        ignored: settings.doctor.ignore.clone().unwrap_or_default(),
        machine: machine_of(app, [first.0.min(second.0), first.1.min(second.1)]),
        databases,
        finds: finds
            .filter(|find| app.node.databases.exists(&find.database))
            .collect(),
        bulks: Bulks {
            count: bulks.len(),
            median: bulks.value_at_quantile(0.5),
            documents: (bulks.mean() * bulks.len() as f64) as u64,
        },
        operation,
        cluster: app.node.member().map(|member| cluster(member)),
    }
}

/// Connections and commits that wait.
fn waiting(app: &App) -> (u64, u64) {
    let queues = machine::queues(app);
    let of = |wanted| {
        queues
            .iter()
            .find(|(name, _)| *name == wanted)
            .map_or(0, |(_, n)| *n)
    };
    (of("accept"), of("commit"))
}

fn machine_of(app: &App, [waiting_connections, waiting_commits]: [u64; 2]) -> Machine {
    let engine = app.node.databases.stats();
    let syncs = Databases::sync_times();
    let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok();
    Machine {
        open_files: process::open_files(),
        open_files_max: process::open_files_max(),
        write_failure: app.node.databases.write_failure(),
        engine_errors: engine.engine_errors,
        engine_error_age_s: engine.engine_error_age_s,
        compaction_failures: engine.compaction_failures,
        connections: app.stats.connections(),
        connections_max: Some(app.places.max() as u64),
        connections_dropped: app.stats.connections_dropped(),
        backlog: app.node.settings().chttpd.backlog,
        backlog_max: somaxconn.and_then(|text| text.trim().parse().ok()),
        disk: app.node.databases.disk_space(),
        store_bytes: app
            .node
            .databases
            .file_bytes()
            .iter()
            .map(|(_, bytes)| bytes)
            .sum(),
        syncs: syncs.len(),
        sync_p50_us: syncs.value_at_quantile(0.5),
        sync_p99_us: syncs.value_at_quantile(0.99),
        reads_cached: engine.sampled_reads_cached,
        reads_uncached: engine.sampled_reads_uncached,
        cache_bytes: engine.block_cache_bytes,
        cache_bytes_max: engine.block_cache_bytes_max,
        resident_bytes: process::resident_bytes(),
        memory_limit_bytes: app.node.memory.limit,
        waiting_connections,
        waiting_commits,
        open_to_others: open_to_others(app),
        confinement: has_workers(app).then(confine::of_this_kernel),
    }
}

/// Whether JavaScript functions run in processes of their own.
fn has_workers(app: &App) -> bool {
    app.node.settings().functions.isolation == config::settings::Isolation::Process
}

/// Files that the server creates for its owner alone, and that other users can access.
fn open_to_others(app: &App) -> Vec<(std::path::PathBuf, &'static str)> {
    let store = app.node.databases.store().engine().path().to_owned();
    let secrets = app.node.config.files_with_secrets().unwrap_or_default();
    let settings = app.node.settings();
    let key = settings.ssl.key_file.iter().map(Into::into);
    let files = secrets.into_iter().chain(key).map(|path| (path, "600"));
    let all = std::iter::once((store, "700")).chain(files);
    all.filter(|(path, _)| is_open(path)).collect()
}

/// Whether other users of the machine have access. A file of another user, mostly root, is only
/// readable by this process through its group.
fn is_open(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let me = std::fs::metadata("/proc/self").map(|me| me.uid());
    let (Ok(me), Ok(file)) = (me, std::fs::metadata(path)) else {
        return false;
    };
    let others = if file.uid() == me { 0o077 } else { 0o007 };
    file.mode() & others != 0
}

fn halted_logs(member: &member::Member) -> Vec<String> {
    let own = member.log().own.into_iter();
    let halted = own.flat_map(|own| own.halted);
    halted.map(|halted| halted.slot).collect()
}

fn cluster(member: &member::Member) -> Cluster {
    // A node that has left a slot keeps its data for a while.
    let me = format!("{:x}", member.node());
    let slots = member.slots().into_iter();
    let slots = slots.filter(|slot| slot.members.contains(&me) || slot.wanted.contains(&me));
    let slots = slots.map(|slot| Slot {
        name: slot.slot,
        members: slot.members,
        takes_writes: slot.takes_writes,
        reason: slot.reason,
    });
    let nodes = member
        .nodes()
        .into_iter()
        .map(|node| (node.name, node.node, node.is_live));
    let ends = member.certificate_ends();
    let now = std::time::SystemTime::now();
    let figures = member.figures();
    let not_connected = figures.peers.into_iter();
    let not_connected = not_connected.filter(|peer| peer.is_live && !peer.is_connected);
    Cluster {
        nodes: nodes.collect(),
        me: member.name().to_owned(),
        slots: slots.collect(),
        certificate_left_s: match ends.duration_since(now) {
            Ok(left) => left.as_secs() as i64,
            Err(past) => -(past.duration().as_secs() as i64),
        },
        is_log_lost: !figures.is_log_up,
        is_log_own: figures.own_log.is_some(),
        halted_logs: halted_logs(member),
        lag: (figures.slots.lag_records, figures.slots.lag.as_secs()),
        not_connected: not_connected.map(|peer| peer.name).collect(),
    }
}
