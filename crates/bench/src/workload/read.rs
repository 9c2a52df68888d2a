//! Reads of single documents over many connections.

use std::rc::Rc;
use std::time::Duration;

use super::{Outcome, Workload};
use crate::documents::Shape;
use crate::error::BenchError;
use crate::side::{Part, Populated, Side};
use crate::slice::{Check, ClosedLoop, Requests};

/// The same request from every client, again and again.
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

/// GET of one document of 300 bytes. Where the server has `/_settee/constant`, a constant reply of that size is
/// measured in the same rounds: what the HTTP stack alone can do.
pub(crate) struct Get {
    pub(crate) connections: usize,
}

pub(crate) struct Prepared {
    document: Vec<u8>,
    constant: Option<Vec<u8>>,
}

impl Workload for Get {
    type State = Prepared;

    fn is_sliced(&self) -> bool {
        true
    }

    async fn prepare(&self, side: &Side) -> Result<Prepared, BenchError> {
        let path = format!("/{}/document", side.create("get").await?);
        let mut body = Vec::new();
        Shape::Bytes300.push_body(&mut body, 1);
        side.require("PUT", &path, Some(&body)).await?;
        let size = side.require("GET", &path, None).await?.len();
        let constant = format!("/_settee/constant?size={size}");
        let has_constant = side.call("GET", &constant, None).await?.0 == 200;
        Ok(Prepared {
            document: side.target.request("GET", &path, None),
            constant: has_constant.then(|| side.target.request("GET", &constant, None)),
        })
    }

    async fn round(
        &self,
        side: &Side,
        state: &mut Prepared,
        length: Duration,
    ) -> Result<Vec<Part>, BenchError> {
        let measured = |request: &Vec<u8>| {
            ClosedLoop::timed(&side.target, length, Check::Status)
                .run(self.connections, repeat(request.clone(), 1))
        };
        let mut parts = vec![side.part("get", "req", measured(&state.document)).await?];
        if let Some(constant) = &state.constant {
            parts.push(side.part("constant", "req", measured(constant)).await?);
        }
        Ok(parts)
    }

    async fn finish(&self, side: &Side, state: Prepared) -> Result<Outcome, BenchError> {
        let missing = state.constant.is_none().then(|| {
            format!(
                "constant: skipped on {}, it has no /_settee/constant",
                side.target.label
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
    type State = Populated;

    fn is_sliced(&self) -> bool {
        true
    }

    async fn prepare(&self, side: &Side) -> Result<Populated, BenchError> {
        side.populated(Shape::Bytes300, self.documents).await
    }

    async fn round(
        &self,
        side: &Side,
        state: &mut Populated,
        length: Duration,
    ) -> Result<Vec<Part>, BenchError> {
        let requests = |_| -> Requests {
            let (target, populated) = (Rc::clone(&side.target), state.clone());
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
        let reading = ClosedLoop::timed(&side.target, length, Check::Status);
        let part = side.part("get_random", "req", reading.run(self.connections, requests));
        Ok(vec![part.await?])
    }
}
