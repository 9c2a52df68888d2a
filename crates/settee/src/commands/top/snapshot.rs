//! The response of `/_settee/top`: sums since the server's start.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// The answers of all nodes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Snapshots {
    pub nodes: Vec<Snapshot>,
    /// Names of the nodes that do not answer.
    pub silent: Vec<String>,
}

/// One answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    pub node: String,
    pub version: String,
    /// Another number after another start of the server.
    pub started: u64,
    /// Seconds since the server's start.
    pub at: f64,
    pub processors: u64,
    pub requests: u64,
    pub aborted: u64,
    pub in_flight: u64,
    pub connections: u64,
    pub connections_accepted: u64,
    /// `None` if the kernel does not report it.
    pub connections_dropped: Option<u64>,
    pub feeds: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub document_writes: u64,
    pub commit_requests: u64,
    pub commit_batches: u64,
    pub syncs: u64,
    pub all_databases: u64,
    pub open_databases: u64,
    pub open_indexes: u64,
    pub replications: Replications,
    pub routes: Vec<RouteSums>,
    pub threads: Threads,
    pub languages: Vec<LanguageSums>,
    pub databases: Vec<UseSums>,
    pub views: Vec<UseSums>,
    /// Time of views' map functions.
    pub functions: Vec<UseSums>,
    pub tasks: Vec<Value>,
    pub queues: BTreeMap<String, u64>,
    /// Waits before requests are read: microseconds, and the number of events that took this time.
    pub waits: BTreeMap<String, Vec<(u64, u64)>>,
    pub memory: Memory,
    pub disk: Disk,
    /// `None` for a server that is not in a cluster.
    pub cluster: Option<ClusterPart>,
}

/// A node's part in its cluster.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClusterPart {
    pub log_up: bool,
    pub fit: bool,
    pub members_down: u64,
    pub slots_led: u64,
    pub slots_under_replicated: u64,
    pub slots_halted: u64,
    pub slots_refusing: u64,
    pub lag_records: u64,
    pub lag_seconds: f64,
    pub messages_waiting: u64,
    pub messages_sent_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Replications {
    pub running: u64,
    pub pending: u64,
    pub crashing: u64,
}

/// Requests of a class.
#[derive(Clone, Debug, Deserialize)]
pub struct RouteSums {
    pub route: String,
    pub requests: u64,
    pub refused: u64,
    pub failed: u64,
    /// Microseconds, and the number of events that took this time.
    pub times: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Threads {
    pub clocks: Vec<Clock>,
    pub cpu_seconds: BTreeMap<String, f64>,
    /// Time in which threads waited for a processor, by their names.
    pub run_queue_seconds: BTreeMap<String, f64>,
    /// The threads that run.
    pub each: Vec<ThreadSums>,
    pub worker_cpu_seconds: Option<f64>,
}

/// One thread.
#[derive(Clone, Debug, Deserialize)]
pub struct ThreadSums {
    pub id: i32,
    pub name: String,
    pub cpu_seconds: f64,
}

/// The processes that run the functions of a language.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LanguageSums {
    pub language: String,
    pub process_ids: Vec<u32>,
    pub private_bytes: u64,
    pub cpu_seconds: f64,
}

/// The threads of a name.
#[derive(Clone, Debug, Deserialize)]
pub struct Clock {
    pub name: String,
    pub alive: u64,
    /// Seconds of each state.
    pub states: BTreeMap<String, f64>,
}

/// How much a database or a view was used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct UseSums {
    pub name: String,
    /// Since when it is counted, in seconds since the server's start.
    pub since: f64,
    pub requests: u64,
    pub writes: u64,
    pub seconds: f64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Memory {
    pub resident: u64,
    pub limit: u64,
    pub parts: BTreeMap<String, MemoryShare>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct MemoryShare {
    pub budget: u64,
    pub used: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Disk {
    pub free: Option<u64>,
    pub size: Option<u64>,
    pub files: BTreeMap<String, u64>,
}
