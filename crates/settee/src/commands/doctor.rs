//! `settee doctor`: problems of a server.

use std::process::ExitCode;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use command_line::counted;
use serde::Deserialize;
use serde_json::Value;

use super::server::Server;
use crate::Failure;
use crate::cli::DoctorOptions;

/// The server answers within 5 s, unless it is stuck.
const PATIENCE: Duration = Duration::from_secs(20);
/// The exit status when the server could not be reached: lower ones depend on the findings.
const NOT_ASKED: u8 = 3;

pub fn run(options: &DoctorOptions) -> ExitCode {
    match ask(options) {
        Ok(told) => {
            match options.json {
                true => say!("{told}"),
                false => print(&told, options),
            }
            ExitCode::from(match told["worst"].as_str() {
                Some("error") => 2,
                Some("warning") => 1,
                _ => 0,
            })
        }
        Err(e) => {
            eprintln!("settee: {}", e.message);
            ExitCode::from(NOT_ASKED)
        }
    }
}

fn ask(options: &DoctorOptions) -> Result<Value, Failure> {
    let client = reqwest::Client::builder().timeout(PATIENCE);
    let server = Server::new(&options.url, client)?;
    super::runtime()?.block_on(server.settee_json("/_settee/doctor", "an admin"))
}

/// The parts of a response that are printed.
#[derive(Deserialize)]
struct DoctorReport {
    node: String,
    version: String,
    findings: Vec<Finding>,
    checks: Vec<Check>,
    databases: Databases,
    not_looked_at: Vec<String>,
    took_ms: u64,
}

#[derive(Deserialize)]
struct Finding {
    id: String,
    severity: String,
    subject: String,
    says: String,
    why: String,
    #[serde(rename = "do")]
    act: Vec<String>,
}

#[derive(Deserialize)]
struct Check {
    id: String,
    outcome: String,
    why: Option<String>,
    not_told: Option<u64>,
}

#[derive(Deserialize)]
struct Databases {
    all: u64,
    looked_at: u64,
    failed: Vec<String>,
}

fn print(told: &Value, options: &DoctorOptions) {
    let told: DoctorReport = match serde_json::from_value(told.clone()) {
        Ok(told) => told,
        Err(e) => {
            eprintln!("settee: the server is of another version: {e}");
            return say!("{told}");
        }
    };
    if !options.quiet {
        say!("{}", summary(&told));
    }
    let shown = |finding: &&Finding| !options.quiet || finding.severity != "note";
    for finding in told.findings.iter().filter(shown) {
        print_finding(finding);
    }
    for check in &told.checks {
        if let Some(n) = check.not_told {
            say!("\n{n} more of {}", check.id);
        }
    }
    if !options.quiet {
        print_left_out(&told);
        let mut commands = told.findings.iter().flat_map(|finding| &finding.act);
        if commands.any(|command| command.contains("$S")) {
            say!(
                "\nIn commands S is the server: S={}",
                with_placeholder(&options.url)
            );
        }
    }
}

fn print_finding(finding: &Finding) {
    let (severity, style) = (finding.severity.to_uppercase(), style_of(&finding.severity));
    let subject = plain(&finding.subject);
    anstream::println!("\n{style}{severity}{style:#}: {}: {subject}", finding.id);
    say!("  {}", plain(&finding.says));
    say!("  why: {}", plain(&finding.why));
    for command in &finding.act {
        say!("  do:  {}", plain(command));
    }
}

/// The colour of a severity, on a terminal.
fn style_of(severity: &str) -> Style {
    let color = match severity {
        "error" => AnsiColor::Red,
        "warning" => AnsiColor::Yellow,
        _ => AnsiColor::Cyan,
    };
    color.on_default().bold()
}

/// A text without characters that control a terminal, or change the direction of text: names may
/// contain anything.
pub(super) fn plain(text: &str) -> String {
    let is_order = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.replace(is_order, "\u{fffd}")
}

/// Prints skipped checks, and objects that were not examined.
fn print_left_out(told: &DoctorReport) {
    let skipped = told
        .checks
        .iter()
        .filter(|check| check.outcome == "skipped");
    let skipped = skipped.map(|check| {
        let why = check.why.as_deref().unwrap_or_default();
        format!("skipped: {}: {why}", check.id)
    });
    let failed = told.databases.failed.iter().chain(&told.not_looked_at);
    let failed = failed.map(|what| format!("not examined: {what}"));
    for (n, line) in skipped.chain(failed).enumerate() {
        let line = plain(&line);
        say!("{}{line}", if n == 0 { "\n" } else { "" });
    }
}

/// The URL without the name and password that it may have.
fn with_placeholder(url: &str) -> String {
    let Ok(mut parsed) = reqwest::Url::parse(url) else {
        return url.to_owned();
    };
    command_line::take_credentials(&mut parsed);
    let text = parsed.as_str().trim_end_matches('/');
    text.replacen("://", "://NAME:PASSWORD@", 1)
}

fn summary(told: &DoctorReport) -> String {
    let count = |severity: &str, things: &str| {
        let found = told.findings.iter().filter(|f| f.severity == severity);
        counted(found.count(), things)
    };
    let skipped = told
        .checks
        .iter()
        .filter(|check| check.outcome == "skipped")
        .count();
    format!(
        "{} {}: {}, {}, {}. {}, {skipped} skipped; {} of {} examined, in {} ms",
        told.node,
        told.version,
        count("error", "errors"),
        count("warning", "warnings"),
        count("note", "notes"),
        counted(told.checks.len(), "checks"),
        told.databases.looked_at,
        counted(told.databases.all, "databases"),
        told.took_ms
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_summary_counts_one_thing_in_the_singular() {
        let finding = json!({"id": "scans", "severity": "warning", "subject": "shop", "says": "", "why": "", "do": []});
        let check = json!({"id": "scans", "outcome": "warning", "why": null, "not_told": null});
        let report = json!({
            "node": "n",
            "version": "1",
            "findings": [finding],
            "checks": [check],
            "databases": {"all": 1, "looked_at": 1, "failed": []},
            "not_looked_at": [],
            "took_ms": 3,
        });
        let report: DoctorReport = serde_json::from_value(report).expect("a report");
        assert_eq!(
            summary(&report),
            "n 1: 0 errors, 1 warning, 0 notes. 1 check, 0 skipped; 1 of 1 database examined, in 3 ms"
        );
    }
}
