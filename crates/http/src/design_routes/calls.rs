//! The routes of design functions: `_show`, `_update`, `_list`, `_rewrite`.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use database::{DesignDoc, EditMode, Read, ReadOptions};
use document::json::member;
use document::{DocId, Rev};
use functions::{Admission, Lane, Place};
use hyper::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::path::Call;
use super::rewrite::{self, Base, Meaning, Target};
use super::rules::Rules;
use super::{lists, response};
use crate::app::App;
use crate::database_routes::texts;
use crate::document_routes::documents;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use node::Access;
use node::{
    RequestPart, RewrittenRequest, body_given, design_doc, for_rewrite, security_json, updater,
};

type Answer = Result<Reply, ApiError>;

/// The methods that a rewrite function may set.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "COPY", "OPTIONS"];

/// `/{db}/_design/{name}/_show/…`, `_list`, `_update` and `_rewrite`; `id` is that of the design document.
pub async fn route(
    app: &App,
    req: &mut Request,
    access: &Access,
    id: &str,
    part: &str,
    path: Vec<String>,
) -> Answer {
    let ddoc = design_doc(access, id).await?;
    let call = Call::parse(&req.method, part, path)?;
    if let Call::Rewrite { path } = &call {
        return rewrite(app, req, access, &ddoc, path).await;
    }
    call.check(&ddoc)?;
    match call {
        Call::Show { name, id } => show(app, req, access, ddoc, &name, id.as_deref()).await,
        Call::Update { name, id } => update(app, req, access, ddoc, &name, id.as_deref()).await,
        Call::List {
            name,
            ddoc: of,
            view,
        } => lists::list(app, req, access, ddoc, &name, of.as_deref(), &view).await,
        Call::Rewrite { .. } => Err(ApiError::missing()),
    }
}

/// Waits for leave to run a function of the database for its caller.
pub async fn place(app: &App, access: &Access, lane: Lane) -> Result<Place, ApiError> {
    let languages = access.db.languages();
    in_time(app, languages.admission(lane, &access.db.share())).await
}

/// Waits for a place for functions as long as one may wait.
async fn in_time(app: &App, admission: Admission) -> Result<Place, ApiError> {
    let max = app.settings().functions.queue_time_limit_ms;
    let late = functions::Error::Late {
        limit_ms: max.as_millis() as u64,
    };
    match tokio::time::timeout(max, admission).await {
        Ok(place) => Ok(place?),
        Err(_) => Err(late.into()),
    }
}

/// A longer reply of a function is read before another function gets the place: so only as many are in
/// memory at a time as functions may run.
const SHORT_REPLY_BYTES_MAX: usize = 64 << 10;

/// Runs a function on a blocking thread, in the database's turn. Returns what `read` makes of the query
/// server's reply there: a long one takes a while.
async fn run<T: Send + 'static>(
    app: &App,
    access: &Access,
    ddoc: Arc<DesignDoc>,
    path: &[&str],
    args: Vec<u8>,
    read: impl FnOnce(&[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let languages = access.db.languages().clone();
    let place = place(app, access, Lane::Calls).await?;
    let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
    let work = move || {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let reply = languages
            .designs(&place, &ddoc.language)?
            .call(&ddoc, &path, &args)?;
        let _place = Some(place).filter(|_| reply.len() > SHORT_REPLY_BYTES_MAX);
        read(&reply)
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(ApiError::worker_failed)?
}

/// Reads the body for functions; it can be read again.
pub async fn read_body(req: &mut Request) -> Result<Option<Bytes>, ApiError> {
    let body = req.bytes().await?;
    let given = body_given(&req.headers, &body);
    if given {
        req.set_body(body.clone());
    }
    Ok(given.then_some(body))
}

/// The address in the header of `[chttpd] peer_header`.
fn shown_peer(req: &Request) -> Option<IpAddr> {
    let header = req.settings.chttpd.peer_header.as_deref()?;
    req.named_header(header)?.trim().parse().ok()
}

/// The client's part of the request, for functions.
fn request_part<'a>(req: &'a Request, body: Option<&'a [u8]>) -> RequestPart<'a> {
    RequestPart {
        method: &req.method,
        path: &req.path,
        raw_query: req.raw_query.as_deref(),
        requested_path: req.requested_path.as_deref(),
        segments: &req.segments,
        query: &req.query,
        headers: &req.headers,
        client_address: shown_peer(req).or(req.peer),
        user: &req.user,
        body,
    }
}

/// The request object of all functions but rewrites.
pub fn request_json(
    app: &App,
    req: &Request,
    access: &Access,
    id: Option<&str>,
    body: Option<&[u8]>,
) -> Result<Value, node::Error> {
    node::request_json(&app.node, &request_part(req, body), access, id)
}

/// A document's revision, and its text as functions see it.
fn document(access: &Access, id: Option<&str>) -> Result<(String, Vec<u8>), ApiError> {
    let found = match id.map(DocId::new) {
        Some(Ok(id)) => access.db.read(&id, &ReadOptions::for_functions())?,
        Some(Err(_)) | None => Read::Missing,
    };
    Ok(match found {
        Read::Found(doc) => (doc.rev.to_string(), doc.json),
        Read::Missing | Read::Deleted => (String::new(), b"null".to_vec()),
    })
}

/// `[document, request]`
fn args(document: &[u8], request: &Value) -> Vec<u8> {
    let mut args = vec![b'['];
    args.extend_from_slice(document);
    args.push(b',');
    args.extend_from_slice(request.to_string().as_bytes());
    args.push(b']');
    args
}

async fn show(
    app: &App,
    req: &mut Request,
    access: &Access,
    ddoc: Arc<DesignDoc>,
    name: &str,
    id: Option<&str>,
) -> Answer {
    let (rev, document) = document(access, id)?;
    let etag = response::etag(&["show", &ddoc.rev, &rev, req.accept()], &req.user);
    if req.none_match(&etag) {
        return Ok(Reply::empty(304).etag(&etag));
    }
    let body = read_body(req).await?;
    let request = request_json(app, req, access, id, body.as_deref())?;
    let args = args(&document, &request);
    let settings = req.settings.clone();
    let read = move |reply: &[u8]| response::show(reply, &etag, settings.showlist_policy());
    run(app, access, ddoc, &["shows", name], args, read).await
}

async fn update(
    app: &App,
    req: &mut Request,
    access: &Access,
    ddoc: Arc<DesignDoc>,
    name: &str,
    id: Option<&str>,
) -> Answer {
    let body = read_body(req).await?;
    let (access, updater) = updater(&app.node.auth, access, &req.user);
    let (_, document) = document(&access, id)?;
    let request = request_json(app, req, &access, id, body.as_deref())?;
    let args = args(&document, &request);
    let settings = req.settings.clone();
    let read = move |reply: &[u8]| response::Update::parse(reply, settings.showlist_policy());
    let mut update = run(app, &access, ddoc, &["updates", name], args, read).await?;
    let Some(mut doc) = update.take_doc()? else {
        return update.reply(None);
    };
    if doc.id.is_none() {
        // Refused in the words for an empty id.
        doc.id = Some(DocId::new("")?);
    }
    let mode = EditMode::Interactive;
    let written = documents::write_as(req, &access, updater, doc, mode).await?;
    let saved = response::Saved {
        id: written.id().as_str(),
        rev: &written.rev().to_string(),
        status: written.status(),
    };
    update.reply(Some(saved))
}

async fn rewrite(
    app: &App,
    req: &mut Request,
    access: &Access,
    ddoc: &Arc<DesignDoc>,
    path: &[String],
) -> Answer {
    let settings = req.settings.clone();
    rewrite::check_limit(req.rewrites, settings.chttpd.rewrite_limit)?;
    let db = access.db.name().clone();
    let base = Base {
        db: &db,
        design: ddoc.id.strip_prefix("_design/").unwrap_or(&ddoc.id),
        secure: settings.chttpd.secure_rewrites,
    };
    let target = match Rewrites::find(app, access, ddoc, settings.chttpd.max_rewrite_rules).await? {
        Rewrites::Rules(rules) => {
            rules.check(base.secure, settings.chttpd.max_rewrite_rules)?;
            let target = rules.target(base, &req.method, path, &req.query)?;
            target.ok_or_else(ApiError::missing)?
        }
        Rewrites::Function => {
            let body = read_body(req).await?;
            let part = request_part(req, body.as_deref());
            let request = for_rewrite(&part, &db, security_json(access))?;
            let args = format!("[{request}]").into_bytes();
            let read = {
                let settings = settings.clone();
                move |reply: &[u8]| rewrite::of_function(reply, settings.showlist_policy())
            };
            match run(app, access, ddoc.clone(), &["rewrites"], args, read).await? {
                Meaning::Nowhere => return Err(rewrite::no_rules()),
                Meaning::Respond(reply) => return Ok(reply),
                Meaning::Forward(forward) => forward.target(base, &req.query)?,
            }
        }
        Rewrites::None => return Err(rewrite::no_rules()),
    };
    lead(req, base, target).await?;
    // A chain of rewrites must not hold the thread.
    tokio::task::yield_now().await;
    // The server starts over with the request: from here, each time would take more of the thread's stack.
    Ok(Reply::empty(200))
}

/// The rewrites of a design document.
enum Rewrites {
    None,
    Rules(Arc<Rules>),
    Function,
}

/// Longer rules are parsed on a thread for blocking work.
const RULES_HERE_BYTES_MAX: usize = 64 << 10;

impl Rewrites {
    /// Finds them. Rules are parsed once for each revision.
    async fn find(
        app: &App,
        access: &Access,
        ddoc: &Arc<DesignDoc>,
        rules_max: u64,
    ) -> Result<Rewrites, ApiError> {
        let id = format!("{}/{}", access.db.name(), ddoc.id);
        let rev = Rev::parse(&ddoc.rev).map_err(|_| ApiError::missing())?;
        let known = app.rewrite_rules.lock().get(&id, &rev);
        if let Some(known) = known {
            return Ok(Rewrites::Rules(known));
        }
        let text = member(&ddoc.json, "rewrites").unwrap_or_default();
        let parsed = match text.first() {
            Some(b'"') => return Ok(Rewrites::Function),
            Some(b'[') if text.len() > RULES_HERE_BYTES_MAX => {
                let ddoc = ddoc.clone();
                texts::blocking(move || {
                    let text = member(&ddoc.json, "rewrites").unwrap_or_default();
                    Rules::parse(text, rules_max)
                })
                .await?
            }
            Some(b'[') => Rules::parse(text, rules_max)?,
            _ => return Ok(Rewrites::None),
        };
        let (rules, bytes) = (Arc::new(parsed), id.len());
        let bytes = bytes + rules.memory_bytes();
        let mut kept = app.rewrite_rules.lock();
        kept.insert(&id, rev, rules.clone(), bytes);
        Ok(Rewrites::Rules(rules))
    }
}

/// Changes the request as the rewrite specifies. Its rights are checked where it is routed.
async fn lead(req: &mut Request, base: Base<'_>, target: Target) -> Result<(), ApiError> {
    let broken = |what: &str| ApiError::new(500, "rewrite_error", format!("bad {what}"));
    let mut changed = req.rewritten.take().is_some_and(|r| r.changed);
    req.lead_to(&target.uri);
    if let Some(method) = target.method.map(|m| m.to_ascii_uppercase()) {
        if !METHODS.contains(&method.as_str()) {
            return Err(broken("method"));
        }
        changed |= method != req.method;
        req.method = method;
        req.find_route();
    }
    for (name, value) in target.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| broken("headers"))?;
        let value = HeaderValue::from_str(&value).map_err(|_| broken("headers"))?;
        if !rewrite::is_the_clients(&name) && req.headers.get(&name) != Some(&value) {
            changed = true;
            req.headers.insert(name, value);
        }
    }
    if let Some(body) = target.body {
        let differs = !req.has_body(&body);
        changed |= differs;
        match differs {
            true => req.set_made_body(body).await?,
            false => req.set_body(body),
        }
    }
    req.rewritten = Some(RewrittenRequest {
        db: base.db.to_owned(),
        secure: base.secure,
        changed,
    });
    Ok(())
}
