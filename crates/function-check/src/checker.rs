//! State that all checks of one database share: its sample, the engines and the report.

use std::sync::Arc;

use functions::js::{Engine, Isolation, Options, WorkerCommand};
use functions::{DesignFunction, Difference, UTC};

use crate::found::FunctionFinding;
use crate::report::{Finding, Report};
use crate::sample::{Document, Sample};

/// A time zone that no date and few times of day have in common with UTC.
const OTHER_ZONE: &str = "<+1330>-13:30";

/// Checks functions of one database.
pub struct Checker {
    pub database: Arc<str>,
    pub sample: Vec<Sample>,
    /// The engine, as a server runs it.
    pub engine: Engine,
    /// One in another time zone.
    pub abroad: Engine,
    pub report: Report,
}

/// A function that is being checked.
#[derive(Clone, Copy)]
pub struct Place<'d> {
    pub design: &'d Document,
    pub id: &'d str,
    pub function: &'d DesignFunction<'d>,
}

impl Place<'_> {
    /// Returns `views.lib` as JSON text.
    pub fn lib(&self) -> Option<String> {
        let lib = self.design.get("views")?.get("lib")?;
        Some(lib.to_string())
    }
}

impl Checker {
    pub fn new(database: String, sample: Vec<Document>, worker: WorkerCommand) -> Checker {
        let engine = |zone: &str| {
            Engine::new(Options {
                isolation: Isolation::Process,
                time_zone: zone.to_owned(),
                worker: worker.clone(),
                ..Options::default()
            })
        };
        Checker {
            database: database.into(),
            sample: sample.into_iter().map(Sample::new).collect(),
            engine: engine(UTC),
            abroad: engine(OTHER_ZONE),
            report: Report::default(),
        }
    }

    /// Adds a finding that the source shows.
    pub fn add_difference(&mut self, place: Place<'_>, difference: &Difference) {
        self.report.findings.push(Finding {
            database: self.database.to_string(),
            design: place.id.to_owned(),
            function: place.function.path.join("/"),
            line: Some(difference.line),
            column: Some(difference.column),
            kind: difference.kind.id,
            effect: difference.kind.effect.name(),
            code: difference.code.clone(),
            differs: difference.kind.differs.to_owned(),
            instead: difference.kind.instead.to_owned(),
        });
    }

    /// Adds a finding of a run.
    pub fn add(&mut self, place: Place<'_>, found: FunctionFinding) {
        let line = found.line.and_then(|line| {
            let line = line.checked_sub(1)?;
            place.function.source.lines().nth(line as usize)
        });
        self.report.findings.push(Finding {
            database: self.database.to_string(),
            design: place.id.to_owned(),
            function: place.function.path.join("/"),
            line: found.line,
            column: None,
            kind: found.kind,
            effect: found.effect.name(),
            code: line.unwrap_or_default().trim().to_owned(),
            differs: found.differs,
            instead: found.instead.to_owned(),
        });
    }

    /// Adds a note on a function.
    pub fn note(&mut self, place: Place<'_>, what: &str) {
        let path = place.function.path.join("/");
        let note = format!("{}/{}, {path}: {what}", self.database, place.id);
        self.report.notes.push(note);
    }
}
