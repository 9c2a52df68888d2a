//! Reads revisions one by one, and handles those that the source lists but does not have.

use std::time::Duration;

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::super::batch::ChangesQuery;
use super::super::{Body, Doc};
use super::attached::{attached, rev_of};
use super::docs::{DOCS_A_RESULT_MAX, is_database_gone};
use super::{Answer, AttemptFailure, Call, HttpDb, doc_path, encoded, whole_up_to};
use crate::db::MissingRevs;
use crate::db::json_limits::{BoundedVec, parse};
use crate::error::Error;
use crate::options::Selection;

/// Delay before a missing revision is requested again: the server may be a cluster whose nodes have
/// not all received it. CouchDB's `missing_doc_retry_msec`.
pub const MISSING_WAIT: Duration = Duration::from_secs(2);

/// Maximum number of values in a list of a document's leaves.
const LEAVES_VALUES_MAX: usize = 1_000_000;

/// A result of `open_revs`.
#[derive(Deserialize)]
struct OpenRevsEntry<'a> {
    #[serde(borrow)]
    ok: Option<&'a RawValue>,
    missing: Option<String>,
}

/// The result of reading revisions of a document.
#[derive(Default)]
pub struct ReadRevs {
    pub docs: Vec<Doc>,
    /// Those that the server does not have.
    pub missing: Vec<String>,
    /// Number of those that are longer than any may be. They are left out.
    pub too_long: u64,
}

/// The response to a request of revisions.
enum Opened {
    Read(ReadRevs),
    Refused(Answer),
    TooLong,
}

impl HttpDb {
    /// Reads revisions of a document that were missing earlier. Those that the source no longer
    /// lists are counted, and left out.
    ///
    /// # Errors
    /// Errors of requests, and [`Error::Request`] when the source still lists a revision that it
    /// does not have.
    pub async fn read_again(&self, wanted: MissingRevs) -> Result<(Vec<Doc>, u64), Error> {
        let read = self.read_revs(&wanted).await?;
        self.leave_out(&wanted.id, &read.missing).await?;
        Ok((read.docs, read.missing.len() as u64 + read.too_long))
    }

    /// Reads revisions of one document.
    ///
    /// # Errors
    /// Errors of requests.
    pub async fn read_revs(&self, wanted: &MissingRevs) -> Result<ReadRevs, Error> {
        let id = wanted.id.as_str();
        let list = encoded(&json!(wanted.revs).to_string());
        let path = format!("{}?revs=true&latest=true&open_revs={list}", doc_path(id));
        let call = Call::new(Method::GET, &path);
        let mut place = self.place().await;
        let take = |response| async {
            let answer: Answer = match whole_up_to(response, self.row_bytes_max).await {
                Err(failed) if failed.is_too_long => return Ok(Opened::TooLong),
                answer => answer?,
            };
            if !answer.is_ok() {
                return Ok(Opened::Refused(answer));
            }
            type Found<'a> = BoundedVec<OpenRevsEntry<'a>, DOCS_A_RESULT_MAX>;
            let found = serde_json::from_slice::<Found<'_>>(&answer.body)
                .map_err(|_| AttemptFailure::of("the answer is not understood"))?;
            let (mut docs, mut missing) = (vec![], vec![]);
            for opened in found.0 {
                match opened {
                    OpenRevsEntry { ok: Some(doc), .. } => {
                        let text = answer.body.slice_ref(doc.get().as_bytes());
                        let streamed = attached(&text).and_then(|_| rev_of(&text));
                        docs.push(Doc {
                            id: id.to_owned(),
                            body: streamed.map_or(Body::Json(text), Body::Streamed),
                        });
                    }
                    OpenRevsEntry {
                        missing: Some(rev), ..
                    } if wanted.revs.contains(&rev) && missing.len() < wanted.revs.len() => {
                        missing.push(rev);
                    }
                    _ => return Err(AttemptFailure::of("a revision could not be read")),
                }
            }
            Ok(Opened::Read(ReadRevs {
                docs,
                missing,
                too_long: 0,
            }))
        };
        let opened = self.call(&mut place.socket, call.clone(), take).await?;
        drop(place);
        match opened {
            Opened::Read(read) => Ok(read),
            Opened::Refused(answer) if answer.status == 404 && !is_database_gone(&answer) => {
                Ok(ReadRevs {
                    missing: wanted.revs.clone(),
                    ..ReadRevs::default()
                })
            }
            Opened::Refused(answer) => Err(self.refusal(&call, &answer)),
            Opened::TooLong => self.read_shorter(wanted).await,
        }
    }

    /// Reads revisions whose texts together are too long; a single one is left out, as if the target
    /// refused it.
    async fn read_shorter(&self, wanted: &MissingRevs) -> Result<ReadRevs, Error> {
        if wanted.revs.len() <= 1 {
            tracing::warn!(url = %self.base, id = wanted.id, revs = ?wanted.revs, limit = self.row_bytes_max, "a document of the source is too long ([memory] replications, [couchdb] max_document_size), and is not copied");
            return Ok(ReadRevs {
                too_long: wanted.revs.len() as u64,
                ..ReadRevs::default()
            });
        }
        let mut all = ReadRevs::default();
        for revs in wanted.revs.chunks(wanted.revs.len().div_ceil(2)) {
            let half = MissingRevs {
                id: wanted.id.clone(),
                revs: revs.to_vec(),
            };
            let read = Box::pin(self.read_revs(&half)).await?;
            all.docs.extend(read.docs);
            all.missing.extend(read.missing);
            all.too_long += read.too_long;
        }
        Ok(all)
    }

    /// Decides about revisions that stay missing: purged ones are no longer in the changes feed,
    /// and are left out. Those that the source still lists must not be lost.
    ///
    /// # Errors
    /// [`Error::Request`] when the source still lists one, and those of requests.
    pub async fn leave_out(&self, id: &str, revs: &[String]) -> Result<(), Error> {
        if revs.is_empty() {
            return Ok(());
        }
        let leaves = self.leaves(id).await?;
        if let Some(rev) = revs.iter().find(|rev| leaves.contains(rev)) {
            let told = format!("revision {rev} is among the changes, but missing");
            let path = doc_path(id);
            return Err(self.error(&Call::new(Method::GET, &path), &told));
        }
        tracing::warn!(url = %self.base, id, ?revs, "revisions were removed from the source, and are not copied");
        Ok(())
    }

    /// Returns the leaves that the source lists for a document now.
    async fn leaves(&self, id: &str) -> Result<Vec<String>, Error> {
        #[derive(Deserialize)]
        struct Changes {
            results: Vec<Row>,
        }
        #[derive(Deserialize)]
        struct Row {
            id: String,
            changes: Vec<Leaf>,
        }
        #[derive(Deserialize)]
        struct Leaf {
            rev: String,
        }
        let query = ChangesQuery {
            continuous: false,
            winning_revs_only: false,
            selection: Selection::Ids([id.to_owned()].into()),
            include_docs: false,
            batch: 1,
        };
        let (path, body) = self.changes_request(&query, &json!(0));
        let call = Call {
            patient: true,
            ..Call::post(&path, body.unwrap_or_default())
        };
        // A document may be read as a stream while other responses are pending.
        let mut socket = self.streamed_socket().await;
        let answer = self.json(&mut socket, call.clone()).await?;
        if !answer.is_ok() {
            return Err(self.refusal(&call, &answer));
        }
        let changes: Changes = parse(&answer.body, LEAVES_VALUES_MAX)
            .map_err(|_| self.error(&call, "the answer is not understood"))?;
        let rows = changes.results.into_iter().filter(|row| row.id == id);
        Ok(rows
            .flat_map(|row| row.changes.into_iter().map(|leaf| leaf.rev))
            .collect())
    }
}
