//! `settee bench`: from the command line to a run.

use std::path::{Path, PathBuf};

use command_line::{BenchOptions, Failure, nodes_of, with_credentials};

use crate::embedded::Writer;
use crate::runtime;
use crate::server::{self, OwnServer, settings};
use crate::settee;

/// Measures, prints the report, and fails when a workload failed or a request was answered with an error.
pub fn run(options: BenchOptions) -> Result<(), Failure> {
    if options.list {
        let line =
            |w: &bench::Description| command_line::print(format_args!("{:<22} {}", w.name, w.what));
        bench::workloads().iter().for_each(line);
        return Ok(());
    }
    let runtime = runtime::start()?;
    let scratch = Scratch::new()?;
    let nodes = |urls: &String| nodes_of(urls).iter().map(|u| with_credentials(u)).collect();
    let mut servers: Vec<Vec<String>> = options.url.iter().map(nodes).collect();
    let mut own = vec![];
    if !servers.is_empty() && !options.set.is_empty() {
        return Err(Failure::usage(
            "--set has settings of the server that bench starts: omit --url",
        ));
    }
    let settings = settings(&options.query_server, &options.set);
    if servers.is_empty() {
        let server = OwnServer::start(&scratch.0.join("server"), &settings)?;
        servers.push(vec![server.url.clone()]);
        own.push(server);
    }
    let second_url = if !own.is_empty() && wants_second(&options) {
        let settings = server::settings(&[], &options.set);
        let server = OwnServer::start(&scratch.0.join("second"), &settings)?;
        let url = server.url.clone();
        own.push(server);
        Some(url)
    } else {
        None
    };
    let program = settee::find().ok();
    let embedded = program.clone().map(|program| {
        let writer: Box<dyn bench::Embedded> = Box::new(Writer::new(program));
        writer
    });
    // A sweep may start others in place of a server that was started for the run, and of no other.
    let restart = match &program {
        Some(program) if !own.is_empty() => Some(launched(program.clone(), &scratch.0, settings)?),
        _ => None,
    };
    let mut run = bench_options(options, servers, second_url, program, &scratch.0)?;
    run.restart = restart;
    let report = runtime
        .block_on(bench::run(run, embedded, &mut std::io::stdout()))
        .map_err(Failure::new)?;
    drop(own);
    refuse_failures(&report)
}

/// Whether one of the workloads takes two servers.
fn wants_second(options: &BenchOptions) -> bool {
    let all = options.workloads.is_empty() && options.named.peer.is_none();
    all || options.workloads.iter().any(|name| name == "replication")
}

/// The options of a run with `scratch` as its folder.
fn bench_options(
    options: BenchOptions,
    servers: Vec<Vec<String>>,
    second_url: Option<String>,
    program: Option<PathBuf>,
    scratch: &Path,
) -> Result<bench::BenchOptions, Failure> {
    let named = options.named;
    let mix = named.mix.as_deref().map(bench::Mix::named).transpose();
    let design = named.design.as_deref();
    let own = named.documents.as_deref();
    let own = own
        .map(|path| bench::OwnData::read(path, design))
        .transpose();
    let urls = named.urls.as_deref().map(bench::UrlList::read).transpose();
    let launch = named.faults_binary.or(program);
    let quiet = ["--set", "log/level=warning"].map(str::to_owned).to_vec();
    Ok(bench::BenchOptions {
        mix: mix.map_err(Failure::usage)?,
        urls: urls.map_err(Failure::usage)?,
        own: own.map_err(Failure::usage)?,
        peer: named.peer,
        launch: launch
            .map(|program| launched(program, scratch, quiet))
            .transpose()?,
        servers,
        second_url,
        workloads: options.workloads,
        scale: options.scale,
        seconds: options.seconds,
        json: options.json,
        width: command_line::terminal_width(),
        connections: options.connections,
        repeats: options.repeats,
        pause_s: options.pause,
        has_new_servers: options.restart,
        languages: options.languages,
        q: options.q,
        settings: options.set,
        rate: options.rate,
        requests: options.requests,
        new_connections: options.new_connections,
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
            "{} failed, and {} answered with errors",
            command_line::counted(report.failures.len(), "workloads"),
            command_line::counted(report.errors(), "requests")
        )));
    }
    Ok(())
}

/// How a server with these settings is started for faults, or for a value of a sweep.
fn launched(program: PathBuf, dir: &Path, settings: Vec<String>) -> Result<bench::Launch, Failure> {
    let args = [
        "serve",
        "--bind",
        "127.0.0.1",
        "--port",
        "{port}",
        "--data",
        "{data}",
    ];
    let password = settee::random_password()?;
    Ok(bench::Launch {
        program,
        args: args
            .map(str::to_owned)
            .into_iter()
            .chain(settings)
            .collect(),
        // All users of the machine can read a command line.
        envs: vec![("SETTEE__admins__bench".to_owned(), password.clone())],
        credentials: format!("bench:{password}"),
        dir: dir.to_owned(),
    })
}

/// A directory for the run, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, Failure> {
        let dir = std::env::temp_dir().join(format!("settee-bench-{}", std::process::id()));
        // An existing one may be a trap: its name can be guessed.
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
