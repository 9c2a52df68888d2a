//! Reads of a finished view over many connections.

use std::rc::Rc;
use std::time::Duration;

use super::build::{View, put_design, remove_design, wait_for};
use crate::documents::Shape;
use crate::error::BenchError;
use crate::slice::{Check, ClosedLoop, Requests};
use crate::system::{FilledDatabase, System, WorkloadPart};
use crate::workload::read::repeat;
use crate::workload::{Outcome, Workload};

const RANGE_ROWS: u64 = 100;
const VIEWS: [View; 2] = [
    View {
        name: "by_customer",
        map: include_str!("maps/small.js"),
        reduce: Some("_sum"),
    },
    View {
        name: "by_number",
        map: "function (doc) { /* build ROUND */ emit([doc.number % 10, doc.number], doc.amount); }",
        reduce: Some("_sum"),
    },
];

/// The view that CouchDB's figure is of, and one with grouped keys, over 300-byte documents.
pub(crate) struct ViewReads {
    pub(crate) connections: usize,
    pub(crate) documents: u64,
}

pub(crate) struct State {
    populated: FilledDatabase,
    design: String,
}

impl ViewReads {
    async fn measure(
        &self,
        system: &System,
        name: &'static str,
        unit: &'static str,
        length: Duration,
        check: Check,
        requests: impl FnMut(usize) -> Requests,
    ) -> Result<WorkloadPart, BenchError> {
        let reading = ClosedLoop::timed(&system.target, length, check);
        system
            .part(name, unit, reading.run(self.connections, requests))
            .await
    }
}

impl Workload for ViewReads {
    type State = State;

    fn is_sliced(&self) -> bool {
        true
    }

    async fn prepare(&self, system: &System) -> Result<State, BenchError> {
        let populated = system.populated(Shape::Bytes300, self.documents).await?;
        let design = put_design(system, &populated.database, "javascript", &VIEWS, true).await?;
        for view in &VIEWS {
            let path = format!(
                "/{}/_design/{design}/_view/{}",
                populated.database, view.name
            );
            wait_for(system, &path).await?;
        }
        Ok(State { populated, design })
    }

    async fn round(
        &self,
        system: &System,
        state: &mut State,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let views = format!(
            "/{}/_design/{}/_view",
            state.populated.database, state.design
        );
        let mut parts = Vec::new();
        for (name, query) in [
            ("view_limit_1", "by_customer?limit=1"),
            ("view_group_level", "by_number?group_level=1"),
            ("view_whole_reduce", "by_number"),
        ] {
            let request = system
                .target
                .request("GET", &format!("{views}/{query}"), None);
            let requests = repeat(request, 1);
            let part = self.measure(system, name, "req", length, Check::Status, requests);
            parts.push(part.await?);
        }
        // The last hundred numbers of a digit have fewer rows behind them.
        let numbers = self.documents.saturating_sub(10 * RANGE_ROWS).max(1);
        let rows = RANGE_ROWS.min(self.documents / 10);
        let ranges = |_| -> Requests {
            let (target, views) = (Rc::clone(&system.target), views.clone());
            Box::new(move |request| {
                let (digit, number) = (fastrand::u64(..10), fastrand::u64(..numbers));
                let start = if numbers > 1 { number } else { 0 };
                let path = format!(
                    "{views}/by_number?reduce=false&limit={rows}&startkey=%5B{digit},{start}%5D"
                );
                target.write_request(request, "GET", &path, "", None);
                Some(rows)
            })
        };
        let check = Check::Rows(br#""value":"#);
        let part = self.measure(system, "view_range_100", "rows", length, check, ranges);
        parts.push(part.await?);
        Ok(parts)
    }

    async fn finish(&self, system: &System, state: State) -> Result<Outcome, BenchError> {
        remove_design(system, &state.populated.database, &state.design).await?;
        Ok(Outcome {
            notes: vec![format!(
                "view_range_100: ranges of {RANGE_ROWS} rows at random places, by {} connections",
                self.connections
            )],
            ..Outcome::default()
        })
    }
}
