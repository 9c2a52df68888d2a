//! Latency of single reads while a neighbour takes all that it can get.

use std::time::Duration;

use serde_json::json;

use super::read::repeat;
use super::saturated::{alone, probe};
use super::{Outcome, Workload};
use crate::documents::{Ids, Order, Shape};
use crate::error::BenchError;
use crate::side::{BULK_DOCS, Fill, Part, Populated, Side};
use crate::slice::{Check, ClosedLoop, Slice, connect};

/// Different documents that the reader asks for.
const DOCUMENTS_READ: usize = 1_000;
/// Documents that a bulk load writes before it begins another database.
const LOADED: u64 = 100_000;

/// Who is beside the reader, as parts of the report.
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

/// GETs of random documents by one connection, alone and beside each neighbour.
pub(crate) struct Fairness {
    pub(crate) documents: u64,
    pub(crate) crowd: usize,
}

pub(crate) struct State {
    populated: Populated,
    documents: Vec<Vec<u8>>,
    idle: Slice,
    beside: [Slice; NEIGHBOURS.len()],
}

impl Fairness {
    /// Keeps the server busy for ever, or for `length` where that ends by itself.
    async fn keep_busy(
        &self,
        side: &Side,
        state: &State,
        who: Neighbour,
        length: Duration,
    ) -> Result<(), BenchError> {
        let database = &state.populated.database;
        if who == Neighbour::Crowd {
            let clients = connect(&side.target, self.crowd).await?;
            let request = state.documents.first().cloned().unwrap_or_default();
            let crowd = ClosedLoop::timed(&side.target, length * 2, Check::Status);
            crowd.run_on(clients, repeat(request, 1)).await?;
            return Ok(());
        }
        loop {
            match who {
                Neighbour::Scan => {
                    let query = json!({"selector": {"nobody": "has this"}, "limit": 1});
                    let path = format!("/{database}/_find");
                    side.require("POST", &path, Some(query.to_string().as_bytes()))
                        .await?;
                }
                Neighbour::Changes => {
                    let path = format!("/{database}/_changes?include_docs=true");
                    side.require("GET", &path, None).await?;
                }
                Neighbour::BulkLoad => {
                    let loaded = side.create("fairness_load").await?;
                    load(side, &loaded, LOADED).await?;
                    side.require("DELETE", &format!("/{loaded}"), None).await?;
                }
                Neighbour::Compaction => side.compact(database).await?,
                Neighbour::Replication => {
                    let copy = side.create("fairness_copy").await?;
                    let request = json!({
                        "source": side.target.endpoint(database),
                        "target": side.target.endpoint(&copy),
                    });
                    side.require("POST", "/_replicate", Some(request.to_string().as_bytes()))
                        .await?;
                    side.require("DELETE", &format!("/{copy}"), None).await?;
                }
                Neighbour::Crowd => return Ok(()),
            }
        }
    }
}

async fn load(side: &Side, database: &str, documents: u64) -> Result<(), BenchError> {
    let fill = Fill {
        database,
        shape: Shape::Bytes300,
        ids: &Ids::new(Order::Random),
        documents,
        bulk: BULK_DOCS,
        clients: 1,
    };
    side.fill(fill).await.map(drop)
}

impl Workload for Fairness {
    type State = State;

    async fn prepare(&self, side: &Side) -> Result<State, BenchError> {
        let populated = side.populated(Shape::Bytes300, self.documents).await?;
        let documents = populated.random_reads(&side.target, DOCUMENTS_READ);
        Ok(State {
            documents,
            populated,
            idle: Slice::new(),
            beside: std::array::from_fn(|_| Slice::new()),
        })
    }

    async fn round(
        &self,
        side: &Side,
        state: &mut State,
        length: Duration,
    ) -> Result<Vec<Part>, BenchError> {
        let read = || probe((*side.target).clone(), state.documents.clone(), length);
        let idle = read().await?;
        let mut beside = vec![];
        for (_, who) in NEIGHBOURS {
            let busy = async {
                self.keep_busy(side, state, who, length).await?;
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

    async fn finish(&self, _side: &Side, state: State) -> Result<Outcome, BenchError> {
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
