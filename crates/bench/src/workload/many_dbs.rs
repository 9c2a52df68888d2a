//! Very many small databases: time to make them, and the memory that they hold.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::{Outcome, Workload};
use crate::documents::{Ids, Order, Shape};
use crate::error::BenchError;
use crate::procfs;
use crate::progress;
use crate::slice::{Check, ClosedLoop, Requests, Slice};
use crate::system::{System, WorkloadPart};

const DOCUMENTS: u64 = 5;
const CLIENTS: usize = 8;

/// Makes databases, then writes five documents to each.
pub(crate) struct ManyDbs {
    pub(crate) databases: u64,
}

pub(crate) struct PriorState {
    resident_bytes: Option<u64>,
}

impl ManyDbs {
    /// One request for each database, made by `write` from its name.
    async fn for_each(
        &self,
        system: &System,
        what: &str,
        names: Vec<String>,
        check: Check,
        write: impl Fn(&mut Vec<u8>, &str) -> u64 + Clone + 'static,
    ) -> Result<Slice, BenchError> {
        let bar = progress::bar(self.databases, what.to_owned());
        let queue = Rc::new(RefCell::new(names.into_iter()));
        let requests = |_| -> Requests {
            let (queue, write, bar) = (Rc::clone(&queue), write.clone(), bar.clone());
            Box::new(move |request| {
                let name = queue.borrow_mut().next()?;
                bar.inc(1);
                Some(write(request, &name))
            })
        };
        let slice = ClosedLoop::exhaustive(&system.target, check)
            .run(CLIENTS, requests)
            .await;
        bar.finish_and_clear();
        slice
    }
}

impl Workload for ManyDbs {
    type State = PriorState;

    fn rounds(&self) -> u32 {
        1
    }

    async fn prepare(&self, system: &System) -> Result<PriorState, BenchError> {
        Ok(PriorState {
            resident_bytes: system.pid.and_then(procfs::resident_bytes),
        })
    }

    async fn round(
        &self,
        system: &System,
        _state: &mut PriorState,
        _length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let names: Vec<String> = (0..self.databases)
            .map(|number| system.claim(&format!("many-{number}")))
            .collect();
        let target = Rc::clone(&system.target);
        let query = system.variation().create_query();
        let create = move |request: &mut Vec<u8>, name: &str| {
            target.write_request(request, "PUT", &format!("/{name}{query}"), "", None);
            1
        };
        let creating = self.for_each(
            system,
            "creating databases",
            names.clone(),
            Check::Status,
            create,
        );
        let created = system.part("many_dbs_create", "dbs", creating).await?;
        let target = Rc::clone(&system.target);
        let ids = Ids::new(Order::Sequential);
        let fill = move |request: &mut Vec<u8>, name: &str| {
            let mut body = Vec::new();
            Shape::Foo.push_bulk(&mut body, &ids, DOCUMENTS);
            target.write_request(
                request,
                "POST",
                &format!("/{name}/_bulk_docs"),
                "",
                Some(&body),
            );
            DOCUMENTS
        };
        let filling = self.for_each(system, "filling databases", names, Check::Bulk, fill);
        let filled = system.part("many_dbs_fill", "docs", filling).await?;
        Ok(vec![created, filled])
    }

    async fn finish(&self, system: &System, before: PriorState) -> Result<Outcome, BenchError> {
        let after = system.pid.and_then(procfs::resident_bytes);
        let figures = [
            ("many_dbs resident before", before.resident_bytes),
            ("many_dbs resident after", after),
        ];
        Ok(Outcome {
            figures: figures
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), "bytes", value? as f64)))
                .collect(),
            notes: vec![format!(
                "many_dbs: {} databases of {DOCUMENTS} documents",
                self.databases
            )],
        })
    }
}
