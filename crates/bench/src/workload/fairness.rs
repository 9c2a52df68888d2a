//! Latency of single reads while a neighbour uses as much of the server as it can.

use std::time::Duration;

use serde_json::json;

use super::read::repeat;
use super::saturated::{alone, probe};
use super::{Outcome, Workload};
use crate::documents::{Ids, Order, Shape};
use crate::error::BenchError;
use crate::slice::{Check, ClosedLoop, Slice, connect};
use crate::system::{BULK_DOCS, Fill, FilledDatabase, System, WorkloadPart};

/// Number of different documents that the reader reads.
const DOCUMENTS_READ: usize = 1_000;
/// Documents that a bulk load writes before it begins another database.
const LOADED: u64 = 100_000;

/// The loads that run concurrently with the reader, as parts of the report.
const NEIGHBOURS: [(&str, Neighbour); 6] = [
    ("get_beside_scan", Neighbour::Scan),
    ("get_beside_changes", Neighbour::Changes),
    ("get_beside_bulk_load", Neighbour::BulkLoad),
    ("get_beside_compaction", Neighbour::Compaction),
    ("get_beside_replication", Neighbour::Replication),
    ("get_beside_a_crowd", Neighbour::Crowd),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Neighbour {
    /// `_find` without an index.
    Scan,
    /// `_changes` with documents.
    Changes,
    BulkLoad,
    Compaction,
    Replication,
    /// A client with many requests in flight.
    Crowd,
}

/// GETs of random documents by one connection, alone and during each neighbour's load.
pub(crate) struct Fairness {
    pub(crate) documents: u64,
    pub(crate) crowd: usize,
}

pub(crate) struct State {
    populated: FilledDatabase,
    documents: Vec<Vec<u8>>,
    idle: Slice,
    beside: [Slice; NEIGHBOURS.len()],
}

impl Fairness {
    /// Keeps the server busy for ever, or for `length` where the load ends on its own.
    async fn keep_busy(
        &self,
        system: &System,
        state: &State,
        who: Neighbour,
        length: Duration,
    ) -> Result<(), BenchError> {
        let database = &state.populated.database;
        if who == Neighbour::Crowd {
            let clients = connect(&system.target, self.crowd).await?;
            let request = state.documents.first().cloned().unwrap_or_default();
            let crowd = ClosedLoop::timed(&system.target, length * 2, Check::Status);
            crowd.run_on(clients, repeat(request, 1)).await?;
            return Ok(());
        }
        loop {
            match who {
                Neighbour::Scan => {
                    let query = json!({"selector": {"nobody": "has this"}, "limit": 1});
                    let path = format!("/{database}/_find");
                    system
                        .require("POST", &path, Some(query.to_string().as_bytes()))
                        .await?;
                }
                Neighbour::Changes => {
                    let path = format!("/{database}/_changes?include_docs=true");
                    system.require("GET", &path, None).await?;
                }
                Neighbour::BulkLoad => {
                    let loaded = system.create("fairness_load").await?;
                    load(system, &loaded, LOADED).await?;
                    system
                        .require("DELETE", &format!("/{loaded}"), None)
                        .await?;
                }
                Neighbour::Compaction => {
                    system.compact(database).await?;
                }
                Neighbour::Replication => {
                    let copy = system.create("fairness_copy").await?;
                    let request = json!({
                        "source": system.target.endpoint(database),
                        "target": system.target.endpoint(&copy),
                    });
                    system
                        .require("POST", "/_replicate", Some(request.to_string().as_bytes()))
                        .await?;
                    system.require("DELETE", &format!("/{copy}"), None).await?;
                }
                Neighbour::Crowd => return Ok(()),
            }
        }
    }
}

async fn load(system: &System, database: &str, documents: u64) -> Result<(), BenchError> {
    let fill = Fill {
        database,
        shape: Shape::Bytes300,
        ids: &Ids::new(Order::Random),
        documents,
        bulk: BULK_DOCS,
        clients: 1,
    };
    system.fill(fill).await.map(drop)
}

impl Workload for Fairness {
    type State = State;

    async fn prepare(&self, system: &System) -> Result<State, BenchError> {
        let populated = system.populated(Shape::Bytes300, self.documents).await?;
        let documents = populated.random_reads(&system.target, DOCUMENTS_READ);
        Ok(State {
            documents,
            populated,
            idle: Slice::new(),
            beside: std::array::from_fn(|_| Slice::new()),
        })
    }

    async fn round(
        &self,
        system: &System,
        state: &mut State,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let read = || probe((*system.target).clone(), state.documents.clone(), length);
        let idle = read().await?;
        let mut beside = vec![];
        for (_, who) in NEIGHBOURS {
            let busy = async {
                self.keep_busy(system, state, who, length).await?;
                std::future::pending::<Result<(), BenchError>>().await
            };
            beside.push(tokio::select! {
                slice = read() => slice?,
                failed = busy => return Err(failed.err().unwrap_or(BenchError::Interrupted)),
            });
        }
        state.idle.merge(idle.clone());
        let mut parts = vec![alone("get_alone", idle)];
        for (at, slice) in beside.into_iter().enumerate() {
            state.beside[at].merge(slice.clone());
            parts.push(alone(NEIGHBOURS[at].0, slice));
        }
        Ok(parts)
    }

    async fn finish(&self, _side: &System, state: State) -> Result<Outcome, BenchError> {
        let p99 = |slice: &Slice| slice.latencies_us.value_at_quantile(0.99) as f64;
        let idle = p99(&state.idle).max(1.0);
        let figure = |(at, (name, _)): (usize, &(&str, Neighbour))| {
            let name = format!("p99 of {}, over alone", name.replace('_', " "));
            (name, "times", p99(&state.beside[at]) / idle)
        };
        Ok(Outcome {
            figures: NEIGHBOURS.iter().enumerate().map(figure).collect(),
            notes: vec![format!(
                "fairness: one connection reads random documents; the crowd has {} requests in flight",
                self.crowd
            )],
        })
    }
}
