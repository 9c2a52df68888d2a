//! The routes of design functions: `_show`, `_update`, `_list`, `_rewrite`.

use std::sync::Arc;

use database::{DesignDoc, EditMode};
use document::json::member;
use document::{DocId, Rev};
use functions::Lane;
use hyper::header::{HeaderName, HeaderValue, IF_NONE_MATCH};

use super::function_call::{DesignFunction, FunctionRequest, args, document, place, read_body};
use super::path::Call;
use super::rewrite::{self, Base, Meaning, Target};
use super::rules::Rules;
use super::{lists, response};
use crate::app::App;
use crate::document_routes::documents;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use node::Access;
use node::{RewrittenRequest, design_doc, updater};

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
        return rewrite(app, req, access, ddoc, path).await;
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

async fn show(
    app: &App,
    req: &mut Request,
    access: &Access,
    ddoc: Arc<DesignDoc>,
    name: &str,
    id: Option<&str>,
) -> Answer {
    if req.headers.contains_key(IF_NONE_MATCH) {
        let (rev, _) = document(access, id)?;
        let etag = response::etag(&["show", &ddoc.rev, &rev, req.accept()], &req.user);
        if req.none_match(&etag) {
            return Ok(Reply::empty(304).etag(&etag));
        }
    }
    let function = DesignFunction::of(access, &ddoc, &["shows", name])?;
    drop(ddoc);
    let body = read_body(req).await?;
    let place = place(app, access, Lane::Calls).await?;
    let request = FunctionRequest::of(app, req, body);
    let (access, id) = (access.clone(), id.map(str::to_owned));
    let (accept, user) = (req.accept().to_owned(), req.user.clone());
    let args = move |ddoc: &DesignDoc| {
        let (rev, document) = document(&access, id.as_deref())?;
        let etag = response::etag(&["show", &ddoc.rev, &rev, &accept], &user);
        let request = request.json(&access, id.as_deref())?;
        Ok::<_, ApiError>((args(&document, &request), etag))
    };
    let settings = req.settings.clone();
    let read =
        move |reply: &[u8], etag: String| response::show(reply, &etag, settings.showlist_policy());
    function.run(place, args, read).await
}

async fn update(
    app: &App,
    req: &mut Request,
    access: &Access,
    ddoc: Arc<DesignDoc>,
    name: &str,
    id: Option<&str>,
) -> Answer {
    let function = DesignFunction::of(access, &ddoc, &["updates", name])?;
    drop(ddoc);
    let body = read_body(req).await?;
    let (access, updater) = updater(&app.node.auth, access, &req.user);
    let place = place(app, &access, Lane::Calls).await?;
    let request = FunctionRequest::of(app, req, body);
    let args = {
        let (access, id) = (access.clone(), id.map(str::to_owned));
        move |_: &DesignDoc| {
            let (_, document) = document(&access, id.as_deref())?;
            let request = request.json(&access, id.as_deref())?;
            Ok::<_, ApiError>((args(&document, &request), ()))
        }
    };
    let settings = req.settings.clone();
    let read = move |reply: &[u8], ()| response::Update::parse(reply, settings.showlist_policy());
    let mut update = function.run(place, args, read).await?;
    let Some(mut doc) = update.take_doc()? else {
        return update.reply(None);
    };
    if doc.id.is_none() {
        // Refused in the words for an empty id.
        doc.id = Some(DocId::new("")?);
    }
    let _held = req.hold_edit(&doc, update.body_bytes()).await?;
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
    ddoc: Arc<DesignDoc>,
    path: &[String],
) -> Answer {
    let settings = req.settings.clone();
    rewrite::check_limit(req.rewrites, settings.chttpd.rewrite_limit)?;
    let db = access.db.name().clone();
    let design = ddoc.id.strip_prefix("_design/").unwrap_or(&ddoc.id);
    let design = design.to_owned();
    let base = Base {
        db: &db,
        design: &design,
        secure: settings.chttpd.secure_rewrites,
    };
    let rules_max = settings.chttpd.max_rewrite_rules;
    let function = DesignFunction::of(access, &ddoc, &["rewrites"])?;
    let target = match Rewrites::find(app, req, access, ddoc, rules_max).await? {
        Rewrites::Rules(rules) => {
            rules.check(base.secure, rules_max)?;
            let target = rules.target(base, &req.method, path, &req.query)?;
            target.ok_or_else(ApiError::missing)?
        }
        Rewrites::Function => match run_rewrite(app, req, access, function).await? {
            Meaning::Nowhere => return Err(rewrite::no_rules()),
            Meaning::Respond(reply) => return Ok(reply),
            Meaning::Forward(forward) => forward.target(base, &req.query)?,
        },
        Rewrites::None => return Err(rewrite::no_rules()),
    };
    lead(req, base, target).await?;
    // A chain of rewrites must not hold the thread.
    tokio::task::yield_now().await;
    // The server starts over with the request: from here, each time would take more of the thread's stack.
    Ok(Reply::empty(200))
}

async fn run_rewrite(
    app: &App,
    req: &mut Request,
    access: &Access,
    function: DesignFunction,
) -> Result<Meaning, ApiError> {
    let body = read_body(req).await?;
    let place = place(app, access, Lane::Calls).await?;
    let request = FunctionRequest::of(app, req, body);
    let args = {
        let access = access.clone();
        move |_: &DesignDoc| {
            let request = request.rewrite_json(&access)?;
            Ok::<_, ApiError>(([&b"["[..], &request, b"]"].concat(), ()))
        }
    };
    let settings = req.settings.clone();
    let read = move |reply: &[u8], ()| rewrite::of_function(reply, settings.showlist_policy());
    function.run(place, args, read).await
}

/// The rewrites of a design document.
enum Rewrites {
    None,
    Rules(Arc<Rules>),
    Function,
}

/// Longer rules are parsed on a thread that gives way.
const RULES_HERE_BYTES_MAX: usize = 64 << 10;

impl Rewrites {
    /// Finds them. Rules are parsed once for each revision.
    async fn find(
        app: &App,
        req: &Request,
        access: &Access,
        ddoc: Arc<DesignDoc>,
        rules_max: u64,
    ) -> Result<Rewrites, ApiError> {
        // Names may be used again, and revisions of equal documents are equal.
        let id = (access.db.uuid(), ddoc.id.clone());
        let rev = Rev::parse(&ddoc.rev).map_err(|_| ApiError::missing())?;
        let known = app.rewrite_rules.lock().get(&id, &rev);
        if let Some(known) = known {
            return Ok(Rewrites::Rules(known));
        }
        let text = member(&ddoc.json, "rewrites").unwrap_or_default();
        let parsed = match text.first() {
            Some(b'"') => return Ok(Rewrites::Function),
            Some(b'[') if text.len() > RULES_HERE_BYTES_MAX => {
                let parse = move || {
                    let text = member(&ddoc.json, "rewrites").unwrap_or_default();
                    Rules::parse(text, rules_max)
                };
                req.answers.apart(parse).await??
            }
            Some(b'[') => Rules::parse(text, rules_max)?,
            _ => return Ok(Rewrites::None),
        };
        let (rules, bytes) = (Arc::new(parsed), size_of_val(&id) + id.1.len());
        let bytes = bytes + rules.memory_bytes();
        let mut kept = app.rewrite_rules.lock();
        kept.insert(id, rev, rules.clone(), bytes);
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
        if !rewrite::is_the_clients(&name, &req.settings.login_headers)
            && req.headers.get(&name) != Some(&value)
        {
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
