//! Reads documents of a database behind HTTP by `_bulk_get` or one by one.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use document::{EditDoc, with_members, write_json_string};
use futures_util::StreamExt;
use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny};
use serde_json::value::RawValue;

use super::super::{Body, Doc, Gather, Portions, SMALL_ATTACHMENTS_BYTES, retry};
use super::attached::{attached, rev_of};
use super::{Answer, AttemptFailure, Call, HttpDb, MISSING_WAIT, cause, whole};
use crate::db::MissingRevs;
use crate::db::json_limits::BoundedVec;
use crate::db::long_responses::{LONG_BYTES, ResponsePermit, row_bytes_max};
use crate::error::Error;
use crate::progress::Progress;
use crate::rows::{Form, Rows};

/// Maximum number of documents with small attachments in one request.
const ATTACHED_BULK_MAX: usize = 50;
/// Maximum number of revisions in one URL.
const OPEN_REVS_MAX: usize = 50;
/// Maximum number of concurrent reads of single documents.
const SINGLE_READS_MAX: usize = 10;
/// Maximum number of documents in a result of `_bulk_get`: with `latest`, a revision stands for
/// all leaves after it.
pub const DOCS_A_RESULT_MAX: usize = 100_000;
/// Maximum number of a document's revisions that are requested again with their attachments in
/// one request. If there are more, its revisions are read one by one.
const SMALL_REVS_MAX: usize = 100;
/// A result of `_bulk_get`.
#[derive(Deserialize)]
struct Got<'a> {
    id: String,
    #[serde(borrow)]
    docs: BoundedVec<GotRev<'a>, DOCS_A_RESULT_MAX>,
}

#[derive(Deserialize)]
struct GotRev<'a> {
    #[serde(borrow)]
    ok: Option<&'a RawValue>,
    /// In CouchDB, an object whose `rev` names the revision.
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl GotRev<'_> {
    /// Returns the revision that could not be read, if the server names it.
    fn named(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Named {
            rev: String,
        }
        let named = serde_json::from_str::<Named>(self.error?.get());
        named.ok().map(|named| named.rev)
    }
}

/// The text around the results of `_bulk_get`.
#[derive(Deserialize)]
struct Around {
    results: Option<IgnoredAny>,
}

/// Revisions of documents, by id.
type Revs = HashMap<String, HashSet<String>>;

/// Revisions that `_bulk_get` did not return: never more than were requested, whatever the server
/// answers.
#[derive(Default)]
struct Left {
    /// Revisions with attachments small enough for a bulk request. The server names these.
    small: Revs,
    /// Revisions to read one by one.
    single: Revs,
}

impl Left {
    fn read_singly(&mut self, docs: Vec<MissingRevs>) {
        for doc in docs {
            self.single.entry(doc.id).or_default().extend(doc.revs);
        }
    }
}

impl HttpDb {
    pub async fn fetch(
        &self,
        wanted: Vec<MissingRevs>,
        portions: &Portions,
        progress: &Progress,
    ) -> Result<(), Error> {
        let mut out = Gather::new(portions);
        let mut left = Left::default();
        if !self
            .bulk_get(wanted, false, &mut out, &mut left, progress)
            .await?
        {
            let small = listed(std::mem::take(&mut left.small));
            left.read_singly(small);
        }
        let mut small = listed(std::mem::take(&mut left.small));
        while !small.is_empty() {
            let rest = small.split_off(small.len().min(ATTACHED_BULK_MAX));
            self.bulk_get(small, true, &mut out, &mut left, progress)
                .await?;
            small = rest;
        }
        let mut singles: Vec<MissingRevs> = vec![];
        for doc in listed(left.single) {
            let portions = doc.revs.chunks(OPEN_REVS_MAX);
            singles.extend(portions.map(|revs| MissingRevs {
                id: doc.id.clone(),
                revs: revs.to_vec(),
            }));
        }
        let mut late: Vec<MissingRevs> = vec![];
        let mut reads = futures_util::stream::iter(singles)
            .map(async |doc: MissingRevs| self.read_revs(&doc).await.map(|read| (doc.id, read)))
            .buffer_unordered(SINGLE_READS_MAX);
        while let Some(read) = out.wait(reads.next()).await? {
            let (id, read) = read?;
            progress
                .doc_write_failures
                .fetch_add(read.too_long, Relaxed);
            for doc in read.docs {
                out.add(doc).await?;
            }
            if !read.missing.is_empty() {
                let revs = read.missing;
                late.push(MissingRevs { id, revs });
            }
        }
        drop(reads);
        if !late.is_empty() {
            // Flushed once for all: with concurrent updates and compactions there may be many.
            out.flush().await?;
            tokio::time::sleep(MISSING_WAIT).await;
        }
        let mut reads = futures_util::stream::iter(late)
            .map(|doc| self.read_again(doc))
            .buffer_unordered(SINGLE_READS_MAX);
        while let Some(read) = out.wait(reads.next()).await? {
            let (docs, left_out) = read?;
            progress.doc_write_failures.fetch_add(left_out, Relaxed);
            for doc in docs {
                out.add(doc).await?;
            }
        }
        out.flush().await
    }

    /// Reads the complete response to `call`.
    async fn whole(&self, call: &Call<'_>, response: reqwest::Response) -> Result<Answer, Error> {
        let answer = whole(response).await;
        answer.map_err(|f| self.error(call, &f.reason))
    }

    /// Requests many documents in one request. Returns false when the server does not support
    /// `_bulk_get`: then all revisions are in `left.single`.
    async fn bulk_get(
        &self,
        mut wanted: Vec<MissingRevs>,
        attachments: bool,
        out: &mut Gather<'_>,
        left: &mut Left,
        progress: &Progress,
    ) -> Result<bool, Error> {
        let path = format!("_bulk_get?revs=true&latest=true&attachments={attachments}");
        let mut attempt = 0;
        while !wanted.is_empty() {
            if !self.bulk_get.load(Relaxed) {
                left.read_singly(wanted);
                return Ok(false);
            }
            let asked = wanted.iter().map(|doc| doc.revs.len() as u64).sum();
            let mut place = out.wait(self.place()).await?;
            let call = Call::post(&path, bulk_get_body(&wanted));
            let socket = &mut place.socket;
            let asking = self.call(socket, call.clone(), |r| async { Ok(r) });
            let response = out.wait(asking).await??;
            let status = response.status().as_u16();
            if matches!(status, 400 | 404 | 405 | 415 | 501) {
                let answer = self.whole(&call, response).await?;
                // Reads of single documents detect a missing database.
                tracing::info!(url = %self.base, status = answer.status, "the server does not support _bulk_get: documents are read one by one");
                self.bulk_get.store(false, Relaxed);
                continue;
            }
            if status == 413 && wanted.len() > 1 {
                drop((place, response));
                let half = wanted.split_off(wanted.len() / 2);
                Box::pin(self.bulk_get(wanted, attachments, out, left, progress)).await?;
                wanted = half;
                continue;
            }
            if !response.status().is_success() {
                let answer = self.whole(&call, response).await?;
                return Err(self.refusal(&call, &answer));
            }
            progress.bulk_get_attempts.fetch_add(asked, Relaxed);
            let (read, open) = {
                let mut reading = BulkRead::of(&wanted, attachments, left, progress);
                let read = reading.read(response, out).await;
                (read, reading.open)
            };
            wanted.retain(|doc| open.contains_key(&doc.id));
            match read {
                // Ids that the server skipped.
                Ok(Ok(())) => left.read_singly(std::mem::take(&mut wanted)),
                // One by one, the others can be read.
                Ok(Err(failed)) if failed.is_too_long => {
                    left.read_singly(std::mem::take(&mut wanted));
                }
                Ok(Err(failed)) if attempt < self.retries => {
                    out.flush().await?;
                    (place.socket)
                        .rest(retry::wait(attempt, failed.retry_after))
                        .await;
                    attempt += 1;
                }
                Ok(Err(failed)) => return Err(self.error(&call, &failed.reason)),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }
}

pub fn is_database_gone(answer: &Answer) -> bool {
    let reason = answer
        .json()
        .and_then(|a| Some(a.get("reason")?.as_str()?.to_owned()));
    matches!(
        reason.as_deref(),
        Some("Database does not exist." | "no_db_file")
    )
}

/// A `_bulk_get` response being read.
struct BulkRead<'a> {
    /// The number of results still to come, by document id.
    open: HashMap<String, usize>,
    /// The requested revisions, by document id.
    wanted: HashMap<&'a str, HashSet<&'a str>>,
    attachments: bool,
    left: &'a mut Left,
    progress: &'a Progress,
}

impl<'a> BulkRead<'a> {
    fn of(
        wanted: &'a [MissingRevs],
        attachments: bool,
        left: &'a mut Left,
        progress: &'a Progress,
    ) -> BulkRead<'a> {
        let open = wanted.iter().map(|doc| (doc.id.clone(), doc.revs.len()));
        let revs = |doc: &'a MissingRevs| doc.revs.iter().map(String::as_str).collect();
        BulkRead {
            open: open.collect(),
            wanted: wanted.iter().map(|doc| (&*doc.id, revs(doc))).collect(),
            attachments,
            left,
            progress,
        }
    }

    /// The inner error means that the response was cut off, or is garbled.
    async fn read(
        &mut self,
        mut response: reqwest::Response,
        out: &mut Gather<'_>,
    ) -> Result<Result<(), AttemptFailure>, Error> {
        let mut rows = Rows::up_to(Form::Results, row_bytes_max(&response));
        let mut holding = ResponsePermit::of(&response);
        loop {
            loop {
                let row = match rows.next_row() {
                    Ok(Some(row)) => row,
                    Ok(None) => break,
                    Err(e) if e.is_too_long() => {
                        return Ok(Err(AttemptFailure::too_long(e.to_string())));
                    }
                    Err(e) => return Ok(Err(AttemptFailure::of(e.to_string()))),
                };
                if let Err(e) = self.row(&row, out).await? {
                    return Ok(Err(AttemptFailure::of(format!(
                        "a row is not understood: {e}"
                    ))));
                }
            }
            if rows.held_bytes() > LONG_BYTES {
                out.cover_long(rows.row_bytes_max()).await?;
            }
            let held = holding.hold(rows.held_bytes(), out.is_waited_for());
            if let Err(told) = held.await {
                return Ok(Err(AttemptFailure::of(told)));
            }
            match response.chunk().await {
                Ok(Some(bytes)) => rows.push_bytes(bytes),
                Ok(None) => break,
                Err(e) => return Ok(Err(AttemptFailure::of(cause(&e)))),
            }
        }
        let around = rows.finish().map_err(|e| e.to_string());
        let around = around
            .and_then(|text| serde_json::from_slice::<Around>(&text).map_err(|e| e.to_string()));
        Ok(match around {
            Ok(around) if around.results.is_some() => Ok(()),
            Ok(_) => Err(AttemptFailure::of("there are no results")),
            Err(told) => Err(AttemptFailure::of(told)),
        })
    }

    async fn row(
        &mut self,
        row: &Bytes,
        out: &mut Gather<'_>,
    ) -> Result<Result<(), serde_json::Error>, Error> {
        let got: Got<'_> = match serde_json::from_slice(row) {
            Ok(got) => got,
            Err(e) => return Ok(Err(e)),
        };
        let Some(open) = self.open.get_mut(&got.id) else {
            let told = serde_json::Error::custom("it was not requested");
            return Ok(Err(told));
        };
        *open = open.saturating_sub(1);
        if *open == 0 {
            self.open.remove(&got.id);
        }
        let docs = got.docs.0;
        if docs.is_empty() {
            self.read_singly(&got.id, None);
        }
        for rev in &docs {
            // Missing, or the server itself has no access: a single read decides.
            let Some(doc) = rev.ok else {
                self.read_singly(&got.id, rev.named());
                continue;
            };
            let text = row.slice_ref(doc.get().as_bytes());
            if !self.attachments
                && let Some(length) = attached(&text)
            {
                self.attached(&got.id, rev_of(&text), length, out).await?;
                continue;
            }
            self.progress.bulk_get_docs.fetch_add(1, Relaxed);
            let id = got.id.clone();
            let body = Body::Json(text);
            out.add(Doc { id, body }).await?;
        }
        Ok(Ok(()))
    }

    /// Schedules a revision with attachments of this total length to be read with them.
    async fn attached(
        &mut self,
        id: &str,
        rev: Option<String>,
        length: u64,
        out: &mut Gather<'_>,
    ) -> Result<(), Error> {
        let id = id.to_owned();
        match rev {
            Some(rev) if length > SMALL_ATTACHMENTS_BYTES => {
                let body = Body::Streamed(rev);
                return out.add(Doc { id, body }).await;
            }
            Some(rev) => {
                let small = self.left.small.entry(id.clone()).or_default();
                if small.len() < SMALL_REVS_MAX {
                    small.insert(rev);
                } else {
                    self.read_singly(&id, None);
                }
            }
            None => self.read_singly(&id, None),
        }
        Ok(())
    }

    /// Schedules a requested revision to be read singly; if the revision is unknown, all revisions
    /// of the document.
    fn read_singly(&mut self, id: &str, rev: Option<String>) {
        let Some(wanted) = self.wanted.get(id) else {
            return;
        };
        let left = self.left.single.entry(id.to_owned()).or_default();
        match rev.filter(|rev| wanted.contains(rev.as_str())) {
            Some(rev) => {
                left.insert(rev);
            }
            // All are in it already if it has as many.
            None if left.len() >= wanted.len() => {}
            None => left.extend(wanted.iter().map(|rev| (*rev).to_owned())),
        }
    }
}

/// Returns revisions as they are requested.
fn listed(revs: Revs) -> Vec<MissingRevs> {
    let one = |(id, revs): (String, HashSet<String>)| {
        let mut revs: Vec<String> = revs.into_iter().collect();
        revs.sort_unstable();
        MissingRevs { id, revs }
    };
    revs.into_iter().map(one).collect()
}

fn bulk_get_body(wanted: &[MissingRevs]) -> Vec<u8> {
    let mut body = Vec::with_capacity(wanted.len() * 96 + 16);
    body.extend_from_slice(b"{\"docs\":[");
    for doc in wanted {
        for rev in &doc.revs {
            if body.last() != Some(&b'[') {
                body.push(b',');
            }
            body.extend_from_slice(b"{\"id\":");
            write_json_string(&doc.id, &mut body);
            body.extend_from_slice(b",\"rev\":");
            write_json_string(rev, &mut body);
            body.push(b'}');
        }
    }
    body.extend_from_slice(b"]}");
    body
}

/// Returns a revision as JSON, with its ancestors.
pub fn edit_json(edit: &EditDoc) -> Vec<u8> {
    let mut out = Vec::with_capacity(edit.body.len() + 256);
    let (Some(id), Some(rev)) = (&edit.id, &edit.rev) else {
        return out;
    };
    with_members(id.as_str(), rev, edit.deleted, &edit.body, &mut out);
    if let Some(path) = &edit.revisions {
        out.extend_from_slice(
            format!(",\"_revisions\":{{\"start\":{},\"ids\":[", path.start).as_bytes(),
        );
        for (i, hash) in path.ids.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            hash.write_json_to(&mut out);
        }
        out.extend_from_slice(b"]}");
    }
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::batch_memory::BatchMemory;

    /// Reads rows of a response to a request for documents `a` with the revisions 1-0 and 1-1,
    /// and `b` with 1-0. Returns the errors, and what is left.
    async fn read_rows(rows: &[String]) -> (Vec<String>, Vec<(String, usize)>) {
        let revs = |n: usize| (0..n).map(|n| format!("1-{n}")).collect();
        let wanted = ["a", "b"].map(|id| MissingRevs {
            id: id.to_owned(),
            revs: revs(if id == "a" { 2 } else { 1 }),
        });
        let (sender, _receiver) = tokio::sync::mpsc::channel(1);
        let memory = BatchMemory::new(&Arc::default(), 1 << 20).of("a").documents;
        let portions = Portions { sender, memory };
        let mut out = Gather::new(&portions);
        let (mut left, progress) = (Left::default(), Progress::default());
        let mut reading = BulkRead::of(&wanted, false, &mut left, &progress);
        let mut errors = vec![];
        for row in rows {
            let row = Bytes::from(row.clone());
            let read = reading.row(&row, &mut out).await.unwrap();
            errors.extend(read.err().map(|e| e.to_string()));
        }
        let (small, single) = (listed(left.small), listed(left.single));
        let left = small.into_iter().chain(single);
        let mut left: Vec<_> = left.map(|doc| (doc.id, doc.revs.len())).collect();
        left.sort_unstable();
        (errors, left)
    }

    #[tokio::test]
    async fn what_is_left_is_no_more_than_was_requested() {
        let row =
            |id: &str, docs: &[&str]| format!(r#"{{"id":"{id}","docs":[{}]}}"#, docs.join(","));
        let (errors, left) = read_rows(&[
            row("a", &["{}"; 1000]),
            row("a", &[r#"{"error":{"rev":"1-1"}}"#, r#"{"error":"odd"}"#]),
            row("b", &[r#"{"error":{"rev":"1-5"}}"#]),
        ])
        .await;
        assert_eq!(
            (errors.len(), left),
            (0, vec![("a".into(), 2), ("b".into(), 1)])
        );
        // More results than were requested, of a document that was not requested, and a result
        // with more documents than any has.
        let endless = row("b", &vec!["{}"; DOCS_A_RESULT_MAX + 1]);
        let (errors, left) = read_rows(&[
            row("b", &["{}"]),
            row("b", &["{}"]),
            row("c", &["{}"]),
            endless,
        ])
        .await;
        assert_eq!((errors.len(), left), (3, vec![("b".into(), 1)]));
        let attached = |n: usize| {
            format!(r#"{{"ok":{{"_rev":"1-{n}","_attachments":{{"x":{{"length":1}}}}}}}}"#)
        };
        let many: Vec<String> = (0..2 * SMALL_REVS_MAX).map(attached).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let (errors, left) = read_rows(&[row("b", &many)]).await;
        let expected = vec![("b".into(), 1), ("b".into(), SMALL_REVS_MAX)];
        assert_eq!((errors.len(), left), (0, expected));
    }
}
