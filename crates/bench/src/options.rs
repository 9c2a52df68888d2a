//! The options of a run.

use std::path::{Path, PathBuf};

use crate::faults::Launch;
use crate::workload::{Mix, OwnData, UrlList};

/// The workloads of a run, and their servers.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// One or two servers, each with its URL, `http://user:password@host:port`, or clusters, each with its nodes' URLs. With two, their
    /// rounds are interleaved.
    pub servers: Vec<Vec<String>>,
    /// The second server of workloads that need two. Without it, the first one has both roles.
    pub second_url: Option<String>,
    /// Names from [`workloads`](crate::workloads). When empty: those of the group `cluster` for a
    /// cluster, and all others for a single server.
    pub workloads: Vec<String>,
    /// Fraction of the full data set sizes: figures are defined for 1.0.
    pub scale: f64,
    /// Seconds that a timed part is measured on each server, over all rounds.
    pub seconds: f64,
    /// Print the report as one JSON object instead of tables.
    pub json: bool,
    /// The longest line of tables; wider ones are divided. `None` for a file, whose lines may have any length.
    pub width: Option<usize>,
    /// Clients of the concurrent reads.
    pub connections: usize,
    /// How often each workload is measured as a whole. From 5 on figures have intervals.
    pub repeats: u32,
    /// Seconds of rest before each repeat but the first.
    pub pause_s: f64,
    /// Each repeat of each workload is measured on a new server, started by [`BenchOptions::restart`].
    pub has_new_servers: bool,
    /// Shards of the run's databases; the server's default when `None`.
    pub q: Option<u64>,
    /// Settings with which the first server was started, for the report.
    pub settings: Vec<String>,
    /// Languages of the first builds of views; all that the server has when empty.
    pub languages: Vec<String>,
    /// Requests per second of timed parts, independent of the server's speed. By default each
    /// client sends the next request when it has the reply to the previous one.
    pub rate: Option<f64>,
    /// Requests that each connection of a timed part sends, in place of [`BenchOptions::seconds`].
    pub requests: Option<u64>,
    /// Each request of a timed part has a connection of its own, which is opened for it.
    pub new_connections: bool,
    /// `connections=1,16,64`, `q=2,8`, `document_bytes=300,16000`, `bulk_docs=100,1000` or `SECTION/KEY=a,b`: measure at each of
    /// the values. A setting needs an admin's rights, and is reset at the end.
    pub sweep: Option<String>,
    /// How a server is started for each value of a swept setting that takes effect at the start, or for each repeat. Without it, both are refused.
    pub restart: Option<Launch>,
    /// Save all measurements in this file.
    pub save: Option<PathBuf>,
    /// Compare the first server with that of a run that was saved.
    pub compare: Option<PathBuf>,
    /// Write the report as one HTML file.
    pub report: Option<PathBuf>,
    /// Flame graphs for the HTML report, as SVG files: of A, of B.
    pub flames: Vec<PathBuf>,
    /// Record flame graphs of the servers during a round that is not counted.
    pub profile: bool,
    /// Declarations of 16 KB that views are built over, at scale 1; the published benchmark has 290,000.
    pub view_docs: u64,
    /// 300-byte documents that views are built over, at scale 1.
    pub view_small_docs: u64,
    /// Rows of the large index, at scale 1.
    pub view_rows: u64,
    /// Leave the databases on the server.
    pub keep: bool,
    /// Process of the first server, for CPU and memory. Found automatically for loopback URLs.
    pub local_pid: Option<u32>,
    /// Directory for the embedded database; by default in the system's temporary directory.
    pub embedded_dir: Option<PathBuf>,
    /// Where the raw append + fdatasync rate is measured: best on the disk of the server's data. The system's
    /// temporary folder by default.
    pub disk_dir: Option<PathBuf>,
    /// The operations of the workload `mix`; the preset `mixed` by default.
    pub mix: Option<Mix>,
    /// The paths of the workload `urls`, which needs them.
    pub urls: Option<UrlList>,
    /// The data of the workload `own`, which needs it.
    pub own: Option<OwnData>,
    /// A PostgreSQL, Redis or SQLite to compare with the server, in the workloads of the group
    /// `peers`: `postgres://…`, `redis://…` or `fts5://…`.
    pub peer: Option<String>,
    /// How the workloads of the group `faults` start a server; without it they cannot run.
    pub launch: Option<Launch>,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            second_url: None,
            workloads: Vec::new(),
            scale: 1.0,
            seconds: 10.0,
            json: false,
            width: None,
            connections: 64,
            repeats: 1,
            pause_s: 0.0,
            has_new_servers: false,
            q: None,
            settings: Vec::new(),
            languages: Vec::new(),
            rate: None,
            requests: None,
            new_connections: false,
            sweep: None,
            restart: None,
            save: None,
            compare: None,
            report: None,
            flames: Vec::new(),
            profile: false,
            view_docs: 20_000,
            view_small_docs: 200_000,
            view_rows: 1_000_000,
            keep: false,
            local_pid: None,
            embedded_dir: None,
            disk_dir: None,
            mix: None,
            urls: None,
            own: None,
            peer: None,
            launch: None,
        }
    }
}

impl BenchOptions {
    /// Whether the figures of this run are for publication or later comparison, so that ceilings,
    /// machine and processes are measured too.
    pub(crate) fn is_thorough(&self) -> bool {
        let files = [&self.save, &self.compare, &self.report];
        self.repeats > 1 || self.sweep.is_some() || files.iter().any(|file| file.is_some())
    }

    pub(crate) fn disk_dir(&self) -> PathBuf {
        self.disk_dir.clone().unwrap_or_else(std::env::temp_dir)
    }
}

/// A database without HTTP, for the workload `lightning`. The bench crate knows no database crate: the caller
/// brings one.
pub trait Embedded: Send {
    /// Makes an empty database in an empty folder.
    ///
    /// # Errors
    /// Any text; it ends the workload.
    fn open(&mut self, dir: &Path) -> Result<(), String>;

    /// Writes documents, each an id and a JSON object without `_id`, as one durable bulk.
    ///
    /// # Errors
    /// Any text; it ends the workload.
    fn bulk(&mut self, documents: Vec<(String, String)>) -> Result<(), String>;

    /// The process that the open database is in: its processor time and memory are measured.
    fn process_id(&self) -> u32 {
        std::process::id()
    }
}
