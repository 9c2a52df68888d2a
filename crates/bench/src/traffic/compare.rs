//! Results of a replay: latencies by class of route, and statuses that differ from the recorded
//! ones.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use command_line::Grid;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::slice::new_histogram;

/// Differences that are named; further ones are only counted.
const DIFFERENCES_MAX: usize = 100;
const EXAMPLE_CHARS_MAX: usize = 120;

/// The result of a replay.
#[derive(Debug, Clone, Serialize)]
pub struct ReplayReport {
    /// The server, without credentials.
    pub server: String,
    /// The recording's server.
    pub recorded_server: String,
    /// Requests that were sent.
    pub requests: u64,
    /// How many of them had the recorded status.
    pub same_status: u64,
    /// Requests without an answer.
    pub errors: u64,
    /// The first of these errors.
    pub first_error: Option<String>,
    /// How long the replay took, in seconds.
    pub seconds: f64,
    /// From the recording's first request to its last, in seconds.
    pub recorded_seconds: f64,
    /// Revisions and ids that differed from the recorded ones and were replaced in later requests.
    pub names_replaced: u64,
    /// Largest delay between a request's due time and its sending, in milliseconds: the client's
    /// own lateness.
    pub client_late_ms_max: f64,
    /// One a class of routes, in the order of their names.
    pub classes: Vec<ClassReport>,
    /// Statuses that differed, the most frequent first.
    pub differences: Vec<Difference>,
    /// Further remarks.
    pub notes: Vec<String>,
}

/// A class of routes. Latencies are in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub struct ClassReport {
    /// document_read, view, …
    pub class: String,
    /// Requests with an answer.
    pub count: u64,
    /// How many of them had the recorded status.
    pub same_status: u64,
    /// Requests without an answer.
    pub errors: u64,
    /// From when a request was due to the end of its answer.
    pub latency_ms_p50: f64,
    /// 95th percentile.
    pub latency_ms_p95: f64,
    /// 99th percentile.
    pub latency_ms_p99: f64,
    /// The slowest.
    pub latency_ms_max: f64,
    /// In the recording.
    pub recorded_ms_p50: f64,
    /// In the recording.
    pub recorded_ms_p99: f64,
}

/// A status that differed from the recorded one.
#[derive(Debug, Clone, Serialize)]
pub struct Difference {
    /// The class of routes.
    pub class: String,
    /// The recorded status.
    pub recorded: u16,
    /// The replay's.
    pub replayed: u16,
    /// How often.
    pub count: u64,
    /// Method and path of the first.
    pub example: String,
}

/// The outcome of a request when its response has ended.
pub(super) struct Outcome {
    pub(super) class: &'static str,
    pub(super) request: String,
    pub(super) recorded_status: u16,
    pub(super) recorded_took: Duration,
    /// The status, or the reason why it is missing.
    pub(super) status: Result<u16, String>,
    /// From when it was due.
    pub(super) latency: Duration,
}

struct Class {
    same: u64,
    errors: u64,
    latencies_us: Histogram<u64>,
    recorded_us: Histogram<u64>,
}

/// Gathers outcomes.
#[derive(Default)]
pub(super) struct Comparison {
    classes: BTreeMap<&'static str, Class>,
    differences: BTreeMap<(&'static str, u16, u16), (u64, String)>,
    differences_unnamed: u64,
    first_error: Option<String>,
    errors_in_a_row: u64,
}

impl Comparison {
    pub(super) fn add(&mut self, outcome: Outcome) {
        let class = self.classes.entry(outcome.class).or_insert_with(|| Class {
            same: 0,
            errors: 0,
            latencies_us: new_histogram(),
            recorded_us: new_histogram(),
        });
        let status = match outcome.status {
            Ok(status) => status,
            Err(reason) => {
                class.errors += 1;
                self.errors_in_a_row += 1;
                self.first_error
                    .get_or_insert_with(|| format!("{}: {reason}", outcome.request));
                return;
            }
        };
        self.errors_in_a_row = 0;
        record(&mut class.latencies_us, outcome.latency);
        record(&mut class.recorded_us, outcome.recorded_took);
        if status == outcome.recorded_status {
            class.same += 1;
            return;
        }
        let key = (outcome.class, outcome.recorded_status, status);
        if self.differences.len() >= DIFFERENCES_MAX && !self.differences.contains_key(&key) {
            self.differences_unnamed += 1;
            return;
        }
        let example = || (0, outcome.request.chars().take(EXAMPLE_CHARS_MAX).collect());
        self.differences.entry(key).or_insert_with(example).0 += 1;
    }

    pub(super) fn errors_in_a_row(&self) -> u64 {
        self.errors_in_a_row
    }

    /// The classes and differences of a report whose other members are given.
    pub(super) fn into_report(self, mut report: ReplayReport) -> ReplayReport {
        for (name, class) in self.classes {
            let ms = |histogram: &Histogram<u64>, quantile| {
                histogram.value_at_quantile(quantile) as f64 / 1_000.0
            };
            let count = class.latencies_us.len();
            report.requests += count + class.errors;
            report.same_status += class.same;
            report.errors += class.errors;
            report.classes.push(ClassReport {
                class: name.to_owned(),
                count,
                same_status: class.same,
                errors: class.errors,
                latency_ms_p50: ms(&class.latencies_us, 0.5),
                latency_ms_p95: ms(&class.latencies_us, 0.95),
                latency_ms_p99: ms(&class.latencies_us, 0.99),
                latency_ms_max: class.latencies_us.max() as f64 / 1_000.0,
                recorded_ms_p50: ms(&class.recorded_us, 0.5),
                recorded_ms_p99: ms(&class.recorded_us, 0.99),
            });
        }
        let named = self.differences.into_iter();
        report.differences = named
            .map(
                |((class, recorded, replayed), (count, example))| Difference {
                    class: class.to_owned(),
                    recorded,
                    replayed,
                    count,
                    example,
                },
            )
            .collect();
        report
            .differences
            .sort_by_key(|difference| std::cmp::Reverse(difference.count));
        if self.differences_unnamed > 0 {
            let unnamed = self.differences_unnamed;
            report
                .notes
                .push(format!("{unnamed} further statuses differed"));
        }
        report.first_error = self.first_error;
        report
    }
}

fn record(histogram: &mut Histogram<u64>, time: Duration) {
    let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    histogram.saturating_record(us.max(1));
}

/// Prints a report for people. The table fits `width` characters, if it is known.
pub(super) fn print(
    report: &ReplayReport,
    out: &mut dyn Write,
    width: Option<usize>,
) -> io::Result<()> {
    let ReplayReport {
        server,
        recorded_server,
        requests,
        same_status,
        errors,
        ..
    } = report;
    writeln!(
        out,
        "{server}: {requests} requests recorded at {recorded_server} in {:.1} s, replayed in {:.1} s",
        report.recorded_seconds, report.seconds
    )?;
    writeln!(
        out,
        "{same_status} had the recorded status, {} another one, {errors} no answer; latencies in ms, from when a request was due\n",
        requests - same_status - errors
    )?;
    writeln!(out, "{}\n", table(&report.classes).text(width))?;
    for difference in &report.differences {
        writeln!(
            out,
            "{}: {} for {}, {} times, first {}",
            difference.class,
            difference.replayed,
            difference.recorded,
            difference.count,
            difference.example
        )?;
    }
    if let Some(error) = &report.first_error {
        writeln!(out, "first error: {error}")?;
    }
    if report.names_replaced > 0 {
        let replaced = report.names_replaced;
        writeln!(
            out,
            "note: {replaced} revisions or ids differed from the recorded ones, and were replaced in later requests"
        )?;
    }
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

fn table(classes: &[ClassReport]) -> Grid {
    let header = [
        "class",
        "requests",
        "same",
        "errors",
        "p50",
        "p95",
        "p99",
        "max",
        "recorded p50",
        "recorded p99",
    ];
    let mut table = Grid::new(&header, &[0]);
    for class in classes {
        let ms = |value: f64| format!("{value:.2}");
        table.add_row([
            class.class.clone(),
            class.count.to_string(),
            class.same_status.to_string(),
            class.errors.to_string(),
            ms(class.latency_ms_p50),
            ms(class.latency_ms_p95),
            ms(class.latency_ms_p99),
            ms(class.latency_ms_max),
            ms(class.recorded_ms_p50),
            ms(class.recorded_ms_p99),
        ]);
    }
    table
}
