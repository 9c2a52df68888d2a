//! Handling of requests on a server that is one of several: reads wait until this server has
//! applied acknowledged writes, and their responses wait until the data is final. If this server
//! cannot answer, another one does.

use std::sync::Arc;

use bytes::Bytes;
use cluster::{NodeId, SlotNumber};
use database::Database;
use futures_util::StreamExt as _;
use hyper::header::{HeaderName, HeaderValue};
use member::{Gateway, Member, Seen};
use routes::Cluster;

use crate::app::App;
use crate::errors::ApiError;
use crate::metrics::traced::{TRACE_PARENT, Traced};
use crate::reply::{Body, Pieces, Reply, StreamError};
use crate::request::Request;
use crate::request::body::BodyClass;

type Answer = Result<Reply, ApiError>;

/// The relation of a request to writes of other servers.
enum Kind {
    /// It is ordered elsewhere, or reads state of this server only.
    Plain,
    /// It must see acknowledged writes, and returns no data.
    Informed,
    /// It shows documents.
    Read,
}

impl Kind {
    fn of(req: &Request) -> Kind {
        let Cluster::Documents { blind_writes } = req.row.cluster else {
            return Kind::Plain;
        };
        if req.row.reads(&req.method) {
            // The client accepts the state of this server.
            let here = req.query.get("r") == Some("1")
                || req.query.get("update") == Some("false")
                || matches!(req.query.get("stale"), Some("ok" | "update_after"));
            return if here { Kind::Plain } else { Kind::Read };
        }
        match blind_writes.contains(&req.method.as_str()) {
            true => Kind::Plain,
            false => Kind::Informed,
        }
    }

    fn is_get(req: &Request) -> bool {
        matches!(req.method.as_str(), "GET" | "HEAD")
    }
}

/// Called before authentication: ensures that this server knows, or knew a moment ago, the shared
/// state, such as the admins. If it cannot, reads use its last known state, and changes are made by
/// another server, whose response this returns.
pub async fn hold(member: &Arc<Member>, req: &mut Request) -> Result<Option<Reply>, ApiError> {
    if is_of_this_node(req) {
        return Ok(None);
    }
    match member.gateway().hold_control().await {
        Err(e) if !Kind::is_get(req) && req.row.cluster != Cluster::Session => {
            elsewhere(member, req, &e).await.map(Some)
        }
        _ => Ok(None),
    }
}

/// Whether a request is for this node in particular, or must be answered whatever the state of the
/// others.
fn is_of_this_node(req: &Request) -> bool {
    match req.row.cluster {
        Cluster::Node | Cluster::Local => true,
        Cluster::Documents { .. } => Kind::is_get(req) && matches!(Kind::of(req), Kind::Plain),
        Cluster::Control | Cluster::Session => false,
    }
}

/// Answers a request for a database, with `here` when this server can.
pub async fn database<'r>(
    app: &'r App,
    member: &Arc<Member>,
    req: &'r mut Request,
    name: &'r str,
    here: impl for<'a> AsyncFnOnce(&'a App, &'a mut Request, &'a str) -> Answer,
) -> Answer {
    let gateway = member.gateway();
    let is_whole = req.row.cluster == Cluster::Control;
    if !app.node.databases.exists(name) {
        // It may have been made elsewhere.
        if let Err(e) = gateway.fresh_control().await {
            return elsewhere(member, req, &e).await;
        }
    }
    if is_whole {
        return here(app, req, name).await;
    }
    let Ok(db) = app.node.databases.get(name) else {
        return here(app, req, name).await;
    };
    refuse_jobs(req, name)?;
    let slots = slots_of(gateway, &db, req);
    drop(db);
    let kind = Kind::of(req);
    if matches!(kind, Kind::Plain) {
        return here(app, req, name).await;
    }
    if gateway.is_going(name) {
        return Err(ApiError::busy(member::GOING.into()));
    }
    let seen = match gateway.fresh_slots(slots).await {
        Ok(seen) => seen,
        Err(e) => return elsewhere(member, req, &e).await,
    };
    let reply = here(app, req, name).await;
    if !matches!(kind, Kind::Read) {
        return reply;
    }
    // Of a stream, what it begins with: what fails before the first byte is an answer of its own.
    match gateway.settle(&seen).await {
        Ok(()) => reply.map(|reply| settling_reply(gateway, seen, reply)),
        // Another server may lack data that is not final yet. A body has been read by now.
        Err(e) if Kind::is_get(req) => elsewhere(member, req, &e).await,
        Err(e) => Err(ApiError::busy(e.to_string())),
    }
}

/// Replications would run on every node.
fn refuse_jobs(req: &Request, name: &str) -> Result<(), ApiError> {
    let is_design = req.segment(1) == Some("_design");
    let writes = !matches!(req.method.as_str(), "GET" | "HEAD") && !is_design;
    match writes && replicator::is_replicator_db(name) {
        true => Err(database::Error::NotInCluster(
            "a cluster does not run replications of _replicator databases yet; use _replicate, or a replicator elsewhere",
        )
        .into()),
        false => Ok(()),
    }
}

/// The slots that an answer depends on.
fn slots_of(gateway: &Gateway, db: &Database, req: &Request) -> Vec<SlotNumber> {
    let id = match (req.segment(1), req.segment(2)) {
        (Some("_design" | "_local"), Some(name)) => {
            let kind = req.segment(1).unwrap_or_default();
            let is_view = req.segment(3).is_some_and(|part| part.starts_with('_'));
            (!is_view).then(|| format!("{kind}/{name}"))
        }
        (Some(id), _) if !id.starts_with('_') => Some(id.to_owned()),
        _ => None,
    };
    match id {
        Some(id) => vec![gateway.slot(db, &id)],
        None => gateway.slots(db),
    }
}

/// Each piece of a stream is sent once its contents are final.
fn settling_reply(gateway: &Arc<Gateway>, seen: Seen, mut reply: Reply) -> Reply {
    let gateway = gateway.clone();
    reply.body = match reply.body {
        whole @ (Body::Full(_) | Body::Static(_)) => whole,
        Body::Stream(pieces) => Body::Stream(settling(gateway, seen, pieces)),
        Body::Sized(pieces, length) => Body::Sized(settling(gateway, seen, pieces), length),
    };
    reply
}

fn settling(gateway: Arc<Gateway>, seen: Seen, pieces: Pieces) -> Pieces {
    let seen = Arc::new(seen);
    Box::pin(pieces.then(move |piece| {
        let (gateway, seen) = (gateway.clone(), seen.clone());
        async move {
            let piece = piece?;
            // A feed's heartbeats show nothing.
            if piece.iter().all(u8::is_ascii_whitespace) {
                return Ok(piece);
            }
            let done = gateway.settle(&seen).await;
            done.map_err(|e| StreamError::from(e.to_string()))?;
            Ok(piece)
        }
    }))
}

/// Forwards a request that this server cannot answer to another one.
async fn elsewhere(member: &Member, req: &mut Request, why: &member::Error) -> Answer {
    let unavailable = || ApiError::busy(why.to_string());
    if req.headers.contains_key(member::CLIENT) {
        return Err(unavailable());
    }
    let passed = pass_on(member, None, req).await?;
    passed.ok_or_else(unavailable)
}

/// Forwards a request to a node by its name.
pub async fn by_name(member: &Member, req: &mut Request, name: &str) -> Answer {
    let Some(node) = member.named(name) else {
        let reason = format!("no such node: {name}");
        return Err(ApiError::new(404, "not_found", reason));
    };
    let passed = pass_on(member, Some(node), req).await?;
    passed.ok_or_else(|| ApiError::busy(format!("the node {name} does not answer")))
}

async fn pass_on(
    member: &Member,
    to: Option<NodeId>,
    req: &mut Request,
) -> Result<Option<Reply>, ApiError> {
    let body = match req.method.as_str() {
        "GET" | "HEAD" | "DELETE" | "COPY" => Bytes::new(),
        _ => req.bytes_of(BodyClass::Many).await?,
    };
    let target = match &req.raw_query {
        Some(query) => format!("{}?{query}", req.path),
        None => req.path.clone(),
    };
    let mut headers = req.headers.clone();
    // Of the body as it came.
    for name in [
        hyper::header::CONTENT_ENCODING,
        hyper::header::CONTENT_LENGTH,
        hyper::header::TRANSFER_ENCODING,
    ] {
        headers.remove(name);
    }
    if let Some(place) = req.traced.and_then(Traced::header) {
        headers.insert(TRACE_PARENT, place);
    }
    let repeatable = matches!(Kind::of(req), Kind::Read) || Kind::is_get(req);
    let passed = member.pass_on(to, &req.method, &target, headers, body, repeatable);
    let Some(passed) = passed.await else {
        return Ok(None);
    };
    let (status, headers, body) = passed;
    let pieces = futures_util::stream::unfold(body, |mut body| async {
        let piece = body.next().await?;
        Some((piece.map_err(|e| StreamError::from(e.to_string())), body))
    });
    let mut reply = Reply::stream(
        HeaderValue::from_static("application/json"),
        Box::pin(pieces),
    );
    reply.status = status.as_u16();
    let is_own = |name: &HeaderName| {
        use hyper::header as h;
        [h::CONNECTION, h::TRANSFER_ENCODING, h::SERVER, h::DATE].contains(name)
    };
    reply.headers = headers
        .iter()
        .filter(|(name, _)| !is_own(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    Ok(Some(reply))
}

/// How much of the users database is applied here, as the sum of its update seqs; read it before
/// authentication. `None` for a server without a cluster.
pub fn users_seen(app: &App) -> Option<u64> {
    app.node.member()?;
    let name = &app.node.settings().chttpd_auth.authentication_db;
    let seq = |db: Arc<Database>| db.all_shards().iter().map(|s| s.meta().update_seq).sum();
    // Before there is such a database, nothing is known.
    Some(app.node.databases.get(name).map_or(0, seq))
}

/// Whether the users database has changes after `before`: a user who was not recognised may be
/// among them.
pub async fn users_are_newer(app: &App, before: Option<u64>) -> bool {
    let (Some(member), Some(before)) = (app.node.member(), before) else {
        return false;
    };
    let name = &app.node.settings().chttpd_auth.authentication_db;
    let gateway = member.gateway();
    let fresh = match app.node.databases.get(name) {
        Ok(db) => gateway.fresh_slots(gateway.slots(&db)).await.map(drop),
        Err(_) => gateway.fresh_control().await,
    };
    fresh.is_ok() && users_seen(app) != Some(before)
}
