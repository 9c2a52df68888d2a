//! One build of an index: the design document is written, a query waits for it, tasks and processes are watched.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::tasks::Tasks;
use crate::error::BenchError;
use crate::processes::{Sampler, Usage, of_language};
use crate::progress;
use crate::slice::Slice;
use crate::system::{System, Watch, WorkloadPart};
use crate::workload::Outcome;

/// A build that takes longer has failed.
const BUILD_TIMEOUT: Duration = Duration::from_secs(2 * 3_600);
/// A build that took longer is not repeated in later rounds.
const LONG_BUILD: Duration = Duration::from_secs(20);
/// Part of every map's source; replacing it makes a separate index.
const MARK: &str = "ROUND";

/// One view of a design document.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub(super) name: &'static str,
    pub(super) map: &'static str,
    pub(super) reduce: Option<&'static str>,
}

/// Writes a design document that no index exists for yet. Returns its name.
///
/// `autoupdate` false keeps the server from building before a query.
pub(super) async fn put_design(
    system: &System,
    database: &str,
    language: &str,
    views: &[View],
    autoupdate: bool,
) -> Result<String, BenchError> {
    let mark = format!("{:016x}", fastrand::u64(..));
    let name = format!("bench-{mark}");
    let sources: serde_json::Map<String, Value> = views
        .iter()
        .map(|view| {
            let mut functions = json!({ "map": view.map.replace(MARK, &mark) });
            if let Some(reduce) = view.reduce {
                functions["reduce"] = json!(reduce);
            }
            (view.name.to_owned(), functions)
        })
        .collect();
    let design = json!({ "language": language, "autoupdate": autoupdate, "views": sources });
    let path = format!("/{database}/_design/{name}");
    system
        .require("PUT", &path, Some(design.to_string().as_bytes()))
        .await?;
    Ok(name)
}

/// Deletes a design document and its index.
pub(super) async fn remove_design(
    system: &System,
    database: &str,
    design: &str,
) -> Result<(), BenchError> {
    let path = format!("/{database}/_design/{design}");
    let stored = system.json("GET", &path).await?;
    let rev = stored["_rev"].as_str().unwrap_or_default();
    system
        .require("DELETE", &format!("{path}?rev={rev}"), None)
        .await?;
    system
        .require("POST", &format!("/{database}/_view_cleanup"), Some(b"{}"))
        .await?;
    Ok(())
}

/// Requests one row until the index is up to date; returns the number of the view's rows.
///
/// A server that gives up waiting (CouchDB's `timeout`) continues to build, so the request is
/// repeated.
pub(crate) async fn wait_for(system: &System, view_path: &str) -> Result<u64, BenchError> {
    let path = format!("{view_path}?limit=1&reduce=false");
    let start = Instant::now();
    loop {
        let (status, body) = system.call("GET", &path, None).await?;
        if status == 200 {
            let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
            return Ok(answer["total_rows"].as_u64().unwrap_or(0));
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        if !body.contains("timeout") || start.elapsed() > BUILD_TIMEOUT {
            return Err(BenchError::Refused {
                what: format!("GET {path}"),
                status,
                body,
            });
        }
    }
}

/// The index to build.
pub(super) struct Build<'a> {
    pub(super) part: &'static str,
    pub(super) database: &'a str,
    pub(super) documents: u64,
    /// Rows that the first view must have.
    pub(super) rows: u64,
    pub(super) language: &'a str,
    pub(super) views: &'a [View],
}

/// A build that is done. Its design document is still there.
pub(super) struct Built {
    pub(super) part: WorkloadPart,
    pub(super) design: String,
    task_rates: Vec<f64>,
    query_servers: Option<Usage>,
    /// The server does not report the processes of a language.
    is_guessed: bool,
}

impl Build<'_> {
    /// The clock runs from the moment when the design document is sent: a server may build before a
    /// query.
    pub(super) async fn run(&self, system: &System) -> Result<Built, BenchError> {
        let before = of_language(system, self.language).await?;
        let sampler = Sampler::start(system.pid);
        let watch = Watch::start(&system.pids);
        let bar = progress::bar(self.documents, self.part.to_owned());
        let mut tasks = Tasks::default();
        let start = Instant::now();
        let design = put_design(system, self.database, self.language, self.views, true).await?;
        let design_id = format!("_design/{design}");
        let view = format!(
            "/{}/{design_id}/_view/{}",
            self.database, self.views[0].name
        );
        let rows = tokio::select! {
            rows = wait_for(system, &view) => rows,
            failed = tasks.watch(system, self.database, &design_id, &bar) => Err(failed.err().unwrap_or(BenchError::Interrupted)),
        };
        let elapsed = start.elapsed();
        bar.finish_and_clear();
        let samples = sampler.map(Sampler::stop);
        let rows = rows?;
        let after = of_language(system, self.language).await?;
        let reported = before.zip(after).map(|(before, after)| &before | &after);
        let is_guessed = samples.is_some() && reported.is_none();
        let query_servers =
            samples.map(|samples| samples.of(&reported.unwrap_or_else(|| samples.busy())));
        let mut slice = Slice::new();
        slice.record(self.documents, elapsed);
        slice.seconds = elapsed.as_secs_f64();
        if rows != self.rows {
            let expected = self.rows;
            slice.errors.add(1, || {
                format!("{expected} rows expected, the view has {rows}")
            });
        }
        Ok(Built {
            part: watch.part(self.part, "docs", slice),
            design,
            task_rates: tasks.rates(),
            query_servers,
            is_guessed,
        })
    }
}

/// Notes on builds besides their lines, collected over rounds.
#[derive(Default)]
pub(super) struct Ledger {
    builds: BTreeMap<&'static str, Entry>,
    long: HashSet<&'static str>,
    /// Processes were counted that a server does not assign to a language.
    is_guessed: bool,
    /// The whole reduction of each kind of view, by the first language that built it.
    reductions: HashMap<&'static str, (&'static str, Value)>,
}

#[derive(Default)]
struct Entry {
    seconds: Vec<f64>,
    task_rates: Vec<f64>,
    query_servers: Option<Usage>,
}

impl Ledger {
    /// False once the part has taken long enough that one build must do.
    pub(super) fn wants(&self, part: &'static str) -> bool {
        !self.long.contains(part)
    }

    pub(super) fn note(&mut self, built: &Built) {
        let entry = self.builds.entry(built.part.name).or_default();
        entry.seconds.push(built.part.slice.seconds);
        entry.task_rates.extend(&built.task_rates);
        self.is_guessed |= built.is_guessed;
        if let Some(usage) = built.query_servers {
            entry.query_servers = Some(entry.query_servers.unwrap_or_default().and(usage));
        }
        if built.part.slice.seconds > LONG_BUILD.as_secs_f64() {
            self.long.insert(built.part.name);
        }
    }

    /// All languages must return the same reduction of the same view; otherwise the part has an
    /// error.
    pub(super) async fn compare(
        &mut self,
        system: &System,
        kind: &'static str,
        language: &'static str,
        view_path: &str,
        slice: &mut Slice,
    ) -> Result<(), BenchError> {
        let found = system.json("GET", view_path).await?["rows"].take();
        let (first, expected) = self
            .reductions
            .entry(kind)
            .or_insert_with(|| (language, found.clone()));
        let same = *expected == found;
        slice.errors.add(u64::from(!same), || {
            format!("{first} reduces to {expected}, {language} to {found}")
        });
        Ok(())
    }

    /// Times, rates of the tasks, and the cost of the query servers of each part's language.
    pub(super) fn outcome(self) -> Outcome {
        let mut figures = Vec::new();
        for (part, entry) in self.builds {
            figures.push((
                format!("{part}: time of a build"),
                "seconds",
                mean(&entry.seconds),
            ));
            if !entry.task_rates.is_empty() {
                figures.push((
                    format!("{part}: an index task"),
                    "docs/s",
                    mean(&entry.task_rates),
                ));
            }
            let Some(usage) = entry.query_servers.filter(|usage| usage.processes_max > 0) else {
                continue;
            };
            figures.extend([
                (
                    format!("{part}: query servers"),
                    "processes",
                    usage.processes_max as f64,
                ),
                (
                    format!("{part}: query servers' peak"),
                    "bytes",
                    usage.private_bytes_peak as f64,
                ),
                (
                    format!("{part}: query servers' CPU, all rounds"),
                    "seconds",
                    usage.cpu_seconds,
                ),
            ]);
        }
        let guessed = "query servers: the server does not report them by language, so all of its processes count that worked during a build";
        let notes = self.is_guessed.then(|| guessed.to_owned());
        Outcome {
            figures,
            notes: notes.into_iter().collect(),
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
