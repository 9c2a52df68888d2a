//! First builds over 300-byte documents: with a reduce in every language, the map alone, and a map that must see the
//! whole document.

use std::time::Duration;

use super::BUILD_ROUNDS;
use super::build::{Build, Ledger, View, remove_design};
use super::languages::{self, Present};
use crate::documents::Shape;
use crate::error::BenchError;
use crate::system::{FilledDatabase, System, WorkloadPart};
use crate::workload::{Outcome, Workload};

/// A map that reads the names of all members cannot be given only some of them.
const UNPROJECTED: View = View {
    name: "v",
    map: include_str!("maps/unprojected.js"),
    reduce: Some("_sum"),
};

/// 300-byte documents, one row each.
pub(crate) struct FirstBuilds {
    pub(crate) documents: u64,
    /// All that the server has when empty.
    pub(crate) languages: Vec<String>,
}

pub(crate) struct State {
    populated: FilledDatabase,
    present: Present,
    ledger: Ledger,
}

impl FirstBuilds {
    async fn build(
        &self,
        system: &System,
        state: &mut State,
        part: &'static str,
        language: &'static str,
        view: View,
    ) -> Result<Option<WorkloadPart>, BenchError> {
        if !state.ledger.wants(part) {
            return Ok(None);
        }
        let database = state.populated.database.clone();
        let build = Build {
            part,
            database: &database,
            documents: self.documents,
            rows: self.documents,
            language,
            views: &[view],
        };
        let mut built = build.run(system).await?;
        if view.reduce.is_some() && part.starts_with("first_build ") {
            let path = format!("/{database}/_design/{}/_view/v", built.design);
            state
                .ledger
                .compare(system, "small", language, &path, &mut built.part.slice)
                .await?;
        }
        state.ledger.note(&built);
        remove_design(system, &database, &built.design).await?;
        Ok(Some(built.part))
    }
}

impl Workload for FirstBuilds {
    type State = State;

    fn rounds(&self) -> u32 {
        BUILD_ROUNDS
    }

    async fn prepare(&self, system: &System) -> Result<State, BenchError> {
        Ok(State {
            populated: system.populated(Shape::Bytes300, self.documents).await?,
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
            let (part, view) = (language.small.part, language.small.summed());
            parts.extend(self.build(system, state, part, language.name, view).await?);
        }
        let javascript = languages::javascript();
        let map_only = javascript.small.map_only();
        for (part, view) in [
            ("first_build_map_only", map_only),
            ("first_build_unprojected", UNPROJECTED),
        ] {
            parts.extend(
                self.build(system, state, part, javascript.name, view)
                    .await?,
            );
        }
        Ok(parts)
    }

    async fn finish(&self, _side: &System, state: State) -> Result<Outcome, BenchError> {
        let mut outcome = state.ledger.outcome();
        outcome.notes.extend(state.present.notes);
        Ok(outcome)
    }
}
