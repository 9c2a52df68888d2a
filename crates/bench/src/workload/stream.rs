//! Whole listings of a database, counted by rows.

use std::time::Duration;

use super::Workload;
use super::read::repeat;
use crate::documents::Shape;
use crate::error::BenchError;
use crate::slice::{Check, ClosedLoop};
use crate::system::{FilledDatabase, System, WorkloadPart};

/// One client that reads a listing from its beginning to its end.
pub(crate) struct Stream {
    name: &'static str,
    path: &'static str,
    /// A text that each row has once.
    row: &'static [u8],
    documents: u64,
}

impl Stream {
    pub(crate) fn changes(documents: u64) -> Self {
        Self {
            name: "changes",
            path: "_changes",
            row: br#""changes":["#,
            documents,
        }
    }

    pub(crate) fn changes_include_docs(documents: u64) -> Self {
        Self {
            name: "changes_include_docs",
            path: "_changes?include_docs=true",
            ..Self::changes(documents)
        }
    }

    pub(crate) fn all_docs(documents: u64) -> Self {
        Self {
            name: "all_docs",
            path: "_all_docs",
            row: br#""value":{"rev":"#,
            documents,
        }
    }
}

impl Workload for Stream {
    type State = FilledDatabase;

    fn is_sliced(&self) -> bool {
        true
    }

    async fn prepare(&self, system: &System) -> Result<FilledDatabase, BenchError> {
        system.populated(Shape::Bytes300, self.documents).await
    }

    async fn round(
        &self,
        system: &System,
        state: &mut FilledDatabase,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let path = format!("/{}/{}", state.database, self.path);
        let request = system.target.request("GET", &path, None);
        let reading = ClosedLoop::timed(&system.target, length, Check::Rows(self.row));
        let part = system.part(
            self.name,
            "rows",
            reading.run(1, repeat(request, state.documents)),
        );
        Ok(vec![part.await?])
    }
}
