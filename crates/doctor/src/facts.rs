//! The input of checks: plain values, collected by the server, or constructed by tests.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use confine::Confinement;
use database::{DesignFacts, FindUse, FunctionFacts, Garbage, Sample, WriteFailure};

/// All collected facts about a server. Those that could not be determined are `None`, and their
/// checks are skipped.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The node's name.
    pub node: String,
    /// Since its start.
    pub uptime: Duration,
    /// Checks that are not wanted.
    pub ignored: Vec<String>,
    /// The machine, and the process's use of it.
    pub machine: Machine,
    /// Some databases.
    pub databases: Databases,
    /// Queries of the last 30 to 60 minutes, by index.
    pub finds: Vec<Find>,
    /// Bulks of documents that clients wrote.
    pub bulks: Bulks,
    /// Settings, users, replications, backups.
    pub operation: Operation,
    /// The cluster that it is a member of.
    pub cluster: Option<Cluster>,
}

impl Facts {
    /// Objects that were not examined, besides databases.
    pub fn not_looked_at(&self) -> Vec<String> {
        let databases = self.databases.all.iter();
        let designs = databases.filter(|db| db.has_more_designs).map(|db| {
            let n = db.designs.len();
            format!(
                "design documents of {} beyond the first {n} with views or text indexes",
                db.name
            )
        });
        let functions = self.databases.all.iter().filter(|db| db.has_more_functions);
        let functions =
            functions.map(|db| format!("functions of some design documents of {}", db.name));
        let others = self.operation.not_looked_at.iter().cloned();
        others.chain(designs).chain(functions).collect()
    }
}

/// The machine, and the process's use of it.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// File descriptors that are open, and how many may be.
    pub open_files: u64,
    /// See `open_files`.
    pub open_files_max: Option<u64>,
    /// Why all writes fail, if they do.
    pub write_failure: Option<WriteFailure>,
    /// Errors for which the storage engine refused all writes since the start, and compactions that failed.
    pub engine_errors: u64,
    /// Seconds since the last of these errors.
    pub engine_error_age_s: Option<u64>,
    /// See `engine_errors`.
    pub compaction_failures: u64,
    /// Connections that are open, and that may be.
    pub connections: u64,
    /// See `connections`.
    pub connections_max: Option<u64>,
    /// Connections that the kernel dropped since too many waited to be accepted.
    pub connections_dropped: Option<u64>,
    /// Connections that may wait, by `[chttpd] backlog`, and by the kernel's `somaxconn`.
    pub backlog: u64,
    /// See `backlog`.
    pub backlog_max: Option<u64>,
    /// Free space of the data's file system, and all of it, in bytes.
    pub disk: Option<(u64, u64)>,
    /// Bytes of the store's files.
    pub store_bytes: u64,
    /// How often a write waited for the disk, and the median and the 99th percentile of how long, in microseconds.
    pub syncs: u64,
    /// See `syncs`.
    pub sync_p50_us: u64,
    /// See `syncs`.
    pub sync_p99_us: u64,
    /// In a sample of reads: those that found all blocks in the block cache, and those that had to
    /// read a block.
    pub reads_cached: u64,
    /// See `reads_cached`.
    pub reads_uncached: u64,
    /// Bytes in the block cache, and its limit.
    pub cache_bytes: u64,
    /// See `cache_bytes`.
    pub cache_bytes_max: u64,
    /// Memory of the process, and its limit, in bytes.
    pub resident_bytes: u64,
    /// See `resident_bytes`.
    pub memory_limit_bytes: u64,
    /// Waiting connections, and waiting writes: the smaller number of two samples.
    pub waiting_connections: u64,
    /// See `waiting_connections`.
    pub waiting_commits: u64,
    /// Files and directories that other users of the machine may read or change, and the mode that they should have.
    pub open_to_others: Vec<(PathBuf, &'static str)>,
    /// The confinement that workers of JavaScript functions can use; `None` when there are no
    /// workers.
    pub confinement: Option<Confinement>,
}

/// The databases, and the examined ones.
#[derive(Clone, Debug, Default)]
pub struct Databases {
    /// How many there are.
    pub count: usize,
    /// Those that could not be examined, and why.
    pub failed: Vec<String>,
    /// There was no time for more.
    pub out_of_time: bool,
    /// The busiest, the largest, and some of the others.
    pub all: Vec<Database>,
}

/// A database.
#[derive(Clone, Debug, Default)]
pub struct Database {
    /// Its name.
    pub name: String,
    /// Documents that are not deleted, and those that are.
    pub documents: u64,
    /// See `documents`.
    pub deleted: u64,
    /// Bytes of its documents as JSON text, with their attachments.
    pub external_bytes: u64,
    /// Time of its creation, in seconds since 1970.
    pub created_unix_s: u64,
    /// Its latest changes.
    pub sample: Sample,
    /// Data that a compaction would reclaim.
    pub garbage: Garbage,
    /// Its design documents with views or text indexes, and whether some more were not examined.
    pub designs: Vec<DesignFacts>,
    /// See `designs`.
    pub has_more_designs: bool,
    /// Functions that depend on CouchDB's engine, and whether there are design documents that were
    /// not searched for them.
    pub functions: Vec<FunctionFacts>,
    /// See `functions`.
    pub has_more_functions: bool,
}

/// Queries of a database that one index answered.
#[derive(Clone, Debug, Default)]
pub struct Find {
    /// The database.
    pub database: String,
    /// Design document and name of the index; `None` for all documents.
    pub index: Option<(String, String)>,
    /// Their figures.
    pub queries: FindUse,
}

/// Bulks of documents that clients wrote.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bulks {
    /// How many there were, and how many documents were in half of them at most.
    pub count: u64,
    /// See `count`.
    pub median: u64,
    /// Documents in all of them, about.
    pub documents: u64,
}

/// How the server is operated.
#[derive(Clone, Debug, Default)]
pub struct Operation {
    /// Where it listens without, and with TLS.
    pub plain: Vec<SocketAddr>,
    /// See `plain`.
    pub secured: Vec<SocketAddr>,
    /// Any page on the web may use its reader's session.
    pub cors_trusts_all: bool,
    /// Whether `/_up` keeps load balancers away.
    pub is_in_maintenance: bool,
    /// It was started with `--dev`.
    pub needs_no_login: bool,
    /// Whether due compactions start automatically.
    pub compacts_itself: bool,
    /// Indexes without a query for this time are reported as unused.
    pub unused_index_time: Duration,
    /// The certificates that it shows.
    pub certificates: Vec<Certificate>,
    /// How passwords are hashed.
    pub passwords: Vec<Password>,
    /// Replications that fail.
    pub replications: Vec<Replication>,
    /// Users and replications that were not examined.
    pub not_looked_at: Vec<String>,
    /// Databases whose automatic purges failed in the last round, and why.
    pub auto_purge_failures: Vec<(String, String)>,
    /// Automatic purges only search, and purge nothing.
    pub auto_purge_is_dry: bool,
    /// Databases whose documents expire.
    pub expiring: Vec<Expiring>,
    /// How long ago the store was last copied; `None` when no copy is known of.
    pub backup_age: Option<Duration>,
    /// Target and reason of the last failure of an automatic backup, if no backup succeeded after
    /// it.
    pub backup_failure: Option<(String, String)>,
    /// How old a copy may be.
    pub backup_age_max: Duration,
    /// Now, in seconds since 1970.
    pub now_unix_s: u64,
    /// The server's process, for commands that signal it.
    pub process_id: u32,
}

/// A certificate, or one that cannot be read.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The setting that names it, with its path.
    pub name: String,
    /// When it begins and ends, in seconds since 1970, or why that is not known.
    pub times: Result<(u64, u64), String>,
}

/// A database whose documents expire.
#[derive(Clone, Debug, Default)]
pub struct Expiring {
    /// Its name.
    pub database: String,
    /// Number of documents with an invalid time.
    pub invalid: u64,
    /// How long ago the earliest document expired that is still there, in seconds.
    pub overdue_s: u64,
    /// Why expired documents could not be removed.
    pub failure: Option<String>,
}

/// How a user's password is hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Password {
    /// Who.
    pub name: String,
    /// A server admin, and no user of a database.
    pub is_admin: bool,
    /// The hash function and the iterations of PBKDF2; `None` of one SHA-1 with a salt.
    pub pbkdf2: Option<(&'static str, u32)>,
}

/// A replication that fails.
#[derive(Clone, Debug, Default)]
pub struct Replication {
    /// The database and document that define it, or its id.
    pub name: String,
    /// See `name`.
    pub document: Option<(String, String)>,
    /// It is not tried again.
    pub is_given_up: bool,
    /// Number of recent failures.
    pub crashes: u64,
    /// Its error, without passwords.
    pub error: String,
}

/// The cluster.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Names of all nodes with their numbers, and whether there was recent contact.
    pub nodes: Vec<(String, String, bool)>,
    /// The number of this one.
    pub me: String,
    /// Its slots that are on this node.
    pub slots: Vec<Slot>,
    /// Seconds until the certificate of this node expires; negative after that.
    pub certificate_left_s: i64,
    /// This node does not reach the log.
    pub is_log_lost: bool,
    /// The nodes keep the log; otherwise Kafka does.
    pub is_log_own: bool,
    /// Names of the slots whose log is damaged on this node.
    pub halted_logs: Vec<String>,
    /// Records that it has seen and not applied, and the seconds since it saw the oldest one.
    pub lag: (u64, u64),
    /// Names of live nodes that it cannot call.
    pub not_connected: Vec<String>,
}

/// A slot of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Slot {
    /// Its number, or `control`.
    pub name: String,
    /// The numbers of the nodes that have it.
    pub members: Vec<String>,
    /// It takes writes.
    pub takes_writes: bool,
    /// Why not.
    pub reason: Option<String>,
}
