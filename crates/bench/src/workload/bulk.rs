//! Bulk writes: the CouchDB guide's `bulk_doc`, its parallel variant, and larger documents.

use std::rc::Rc;
use std::time::Duration;

use super::Workload;
use crate::documents::{Ids, Order, Shape};
use crate::error::BenchError;
use crate::slice::{Check, ClosedLoop, Requests};
use crate::system::{System, WorkloadPart};

/// `_bulk_docs` of new documents with sequential ids.
pub(crate) struct Bulk {
    name: &'static str,
    shape: Shape,
    /// Documents in one request.
    documents: u64,
    clients: usize,
}

impl Bulk {
    pub(crate) fn new(name: &'static str, shape: Shape, documents: u64, clients: usize) -> Self {
        Self {
            name,
            shape,
            documents,
            clients,
        }
    }
}

pub(crate) struct BulkState {
    path: String,
    ids: Ids,
}

impl Workload for Bulk {
    type State = BulkState;

    fn is_sliced(&self) -> bool {
        true
    }

    async fn prepare(&self, system: &System) -> Result<BulkState, BenchError> {
        Ok(BulkState {
            path: format!("/{}/_bulk_docs", system.create(self.name).await?),
            ids: Ids::new(Order::Sequential),
        })
    }

    async fn round(
        &self,
        system: &System,
        state: &mut BulkState,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let variation = system.variation();
        let shape = variation.shape(self.shape);
        let documents = variation.bulk_docs(self.documents);
        let requests = |_| -> Requests {
            let (target, path, ids) = (
                Rc::clone(&system.target),
                state.path.clone(),
                state.ids.clone(),
            );
            let mut body = Vec::new();
            Box::new(move |request| {
                body.clear();
                shape.push_bulk(&mut body, &ids, documents);
                target.write_request(request, "POST", &path, "", Some(&body));
                Some(documents)
            })
        };
        let writing = ClosedLoop::timed(&system.target, length, Check::Bulk);
        let part = system.part(self.name, "docs", writing.run(self.clients, requests));
        Ok(vec![part.await?])
    }
}
