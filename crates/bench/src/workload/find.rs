//! `_find`: indexed and covered ranges over many connections, scans without an index, and building a json index.

use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Outcome, Workload};
use crate::documents::Shape;
use crate::error::BenchError;
use crate::slice::{Check, ClosedLoop, Requests, Slice};
use crate::system::{FilledDatabase, System, Watch, WorkloadPart};

const RANGE_DOCS: u64 = 10;
const COVERED_ROWS: u64 = 100;
/// Rounds, each with a build and two scans.
const FIND_ROUNDS: u32 = 3;

/// Over 300-byte documents.
pub(crate) struct Find {
    pub(crate) connections: usize,
    pub(crate) documents: u64,
}

pub(crate) struct State {
    populated: FilledDatabase,
    builds: u32,
}

impl State {
    fn find(&self) -> String {
        format!("/{}/_find", self.populated.database)
    }
}

/// Creates an index, and waits with a query until it is built.
async fn build(
    system: &System,
    database: &str,
    fields: &[&str],
    name: &str,
) -> Result<(), BenchError> {
    let index = json!({"index": {"fields": fields}, "ddoc": name, "name": name});
    let path = format!("/{database}/_index");
    system
        .require("POST", &path, Some(index.to_string().as_bytes()))
        .await?;
    let selector: Value = fields
        .iter()
        .map(|field| ((*field).to_owned(), json!({"$gt": null})))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let query =
        json!({"selector": selector, "use_index": [name, name], "fields": fields, "limit": 1});
    let path = format!("/{database}/_find");
    let answer = system
        .require("POST", &path, Some(query.to_string().as_bytes()))
        .await?;
    let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
    if answer["docs"].as_array().is_none_or(Vec::is_empty) {
        return Err(BenchError::Refused {
            what: format!("POST {path}"),
            status: 200,
            body: answer.to_string(),
        });
    }
    Ok(())
}

async fn remove(system: &System, database: &str, name: &str) -> Result<(), BenchError> {
    let path = format!("/{database}/_index/{name}/json/{name}");
    system.require("DELETE", &path, None).await?;
    let path = format!("/{database}/_view_cleanup");
    system.require("POST", &path, Some(b"{}")).await?;
    Ok(())
}

impl Find {
    /// Queries at random places of the index on `number`, by all connections.
    async fn range(
        &self,
        system: &System,
        state: &State,
        name: &'static str,
        length: Duration,
        rows: u64,
        fields: &'static str,
    ) -> Result<WorkloadPart, BenchError> {
        let starts = self.documents.saturating_sub(rows).max(1);
        let path = state.find();
        let requests = |_| -> Requests {
            let (target, path) = (Rc::clone(&system.target), path.clone());
            Box::new(move |request| {
                let from = fastrand::u64(..starts);
                let to = from + rows;
                let body = format!(
                    r#"{{"selector":{{"number":{{"$gte":{from},"$lt":{to}}}}},"limit":{rows}{fields}}}"#
                );
                target.write_request(request, "POST", &path, "", Some(body.as_bytes()));
                Some(1)
            })
        };
        let reading = ClosedLoop::timed(&system.target, length, Check::Status);
        system
            .part(name, "req", reading.run(self.connections, requests))
            .await
    }

    /// One query that no index serves and that finds next to nothing; the units are the documents of the database.
    async fn scan(
        &self,
        system: &System,
        state: &State,
        name: &'static str,
        selector: Value,
        expected: usize,
    ) -> Result<WorkloadPart, BenchError> {
        let query = json!({"selector": selector, "limit": 2}).to_string();
        let watch = Watch::start(&system.pids);
        let start = Instant::now();
        let answer = system
            .require("POST", &state.find(), Some(query.as_bytes()))
            .await?;
        let elapsed = start.elapsed();
        let mut slice = Slice::new();
        slice.record(self.documents, elapsed);
        slice.seconds = elapsed.as_secs_f64();
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let found = answer["docs"].as_array().map_or(0, Vec::len);
        slice.errors.add(u64::from(found != expected), || {
            format!("{expected} documents expected, {found} found")
        });
        Ok(watch.part(name, "docs", slice))
    }
}

impl Workload for Find {
    type State = State;

    fn rounds(&self) -> u32 {
        FIND_ROUNDS
    }

    async fn prepare(&self, system: &System) -> Result<State, BenchError> {
        let populated = system.populated(Shape::Bytes300, self.documents).await?;
        build(system, &populated.database, &["number"], "by-number").await?;
        Ok(State {
            populated,
            builds: 0,
        })
    }

    async fn round(
        &self,
        system: &System,
        state: &mut State,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let covered = r#","fields":["_id","number"]"#;
        let mut parts = vec![
            self.range(system, state, "find_range_10", length, RANGE_DOCS, "")
                .await?,
            self.range(
                system,
                state,
                "find_covered_100",
                length,
                COVERED_ROWS,
                covered,
            )
            .await?,
        ];
        let last = json!(self.documents - 1);
        // These do not use the index: a document may lack the field of `$exists`.
        let two = json!({"$or": [{"number": last}, {"absent": last}]});
        parts.push(
            self.scan(system, state, "find_scan_two_fields", two, 1)
                .await?,
        );
        let one = json!({"$or": [{"text": {"$size": 1}}, {"text": {"$beginsWith": "no"}}]});
        parts.push(
            self.scan(system, state, "find_scan_one_field", one, 0)
                .await?,
        );
        state.builds += 1;
        let name = format!("two-fields-{}", state.builds);
        let database = state.populated.database.clone();
        let watch = Watch::start(&system.pids);
        let start = Instant::now();
        build(system, &database, &["customer", "amount"], &name).await?;
        let elapsed = start.elapsed();
        let mut slice = Slice::new();
        slice.record(self.documents, elapsed);
        slice.seconds = elapsed.as_secs_f64();
        parts.push(watch.part("find_build_two_fields", "docs", slice));
        remove(system, &database, &name).await?;
        Ok(parts)
    }

    async fn finish(&self, system: &System, state: State) -> Result<Outcome, BenchError> {
        remove(system, &state.populated.database, "by-number").await?;
        Ok(Outcome {
            notes: vec![format!(
                "find_range_10: {RANGE_DOCS} documents, find_covered_100: {COVERED_ROWS} rows of the key, at random places, by {} connections; find_scan: one query over {} documents",
                self.connections, self.documents
            )],
            ..Outcome::default()
        })
    }
}
