//! Many documents at once: `_bulk_docs` and `_bulk_get`.

use std::time::Instant;

use bytes::Bytes;
use config::settings::Couchdb;
use database::{DatabaseAs, EditMode, Outcome, ReadOptions, WantedBytes, WhichRevs};
use document::multipart::{PartHead, Writer};
use document::{BulkDocs, DocError, DocId, EditDoc, Rev, parse_some_bulk_docs, write_json_string};
use serde_json::{Value, json};
use telemetry::State;

use crate::app::App;
use crate::connection::server::others_came;
use crate::document_routes::attachments::{Parts, boundary, push_doc_multipart};
use crate::document_routes::documents::{parse_revs, read_options};
use crate::document_routes::write_mode::WriteMode;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::reply::stream::{CHUNK_BYTES, pull, pull_apart, pull_blocking};
use crate::request::Request;
use crate::request::body::BodyClass;
use node::{Access, caller};

type Answer = Result<Reply, ApiError>;

/// A longer body is read on a thread that gives way to others, so that requests of this one's thread need not wait.
const PARSED_HERE_BYTES_MAX: usize = 64 << 10;
/// And a longer one still on a thread for blocking work: the few that give way are for what takes milliseconds.
const PARSED_APART_BYTES_MAX: usize = 8 << 20;

/// More documents are read by threads that give way.
const READ_HERE_MAX: usize = 16;

/// Content type of a part that is not a document.
const ERROR_PART: &str = "application/json; error=\"true\"";

async fn parse(body: Bytes, docs_max: u64, gives_way: bool) -> Result<BulkDocs, ApiError> {
    let max = usize::try_from(docs_max).unwrap_or(usize::MAX);
    let length = body.len();
    let work = move || {
        let _parses = telemetry::enter(State::Parse);
        parse_some_bulk_docs(&body, max)
    };
    let parsed = if length > PARSED_APART_BYTES_MAX {
        tokio::task::spawn_blocking(work).await.ok()
    } else if gives_way {
        database::apart(work).await.ok()
    } else {
        // Who is alone is served faster here.
        Some(work())
    };
    match parsed.ok_or_else(ApiError::worker_failed)? {
        Err(DocError::TooManyDocs) => Err(ApiError::too_many("max_bulk_docs_count", docs_max)),
        bulk => Ok(bulk?),
    }
}

/// Has an update made here, or, when it gives way, by threads of a lower priority.
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

/// A task that ends when nobody waits for it.
struct Ends<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Ends<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub async fn bulk_docs(app: &App, req: &mut Request, access: &Access) -> Answer {
    req.require_json()?;
    let settings = req.settings.clone();
    let bytes = req.required_bytes(BodyClass::Many).await?;
    let started = Instant::now();
    let gives_way = bytes.len() > PARSED_HERE_BYTES_MAX && others_came();
    let bulk = parse(bytes, settings.couchdb.max_bulk_docs_count, gives_way).await?;
    let parse_us = started.elapsed().as_micros() as u64;
    let mut docs = bulk.docs;
    req.bulk_docs = Some(docs.len() as u64);
    if bulk.all_or_nothing {
        return Ok(all_or_nothing(&docs));
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
    let caller = caller(&req.user);
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
    let mut reply = Reply::json_bytes(
        if accepted { 202 } else { 201 },
        outcomes_json(&ids, &revs, &outcomes, accepted),
    );
    reply.timing.parse_us = parse_us;
    reply.timing.wait_us = timing.wait_us;
    reply.timing.commit_us = timing.commit_us;
    Ok(reply)
}

/// Gives documents without an id one, and checks all against the limits.
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
            true => Some(Outcome::Refused(error.into(), e.reason.to_string())),
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

/// One object a document; of replicated edits, whose `revs` are known, only those that failed. `accepted`: by fewer replicas
/// than asked for.
fn outcomes_json(
    ids: &[DocId],
    revs: &[Option<Rev>],
    outcomes: &[Outcome],
    accepted: bool,
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
            Outcome::Refused(error, reason) => (error.as_ref(), reason.as_str()),
        };
        out.extend_from_slice(b"{\"id\":");
        write_json_string(id.as_str(), &mut out);
        if let Some(Some(rev)) = revs.get(i) {
            out.extend_from_slice(b",\"rev\":");
            rev.write_json_to(&mut out);
        }
        out.extend_from_slice(b",\"error\":");
        write_json_string(error, &mut out);
        out.extend_from_slice(b",\"reason\":");
        write_json_string(reason, &mut out);
        out.push(b'}');
    }
    out.extend_from_slice(b"]\n");
    out
}

/// Parameters of a GET that `_bulk_get` refuses: they are of one document.
const ONE_DOCUMENT_ONLY: [&str; 5] = ["open_revs", "new_edits", "w", "rev", "atts_since"];

pub async fn bulk_get(req: &mut Request, access: &Access) -> Answer {
    req.require_json()?;
    let mut body = req.json_object(BodyClass::Many).await?;
    let docs = match body.remove("docs") {
        None => return Err(ApiError::bad_request("Missing JSON list of 'docs'.")),
        Some(Value::Array(docs)) => docs,
        Some(_) => return Err(ApiError::bad_request("`docs` must be an array.")),
    };
    if let Some((name, _)) = req
        .query
        .0
        .iter()
        .find(|(name, _)| ONE_DOCUMENT_ONLY.contains(&name.as_str()))
    {
        return Err(ApiError::bad_request(format!(
            "\"{name}\" query parameter is not acceptable"
        )));
    }
    let limit = req.settings.couchdb.max_bulk_get_count;
    if docs.len() as u64 > limit {
        return Err(ApiError::too_many("max_bulk_get_count", limit));
    }
    if docs
        .iter()
        .any(|d| d.get("id").is_some_and(|id| !id.is_string()))
    {
        return Err(ApiError::bad_request("`id` must be a string"));
    }
    let query = read_options(&req.query)?;
    let options = ReadOptions {
        revs: query.revs,
        latest: query.latest,
        attachments: query.attachments,
        att_encoding_info: query.att_encoding_info,
        ..ReadOptions::default()
    };
    let gives_way = docs.len() > READ_HERE_MAX && others_came();
    let mut results = BulkGet {
        db: access.db.clone(),
        options,
        docs: docs.into_iter(),
        state: BulkGetState::Head,
    };
    let multipart = ["mixed", "related"].into_iter().find(|subtype| {
        !req.accepts("application/json") && req.accepts(&format!("multipart/{subtype}"))
    });
    if let Some(subtype) = multipart {
        return results.multipart(subtype);
    }
    if results.reads_attachments() {
        return pull_blocking("application/json", move |out| results.next_chunk(out)).await;
    }
    let next = move |out: &mut Vec<u8>| results.next_chunk(out);
    match gives_way {
        true => pull_apart("application/json", next).await,
        false => pull("application/json", next),
    }
}

enum BulkGetState {
    Head,
    First,
    More,
    Done,
}

struct BulkGet {
    db: DatabaseAs,
    options: ReadOptions,
    docs: std::vec::IntoIter<Value>,
    state: BulkGetState,
}

impl BulkGet {
    /// All documents, each a part: as it is, or itself `multipart/related` with the attachments that follow it.
    fn multipart(mut self, subtype: &str) -> Answer {
        let (outer, inner) = (boundary()?, boundary()?);
        let mut writer = Writer::new(&outer)?;
        let content_type = writer.content_type(subtype);
        Parts::reply_as_made(&content_type, move |parts| {
            let Some(doc) = self.docs.next() else {
                let mut end = vec![];
                writer.end(&mut end);
                parts.push_text(&end);
                return Ok(false);
            };
            self.push_part(&doc, &mut writer, &inner, parts)?;
            Ok(true)
        })
    }

    fn push_part(
        &self,
        doc: &Value,
        writer: &mut Writer,
        inner: &str,
        parts: &mut Parts,
    ) -> Result<(), ApiError> {
        let mut begin = |content_type: &str, of: Option<(&str, &str)>, parts: &mut Parts| {
            let mut text = vec![];
            let head = PartHead {
                content_type,
                // As in CouchDB, only a part with attachments says which document it is.
                doc: of.filter(|_| content_type.starts_with("multipart/")),
                ..PartHead::default()
            };
            writer.part(&head, &mut text);
            parts.push_text(&text);
        };
        let found = self.options_of(doc).and_then(|mut options| {
            if options.attachments == WantedBytes::None {
                options.attachments = WantedBytes::All;
            }
            self.found(doc, &options)
        });
        let found = match found {
            Ok(found) => found,
            Err(e) => {
                let (id, rev) = (doc.get("id"), doc.get("rev"));
                let e = json!({"id": id, "rev": rev, "error": e.error, "reason": e.reason});
                begin(ERROR_PART, None, parts);
                parts.push_text(e.to_string().as_bytes());
                return Ok(());
            }
        };
        for rev in found {
            match rev {
                Ok(read) => {
                    let rev = read.rev.to_string();
                    let of = Some((read.id.as_str(), rev.as_str()));
                    let mut begin =
                        |content_type: &str, parts: &mut Parts| begin(content_type, of, parts);
                    push_doc_multipart(&self.db, &read, inner, &mut begin, parts)?;
                }
                Err(rev) => {
                    let rev = rev.map_or("undefined".into(), |rev| rev.to_string());
                    let e = json!({"id": doc.get("id"), "rev": rev, "error": "not_found", "reason": "missing"});
                    begin(ERROR_PART, None, parts);
                    parts.push_text(e.to_string().as_bytes());
                }
            }
        }
        Ok(())
    }

    /// Whether some document's attachments are asked for.
    fn reads_attachments(&self) -> bool {
        self.options.attachments != WantedBytes::None
            || (self.docs.as_slice().iter()).any(|doc| doc.get("atts_since").is_some())
    }

    fn next_chunk(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        if matches!(self.state, BulkGetState::Done) {
            return Ok(false);
        }
        if matches!(self.state, BulkGetState::Head) {
            out.extend_from_slice(b"{\"results\":[");
            self.state = BulkGetState::First;
        }
        while let Some(doc) = self.docs.next() {
            if matches!(self.state, BulkGetState::More) {
                out.push(b',');
            }
            self.state = BulkGetState::More;
            self.write(&doc, out)?;
            if out.len() >= CHUNK_BYTES {
                return Ok(true);
            }
        }
        out.extend_from_slice(b"]}\n");
        self.state = BulkGetState::Done;
        Ok(true)
    }

    fn write(&self, doc: &Value, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let id = doc.get("id").cloned().unwrap_or(Value::Null);
        out.extend_from_slice(format!("{{\"id\":{id},\"docs\":[").as_bytes());
        let options = self.options_of(doc);
        let found = options.and_then(|options| Ok((self.found(doc, &options)?, options)));
        match found {
            Err(e) => {
                // With an id that is none, the revision is not looked at.
                let rev = match e.error.starts_with("illegal_") {
                    true => Value::Null,
                    false => doc.get("rev").cloned().unwrap_or(Value::Null),
                };
                write_error(out, &id, &rev, &e.error, &e.reason);
            }
            Ok((found, options)) => {
                for (i, rev) in found.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    match rev {
                        Ok(doc) => {
                            out.extend_from_slice(b"{\"ok\":");
                            match options.attachments {
                                WantedBytes::None => out.extend_from_slice(&doc.json),
                                _ => {
                                    let info = options.att_encoding_info;
                                    out.extend(self.db.json_with_bytes(doc, info)?);
                                }
                            }
                            out.push(b'}');
                        }
                        Err(rev) => {
                            let rev = rev.as_ref().map_or("undefined".into(), Rev::to_string);
                            write_error(out, &id, &rev.into(), "not_found", "missing");
                        }
                    }
                }
            }
        }
        out.extend_from_slice(b"]}");
        Ok(())
    }

    /// Returns how a document is read. As in CouchDB, an empty `atts_since` has no effect.
    fn options_of(&self, doc: &Value) -> Result<ReadOptions, ApiError> {
        let mut options = self.options.clone();
        if let Some(since) = doc.get("atts_since") {
            let revs = parse_revs(since)?;
            if !revs.is_empty() {
                options.attachments = WantedBytes::Since(revs);
            }
        }
        Ok(options)
    }

    #[allow(clippy::type_complexity)]
    fn found(
        &self,
        doc: &Value,
        options: &ReadOptions,
    ) -> Result<Vec<Result<database::ReadDoc, Option<Rev>>>, ApiError> {
        let Some(id) = doc.get("id").and_then(Value::as_str) else {
            return Err(ApiError::bad_request("document must be a JSON object"));
        };
        let id = DocId::new(id)?;
        let rev = match doc.get("rev") {
            None | Some(Value::Null) => None,
            Some(Value::String(rev)) => Some(Rev::parse(rev)?),
            Some(_) => return Err(document::RevError.into()),
        };
        let which = match &rev {
            None => WhichRevs::All,
            Some(rev) => WhichRevs::List(vec![rev.clone()]),
        };
        Ok(match self.db.open_revs(&id, &which, options)? {
            Some(found) => found.into_iter().map(|f| f.map_err(Some)).collect(),
            None => vec![Err(rev)],
        })
    }
}

fn write_error(out: &mut Vec<u8>, id: &Value, rev: &Value, error: &str, reason: &str) {
    let e = json!({"error": {"id": id, "rev": rev, "error": error, "reason": reason}});
    out.extend_from_slice(e.to_string().as_bytes());
}
