//! Many documents written in one request: `_bulk_docs`.

use std::time::Instant;

use bytes::Bytes;
use config::settings::Couchdb;
use database::{EditMode, Outcome};
use document::{BulkDocs, DocError, DocId, EditDoc, Rev, parse_some_bulk_docs, write_json_string};
use serde_json::{Value, json};
use telemetry::State;

use crate::app::App;
use crate::document_routes::write_mode::WriteMode;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::reply::answers::Answers;
use crate::request::{Request, long_text};
use node::Access;

type Answer = Result<Reply, ApiError>;

/// The outcomes of more documents are written as text by threads that give way.
const WRITTEN_HERE_MAX: usize = 10_000;

async fn parse(
    req: &mut Request,
    body: Bytes,
    docs_max: u64,
    gives_way: bool,
) -> Result<BulkDocs, ApiError> {
    let max = usize::try_from(docs_max).unwrap_or(usize::MAX);
    let length = body.len();
    let work = move || {
        let _parses = telemetry::enter(State::Parse);
        parse_some_bulk_docs(&body, max)
    };
    match req.process(length, gives_way, work).await? {
        Err(DocError::TooManyDocs) => Err(ApiError::too_many("max_bulk_docs_count", docs_max)),
        bulk => Ok(bulk?),
    }
}

/// Runs an update here, or, when it gives way, on threads of a lower priority.
async fn updated<T: Send + 'static>(
    app: &App,
    update: impl Future<Output = Result<T, database::Error>> + Send + 'static,
    gives_way: bool,
) -> Result<T, ApiError> {
    if !gives_way {
        return Ok(update.await?);
    }
    // Ended when the client goes, as it would be here: what the body takes of the memory is free then.
    let mut update = Ends(app.node.replicator.runtime().spawn(update));
    let done = (&mut update.0).await;
    Ok(done.map_err(ApiError::worker_failed)??)
}

/// A task that ends when its caller stops waiting.
struct Ends<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Ends<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub async fn bulk_docs(app: &App, req: &mut Request, access: &Access) -> Answer {
    req.require_json()?;
    let settings = req.settings.clone();
    let bytes = req.required_text().await?;
    let started = Instant::now();
    let gives_way = long_text::gives_way(bytes.len());
    let docs_max = settings.couchdb.max_bulk_docs_count;
    let bulk = parse(req, bytes, docs_max, gives_way).await?;
    let parse_us = started.elapsed().as_micros() as u64;
    let mut docs = bulk.docs;
    let count = docs.len();
    req.bulk_docs = Some(count as u64);
    if bulk.all_or_nothing {
        return write(&req.answers, count, move || all_or_nothing(&docs)).await;
    }
    let mode = match bulk.new_edits {
        Some(false) => EditMode::Replicated,
        _ => EditMode::Interactive,
    };
    name_and_check(app, &mut docs, &settings.couchdb)?;
    let ids: Vec<DocId> = docs.iter().filter_map(|d| d.id.clone()).collect();
    let revs: Vec<Option<Rev>> = match mode {
        EditMode::Replicated => docs
            .iter()
            .map(|d| d.rev_path().and_then(|p| p.newest()))
            .collect(),
        EditMode::Interactive => vec![],
    };
    let refused = match access.require_design_admin(&req.user) {
        Ok(()) => None,
        Err(e) => {
            docs.retain(|d| !d.id.as_ref().is_some_and(DocId::is_design));
            Some(e)
        }
    };
    let write_mode = WriteMode::of(req, access.is_alone, bulk.w)?.of_edits(mode);
    let caller = req.caller();
    let (db, durability) = (access.db.clone(), write_mode.durability);
    let update = async move { db.update_bulk_as(caller, docs, mode, durability).await };
    let (outcomes, timing) = updated(app, update, gives_way).await?;
    let write_mode = write_mode.once_written(&timing);
    let outcomes = match refused {
        None => outcomes,
        Some(e) => with_refused_designs(&ids, outcomes, &e.into()),
    };
    let mut written = outcomes.iter().map(|o| matches!(o, Outcome::Ok { .. }));
    let accepted = write_mode.accepted && written.any(|is| is);
    let names = access.db.is_limited();
    let json = move || outcomes_json(&ids, &revs, &outcomes, accepted, names);
    let json = write(&req.answers, count, json).await?;
    let mut reply = Reply::json_bytes(if accepted { 202 } else { 201 }, json);
    reply.timing.parse_us = parse_us;
    reply.timing.wait_us = timing.wait_us;
    reply.timing.commit_us = timing.commit_us;
    Ok(reply)
}

/// Assigns ids to documents without one, and checks all against the limits.
fn name_and_check(app: &App, docs: &mut [EditDoc], limits: &Couchdb) -> Result<(), ApiError> {
    for doc in docs {
        if doc.id.is_none() {
            doc.id = Some(DocId::new(&app.node.new_uuid())?);
        }
        node::check_document(doc, limits)?;
    }
    Ok(())
}

/// Puts the refusal of each design document where it stood among the others' outcomes.
fn with_refused_designs(ids: &[DocId], written: Vec<Outcome>, e: &ApiError) -> Vec<Outcome> {
    let error = if e.status == 401 {
        "unauthorized"
    } else {
        "forbidden"
    };
    let mut written = written.into_iter();
    ids.iter()
        .filter_map(|id| match id.is_design() {
            true => Some(Outcome::Refused(error.into(), e.reason.clone())),
            false => written.next(),
        })
        .collect()
}

fn all_or_nothing(docs: &[document::EditDoc]) -> Reply {
    let refused: Vec<Value> = docs
        .iter()
        .map(|d| {
            json!({
                "id": d.id.as_ref().map(DocId::as_str),
                "rev": "0-",
                "error": "not_implemented",
                "reason": "all_or_nothing is not supported",
            })
        })
        .collect();
    Reply::json(417, &Value::Array(refused))
}

/// Writes the outcomes of this number of documents.
async fn write<T: Send + 'static>(
    answers: &Answers,
    count: usize,
    write: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    match count > WRITTEN_HERE_MAX {
        true => answers.apart(write).await,
        false => Ok(write()),
    }
}

/// One object a document; of replicated edits, whose `revs` are known, only those that failed.
/// `accepted`: by fewer replicas than requested. `names`: errors have the member `name` too, without
/// which PouchDB ends a replication at an edit that is refused.
fn outcomes_json(
    ids: &[DocId],
    revs: &[Option<Rev>],
    outcomes: &[Outcome],
    accepted: bool,
    names: bool,
) -> Vec<u8> {
    let replicated = !revs.is_empty();
    let mut out = Vec::with_capacity(outcomes.len() * 100 + 3);
    out.push(b'[');
    for (i, (id, outcome)) in ids.iter().zip(outcomes).enumerate() {
        if replicated && matches!(outcome, Outcome::Ok { .. }) {
            continue;
        }
        if out.len() > 1 {
            out.push(b',');
        }
        let (error, reason) = match outcome {
            Outcome::Ok { rev } => {
                out.extend_from_slice(b"{\"ok\":true,\"id\":");
                write_json_string(id.as_str(), &mut out);
                out.extend_from_slice(b",\"rev\":");
                rev.write_json_to(&mut out);
                if accepted {
                    out.extend_from_slice(b",\"accepted\":true");
                }
                out.push(b'}');
                continue;
            }
            Outcome::Conflict => ("conflict", "Document update conflict."),
            Outcome::Refused(error, reason) => (error.as_ref(), reason.as_ref()),
        };
        out.extend_from_slice(b"{\"id\":");
        write_json_string(id.as_str(), &mut out);
        if let Some(Some(rev)) = revs.get(i) {
            out.extend_from_slice(b",\"rev\":");
            rev.write_json_to(&mut out);
        }
        out.extend_from_slice(b",\"error\":");
        write_json_string(error, &mut out);
        if names {
            out.extend_from_slice(b",\"name\":");
            write_json_string(error, &mut out);
        }
        out.extend_from_slice(b",\"reason\":");
        write_json_string(reason, &mut out);
        out.push(b'}');
    }
    out.extend_from_slice(b"]\n");
    out
}
