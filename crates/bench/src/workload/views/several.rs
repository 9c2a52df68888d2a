//! Several views in one design document compared with separate design documents.

use std::time::Duration;

use super::BUILD_ROUNDS;
use super::build::{Build, Ledger, View, remove_design};
use crate::documents::Shape;
use crate::error::BenchError;
use crate::slice::Slice;
use crate::system::{FilledDatabase, System, WorkloadPart};
use crate::workload::{Outcome, Workload};

const VIEWS: [View; 4] = [
    View {
        name: "by_customer",
        map: include_str!("maps/small.js"),
        reduce: Some("_sum"),
    },
    View {
        name: "by_number",
        map: "function (doc) { /* build ROUND */ emit([doc.number % 10, doc.number], doc.amount); }",
        reduce: Some("_stats"),
    },
    View {
        name: "by_city",
        map: "function (doc) { /* build ROUND */ if (doc.address) emit(doc.address.city, null); }",
        reduce: Some("_count"),
    },
    View {
        name: "by_first_tag",
        map: "function (doc) { /* build ROUND */ emit(doc.tags[0], doc.number); }",
        reduce: None,
    },
];

/// Four views over 300-byte documents.
pub(crate) struct Several {
    pub(crate) documents: u64,
}

pub(crate) struct State {
    populated: FilledDatabase,
    ledger: Ledger,
}

impl Several {
    async fn build(
        &self,
        system: &System,
        state: &mut State,
        part: &'static str,
        views: &[View],
    ) -> Result<WorkloadPart, BenchError> {
        let database = state.populated.database.clone();
        let build = Build {
            part,
            database: &database,
            documents: self.documents,
            rows: self.documents,
            language: "javascript",
            views,
        };
        let built = build.run(system).await?;
        state.ledger.note(&built);
        remove_design(system, &database, &built.design).await?;
        Ok(built.part)
    }
}

impl Workload for Several {
    type State = State;

    fn rounds(&self) -> u32 {
        BUILD_ROUNDS
    }

    async fn prepare(&self, system: &System) -> Result<State, BenchError> {
        Ok(State {
            populated: system.populated(Shape::Bytes300, self.documents).await?,
            ledger: Ledger::default(),
        })
    }

    async fn round(
        &self,
        system: &System,
        state: &mut State,
        _length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let together = self
            .build(system, state, "several_together", &VIEWS)
            .await?;
        let mut singly = WorkloadPart {
            name: "several_singly",
            unit: "docs",
            slice: Slice::new(),
            cpu_seconds: None,
            peak_resident_bytes: None,
        };
        for view in &VIEWS {
            let one = std::slice::from_ref(view);
            let part = self.build(system, state, "several_one_alone", one).await?;
            singly.slice.seconds += part.slice.seconds;
            singly.slice.merge(part.slice);
            singly.peak_resident_bytes = singly.peak_resident_bytes.max(part.peak_resident_bytes);
            singly.cpu_seconds = singly
                .cpu_seconds
                .map_or(part.cpu_seconds, |sum| Some(sum + part.cpu_seconds?));
        }
        // Documents per second of the whole set, so that its rate is comparable with that of the
        // common build.
        singly.slice.count /= VIEWS.len() as u64;
        Ok(vec![together, singly])
    }

    async fn finish(&self, _side: &System, state: State) -> Result<Outcome, BenchError> {
        Ok(state.ledger.outcome())
    }
}
