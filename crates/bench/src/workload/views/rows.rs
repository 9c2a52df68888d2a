//! A million small rows: bytes per index row, the cost of reads as the index grows, and catching
//! up.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::BUILD_ROUNDS;
use super::build::{Build, Ledger, View, put_design, remove_design, wait_for};
use crate::data_folders::{folder_bytes, folders};
use crate::documents::Shape;
use crate::error::BenchError;
use crate::slice::{Check, ClosedLoop, Requests, Slice};
use crate::system::{FilledDatabase, System, Watch, WorkloadPart};
use crate::workload::saturated::probe;
use crate::workload::{Outcome, Workload};

/// The large index has this many times the rows of the small one.
const TIMES: u64 = 100;
const CHANGED_DOCS: u64 = 1_000;
const CONSTANT_BYTES: usize = 40;
const COMPACTION_POLL: Duration = Duration::from_millis(200);
const COMPACTION_POLLS_MAX: u32 = 3_000;
/// Ten groups at the first level.
const VIEW: View = View {
    name: "v",
    map: include_str!("maps/rows.js"),
    reduce: Some("_sum"),
};

/// Names of the lines of one of the two indexes.
struct Names {
    whole: &'static str,
    range: &'static str,
    group_level: &'static str,
    catch_up: &'static str,
}

const SMALL: Names = Names {
    whole: "reduce_of_10000",
    range: "reduce_range_of_10000",
    group_level: "group_level_of_10000",
    catch_up: "catch_up_of_10000",
};
const LARGE: Names = Names {
    whole: "reduce_of_1000000",
    range: "reduce_range_of_1000000",
    group_level: "group_level_of_1000000",
    catch_up: "catch_up_of_1000000",
};

/// One index of `rows` rows, and one of a hundredth of that.
pub(crate) struct Rows {
    pub(crate) rows: u64,
}

pub(crate) struct State {
    large: Index,
    small: Index,
    ledger: Ledger,
    figures: Vec<(String, &'static str, f64)>,
    has_constant: bool,
}

struct Index {
    populated: FilledDatabase,
    /// None until it has been built.
    design: Option<String>,
}

impl Index {
    fn view(&self) -> String {
        let design = self.design.as_deref().unwrap_or_default();
        format!("/{}/_design/{design}/_view/v", self.populated.database)
    }
}

impl Rows {
    /// Builds both, the large one under measurement.
    async fn build(&self, system: &System, state: &mut State) -> Result<WorkloadPart, BenchError> {
        let database = state.large.populated.database.clone();
        let folders = folders(system).await?;
        system.compact(&database).await?;
        let before = folder_bytes(&folders);
        let build = Build {
            part: "rows_build",
            database: &database,
            documents: self.rows,
            rows: self.rows,
            language: "javascript",
            views: &[VIEW],
        };
        let built = build.run(system).await?;
        state.ledger.note(&built);
        let sizes = compacted_sizes(system, &database, &built.design).await?;
        let grown = folder_bytes(&folders).zip(before);
        self.note_sizes(&mut state.figures, &sizes, grown);
        // A build before the query would take the work out of the measured query.
        remove_design(system, &database, &built.design).await?;
        for index in [&mut state.large, &mut state.small] {
            let database = index.populated.database.clone();
            let design = put_design(system, &database, "javascript", &[VIEW], false).await?;
            index.design = Some(design);
            wait_for(system, &index.view()).await?;
        }
        Ok(built.part)
    }

    fn note_sizes(
        &self,
        figures: &mut Vec<(String, &'static str, f64)>,
        sizes: &Value,
        grown: Option<(u64, u64)>,
    ) {
        let rows = self.rows as f64;
        let keys_and_values = keys_and_values_bytes(self.rows) as f64 / rows;
        let mut note = |what: &str, value: f64| {
            figures.push((format!("rows_build: {what} a row"), "bytes", value));
        };
        note("keys and values", keys_and_values);
        for name in ["file", "active", "external"] {
            if let Some(bytes) = sizes[name].as_f64() {
                note(&format!("_info sizes.{name}"), bytes / rows);
            }
        }
        if let Some(bytes) = sizes["file"].as_f64() {
            note(
                "_info sizes.file beyond keys and values",
                bytes / rows - keys_and_values,
            );
        }
        if let Some((after, before)) = grown {
            note(
                "growth of the data folders",
                (after as f64 - before as f64) / rows,
            );
        }
    }

    async fn reads(
        &self,
        system: &System,
        index: &Index,
        names: &Names,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let rows = index.populated.documents;
        let view = index.view();
        let get = |query: &str| {
            system
                .target
                .request("GET", &format!("{view}{query}"), None)
        };
        let ranges = (0..500).map(|_| {
            let (from, to) = (fastrand::u64(..rows), fastrand::u64(..rows));
            get(&format!("?startkey=%5B1,{from}%5D&endkey=%5B8,{to}%5D"))
        });
        let ranges: Vec<Vec<u8>> = ranges.collect();
        let mut parts = Vec::new();
        for (name, requests) in [
            (names.whole, vec![get("")]),
            (names.range, ranges),
            (names.group_level, vec![get("?group_level=1")]),
        ] {
            let measuring = probe((*system.target).clone(), requests, length);
            parts.push(system.part(name, "req", measuring).await?);
        }
        Ok(parts)
    }

    /// Changes documents, then measures the query that brings the index up to date.
    async fn catch_up(
        &self,
        system: &System,
        index: &Index,
        name: &'static str,
    ) -> Result<WorkloadPart, BenchError> {
        let changed = CHANGED_DOCS.min(index.populated.documents / 2);
        change(system, &index.populated, changed).await?;
        let watch = Watch::start(&system.pids);
        let start = Instant::now();
        let rows = wait_for(system, &index.view()).await?;
        let elapsed = start.elapsed();
        let mut slice = Slice::new();
        slice.record(changed, elapsed);
        slice.seconds = elapsed.as_secs_f64();
        let expected = index.populated.documents;
        slice.errors.add(u64::from(rows != expected), || {
            format!("{expected} rows expected, the view has {rows}")
        });
        Ok(watch.part(name, "docs", slice))
    }

    /// The share of the connection and the HTTP stack in a read's latency.
    async fn constant(
        &self,
        system: &System,
        length: Duration,
    ) -> Result<WorkloadPart, BenchError> {
        let path = format!("/_settee/constant?size={CONSTANT_BYTES}");
        let request = system.target.request("GET", &path, None);
        let measuring = probe((*system.target).clone(), vec![request], length);
        system.part("constant_alone", "req", measuring).await
    }
}

impl Workload for Rows {
    type State = State;

    fn rounds(&self) -> u32 {
        BUILD_ROUNDS
    }

    async fn prepare(&self, system: &System) -> Result<State, BenchError> {
        let index = async |documents: u64| {
            let populated = system.populated(Shape::Tiny, documents).await?;
            Ok::<_, BenchError>(Index {
                populated,
                design: None,
            })
        };
        let constant = format!("/_settee/constant?size={CONSTANT_BYTES}");
        Ok(State {
            large: index(self.rows).await?,
            small: index((self.rows / TIMES).max(10)).await?,
            ledger: Ledger::default(),
            figures: Vec::new(),
            has_constant: system.call("GET", &constant, None).await?.0 == 200,
        })
    }

    async fn round(
        &self,
        system: &System,
        state: &mut State,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let mut parts = Vec::new();
        if state.large.design.is_none() {
            parts.push(self.build(system, state).await?);
        }
        for (index, names) in [(&state.small, &SMALL), (&state.large, &LARGE)] {
            parts.extend(self.reads(system, index, names, length).await?);
            parts.push(self.catch_up(system, index, names.catch_up).await?);
        }
        if state.has_constant {
            parts.push(self.constant(system, length).await?);
        }
        Ok(parts)
    }

    async fn finish(&self, system: &System, state: State) -> Result<Outcome, BenchError> {
        for index in [&state.large, &state.small] {
            if let Some(design) = &index.design {
                remove_design(system, &index.populated.database, design).await?;
            }
        }
        let mut outcome = state.ledger.outcome();
        outcome.figures.extend(state.figures);
        outcome.notes.push(format!(
            "views_rows: {} and {} rows; latencies over one connection, constant_alone is the HTTP stack's part of them; \
             catch_up is the query after {CHANGED_DOCS} changed documents; growth is of everything in the data folders",
            state.large.populated.documents, state.small.populated.documents
        ));
        Ok(outcome)
    }
}

/// Bytes of the JSON texts of all keys and values of the view.
fn keys_and_values_bytes(rows: u64) -> u64 {
    (0..rows)
        .map(|n| format!("[{},{n}]1", n % 10).len() as u64)
        .sum()
}

/// Writes new revisions of documents spread over the whole database.
async fn change(
    system: &System,
    populated: &FilledDatabase,
    changed: u64,
) -> Result<(), BenchError> {
    let step = populated.documents / changed.max(1);
    let ids: HashMap<String, u64> = (0..changed)
        .map(|at| {
            let mut id = Vec::new();
            populated.ids.push_nth(&mut id, at * step);
            (String::from_utf8_lossy(&id).into_owned(), at * step)
        })
        .collect();
    let path = format!("/{}/_all_docs", populated.database);
    let keys = json!({ "keys": ids.keys().collect::<Vec<_>>() }).to_string();
    let reply = system.require("POST", &path, Some(keys.as_bytes())).await?;
    let listed: Value = serde_json::from_slice(&reply).unwrap_or_default();
    // The number changes places with none of another document, so the rows stay as many and as long.
    let docs: Vec<Value> = listed["rows"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|row| {
            let id = row["id"].as_str()?;
            Some(
                json!({"_id": id, "_rev": row["value"]["rev"], "n": ids.get(id)?, "changed": true}),
            )
        })
        .collect();
    let body = json!({ "docs": docs }).to_string().into_bytes();
    let path = format!("/{}/_bulk_docs", populated.database);
    let mut bulk = Some(system.target.request("POST", &path, Some(&body)));
    let units = docs.len() as u64;
    let once = |_| -> Requests {
        let mut bulk = bulk.take();
        Box::new(move |request| {
            request.extend_from_slice(&bulk.take()?);
            Some(units)
        })
    };
    let writing = ClosedLoop::exhaustive(&system.target, Check::Bulk);
    let slice = writing.run(1, once).await?;
    match slice.errors.first {
        None if slice.count == changed => Ok(()),
        first => Err(BenchError::Refused {
            what: format!("POST {path}"),
            status: 0,
            body: first.unwrap_or_else(|| format!("{} of {changed} documents", slice.count)),
        }),
    }
}

/// `sizes` of the index after a compaction of it.
async fn compacted_sizes(
    system: &System,
    database: &str,
    design: &str,
) -> Result<Value, BenchError> {
    let compact = format!("/{database}/_compact/{design}");
    system.require("POST", &compact, Some(b"{}")).await?;
    let path = format!("/{database}/_design/{design}/_info");
    for _ in 0..COMPACTION_POLLS_MAX {
        let info = system.json("GET", &path).await?["view_index"].take();
        if info["compact_running"] != Value::Bool(true) {
            return Ok(info["sizes"].clone());
        }
        tokio::time::sleep(COMPACTION_POLL).await;
    }
    Err(BenchError::Options(format!(
        "the compaction of {design} did not end within ten minutes"
    )))
}
