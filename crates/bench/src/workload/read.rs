//! Reads of single documents over many connections.

use std::rc::Rc;
use std::time::Duration;

use super::{Outcome, Workload};
use crate::documents::Shape;
use crate::error::BenchError;
use crate::slice::{Check, ClosedLoop, Requests};
use crate::system::{FilledDatabase, System, WorkloadPart};

/// The same request from every client, repeatedly.
pub(crate) fn repeat(request: Vec<u8>, units: u64) -> impl FnMut(usize) -> Requests {
    let request = Rc::new(request);
    move |_| {
        let request = Rc::clone(&request);
        Box::new(move |out: &mut Vec<u8>| {
            out.extend_from_slice(&request);
            Some(units)
        })
    }
}

/// GET of one document of 300 bytes. Where the server has `/_settee/constant`, a constant reply of
/// that size is measured in the same rounds: the limit of the HTTP stack.
pub(crate) struct Get {
    pub(crate) connections: usize,
}

pub(crate) struct ReadState {
    document: Vec<u8>,
    constant: Option<Vec<u8>>,
}

impl Workload for Get {
    type State = ReadState;

    fn is_sliced(&self) -> bool {
        true
    }

    async fn prepare(&self, system: &System) -> Result<ReadState, BenchError> {
        let path = format!("/{}/document", system.create("get").await?);
        let mut body = Vec::new();
        let shape = system.variation().shape(Shape::Bytes300);
        shape.push_body(&mut body, 1);
        system.require("PUT", &path, Some(&body)).await?;
        let size = system.require("GET", &path, None).await?.len();
        let constant = format!("/_settee/constant?size={size}");
        let has_constant = system.call("GET", &constant, None).await?.0 == 200;
        Ok(ReadState {
            document: system.target.request("GET", &path, None),
            constant: has_constant.then(|| system.target.request("GET", &constant, None)),
        })
    }

    async fn round(
        &self,
        system: &System,
        state: &mut ReadState,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let measured = |request: &Vec<u8>| {
            ClosedLoop::timed(&system.target, length, Check::Status)
                .run(self.connections, repeat(request.clone(), 1))
        };
        let mut parts = vec![system.part("get", "req", measured(&state.document)).await?];
        if let Some(constant) = &state.constant {
            parts.push(system.part("constant", "req", measured(constant)).await?);
        }
        Ok(parts)
    }

    async fn finish(&self, system: &System, state: ReadState) -> Result<Outcome, BenchError> {
        let missing = state.constant.is_none().then(|| {
            format!(
                "constant: skipped on {}, it has no /_settee/constant",
                system.target.label
            )
        });
        Ok(Outcome {
            notes: missing.into_iter().collect(),
            ..Outcome::default()
        })
    }
}

/// GET of random ones among many documents of 300 bytes.
pub(crate) struct GetRandom {
    pub(crate) connections: usize,
    pub(crate) documents: u64,
}

impl Workload for GetRandom {
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
        let requests = |_| -> Requests {
            let (target, populated) = (Rc::clone(&system.target), state.clone());
            let mut path = format!("/{}/", populated.database).into_bytes();
            let root = path.len();
            Box::new(move |request| {
                path.truncate(root);
                populated
                    .ids
                    .push_nth(&mut path, fastrand::u64(..populated.documents));
                let path = std::str::from_utf8(&path).ok()?;
                target.write_request(request, "GET", path, "", None);
                Some(1)
            })
        };
        let reading = ClosedLoop::timed(&system.target, length, Check::Status);
        let part = system.part("get_random", "req", reading.run(self.connections, requests));
        Ok(vec![part.await?])
    }
}
