//! Latency of readers while an index is built.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::build::{View, put_design, remove_design, wait_for};
use crate::documents::Shape;
use crate::error::BenchError;
use crate::slice::Slice;
use crate::system::{FilledDatabase, System, Watch, WorkloadPart};
use crate::workload::saturated::{alone, probe};
use crate::workload::{Outcome, Workload};

/// Number of different documents that the reader reads.
const DOCUMENTS_READ: usize = 1_000;
const VIEW: View = View {
    name: "v",
    map: include_str!("maps/small.js"),
    reduce: Some("_sum"),
};

/// GETs of documents, and queries of an up-to-date view of another database, first on the idle
/// server, then while one index after the other is built.
pub(crate) struct WhileBuilding {
    pub(crate) documents: u64,
}

pub(crate) struct State {
    populated: FilledDatabase,
    documents: Vec<Vec<u8>>,
    finished_view: Vec<Vec<u8>>,
    /// Documents and view, idle and during a build, over all rounds.
    latencies: [Slice; 4],
}

impl WhileBuilding {
    /// Builds one index after the other for ever; counts the documents of finished ones.
    async fn build_for_ever(
        &self,
        system: &System,
        database: &str,
        done: &Cell<u64>,
    ) -> Result<(), BenchError> {
        loop {
            let design = put_design(system, database, "javascript", &[VIEW], true).await?;
            let path = format!("/{database}/_design/{design}");
            wait_for(system, &format!("{path}/_view/v")).await?;
            remove_design(system, database, &design).await?;
            done.set(done.get() + self.documents);
        }
    }

    /// An unfinished build continues after its client stops waiting.
    async fn remove_all(&self, system: &System, database: &str) -> Result<(), BenchError> {
        let path = format!("/{database}/_design_docs");
        let listed = system.json("GET", &path).await?;
        for row in listed["rows"].as_array().into_iter().flatten() {
            let id = row["id"].as_str().unwrap_or_default();
            match remove_design(system, database, id.trim_start_matches("_design/")).await {
                // The build that was given up may have been removing it just then.
                Err(BenchError::Refused { status: 404, .. }) => {}
                removed => removed?,
            }
        }
        Ok(())
    }
}

impl Workload for WhileBuilding {
    type State = State;

    async fn prepare(&self, system: &System) -> Result<State, BenchError> {
        let populated = system.populated(Shape::Bytes300, self.documents).await?;
        let documents = populated.random_reads(&system.target, DOCUMENTS_READ);
        let finished = system.create("finished").await?;
        let mut body = Vec::new();
        Shape::Bytes300.push_body(&mut body, 1);
        system
            .require("PUT", &format!("/{finished}/a"), Some(&body))
            .await?;
        let design = put_design(system, &finished, "javascript", &[VIEW], true).await?;
        let view = format!("/{finished}/_design/{design}/_view/v");
        wait_for(system, &view).await?;
        Ok(State {
            populated,
            documents,
            finished_view: vec![system.target.request("GET", &view, None)],
            latencies: std::array::from_fn(|_| Slice::new()),
        })
    }

    async fn round(
        &self,
        system: &System,
        state: &mut State,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let database = state.populated.database.clone();
        let read =
            |requests: &Vec<Vec<u8>>| probe((*system.target).clone(), requests.clone(), length);
        let get_idle = read(&state.documents).await?;
        let view_idle = read(&state.finished_view).await?;
        let watch = Watch::start(&system.pids);
        let (done, start) = (Cell::new(0), Instant::now());
        let reading = async {
            let get = read(&state.documents).await?;
            Ok::<_, BenchError>((get, read(&state.finished_view).await?))
        };
        let (get_beside, view_beside) = tokio::select! {
            read = reading => read?,
            failed = self.build_for_ever(system, &database, &done) => {
                return Err(failed.err().unwrap_or(BenchError::Interrupted));
            }
        };
        let mut built = Slice::new();
        built.record(done.get(), start.elapsed());
        built.seconds = start.elapsed().as_secs_f64();
        let builds = watch.part("builds_beside_reads", "docs", built);
        self.remove_all(system, &database).await?;
        let slices = [get_idle, view_idle, get_beside, view_beside];
        for (whole, slice) in state.latencies.iter_mut().zip(&slices) {
            whole.merge(slice.clone());
        }
        let names = [
            "get_idle",
            "view_idle",
            "get_beside_build",
            "view_beside_build",
        ];
        let mut parts: Vec<WorkloadPart> = names
            .into_iter()
            .zip(slices)
            .map(|(name, slice)| alone(name, slice))
            .collect();
        parts.push(builds);
        Ok(parts)
    }

    async fn finish(&self, _side: &System, state: State) -> Result<Outcome, BenchError> {
        let p99 = |at: usize| state.latencies[at].latencies_us.value_at_quantile(0.99) as f64;
        let figures =
            [("documents", 0, 2), ("a finished view", 1, 3)].map(|(what, idle, beside)| {
                let name = format!("p99 of {what} during a build, over idle");
                (name, "times", p99(beside) / p99(idle).max(1.0))
            });
        Ok(Outcome {
            figures: figures.into(),
            notes: vec![
                "views_while_building: readers of one connection each; builds_beside_reads counts finished builds only"
                    .to_owned(),
            ],
        })
    }
}
