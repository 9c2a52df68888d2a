//! Crashes of a server: the group `faults`.
//!
//! The server is one that the bench starts, in a separate folder, so that it may be killed. Clients
//! continue meanwhile, as those of a service would. Acknowledged writes are checked afterwards; a
//! server that has lost any of them fails the workload.

mod databases;
mod launch;
mod ledger;
mod load;
mod outcome;
mod process;
mod timeline;

use std::time::{Duration, Instant};

use self::ledger::Ledger;
use self::load::Load;
use self::outcome::Event;
use self::timeline::Timeline;
use crate::error::BenchError;
use crate::system::WorkloadPart;
use crate::timeline::Events;
use crate::workload::alone;

pub use launch::Launch;

pub(crate) use databases::measure_databases;
pub(crate) use launch::Folder;
pub(crate) use outcome::FaultOutcome;
pub(crate) use process::Process;

/// Faults of one kind in a run; their median is reported.
const FAULTS: usize = 3;
/// Load before the first fault, at least: the throughput that has to come back.
const BASELINE_MIN: Duration = Duration::from_secs(1);
/// How long a server may take to come back.
const RECOVERY_MAX: Duration = Duration::from_secs(60);
/// Share of the throughput before that counts as back.
const RECOVERED: f64 = 0.9;
const POLL: Duration = Duration::from_millis(20);

/// The kinds of faults under load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// kill -9, and restarted immediately.
    Kill,
    /// SIGSTOP, and SIGCONT after this time.
    Stop(Duration),
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::Kill => "faults_kill",
            Self::Stop(_) => "faults_stop",
        }
    }
}

/// Durations of one fault, in seconds.
struct Recovery {
    first_answer: f64,
    throughput: Option<f64>,
}

/// Load on a separate server that suffers faults of one kind. `length` is the time of load before
/// each.
pub(crate) async fn measure(
    launch: &Launch,
    fault: Fault,
    length: Duration,
    clock: &Events,
) -> Result<FaultOutcome, BenchError> {
    let folder = Folder::new(launch)?;
    let mut process = Process::start(launch, folder.path()).await?;
    let baseline = length.max(BASELINE_MIN);
    let timeline = Timeline::start();
    let load = Load::start(&process, &timeline).await?;
    let mut suffered = FaultOutcome::default();
    let mut recoveries = Vec::new();
    // Requests before all connections are warm would underestimate the server.
    tokio::time::sleep(baseline / 4).await;
    for _ in 0..FAULTS {
        let from = timeline.now();
        tokio::time::sleep(baseline).await;
        let before = timeline.rate(from, timeline.now());
        if before == 0.0 {
            return Err(BenchError::Options(format!(
                "{}: the load got no answers: {}",
                fault.name(),
                load.first_error().unwrap_or_default()
            )));
        }
        let mut happened = |text: &str| {
            clock.fault(format!("{}: {text}", fault.name()));
            suffered.events.push(Event {
                at_seconds: timeline.now(),
                text: format!("{}: {text}", fault.name()),
            });
        };
        let from = inflict(fault, &mut process, &timeline, &mut happened).await?;
        let recovery = recover(&mut process, &timeline, from, before).await?;
        happened("first answer");
        recoveries.push(recovery);
    }
    let (ledger, slice) = load.stop().await;
    suffered.parts.push(WorkloadPart {
        unit: "ops",
        ..alone(fault.name(), slice)
    });
    tell(fault, &recoveries, &ledger, &process, &mut suffered).await?;
    suffered.notes.push(format!(
        "{}: {FAULTS} times, each after {:.1} s of {} writers and {} readers; the times are medians, from {}; on a server of {} that the bench started",
        fault.name(),
        baseline.as_secs_f64(),
        load::WRITERS,
        load::READERS,
        match fault {
            Fault::Kill => "the kill, with the server restarted immediately",
            Fault::Stop(_) => "the SIGCONT",
        },
        launch.program.display()
    ));
    Ok(suffered)
}

/// Executes the fault. Returns the time from which recovery counts.
async fn inflict(
    fault: Fault,
    process: &mut Process,
    timeline: &Timeline,
    happened: &mut impl FnMut(&str),
) -> Result<f64, BenchError> {
    match fault {
        Fault::Kill => {
            let at = timeline.now();
            process.kill();
            timeline.count_from(at);
            happened("kill -9, and start");
            process.spawn()?;
            Ok(at)
        }
        Fault::Stop(time) => {
            process.signal(rustix::process::Signal::STOP)?;
            happened("SIGSTOP");
            tokio::time::sleep(time).await;
            let at = timeline.now();
            timeline.count_ended_from(at);
            process.signal(rustix::process::Signal::CONT)?;
            happened("SIGCONT");
            Ok(at)
        }
    }
}

/// Waits until the throughput is back.
async fn recover(
    process: &mut Process,
    timeline: &Timeline,
    from: f64,
    before: f64,
) -> Result<Recovery, BenchError> {
    let start = Instant::now();
    loop {
        tokio::time::sleep(POLL).await;
        process.must_run()?;
        let first_answer = timeline.first_answer();
        let back = timeline.back_at(from, before * RECOVERED);
        let is_late = start.elapsed() > RECOVERY_MAX;
        match (first_answer, back) {
            (Some(first), Some(back)) => {
                return Ok(Recovery {
                    first_answer: first - from,
                    throughput: Some((back - from).max(first - from)),
                });
            }
            (Some(first), None) if is_late => {
                return Ok(Recovery {
                    first_answer: first - from,
                    throughput: None,
                });
            }
            (None, _) if is_late => {
                return Err(BenchError::Options(format!(
                    "no answer within {} s of the fault",
                    RECOVERY_MAX.as_secs()
                )));
            }
            _ => {}
        }
    }
}

/// Puts times and the fate of acknowledged writes into figures.
async fn tell(
    fault: Fault,
    recoveries: &[Recovery],
    ledger: &Ledger,
    process: &Process,
    suffered: &mut FaultOutcome,
) -> Result<(), BenchError> {
    let name = fault.name();
    let mut figure = |what: &str, unit, value| {
        let figure = (format!("{name}: {what}"), unit, value);
        suffered.figures.push(figure);
    };
    let firsts = recoveries.iter().map(|recovery| recovery.first_answer);
    figure("first answer", "seconds", median(firsts.collect()));
    let back: Vec<f64> = recoveries.iter().filter_map(|r| r.throughput).collect();
    let late = recoveries.len() - back.len();
    if late == 0 {
        figure("throughput back at 90 %", "seconds", median(back));
    } else {
        suffered.notes.push(format!(
            "{name}: after {late} of {} faults the throughput was not back at 90 % within {} s",
            recoveries.len(),
            RECOVERY_MAX.as_secs()
        ));
    }
    check(name, ledger, process, suffered).await
}

/// Checks all acknowledged writes.
async fn check(
    name: &str,
    ledger: &Ledger,
    process: &Process,
    suffered: &mut FaultOutcome,
) -> Result<(), BenchError> {
    let lost = ledger.lost(process.target()).await?;
    let acknowledged = ledger.acknowledged();
    let counts = [
        ("acknowledged writes", acknowledged),
        ("acknowledged writes lost", lost.len() as u64),
    ];
    let counts = counts.map(|(what, count)| (format!("{name}: {what}"), "writes", count));
    suffered.counts.extend(counts);
    if let Some(first) = lost.first() {
        suffered.broken = Some(format!(
            "{} of {acknowledged} acknowledged writes were lost, the first: {first}",
            lost.len()
        ));
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
