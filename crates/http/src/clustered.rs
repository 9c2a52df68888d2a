//! Handling of requests on a server that is one of several: reads wait until this server has
//! applied acknowledged writes, and their responses wait until the data is final. If this server
//! cannot answer, another one does.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::{NodeId, SlotNumber};
use database::Database;
use futures_util::{Stream, StreamExt as _};
use hyper::header::{HeaderName, HeaderValue};
use member::{DatabasePart, Gateway, Member, ReadSlots};
use routes::{Cluster, Who};

use crate::accounting::traced::{TRACE_PARENT, Traced};
use crate::app::App;
use crate::errors::ApiError;
use crate::forwarded_headers::headers_for_others;
use crate::reply::answers::{Answers, Held};
use crate::reply::{Body, Pieces, Reply, StreamError};
use crate::request::Request;
use crate::request::room::Parsed;
use crate::spread::{self, RequestPart};

type Answer = Result<Reply, ApiError>;

/// How long a feed waits for changes after which it is to begin, and the interval of checks.
const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(3);
const CATCH_UP_EVERY: Duration = Duration::from_millis(50);

/// The requests that need all shards of a spread database on one node.
const NOT_OF_SPREAD: &str = "requests of this kind to spread databases";

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
        Cluster::Node | Cluster::Local | Cluster::Everywhere => true,
        Cluster::Documents { .. } => Kind::is_get(req) && matches!(Kind::of(req), Kind::Plain),
        Cluster::Control | Cluster::Session => false,
    }
}

/// Answers a request for a database, with `here` when this server can. `rights` returns the error of
/// a client without the rights that the route requires.
pub async fn database<'r>(
    app: &'r App,
    member: &Arc<Member>,
    (req, rights): (&'r mut Request, impl Fn(&Request) -> Result<(), ApiError>),
    (name, part): (&'r str, Option<RequestPart>),
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
    let of_database = part.as_ref();
    let of_database = of_database.map_or(DatabasePart::Whole, RequestPart::of_database);
    if gateway.lacks_slots()
        && let Some(nodes) = gateway.nodes_for(name, of_database)
    {
        // Before its body is read here. The other node checks them again.
        if let Err(e) = rights(req)
            && matches!(e.status, 401 | 403)
        {
            return Err(e);
        }
        if gateway.is_spread(name) {
            return at_nodes_of_parts(app, member, (nodes, part), req, name).await;
        }
        return at_holders(member, nodes, req).await;
    }
    if req.row.cluster == Cluster::Everywhere {
        let done = here(app, req, name).await?;
        ask_others(app, req, Bytes::from_static(b"{}")).await;
        return Ok(done);
    }
    let kind = match app.node.databases.get(name) {
        Err(_) => Kind::Plain,
        // A feed that continues another node's would begin again here.
        Ok(db) => match Kind::of(req) {
            Kind::Plain if is_ahead(gateway, &db, req) => Kind::Read,
            kind => kind,
        },
    };
    match kind {
        Kind::Plain => here(app, req, name).await,
        kind => informed(app, member, req, (name, part), kind, here).await,
    }
}

/// Answers a request for a part of a spread database that this node does not have.
async fn at_nodes_of_parts(
    app: &App,
    member: &Arc<Member>,
    (nodes, part): (Vec<NodeId>, Option<RequestPart>),
    req: &mut Request,
    name: &str,
) -> Answer {
    match part {
        // A request is forwarded once: this node does not send its parts to others.
        Some(part) if part.is_joined() && req.headers.contains_key(member::CLIENT) => {
            at_holders(member, vec![], req).await
        }
        Some(RequestPart::Divided(division)) => {
            spread::divided(&app.node, member, req, name, division).await
        }
        Some(RequestPart::Feed) => {
            let db = app.node.databases.get(name)?;
            let place = app.open_feed(req, db.name())?;
            spread::changes(member, req, db, (place, app.stopping())).await
        }
        Some(RequestPart::Info) => {
            let db = app.node.databases.get(name)?;
            spread::info(member, req, db).await
        }
        Some(RequestPart::View(design, view)) => {
            let db = app.node.databases.get(name)?;
            spread::view(member, req, db, (&design, &view)).await
        }
        Some(RequestPart::Listing) => {
            let db = app.node.databases.get(name)?;
            spread::listing(member, req, db).await
        }
        Some(RequestPart::Whole) | None if nodes.is_empty() => {
            Err(ApiError::not_implemented(NOT_OF_SPREAD))
        }
        _ => at_holders(member, nodes, req).await,
    }
}

/// Answers a request that shows a database that its path does not name.
pub async fn shared<'r>(
    app: &'r App,
    member: &Arc<Member>,
    req: &'r mut Request,
    name: &'r str,
    here: impl for<'a> AsyncFnOnce(&'a App, &'a mut Request, &'a str) -> Answer,
) -> Answer {
    informed(app, member, req, (name, None), Kind::Read, here).await
}

/// Answers a request once this server has what others have acknowledged.
async fn informed<'r>(
    app: &'r App,
    member: &Arc<Member>,
    req: &'r mut Request,
    (name, part): (&'r str, Option<RequestPart>),
    kind: Kind,
    here: impl for<'a> AsyncFnOnce(&'a App, &'a mut Request, &'a str) -> Answer,
) -> Answer {
    let gateway = member.gateway();
    let Ok(db) = app.node.databases.get(name) else {
        return here(app, req, name).await;
    };
    let slots = match &part {
        Some(part) if db.is_spread() => gateway.part_slots(&db, part.of_database()),
        _ => slots_of(gateway, &db, req),
    };
    drop(db);
    if gateway.is_going(name) {
        return Err(ApiError::busy(member::GOING.into()));
    }
    let seen = match gateway.fresh_slots(slots).await {
        Ok(seen) => seen,
        Err(e) => return elsewhere(member, req, &e).await,
    };
    catch_up(app, gateway, req, name).await;
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

/// Whether a feed begins after changes that this node does not have yet.
fn is_ahead(gateway: &Gateway, db: &Database, req: &Request) -> bool {
    let since = req.since(req.query.last(&["feed"]) == Some("eventsource"));
    if req.segment(1) != Some("_changes") {
        return false;
    }
    let asked = spread::shards_of(req, gateway, db);
    let is_asked = |shard| asked.as_ref().is_none_or(|asked| asked.contains(&shard));
    since.is_some_and(|since| db.is_behind(since, is_asked))
}

/// Waits for changes that another node has shown before they were acknowledged. Those that never come
/// were lost: the feed then begins again, as in CouchDB.
async fn catch_up(app: &App, gateway: &Gateway, req: &Request, name: &str) {
    let is_behind = || {
        let db = app.node.databases.get(name);
        db.is_ok_and(|db| is_ahead(gateway, &db, req))
    };
    let deadline = tokio::time::Instant::now() + CATCH_UP_TIME_MAX;
    while is_behind() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(CATCH_UP_EVERY).await;
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
fn settling_reply(gateway: &Arc<Gateway>, seen: ReadSlots, mut reply: Reply) -> Reply {
    let gateway = gateway.clone();
    reply.body = match reply.body {
        whole @ (Body::Full(_) | Body::Static(_)) => whole,
        Body::Stream(pieces) => Body::Stream(settling(gateway, seen, pieces)),
        Body::Sized(pieces, length) => Body::Sized(settling(gateway, seen, pieces), length),
    };
    reply
}

fn settling(gateway: Arc<Gateway>, seen: ReadSlots, pieces: Pieces) -> Pieces {
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
    if req.headers.contains_key(member::CLIENT) {
        return Err(not_started(why));
    }
    let passed = pass_on(member, None, req).await?;
    passed.ok_or_else(|| ApiError::busy(why.to_string()))
}

/// Refuses a request that another node forwarded, which may send it to a third one.
fn not_started(why: &member::Error) -> ApiError {
    let mut refusal = ApiError::busy(why.to_string());
    let header = HeaderName::from_static(member::NOT_STARTED);
    refusal
        .headers
        .push((header, HeaderValue::from_static("1")));
    refusal
}

/// Forwards a request to the nodes that have its database: to the first one that answers.
async fn at_holders(member: &Member, nodes: Vec<NodeId>, req: &mut Request) -> Answer {
    if req.headers.contains_key(member::CLIENT) {
        // The node that forwards it knew another state, and asks the next one.
        let why = "this node does not have the database now";
        return Err(not_started(&member::Error::NotNow(why.to_owned())));
    }
    let passed = pass_on(member, Some(nodes), req).await?;
    passed.ok_or_else(|| ApiError::busy("the nodes that have the database do not answer".into()))
}

/// Forwards a request to a node by its name.
pub async fn by_name(member: &Member, req: &mut Request, name: &str) -> Answer {
    let Some(node) = member.named(name) else {
        let reason = format!("no such node: {name}");
        return Err(ApiError::new(404, "not_found", reason));
    };
    let passed = pass_on(member, Some(vec![node]), req).await?;
    passed.ok_or_else(|| ApiError::busy(format!("the node {name} does not answer")))
}

/// Bytes of an answer of another node that are here at most before its client takes them.
fn body_window(length: Option<usize>) -> usize {
    let window = peers::STREAM_WINDOW_BYTES as usize;
    length.map_or(window, |length| length.min(window))
}

/// The pieces of another node's answer. Each is taken from the node once its user has memory for
/// it: until then the node does not send more than a window, which `held` is for.
fn forwarded(
    answers: Answers,
    held: Held,
    body: impl Stream<Item = Result<Bytes, peers::BodyError>> + Send + Unpin + 'static,
) -> Pieces {
    let start = Some((answers, held, body));
    Box::pin(futures_util::stream::unfold(start, |under| async {
        let (answers, held, mut body) = under?;
        if let Err(e) = answers.admit().await {
            return Some((Err(e.cut_short()), None));
        }
        let piece = body.next().await?;
        let piece = piece.map_err(|e| StreamError::from(e.to_string()));
        Some((piece, Some((answers, held, body))))
    }))
}

/// The pieces of another node's answer to a write. Its client must learn of it, so they wait for
/// nothing.
fn written(
    held: Held,
    body: impl Stream<Item = Result<Bytes, peers::BodyError>> + Send + Unpin + 'static,
) -> Pieces {
    Box::pin(body.map(move |piece| {
        let _room = &held;
        piece.map_err(|e| StreamError::from(e.to_string()))
    }))
}

/// Returns the JSON responses of the other live nodes to a client's request. A request of another node
/// that asks all gets none.
pub async fn gather(app: &App, req: &Request, target: &str) -> Vec<serde_json::Value> {
    let Some(member) = app.node.member().filter(|_| !is_gathered(req)) else {
        return vec![];
    };
    let headers = headers_for_others(req);
    let answers = member.ask_others("GET", target, &headers, Bytes::new());
    json_of(answers.await)
}

/// Sends a client's request to the other live nodes as well, and returns the JSON responses of those
/// that do not refuse it. A request of another node that asks all gets none.
pub async fn ask_others(app: &App, req: &Request, body: Bytes) -> Vec<serde_json::Value> {
    let Some(member) = app.node.member().filter(|_| !is_gathered(req)) else {
        return vec![];
    };
    let headers = headers_for_others(req);
    let answers = member.ask_others(&req.method, &req.path, &headers, body);
    json_of(answers.await)
}

/// Posts JSON to the other live nodes on behalf of a client, and returns the JSON responses of
/// those that do not refuse it. A request of another node that asks all gets none.
pub async fn ask_others_with_json(
    app: &App,
    req: &Request,
    target: &str,
    body: Bytes,
) -> Vec<serde_json::Value> {
    let Some(member) = app.node.member().filter(|_| !is_gathered(req)) else {
        return vec![];
    };
    let mut headers = headers_for_others(req);
    let json = HeaderValue::from_static("application/json");
    headers.insert(hyper::header::CONTENT_TYPE, json);
    json_of(member.ask_others("POST", target, &headers, body).await)
}

fn json_of(answers: Vec<Bytes>) -> Vec<serde_json::Value> {
    let read = |answer: Bytes| serde_json::from_slice(&answer).ok();
    answers.into_iter().filter_map(read).collect()
}

/// Whether another node requests only this node's part of the response.
pub fn is_gathered(req: &Request) -> bool {
    req.headers.contains_key(member::GATHERED)
}

async fn pass_on(
    member: &Member,
    to: Option<Vec<NodeId>>,
    req: &mut Request,
) -> Result<Option<Reply>, ApiError> {
    let repeatable = matches!(Kind::of(req), Kind::Read) || Kind::is_get(req);
    // What is only read may be parsed here, if no other node answers.
    let parsed = match repeatable {
        true => Parsed::Values,
        false => Parsed::Documents,
    };
    let body = match req.method.as_str() {
        "GET" | "HEAD" | "DELETE" | "COPY" => Bytes::new(),
        _ => req.bytes_of(req.row.body, parsed).await?,
    };
    let target = match &req.raw_query {
        Some(query) => format!("{}?{query}", req.path),
        None => req.path.clone(),
    };
    let mut headers = headers_for_others(req);
    if let Some(place) = req.traced.and_then(Traced::header) {
        headers.insert(TRACE_PARENT, place);
    }
    // As for an answer of this server's own: before anything of it is here.
    let database = req.segments.first().map_or(&[][..], Vec::as_slice);
    let answers = req.answers.of(&req.user, req.peer, database);
    if repeatable {
        answers.admit().await?;
        req.begun = answers.begin().await?;
    }
    let passed = member.pass_on(to, &req.method, &target, headers, body, repeatable);
    let Some(passed) = passed.await else {
        return Ok(None);
    };
    let (status, headers, body) = passed;
    let length = headers.get(hyper::header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let in_flight = body_window(length);
    let held = match repeatable {
        true => answers.settle(in_flight).await?,
        // It is written: the client must get the answer.
        false => answers.count(in_flight as u64),
    };
    let pieces = match repeatable {
        true => forwarded(answers, held, body),
        false => written(held, body),
    };
    let mut reply = Reply::stream(HeaderValue::from_static("application/json"), pieces);
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

fn users(app: &App) -> Option<Arc<Database>> {
    let name = &app.node.settings().chttpd_auth.authentication_db;
    app.node.databases.get(name).ok()
}

/// The accounts that a request claims, which were current here at most 2 s before they are read.
pub struct Accounts {
    /// The ids of their documents in the users database, each with the update seq of its shard before
    /// it is read.
    documents: Vec<(String, u64)>,
    /// The version of the shared settings.
    settings: u64,
}

impl Accounts {
    /// Waits until the accounts with these names are current. Returns `None` without names, and on a
    /// server without a cluster.
    ///
    /// # Errors
    /// [`member::Error::NotNow`] if this node cannot know.
    pub async fn hold(app: &App, names: &[String]) -> Result<Option<Accounts>, member::Error> {
        let Some(member) = app.node.member().filter(|_| !names.is_empty()) else {
            return Ok(None);
        };
        let gateway = member.gateway();
        // Administrators are settings of the cluster. While nobody can know more, its last state
        // counts: the data can still be read.
        if gateway.hold_control().await.is_err()
            && let Some(why) = member.unfit()
        {
            return Err(unchecked_login(why));
        }
        let is_document = |name: &&String| !app.node.auth.is_admin(name);
        let ids = names.iter().filter(is_document);
        let ids: Vec<String> = ids.map(|name| auth::user_doc_id(name)).collect();
        let Some(db) = users(app) else {
            // Before there is such a database, nothing is known.
            return Ok(Some(Accounts {
                documents: ids.into_iter().map(|id| (id, 0)).collect(),
                settings: gateway.control_version(),
            }));
        };
        let held = ids
            .iter()
            .map(|id| gateway.hold_slot(gateway.slot(&db, id)));
        let held = futures_util::future::try_join_all(held).await;
        held.map_err(unchecked_login)?;
        let documents = ids.into_iter().map(|id| {
            let seq = db.update_seq_near(&id);
            (id, seq)
        });
        Ok(Some(Accounts {
            documents: documents.collect(),
            settings: gateway.control_version(),
        }))
    }

    /// Waits until this node has applied all acknowledged changes, and returns whether one of these
    /// accounts has changed: a user who was not recognised may be among them.
    ///
    /// # Errors
    /// [`member::Error::NotNow`] if this node does not know.
    pub async fn are_newer(&self, app: &App) -> Result<bool, member::Error> {
        let Some(member) = app.node.member() else {
            return Ok(false);
        };
        let gateway = member.gateway();
        gateway.refresh_slot(cluster::CONTROL).await?;
        if gateway.control_version() != self.settings {
            return Ok(true);
        }
        let Some(db) = users(app) else {
            return Ok(false);
        };
        let slots = self.documents.iter().map(|(id, _)| gateway.slot(&db, id));
        let fresh = slots.map(|slot| gateway.refresh_slot(slot));
        futures_util::future::try_join_all(fresh).await?;
        // What cannot be read is not recognised the second time either.
        let is_newer = |(id, seq): &(String, u64)| db.has_changed_since(id, *seq).unwrap_or(true);
        Ok(self.documents.iter().any(is_newer))
    }
}

/// The error for a login that another node may have changed or deleted.
fn unchecked_login(why: impl std::fmt::Display) -> member::Error {
    let why = format!("this node cannot check whether the login is still valid: {why}");
    member::Error::NotNow(why)
}

/// Whether a request is about this node in particular, by an administrator as far as is known here:
/// a node that is cut off can still be examined and repaired.
pub fn is_for_operators(app: &App, req: &Request, names: &[String]) -> bool {
    matches!(
        req.row.cluster,
        Cluster::Node | Cluster::Local | Cluster::Everywhere
    ) && names.iter().all(|name| app.node.auth.is_admin(name))
}

/// Forwards a request whose user this node cannot know to another node. Returns `None` for a request
/// to this node in particular that needs no user.
pub async fn recognised_elsewhere(
    app: &App,
    req: &mut Request,
    why: &member::Error,
) -> Result<Option<Reply>, ApiError> {
    match req.row.cluster {
        Cluster::Node | Cluster::Local | Cluster::Everywhere
            if req.row.who(&req.method) == Who::Anyone =>
        {
            Ok(None)
        }
        Cluster::Node | Cluster::Local | Cluster::Everywhere => {
            Err(ApiError::busy(why.to_string()))
        }
        _ => elsewhere_than(app, req, why).await.map(Some),
    }
}

/// Forwards a request to another node.
pub async fn elsewhere_than(app: &App, req: &mut Request, why: &member::Error) -> Answer {
    let Some(member) = app.node.member() else {
        return Err(ApiError::busy(why.to_string()));
    };
    elsewhere(member, req, why).await
}

#[cfg(test)]
mod tests {
    use auth::UserCtx;
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_refused_request_may_go_to_a_third_node() {
        let refusal = not_started(&member::Error::NotNow("it is cut off".to_owned()));
        let has = |name: &str| refusal.headers.iter().any(|(header, _)| header == name);
        assert_eq!(refusal.status, 503);
        assert!(has("retry-after") && has(member::NOT_STARTED));
    }

    #[test]
    fn a_login_that_is_unchecked_has_the_reason() {
        let why = member::Error::NotNow("a majority does not answer".to_owned());
        let text = unchecked_login(why).to_string();
        assert!(text.contains("the login") && text.ends_with("a majority does not answer"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_another_node_waits_for_memory_of_its_user() {
        let all = Answers::new(16 << 20);
        let user = UserCtx {
            name: Some("a".to_owned()),
            roles: vec![],
        };
        let answers = all.of(&user, None, b"");
        let held = answers.settle(body_window(None)).await;
        let held = held.expect("there is room");
        assert_eq!(all.used_bytes().0, 256 << 10);
        let body = futures_util::stream::iter(["a", "b", "c"].map(|piece| Ok(piece.into())));
        let mut pieces = forwarded(answers.clone(), held, body);
        assert_eq!(pieces.next().await.and_then(Result::ok), Some("a".into()));
        let full = answers.count(16 << 20);
        assert!(pieces.next().now_or_never().is_none());
        drop(full);
        assert_eq!(pieces.next().await.and_then(Result::ok), Some("b".into()));
        let _full = answers.count(16 << 20);
        assert!(pieces.next().await.is_some_and(|piece| piece.is_err()));
        assert!(pieces.next().await.is_none());
        assert_eq!(all.used_bytes().0, 16 << 20, "what was in flight is gone");
        assert_eq!(body_window(Some(10)), 10);
    }
}
