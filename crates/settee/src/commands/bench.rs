//! `settee bench`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use database::{CreateOptions, Databases, Durability, EditMode, Options};

use crate::Failure;
use crate::cli::{BenchOptions, Traffic, nodes_of, with_credentials};
use crate::commands::{runtime, traffic};

pub fn run(options: BenchOptions) -> Result<(), Failure> {
    match options.traffic {
        Some(Traffic::Record(options)) => return traffic::record(options),
        Some(Traffic::Replay(options)) => return traffic::replay(options),
        None => {}
    }
    if options.list {
        let line = |w: &bench::Description| say!("{:<22} {}", w.name, w.what);
        bench::workloads().iter().for_each(line);
        return Ok(());
    }
    let runtime = runtime()?;
    let scratch = Scratch::new()?;
    let nodes = |urls: &String| nodes_of(urls).iter().map(|u| with_credentials(u)).collect();
    let mut servers: Vec<Vec<String>> = options.url.iter().map(nodes).collect();
    let mut own = vec![];
    if servers.is_empty() {
        let server = OwnServer::start(&scratch.0.join("server"), &options.query_server)?;
        servers.push(vec![server.url.clone()]);
        own.push(server);
    }
    let wants_second = || {
        let named = |w: &String| w == "replication";
        let all = options.workloads.is_empty() && options.named.peer.is_none();
        all || options.workloads.iter().any(named)
    };
    let second_url = if !own.is_empty() && wants_second() {
        let server = OwnServer::start(&scratch.0.join("second"), &[])?;
        let url = server.url.clone();
        own.push(server);
        Some(url)
    } else {
        None
    };
    let run = measured(options, servers, second_url, &scratch.0)?;
    let embedded: Box<dyn bench::Embedded> = Box::new(InProcess::default());
    let report = runtime
        .block_on(bench::run(run, Some(embedded), &mut std::io::stdout()))
        .map_err(Failure::new)?;
    drop(own);
    refuse_failures(&report)
}

/// What is to be measured, with `scratch` as the folder of the run.
fn measured(
    options: BenchOptions,
    servers: Vec<Vec<String>>,
    second_url: Option<String>,
    scratch: &Path,
) -> Result<bench::BenchOptions, Failure> {
    let named = options.named;
    let mix = named.mix.as_deref().map(bench::Mix::named).transpose();
    Ok(bench::BenchOptions {
        mix: mix.map_err(Failure::usage)?,
        peer: named.peer,
        launch: Some(launch(named.faults_binary, scratch)?),
        servers,
        second_url,
        workloads: options.workloads,
        scale: options.scale,
        seconds: options.seconds,
        json: options.json,
        connections: options.connections,
        repeats: options.repeats,
        rate: options.rate,
        requests: options.requests,
        sweep: options.sweep,
        save: options.save,
        compare: options.compare,
        report: options.report,
        flames: options.flame,
        profile: options.profile,
        view_docs: options.docs,
        view_small_docs: options.small_docs,
        view_rows: options.rows,
        keep: options.keep,
        embedded_dir: Some(scratch.join("embedded")),
        disk_dir: Some(scratch.to_owned()),
        ..bench::BenchOptions::default()
    })
}

fn refuse_failures(report: &bench::Report) -> Result<(), Failure> {
    if !report.failures.is_empty() || report.errors() > 0 {
        return Err(Failure::new(format!(
            "{} workloads failed, {} requests were answered with errors",
            report.failures.len(),
            report.errors()
        )));
    }
    Ok(())
}

/// A directory for the run, removed at its end.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, Failure> {
        let dir = std::env::temp_dir().join(format!("settee-bench-{}", std::process::id()));
        // One that is there may be a trap: its name can be guessed.
        std::fs::create_dir(&dir).map_err(|e| Failure::new(format!("{}: {e}", dir.display())))?;
        Ok(Scratch(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            eprintln!("settee: {} stays: {e}", self.0.display());
        }
    }
}

/// Query servers that Settee brings along: languages to be measured on a server of our own.
const BUILT_IN: [&str; 2] = ["nodejs=builtin", "erlang=builtin"];

/// How the workloads of faults start a server: this program, or another one with the same options.
fn launch(program: Option<PathBuf>, dir: &Path) -> Result<bench::Launch, Failure> {
    let program = match program {
        Some(program) => program,
        None => std::env::current_exe().map_err(Failure::new)?,
    };
    let args = [
        "serve",
        "--bind",
        "127.0.0.1",
        "--port",
        "{port}",
        "--data",
        "{data}",
        "--set",
        "log/level=warning",
    ];
    let password = auth::random_password();
    Ok(bench::Launch {
        program,
        args: args.map(str::to_owned).to_vec(),
        // Everybody on the machine can read a command line.
        envs: vec![("SETTEE__admins__bench".to_owned(), password.clone())],
        credentials: format!("bench:{password}"),
        dir: dir.to_owned(),
    })
}

/// A server of this same program, for a bench without `--url`.
struct OwnServer {
    child: std::process::Child,
    url: String,
}

impl OwnServer {
    fn start(dir: &Path, query_servers: &[String]) -> Result<OwnServer, Failure> {
        use std::io::BufRead;
        let password = auth::random_password();
        let mut child = std::process::Command::new(std::env::current_exe().map_err(Failure::new)?)
            .args(["serve", "--port", "0", "--bind", "127.0.0.1", "--data"])
            .arg(dir)
            // Everybody on the machine can read a command line.
            .env("SETTEE__admins__bench", &password)
            .args(["--set", "log/level=warning"])
            // A build of an index is slow, and is measured.
            .args(["--set", "log/slow_time=0"])
            .args(
                BUILT_IN
                    .into_iter()
                    .chain(query_servers.iter().map(String::as_str))
                    .flat_map(|server| ["--set".to_owned(), format!("query_servers/{server}")]),
            )
            .stdout(std::process::Stdio::piped())
            .spawn()
            .map_err(Failure::new)?;
        let out = child
            .stdout
            .take()
            .ok_or_else(|| Failure::new("the server has no output"))?;
        let mut line = String::new();
        std::io::BufReader::new(out)
            .read_line(&mut line)
            .map_err(Failure::new)?;
        let Some(address) = line.trim().strip_prefix("Settee is listening on http://") else {
            drop(child.kill());
            return Err(Failure::new("the server to be measured did not start"));
        };
        Ok(OwnServer {
            url: format!("http://bench:{password}@{address}"),
            child,
        })
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        drop(self.child.wait());
    }
}

/// The embedded API, as the in-process workload drives it.
#[derive(Default)]
struct InProcess {
    open: Option<(Arc<Databases>, Arc<database::Database>)>,
}

impl InProcess {
    fn wait<T: Send>(future: impl Future<Output = T> + Send) -> Result<T, String> {
        // Called from inside the bench's own runtime: another thread may block.
        std::thread::scope(|s| {
            s.spawn(|| {
                tokio::runtime::Builder::new_current_thread()
                    .build()
                    .map(|r| r.block_on(future))
                    .map_err(|e| e.to_string())
            })
            .join()
            .map_err(|_| "the write panicked".to_owned())?
        })
    }
}

impl bench::Embedded for InProcess {
    fn open(&mut self, dir: &Path) -> Result<(), String> {
        let databases = Databases::open(dir, Options::default()).map_err(|e| e.to_string())?;
        let options = CreateOptions {
            q: None,
            n: None,
            partitioned: false,
            security: "{}".into(),
        };
        let db = Self::wait(databases.create("bench", options))?.map_err(|e| e.to_string())?;
        self.open = Some((databases, db));
        Ok(())
    }

    fn bulk(&mut self, documents: Vec<(String, String)>) -> Result<(), String> {
        let (_, db) = self.open.as_ref().ok_or("not open")?;
        let edits = documents
            .into_iter()
            .map(|(id, json)| {
                let mut doc =
                    document::parse_document(json.as_bytes()).map_err(|e| e.to_string())?;
                doc.id = Some(document::DocId::new(&id).map_err(|e| e.to_string())?);
                Ok(doc)
            })
            .collect::<Result<Vec<_>, String>>()?;
        let done = db.update(edits, EditMode::Interactive, Durability::Synced);
        Self::wait(done)?.map(drop).map_err(|e| e.to_string())
    }
}
