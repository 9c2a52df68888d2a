//! One run: servers are found, workloads measured in interleaved rounds, databases deleted, results printed.

use std::io::Write;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::ceilings;
use crate::competitor::Competitor;
use crate::error::BenchError;
use crate::files::Files;
use crate::gather::Gatherer;
use crate::machine::{Account, Busy, Machine, unquiet};
use crate::options::{BenchOptions, Embedded};
use crate::pace::Pace;
use crate::procfs;
use crate::report::{Failure, Report, Server};
use crate::stats;
use crate::sweep_plan::Plan;
use crate::system::System;
use crate::table;
use crate::target::Target;
use crate::timeline::{Events, Sampler, with_descendants};
use crate::warnings;
use crate::workload::{self, Bench};

/// A loop cannot be faster than its client.
const RATE_MAX: f64 = 1_000_000.0;
const REPEATS_MAX: u32 = 1_000;
const PAUSE_S_MAX: f64 = 3_600.0;
const Q_MAX: u64 = 1_024;
/// The machine is observed for a fifth of a timed part's seconds before anything is measured,
/// within these bounds.
const LOOK_SECONDS: (f64, f64) = (0.1, 1.0);

/// Measures, prints the report to `out`, writes the requested files, and returns the report.
/// Progress goes to standard error.
///
/// The load client runs on a separate thread: it must not take more than one core from the server
/// that it measures. Ctrl-C and SIGTERM end the run after restoring changed settings and deleting
/// the created databases.
///
/// # Errors
/// [`BenchError`]: options, files, servers that cannot be reached, settings that cannot be
/// restored, and interruption. A workload that fails is reported in [`Report::failures`], and
/// refused requests are counted in its lines.
pub async fn run(
    options: BenchOptions,
    embedded: Option<Box<dyn Embedded>>,
    out: &mut (dyn Write + Send),
) -> Result<Report, BenchError> {
    check(&options)?;
    workload::check_languages(&options.languages)?;
    let files = Files::open(&options)?;
    let (json, width) = (options.json, options.width);
    let mut report = on_own_thread(options, embedded).await?;
    files.compare(&mut report);
    if json {
        serde_json::to_writer(&mut *out, &report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        table::print(&report, out, width)?;
    }
    files.write(&report)?;
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
            // The receiver is gone when the caller has given up.
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
    let has_cluster = options.servers.iter().any(|nodes| nodes.len() > 1);
    let selected = workload::select(&options.workloads, has_cluster, options.peer.is_some())?;
    workload::check_faults(&selected, &options)?;
    let sweep = options.sweep.as_deref().map(Plan::parse).transpose()?;
    let selected = match &sweep {
        Some(plan) => plan.select(selected, !options.workloads.is_empty())?,
        None => selected,
    };
    let mut bench = prepared(options, sweep, embedded).await?;
    let thorough = bench.options.is_thorough();
    // The first server of a run rests while a sweep measures others in its place.
    let is_replaced = bench.restart.is_some();
    let pids: Vec<Vec<u32>> = bench
        .systems
        .iter()
        .map(|system| match is_replaced {
            true => Vec::new(),
            false => system.pids.clone(),
        })
        .collect();
    let ours = ours(&bench);
    let sampler = thorough
        .then(|| Sampler::start(&bench.clock, pids, ours.clone()))
        .flatten();
    let before = Account::now(&with_descendants(&ours));
    let measured = tokio::select! {
        measured = whole(&mut bench, &selected, thorough) => measured,
        () = interrupted() => Err(BenchError::Interrupted),
    };
    let after = Account::now(&with_descendants(&ours));
    bench.report.busy_during = after
        .zip(before)
        .and_then(|(after, before)| after.since(&before));
    if let Some(sampler) = sampler {
        bench.report.timeline = sampler.stop();
    }
    let put_back = put_back(&mut bench, measured.is_ok()).await;
    if !bench.options.keep {
        clean_up(&mut bench).await;
    }
    put_back?;
    measured.map(|()| finished(bench))
}

/// The processes that belong to a run, but for those that they start: the servers', the competitor's, and this one, which starts the servers of
/// faults.
fn ours(bench: &Bench) -> Vec<u32> {
    let servers = bench.report.servers.iter().map(|server| &server.pids);
    let second = bench.second.iter().map(|system| &system.pids);
    let mut pids: Vec<u32> = servers.chain(second).flatten().copied().collect();
    pids.push(std::process::id());
    pids
}

/// Finds the servers, and prepares a run.
async fn prepared(
    options: BenchOptions,
    sweep: Option<Plan>,
    embedded: Option<Box<dyn Embedded>>,
) -> Result<Bench, BenchError> {
    let load_average = procfs::load_average();
    let connections_max = raise_open_files();
    let competitor = match &options.peer {
        Some(url) => Some(Competitor::open(url).await?),
        None => None,
    };
    let (mut systems, mut servers) = servers(&options).await?;
    servers.extend(competitor.as_ref().map(Competitor::server));
    let mut second = match &options.second_url {
        Some(url) => Some(side_of(Target::resolve(url).await?, None)),
        None => None,
    };
    let clock = Rc::new(Events::new());
    for system in systems.iter_mut().chain(&mut second) {
        system.events = Rc::clone(&clock);
    }
    let began = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut bench = Bench {
        second,
        report: Report {
            servers,
            scale: options.scale,
            seconds: options.seconds,
            connections: options.connections,
            repeats: options.repeats,
            rate: options.rate,
            requests: options.requests,
            new_connections: options.new_connections,
            began_s: began.map_or(0, |began| began.as_secs()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: Machine::here(),
            load_average,
            notes: competitor
                .as_ref()
                .map(Competitor::notes)
                .unwrap_or_default(),
            ..Report::default()
        },
        gathering: Gatherer::default(),
        competitor,
        repeat: 0,
        clock,
        sweep,
        changed: Vec::new(),
        restart: None,
        stand_in: None,
        options,
        systems,
        connections_max,
        embedded,
    };
    bench.prepare_sweep().await?;
    bench.prepare_repeats();
    Ok(bench)
}

/// Ceilings and machine before, the workloads, ceilings after.
async fn whole(
    bench: &mut Bench,
    selected: &[&'static str],
    thorough: bool,
) -> Result<(), BenchError> {
    if thorough {
        bench.report.busy_before = look(bench).await;
        bench.report.ceilings = measure_ceilings(bench).await?;
    }
    bench.measure_all(selected).await?;
    if thorough {
        // A server that has died meanwhile has no ceiling any more, and its failure is reported
        // already.
        let again = measure_ceilings(bench).await.unwrap_or_default();
        ceilings::measured_again(&mut bench.report.ceilings, again);
    }
    Ok(())
}

async fn measure_ceilings(bench: &Bench) -> Result<Vec<ceilings::Ceiling>, BenchError> {
    bench.clock.begin("ceilings".to_owned());
    // A workload that has failed may have left its own.
    bench
        .systems
        .iter()
        .for_each(|system| system.set_pace(Pace::default()));
    let (options, disk) = (&bench.options, bench.options.disk_dir());
    ceilings::measure(&bench.systems, options.connections, &disk, options.seconds).await
}

/// Load of the machine while nothing is measured.
async fn look(bench: &Bench) -> Option<Busy> {
    let ours = ours(bench);
    let before = Account::now(&with_descendants(&ours))?;
    let seconds = (bench.options.seconds / 5.0).clamp(LOOK_SECONDS.0, LOOK_SECONDS.1);
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    Account::now(&with_descendants(&ours))?.since(&before)
}

/// Restores settings that a sweep has changed, and ends its server. A run that was interrupted has no report for a
/// failure.
async fn put_back(bench: &mut Bench, has_report: bool) -> Result<(), BenchError> {
    bench.end_stand_in();
    let mut result = Ok(());
    for changed in std::mem::take(&mut bench.changed) {
        let Err(error) = changed.put_back().await else {
            continue;
        };
        if has_report {
            bench.report.failures.push(Failure {
                workload: "restoring a setting".to_owned(),
                reason: error.to_string(),
            });
        } else {
            result = Err(error);
        }
    }
    result
}

fn finished(bench: Bench) -> Report {
    let mut report = bench.report;
    report.events = bench.clock.list();
    let unquiet = unquiet(
        report.busy_before,
        report.busy_during,
        report.machine.processors,
    );
    if !unquiet.is_empty() {
        report
            .warnings
            .push(format!("the machine was not quiet: {}", unquiet.join("; ")));
    }
    report.warnings.extend(warnings::warnings(&report));
    if report.repeats > 1 && (report.repeats as usize) < stats::REPEATS_MIN {
        let (repeats, min) = (report.repeats, stats::REPEATS_MIN);
        report.notes.push(format!(
            "{repeats} repeats have no intervals: these need {min}, and 10 show more"
        ));
    }
    report
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
        options if options.peer.is_some() && options.servers.len() != 1 => {
            refuse("a peer can only be compared with one server")
        }
        options
            if options.peer.is_some() && (options.sweep.is_some() || options.compare.is_some()) =>
        {
            refuse("a peer is measured neither in a sweep nor against a saved run")
        }
        options if options.peer.is_some() && options.new_connections => {
            refuse("a peer's clients keep their connections: --new-connections does not apply")
        }
        options if options.connections == 0 => refuse("at least one connection is needed"),
        options if !(1..=REPEATS_MAX).contains(&options.repeats) => {
            refuse("there can be 1 to 1,000 repeats")
        }
        options
            if options
                .rate
                .is_some_and(|rate| !(rate > 0.0 && rate <= RATE_MAX)) =>
        {
            refuse("the rate must be above 0 and at most 1,000,000 requests a second")
        }
        options if options.requests == Some(0) => refuse("at least one request is needed"),
        options if options.servers.len() > 1 && options.sweep.is_some() => {
            refuse("a sweep is of one server")
        }
        options if options.servers.len() > 1 && options.compare.is_some() => {
            refuse("one server is compared with a saved run; two are compared with each other")
        }
        options if options.sweep.is_some() && options.compare.is_some() => {
            refuse("a sweep is not compared with a saved run")
        }
        options if options.sweep.is_some() && options.has_new_servers => {
            refuse("a sweep starts servers where it has to: --restart does not apply")
        }
        _ => check_more(options),
    }
}

/// The checks of [`check`] about the run as a whole, and its report.
fn check_more(options: &BenchOptions) -> Result<(), BenchError> {
    let refuse = |reason: &str| Err(BenchError::Options(reason.to_owned()));
    match options {
        options if !(0.0..=PAUSE_S_MAX).contains(&options.pause_s) => {
            refuse("the pause must be 0 to 3,600 seconds")
        }
        options if options.q.is_some_and(|q| !(1..=Q_MAX).contains(&q)) => {
            refuse("--q is a number of shards from 1 to 1,024")
        }
        options if options.has_new_servers && options.restart.is_none() => {
            refuse("bench restarts no server that it did not start: omit --url, or --restart")
        }
        options if options.has_new_servers && options.keep => refuse(
            "servers that are started for a repeat keep no databases: omit --keep, or --restart",
        ),
        options if options.flames.len() > 2 => {
            refuse("there are flame graphs of A and of B, two at most")
        }
        options if !options.flames.is_empty() && options.report.is_none() => {
            refuse("flame graphs are for a report: give --report FILE.html")
        }
        options if options.profile && options.report.is_none() => {
            refuse("profiles are for a report: give --report FILE.html")
        }
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

async fn servers(options: &BenchOptions) -> Result<(Vec<System>, Vec<Server>), BenchError> {
    let mut systems = Vec::new();
    let mut servers = Vec::new();
    for (at, urls) in options.servers.iter().enumerate() {
        let (first, others) = urls.split_first().expect("checked before");
        let target = Target::resolve(first).await?;
        let mut system = side_of(target, options.local_pid.filter(|_| at == 0));
        for url in others {
            let target = Target::resolve(url).await?;
            let pid = listener(&target);
            system.add_node(target, pid);
        }
        let labels: Vec<&str> = system.nodes.iter().map(|node| &*node.label).collect();
        servers.push(Server {
            url: labels.join(" "),
            nodes: system.nodes.len(),
            product: product(&system).await?,
            pids: system.pids.clone(),
        });
        systems.push(system);
    }
    Ok((systems, servers))
}

fn side_of(target: Target, pid: Option<u32>) -> System {
    let pid = pid.or_else(|| listener(&target));
    System::new(target, pid)
}

fn listener(target: &Target) -> Option<u32> {
    let port = target.address.port();
    target
        .is_loopback()
        .then(|| procfs::listener(port))
        .flatten()
}

/// The product of `GET /`. Requests `_all_dbs` too, so that wrong credentials are found before
/// anything is measured.
async fn product(system: &System) -> Result<String, BenchError> {
    let welcome = System::welcome(&system.target).await?;
    for node in &system.nodes {
        System::first(node, "/_all_dbs?limit=1").await?;
    }
    Ok(product_of(&welcome))
}

/// Another vendor's server with CouchDB's protocol has its own version besides CouchDB's.
fn product_of(welcome: &Value) -> String {
    let name = welcome["vendor"]["name"].as_str().unwrap_or("unknown");
    let version = [&welcome["vendor"]["version"], &welcome["version"]];
    let version = version.iter().find_map(|version| version.as_str());
    format!("{name}, version {}", version.unwrap_or("?"))
}

/// Returns a future that ends with the first SIGINT, SIGTERM, or SIGHUP (sent when the terminal
/// closes) after this call.
pub(crate) fn interrupted() -> impl Future<Output = ()> {
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    // They are registered now, not when the future is polled first.
    let signals = kinds.into_iter().filter_map(|kind| signal(kind).ok());
    let mut signals: Vec<_> = signals.collect();
    std::future::poll_fn(move |context| {
        let mut polls = signals.iter_mut().map(|signal| signal.poll_recv(context));
        match polls.any(|poll| poll.is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
}

async fn clean_up(bench: &mut Bench) {
    if let Some(competitor) = &bench.competitor
        && let Err(error) = competitor.clean_up().await
    {
        bench.report.failures.push(Failure {
            workload: "removing the data in the peer".to_owned(),
            reason: error.to_string(),
        });
    }
    for system in bench.systems.iter().chain(&bench.second) {
        let reason = match system.clean_up().await {
            Ok(left) if left.is_empty() => continue,
            Ok(left) => format!("still there: {}", left.join(", ")),
            Err(error) => error.to_string(),
        };
        bench.report.failures.push(Failure {
            workload: format!("deleting the databases on {}", system.target.label),
            reason,
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_product_has_its_vendors_version() {
        let settee = json!({"couchdb": "Welcome", "version": "3.5.0", "vendor": {"name": "Settee", "version": "1.2.3"}});
        assert_eq!(product_of(&settee), "Settee, version 1.2.3");
        let couchdb = json!({"couchdb": "Welcome", "version": "3.5.0", "vendor": {"name": "The Apache Software Foundation"}});
        assert_eq!(
            product_of(&couchdb),
            "The Apache Software Foundation, version 3.5.0"
        );
        assert_eq!(product_of(&json!([])), "unknown, version ?");
    }
}
