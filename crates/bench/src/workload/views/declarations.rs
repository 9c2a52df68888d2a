//! The published view benchmark: a trivial and a real map over large nested documents, in every
//! language, compared with the same extraction in Rust.

use std::cell::OnceCell;
use std::time::Duration;

use super::BUILD_ROUNDS;
use super::build::{Build, Ledger, remove_design};
use super::extraction::Sample;
use super::languages::{self, Language, Present, Source};
use crate::documents::Shape;
use crate::error::BenchError;
use crate::system::{FilledDatabase, System, WorkloadPart};
use crate::workload::{Outcome, Workload};

/// Declarations of about 16 KB, one row each.
pub(crate) struct Declarations {
    documents: u64,
    /// All that the server has when empty.
    languages: Vec<String>,
    sample: OnceCell<Sample>,
}

impl Declarations {
    pub(crate) fn new(documents: u64, languages: Vec<String>) -> Self {
        Self {
            documents,
            languages,
            sample: OnceCell::new(),
        }
    }

    async fn build(
        &self,
        system: &System,
        state: &mut State,
        language: &'static Language,
        kind: &'static str,
        source: Source,
    ) -> Result<Option<WorkloadPart>, BenchError> {
        if !state.ledger.wants(source.part) {
            return Ok(None);
        }
        let database = state.populated.database.clone();
        let build = Build {
            part: source.part,
            database: &database,
            documents: self.documents,
            rows: self.documents,
            language: language.name,
            views: &[source.summed()],
        };
        let mut built = build.run(system).await?;
        let path = format!("/{database}/_design/{}/_view/v", built.design);
        state
            .ledger
            .compare(system, kind, language.name, &path, &mut built.part.slice)
            .await?;
        state.ledger.note(&built);
        remove_design(system, &database, &built.design).await?;
        Ok(Some(built.part))
    }

    /// The bound: no server, no storage, no index; all cores.
    fn extract(&self) -> WorkloadPart {
        let sample = self.sample.get_or_init(|| Sample::of(self.documents));
        WorkloadPart {
            name: "declarations_real rust",
            unit: "docs",
            slice: sample.measure(self.documents),
            cpu_seconds: None,
            peak_resident_bytes: None,
        }
    }
}

pub(crate) struct State {
    populated: FilledDatabase,
    present: Present,
    ledger: Ledger,
}

impl Workload for Declarations {
    type State = State;

    fn rounds(&self) -> u32 {
        BUILD_ROUNDS
    }

    async fn prepare(&self, system: &System) -> Result<State, BenchError> {
        Ok(State {
            populated: system.populated(Shape::Declaration, self.documents).await?,
            present: languages::present(system, &self.languages).await?,
            ledger: Ledger::default(),
        })
    }

    async fn round(
        &self,
        system: &System,
        state: &mut State,
        _length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let mut parts = Vec::new();
        for language in state.present.languages.clone() {
            for (kind, source) in [("trivial", language.trivial), ("real", language.real)] {
                parts.extend(self.build(system, state, language, kind, source).await?);
            }
        }
        parts.push(self.extract());
        Ok(parts)
    }

    async fn finish(&self, _side: &System, state: State) -> Result<Outcome, BenchError> {
        let mut outcome = state.ledger.outcome();
        outcome.notes.extend(state.present.notes);
        outcome.notes.push(format!(
            "declarations: {} documents (the published benchmark: 290,000); \"rust\" is the real map by hand in this \
             process, on all cores, from documents in memory",
            self.documents
        ));
        Ok(outcome)
    }
}
