//! Long attachments, written and read one at a time.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::Workload;
use super::read::repeat;
use crate::error::BenchError;
use crate::slice::{Check, ClosedLoop, Requests};
use crate::system::{System, WorkloadPart};

const MB: u64 = 1_000_000;

/// PUT and GET of an attachment of `application/octet-stream` that cannot be compressed, in
/// megabytes (1,000,000 bytes) a second. One client. Each PUT creates a new document with unique
/// content.
pub(crate) struct Attachments {
    pub(crate) megabytes: u64,
}

pub(crate) struct AttachmentState {
    database: String,
    bytes: Rc<Vec<u8>>,
    documents: Rc<Cell<u64>>,
    get: Vec<u8>,
}

impl Attachments {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; (self.megabytes * MB) as usize];
        fastrand::fill(&mut bytes);
        bytes
    }
}

/// Appends the request that puts `bytes`, the first of them replaced by `number`.
fn push_put(
    system: &crate::target::Target,
    path: &str,
    number: u64,
    bytes: &[u8],
    out: &mut Vec<u8>,
) {
    let headers = format!(
        "Content-Type: application/octet-stream\r\nContent-Length: {}\r\n",
        bytes.len()
    );
    out.reserve(bytes.len() + 512);
    system.write_request(out, "PUT", path, &headers, None);
    let start = out.len();
    out.extend_from_slice(bytes);
    let number = number.to_le_bytes();
    let own = number.len().min(bytes.len());
    out[start..start + own].copy_from_slice(&number[..own]);
}

impl Workload for Attachments {
    type State = AttachmentState;

    fn is_sliced(&self) -> bool {
        true
    }

    async fn prepare(&self, system: &System) -> Result<AttachmentState, BenchError> {
        let database = system.create("attachments").await?;
        let bytes = self.bytes();
        let path = format!("/{database}/0/bytes");
        let mut put = Vec::new();
        push_put(&system.target, &path, 0, &bytes, &mut put);
        let once = ClosedLoop::exhaustive(&system.target, Check::Status);
        let requests = |_| -> Requests {
            let mut put = Some(put.clone());
            Box::new(move |request| {
                *request = put.take()?;
                Some(1)
            })
        };
        let stored = once.run(1, requests).await?;
        if let Some(reason) = stored.errors.first {
            return Err(BenchError::Options(format!(
                "attachments: {} does not take {} MB: {reason}",
                system.target.label, self.megabytes
            )));
        }
        Ok(AttachmentState {
            get: system.target.request("GET", &path, None),
            database,
            bytes: Rc::new(bytes),
            documents: Rc::new(Cell::new(1)),
        })
    }

    async fn round(
        &self,
        system: &System,
        state: &mut AttachmentState,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let megabytes = self.megabytes;
        let requests = |_| -> Requests {
            let (target, bytes) = (Rc::clone(&system.target), Rc::clone(&state.bytes));
            let (database, documents) = (state.database.clone(), Rc::clone(&state.documents));
            Box::new(move |request| {
                let number = documents.replace(documents.get() + 1);
                let path = format!("/{database}/{number}/bytes");
                push_put(&target, &path, number, &bytes, request);
                Some(megabytes)
            })
        };
        let timed = || ClosedLoop::timed(&system.target, length, Check::Status);
        let writing = system.part("attachments_put", "MB", timed().run(1, requests));
        let writing = writing.await?;
        let get = repeat(state.get.clone(), megabytes);
        let reading = system.part("attachments_get", "MB", timed().run(1, get));
        Ok(vec![writing, reading.await?])
    }
}
