//! `settee check-functions`: which functions of a CouchDB depend on its JavaScript engine.

use command_line::counted;
use std::process::ExitCode;

use function_check::{Finding, Report};
use functions::js::WorkerCommand;

use super::doctor::plain;
use crate::Failure;
use crate::cli::{CheckFunctionsOptions, with_credentials};

/// The exit status when functions have to be changed.
const FOUND: u8 = 1;
/// The exit status when the server cannot be read, or functions cannot be run.
const NOT_RUN: u8 = 2;

pub fn run(options: &CheckFunctionsOptions) -> ExitCode {
    match check(options) {
        Ok(report) => {
            match options.json {
                true => say!("{}", serde_json::json!(report)),
                false => print(&report),
            }
            ExitCode::from(if report.findings.is_empty() { 0 } else { FOUND })
        }
        Err(failure) => {
            eprintln!("settee: {}", failure.message);
            ExitCode::from(NOT_RUN)
        }
    }
}

fn check(options: &CheckFunctionsOptions) -> Result<Report, Failure> {
    let checked = function_check::check(function_check::Options {
        url: with_credentials(&options.url),
        sample_max: options.sample,
        worker: WorkerCommand::default(),
    });
    super::runtime()?.block_on(checked).map_err(Failure::new)
}

fn print(report: &Report) {
    for finding in &report.findings {
        print_finding(finding);
    }
    for note in &report.notes {
        say!("note: {}", plain(note));
    }
    for database in &report.not_checked {
        say!("not checked: {}", plain(database));
    }
    say!("{}", summary(report));
}

fn print_finding(finding: &Finding) {
    let mut place = format!(
        "{}/{}, {}",
        finding.database, finding.design, finding.function
    );
    if let Some(line) = finding.line {
        place.push_str(&format!(", line {line}"));
    }
    say!("{}: {}", plain(&place), finding.kind);
    if !finding.code.is_empty() {
        say!("  {}", plain(&finding.code));
    }
    say!("  {}: {}", finding.effect, plain(&finding.differs));
    say!("  write: {}\n", finding.instead);
}

fn summary(report: &Report) -> String {
    let found = match report.findings.len() {
        0 => "nothing to change".to_owned(),
        n => format!("{} to change", counted(n, "places")),
    };
    format!(
        "{} of {} in {}, run with {}: {found}",
        counted(report.functions, "functions"),
        counted(report.designs, "design documents"),
        counted(report.databases, "databases"),
        counted(report.documents, "documents")
    )
}
