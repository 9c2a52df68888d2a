//! One run: servers are found, workloads measured in interleaved rounds, databases deleted, results printed.

use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::error::BenchError;
use crate::procfs;
use crate::report::{Failure, Report, Server};
use crate::side::Side;
use crate::table;
use crate::target::Target;
use crate::workload::{self, Bench};

/// What to measure, and where.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// One or two servers, each with its URL, `http://user:password@host:port`, or clusters, each with its nodes' URLs. With two, their
    /// rounds are interleaved.
    pub servers: Vec<Vec<String>>,
    /// Of a run with one server: another one, for what takes two servers. Without it that one plays both parts.
    pub second_url: Option<String>,
    /// Names from [`workloads`](crate::workloads). When empty: those of the group `cluster` where a cluster is measured, and all others
    /// where there is none.
    pub workloads: Vec<String>,
    /// Fraction of the full data set sizes: 1.0 is what the figures are defined for.
    pub scale: f64,
    /// Seconds that a timed part is measured on each server, over all rounds.
    pub seconds: f64,
    /// Print the report as one JSON object instead of tables.
    pub json: bool,
    /// Clients of the concurrent reads.
    pub connections: usize,
    /// Declarations of 16 KB that views are built over, at scale 1; the published benchmark has 290,000.
    pub view_docs: u64,
    /// 300-byte documents that views are built over, at scale 1.
    pub view_small_docs: u64,
    /// Rows of the large index, at scale 1.
    pub view_rows: u64,
    /// Leave the databases on the server.
    pub keep: bool,
    /// Process of the first server, for CPU and memory. Found by itself for loopback URLs.
    pub local_pid: Option<u32>,
    /// Where the embedded database is made; a folder in the system's temporary one by default.
    pub embedded_dir: Option<PathBuf>,
    /// Where the raw append + fdatasync rate is measured: best on the disk of the server's data. The system's
    /// temporary folder by default.
    pub disk_dir: Option<PathBuf>,
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
            connections: 64,
            view_docs: 20_000,
            view_small_docs: 200_000,
            view_rows: 1_000_000,
            keep: false,
            local_pid: None,
            embedded_dir: None,
            disk_dir: None,
        }
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
}

/// Measures, prints the report to `out` and returns it. Progress goes to standard error.
///
/// The load client runs on a thread of its own: it must not take more than one core from the server that it measures.
/// Ctrl-C and SIGTERM end the run after the databases it made have been deleted.
///
/// # Errors
/// [`BenchError`]: options, servers that cannot be reached, and interruption. A workload that fails is reported in
/// [`Report::failures`], and refused requests are counted in its lines.
pub async fn run(
    options: BenchOptions,
    embedded: Option<Box<dyn Embedded>>,
    out: &mut (dyn Write + Send),
) -> Result<Report, BenchError> {
    let json = options.json;
    let report = on_own_thread(options, embedded).await?;
    if json {
        serde_json::to_writer(&mut *out, &report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        table::print(&report, out)?;
    }
    Ok(report)
}

async fn on_own_thread(
    options: BenchOptions,
    embedded: Option<Box<dyn Embedded>>,
) -> Result<Report, BenchError> {
    let (sender, receiver) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("bench".to_owned())
        .spawn(move || {
            let result = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(BenchError::from)
                .and_then(|runtime| {
                    LocalSet::new().block_on(&runtime, measure_and_clean_up(options, embedded))
                });
            // Nobody listens when the caller has given up.
            let _ = sender.send(result);
        })?;
    match receiver.await {
        Ok(result) => result,
        Err(_) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => Err(BenchError::Interrupted),
        },
    }
}

async fn measure_and_clean_up(
    options: BenchOptions,
    embedded: Option<Box<dyn Embedded>>,
) -> Result<Report, BenchError> {
    check(&options)?;
    let load_average = procfs::load_average();
    let has_cluster = options.servers.iter().any(|nodes| nodes.len() > 1);
    let selected = workload::select(&options.workloads, has_cluster)?;
    let connections_max = raise_open_files();
    let (sides, servers) = servers(&options).await?;
    let second = match &options.second_url {
        Some(url) => Some(side_of(Target::resolve(url).await?, None)),
        None => None,
    };
    let mut bench = Bench {
        second,
        report: Report {
            servers,
            scale: options.scale,
            seconds: options.seconds,
            connections: options.connections,
            load_average,
            lines: Vec::new(),
            figures: Vec::new(),
            ratios: Vec::new(),
            notes: Vec::new(),
            failures: Vec::new(),
        },
        options,
        sides,
        connections_max,
        embedded,
    };
    let measured = tokio::select! {
        measured = bench.measure_all(&selected) => measured,
        () = interrupted() => Err(BenchError::Interrupted),
    };
    if !bench.options.keep {
        clean_up(&mut bench).await;
    }
    measured.map(|()| bench.report)
}

fn check(options: &BenchOptions) -> Result<(), BenchError> {
    let refuse = |reason: &str| Err(BenchError::Options(reason.to_owned()));
    match options {
        options if options.servers.is_empty() || options.servers.len() > 2 => {
            refuse("give one or two servers or clusters")
        }
        options if options.servers.iter().any(Vec::is_empty) => {
            refuse("a cluster needs the URL of at least one node")
        }
        options if !(options.scale > 0.0 && options.scale <= 100.0) => {
            refuse("the scale must be above 0 and at most 100")
        }
        options if !(options.seconds > 0.0 && options.seconds <= 86_400.0) => {
            refuse("the seconds must be above 0 and at most 86,400")
        }
        options if options.connections == 0 => refuse("at least one connection is needed"),
        _ => Ok(()),
    }
}

/// Raises the soft limit of open files to the hard one. Returns how many connections that allows.
fn raise_open_files() -> usize {
    const FILES_FOR_OTHER_THINGS: u64 = 64;
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where that is refused, the old limit holds, and it is what is read back.
    let _ = setrlimit(Resource::Nofile, limit);
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(files.saturating_sub(FILES_FOR_OTHER_THINGS)).unwrap_or(usize::MAX)
}

async fn servers(options: &BenchOptions) -> Result<(Vec<Side>, Vec<Server>), BenchError> {
    let mut sides = Vec::new();
    let mut servers = Vec::new();
    for (at, urls) in options.servers.iter().enumerate() {
        let (first, others) = urls.split_first().expect("checked before");
        let target = Target::resolve(first).await?;
        let mut side = side_of(target, options.local_pid.filter(|_| at == 0));
        for url in others {
            let target = Target::resolve(url).await?;
            let pid = listener(&target);
            side.add_node(target, pid);
        }
        let labels: Vec<&str> = side.nodes.iter().map(|node| &*node.label).collect();
        servers.push(Server {
            url: labels.join(" "),
            nodes: side.nodes.len(),
            product: product(&side).await?,
            pids: side.pids.clone(),
        });
        sides.push(side);
    }
    Ok((sides, servers))
}

fn side_of(target: Target, pid: Option<u32>) -> Side {
    let pid = pid.or_else(|| listener(&target));
    Side::new(target, pid)
}

fn listener(target: &Target) -> Option<u32> {
    let port = target.address.port();
    target
        .is_loopback()
        .then(|| procfs::listener(port))
        .flatten()
}

/// What `GET /` says; asks for `_all_dbs` too, so that wrong credentials are found before anything is measured.
async fn product(side: &Side) -> Result<String, BenchError> {
    let welcome = side.json("GET", "/").await?;
    for node in &side.nodes {
        Side::require_of(node, "GET", "/_all_dbs?limit=1", None).await?;
    }
    let name = welcome["vendor"]["name"].as_str().unwrap_or("unknown");
    let version = welcome["version"].as_str().unwrap_or("?");
    Ok(format!("{name}, version {version}"))
}

async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => signals.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        result = tokio::signal::ctrl_c() => if result.is_err() { std::future::pending().await },
        _ = terminated => {}
    }
}

async fn clean_up(bench: &mut Bench) {
    for side in bench.sides.iter().chain(&bench.second) {
        let reason = match side.clean_up().await {
            Ok(left) if left.is_empty() => continue,
            Ok(left) => format!("still there: {}", left.join(", ")),
            Err(error) => error.to_string(),
        };
        bench.report.failures.push(Failure {
            workload: format!("deleting the databases on {}", side.target.label),
            reason,
        });
    }
}
