//! The routes of design functions: `_show`, `_update`, `_list`, `_rewrite`.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use database::{DesignDoc, EditMode, Read, ReadOptions};
use document::json::member;
use document::{DocId, Rev, parse_document};
use functions::{Admission, Lane, Place};
use hyper::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::path::Call;
use super::rewrite::{self, Base, Led, Target};
use super::rules::Rules;
use super::{lists, response};
use crate::app::App;
use crate::database_routes::texts;
use crate::document_routes::documents;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use node::Access;
use node::{Rewritten, Said, body_given, design_doc, for_rewrite, security_json, updater};

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

/// Waits for leave to run a function of the database.
pub async fn place(app: &App, access: &Access, lane: Lane) -> Result<Place, ApiError> {
    let languages = access.db.languages();
    in_time(app, languages.admission(lane, access.db.name())).await
}

/// Waits for a place for functions as long as one may wait.
pub async fn in_time(app: &App, admission: Admission) -> Result<Place, ApiError> {
    let max = app.settings().functions.queue_time_limit_ms;
    let late = functions::Error::Late {
        limit_ms: max.as_millis() as u64,
    };
    match tokio::time::timeout(max, admission).await {
        Ok(place) => Ok(place?),
        Err(_) => Err(late.into()),
    }
}

/// Runs a function on a blocking thread, in the database's turn. Returns the query server's reply.
pub async fn run(
    app: &App,
    access: &Access,
    ddoc: Arc<DesignDoc>,
    path: &[&str],
    args: Vec<u8>,
) -> Result<Vec<u8>, ApiError> {
    let languages = access.db.languages().clone();
    let place = place(app, access, Lane::Calls).await?;
    let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
    let work = move || {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        languages
            .designs(&place, &ddoc.language)?
            .call(&ddoc, &path, &args)
    };
    let reply = tokio::task::spawn_blocking(work)
        .await
        .map_err(ApiError::worker_failed)?;
    Ok(reply?)
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
fn said<'a>(req: &'a Request, body: Option<&'a [u8]>) -> Said<'a> {
    Said {
        method: &req.method,
        path: &req.path,
        raw_query: req.raw_query.as_deref(),
        requested_path: req.requested_path.as_deref(),
        segments: &req.segments,
        query: &req.query,
        headers: &req.headers,
        peer: shown_peer(req).or(req.peer),
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
    node::request_json(&app.node, &said(req, body), access, id)
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
    let reply = run(
        app,
        access,
        ddoc,
        &["shows", name],
        args(&document, &request),
    )
    .await?;
    response::show(&reply, &etag, req.settings.showlist_policy())
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
    let reply = run(
        app,
        &access,
        ddoc,
        &["updates", name],
        args(&document, &request),
    )
    .await?;
    let update = response::Update::parse(&reply)?;
    let settings = req.settings.clone();
    let policy = settings.showlist_policy();
    let Some(doc) = &update.doc else {
        return update.reply(None, policy);
    };
    let mut doc = parse_document(doc.get().as_bytes())?;
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
    update.reply(Some(saved), policy)
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
            let said = said(req, body.as_deref());
            let request = for_rewrite(&said, &db, security_json(access))?;
            let args = format!("[{request}]").into_bytes();
            let reply = run(app, access, ddoc.clone(), &["rewrites"], args).await?;
            let policy = settings.showlist_policy();
            match rewrite::of_function(base, &req.query, &reply, policy)? {
                Led::Nowhere => return Err(rewrite::no_rules()),
                Led::Respond(reply) => return Ok(reply),
                Led::Forward(target) => target,
            }
        }
        Rewrites::None => return Err(rewrite::no_rules()),
    };
    lead(req, base, target)?;
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
fn lead(req: &mut Request, base: Base<'_>, target: Target) -> Result<(), ApiError> {
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
        changed |= !req.has_body(&body);
        req.set_body(body);
    }
    req.rewritten = Some(Rewritten {
        db: base.db.to_owned(),
        secure: base.secure,
        changed,
    });
    Ok(())
}
