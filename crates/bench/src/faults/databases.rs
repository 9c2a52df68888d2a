//! A server that is killed while very many databases are open.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use super::launch::{Folder, Launch};
use super::outcome::{Event, FaultOutcome};
use super::process::Process;
use crate::error::BenchError;
use crate::slice::Slice;
use crate::target::Target;
use crate::timeline::Events;
use crate::workload::{Caller, alone};

const NAME: &str = "faults_databases";
const CLIENTS: usize = 16;

/// Creates `databases` databases with a document each, kills the server, starts it, and reads every
/// document.
pub(crate) async fn measure_databases(
    launch: &Launch,
    databases: u64,
    clock: &Events,
) -> Result<FaultOutcome, BenchError> {
    let folder = Folder::new(launch)?;
    let mut process = Process::start(launch, folder.path()).await?;
    let start = Instant::now();
    let mut suffered = FaultOutcome::default();
    all(process.target(), databases, Step::Make).await?;
    let mut happened = |text: &str| {
        clock.fault(format!("{NAME}: {text}"));
        suffered.events.push(Event {
            at_seconds: start.elapsed().as_secs_f64(),
            text: format!("{NAME}: {text}"),
        });
    };
    process.kill();
    happened("kill -9, and start");
    let killed = Instant::now();
    process.spawn()?;
    process.ready().await?;
    let first_answer = killed.elapsed().as_secs_f64();
    happened("first answer");
    let (slice, lost) = all(process.target(), databases, Step::Ask).await?;
    let all_answered = killed.elapsed().as_secs_f64();
    happened("every database has answered");
    suffered.parts.push(alone(NAME, slice));
    suffered.figures = vec![
        (format!("{NAME}: first answer"), "seconds", first_answer),
        (
            format!("{NAME}: all databases answered"),
            "seconds",
            all_answered,
        ),
    ];
    suffered.counts = vec![(
        format!("{NAME}: acknowledged writes lost"),
        "writes",
        lost.len() as u64,
    )];
    suffered.notes.push(format!(
        "{NAME}: {databases} databases of one document, all open when the server was killed; then {CLIENTS} clients read from each; \
         times from the kill, with the server restarted immediately; on a server of {} that the bench started",
        launch.program.display()
    ));
    suffered.broken = lost.first().map(|first| {
        format!(
            "{} of {databases} databases lost their document, the first: {first}",
            lost.len()
        )
    });
    Ok(suffered)
}

#[derive(Clone, Copy)]
enum Step {
    Make,
    Ask,
}

/// Runs a step with every database. Returns the durations, and missing documents.
async fn all(
    target: &Rc<Target>,
    databases: u64,
    step: Step,
) -> Result<(Slice, Vec<String>), BenchError> {
    let next = Rc::new(Cell::new(0));
    let start = Instant::now();
    let client = |_| one(Rc::clone(target), Rc::clone(&next), databases, step);
    let done = futures_util::future::try_join_all((0..CLIENTS).map(client)).await?;
    let (mut whole, mut missing) = (Slice::new(), Vec::new());
    for (slice, gone) in done {
        whole.merge(slice);
        missing.extend(gone);
    }
    whole.seconds = start.elapsed().as_secs_f64();
    Ok((whole, missing))
}

async fn one(
    target: Rc<Target>,
    next: Rc<Cell<u64>>,
    databases: u64,
    step: Step,
) -> Result<(Slice, Vec<String>), BenchError> {
    let mut caller = Caller::new(&target);
    let (mut slice, mut missing) = (Slice::new(), Vec::new());
    loop {
        let number = next.replace(next.get() + 1);
        if number >= databases {
            return Ok((slice, missing));
        }
        let path = format!("/settee-bench-faults-{number}");
        let document = format!("{path}/document");
        if let Step::Make = step {
            caller.require("PUT", &path, None).await?;
            caller.require("PUT", &document, Some(b"{\"n\":1}")).await?;
            continue;
        }
        let start = Instant::now();
        match caller.send("GET", &document, None).await? {
            200 => slice.record(1, start.elapsed()),
            status => missing.push(format!("GET {document}: {status}")),
        }
    }
}
