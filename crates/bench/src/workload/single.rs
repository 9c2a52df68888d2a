//! Documents written one a request: durable, with many writers, deferred, and with an explicit full commit.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use super::disk;
use super::{Outcome, Workload};
use crate::documents::{Ids, Order, Shape};
use crate::error::BenchError;
use crate::slice::{Check, ClosedLoop, Requests, Slice};
use crate::system::{System, WorkloadPart};

/// PUT of new `{"foo":"bar"}` documents.
pub(crate) struct Single {
    name: &'static str,
    clients: usize,
    query: &'static str,
    headers: &'static str,
    /// `_ensure_full_commit` after each document.
    commits: bool,
    /// Where the raw disk is measured between the rounds.
    raw_disk: Option<PathBuf>,
}

impl Single {
    /// One client, each write durable; the same disk's raw append + fdatasync rate in the same rounds.
    pub(crate) fn beside_raw_disk(dir: PathBuf) -> Self {
        Self {
            raw_disk: Some(dir),
            ..Self::plain("single", 1)
        }
    }

    /// Many clients, each write durable.
    pub(crate) fn writers(clients: usize) -> Self {
        Self::plain("writers_32", clients)
    }

    /// One client, writes acknowledged before they are durable.
    pub(crate) fn batch_ok() -> Self {
        Self {
            query: "?batch=ok",
            ..Self::plain("batch_ok", 1)
        }
    }

    /// One client, the whole database committed after each write.
    pub(crate) fn full_commit() -> Self {
        Self {
            headers: "X-Couch-Full-Commit: true\r\n",
            commits: true,
            ..Self::plain("full_commit", 1)
        }
    }

    fn plain(name: &'static str, clients: usize) -> Self {
        Self {
            name,
            clients,
            query: "",
            headers: "",
            commits: false,
            raw_disk: None,
        }
    }

    async fn write(
        &self,
        system: &System,
        state: &SingleState,
        length: Duration,
    ) -> Result<Slice, BenchError> {
        let (query, headers) = (self.query, self.headers);
        let shape = system.variation().shape(Shape::Foo);
        let requests = |_| -> Requests {
            let (target, database, ids) = (
                Rc::clone(&system.target),
                state.database.clone(),
                state.ids.clone(),
            );
            Box::new(move |request| {
                let path = format!("/{database}/{}{query}", ids.next_text());
                let mut body = Vec::with_capacity(16);
                shape.push_body(&mut body, ids.taken());
                target.write_request(request, "PUT", &path, headers, Some(&body));
                Some(1)
            })
        };
        let mut writing = ClosedLoop::timed(&system.target, length, Check::Status);
        writing.follow_up = self.commits.then(|| {
            let path = format!("/{}/_ensure_full_commit", state.database);
            Rc::new(system.target.request("POST", &path, Some(b"")))
        });
        writing.run(self.clients, requests).await
    }
}

pub(crate) struct SingleState {
    database: String,
    ids: Ids,
}

impl Workload for Single {
    type State = SingleState;

    /// Whether writes that are acknowledged before they are durable become so during the other
    /// server's slice.
    fn is_sliced(&self) -> bool {
        self.query.is_empty()
    }

    async fn prepare(&self, system: &System) -> Result<SingleState, BenchError> {
        Ok(SingleState {
            database: system.create(self.name).await?,
            ids: Ids::new(Order::Sequential),
        })
    }

    async fn round(
        &self,
        system: &System,
        state: &mut SingleState,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let mut parts = vec![
            system
                .part(self.name, "docs", self.write(system, state, length))
                .await?,
        ];
        if let Some(dir) = &self.raw_disk {
            let slice = disk::append_and_sync(dir, length / 2)?;
            parts.push(WorkloadPart {
                name: "raw_fdatasync",
                unit: "syncs",
                slice,
                cpu_seconds: None,
                peak_resident_bytes: None,
            });
        }
        Ok(parts)
    }

    async fn finish(&self, _side: &System, _state: SingleState) -> Result<Outcome, BenchError> {
        let notes = self.raw_disk.iter().map(|dir| {
            format!(
                "raw_fdatasync: 1 KB appends + fdatasync in {}, on this machine; it bounds `single` only if the \
                 server's data is on that disk",
                dir.display()
            )
        });
        Ok(Outcome {
            notes: notes.collect(),
            ..Outcome::default()
        })
    }
}
