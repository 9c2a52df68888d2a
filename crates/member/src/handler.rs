//! Handles requests from other nodes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::record::{EncodedRequest, Request};
use cluster::replica::Message;
use cluster::slot::Wait;
use cluster::{NodeId, SlotNumber};
use http::StatusCode;
use parking_lot::Mutex;
use peers::{Call, Event, Handler, JoinRequest, Refusal, Reply};
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use crate::barrier_report::{BARRIERS, BarrierQuestion, BarrierReport, REPORT_TIME_MAX};
use crate::content::{ContentError, ContentExchange};
use crate::copy::CopySender;
use crate::jobs::Jobs;
use crate::join::Issuer;
use crate::log_table::LogTables;
use crate::log_transport::LOG_MESSAGES;
use crate::members::{
    APPEND, BEHIND, COPY, CopyRequest, FULL, ForwardedRequest, JOBS, LOG, LOG_IN_REACH,
    LOG_POSITIONS, LOG_REPORT, Members, PROGRESS, PROPOSE, RESEED, RUNS_JOBS, VERSIONS,
};
use crate::network_bench::{self, BENCH};
use crate::propose::{Cause, NoOutcome};
use crate::query::value;
use crate::replicas::{Replica, Replicas};
use crate::reseed;

/// Maximum size of a forwarded request, in bytes.
const REQUEST_BYTES_MAX: usize = 256 << 20;
/// Maximum time of a forwarded request.
const TIME_MAX: Duration = Duration::from_secs(30);

/// A node for which two processes were seen is ignored for this time.
const DOUBLE_TIME: Duration = Duration::from_secs(15);

/// Forwards clients' requests to the server's handlers.
pub trait Clients: Send + Sync + 'static {
    /// Answers a client's request that another node forwards.
    fn answer(
        &self,
        call: Call,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send>>;
}

/// This node's handler for other nodes.
pub struct NodeHandler {
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) members: Arc<Members>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) issuer: Arc<Issuer>,
    /// Nodes with two live processes, and when that was last seen.
    pub(crate) doubles: Mutex<FxHashMap<NodeId, Instant>>,
    pub(crate) sender: CopySender,
    pub(crate) contents: Arc<ContentExchange>,
    pub(crate) logs: Arc<LogTables>,
    pub(crate) clients: Arc<std::sync::OnceLock<Arc<dyn Clients>>>,
}

impl Handler for NodeHandler {
    fn admits(&self, node: NodeId) -> bool {
        // Before the first entries arrive no node is known, not even this one.
        self.members.knows(node) || !self.members.knows(self.members.me)
    }

    async fn message(&self, from: NodeId, message: Bytes) {
        let Some((slot, body)) = message.split_first_chunk() else {
            return;
        };
        if self.is_double(from) {
            return;
        }
        let slot = SlotNumber::from_be_bytes(*slot);
        if slot == LOG_MESSAGES {
            return self.deliver_to_log(from, message.slice(size_of_val(&slot)..));
        }
        if let (Some(replica), Some(message)) = (self.replicas.get(slot), Message::decode(body)) {
            replica.deliver(from, message);
        }
    }

    async fn bulk_message(&self, from: NodeId, message: Bytes) {
        if !self.is_double(from) {
            self.deliver_to_log(from, message);
        }
    }

    async fn call(&self, from: NodeId, mut call: Call) -> Result<Reply, Refusal> {
        // The client chose its path, which must never be one of those below.
        if call.headers.contains_key(CLIENT) {
            let starting = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "it is starting");
            return self.clients.get().ok_or_else(starting)?.answer(call).await;
        }
        let target = std::mem::take(&mut call.path);
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let asked = || {
            let asked = ForwardedRequest::from_query(query);
            asked.ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, "a slot and a time"))
        };
        match path {
            PROPOSE => {
                let asked = asked()?;
                self.propose(asked, call).await
            }
            APPEND => {
                let asked = asked()?;
                self.append(asked, call).await
            }
            COPY => {
                let wanted = CopyRequest::from_query(query);
                let odd = || Refusal::new(StatusCode::BAD_REQUEST, "a slot and a version");
                let CopyRequest { slot, catalogue } = wanted.ok_or_else(odd)?;
                let given = self.sender.send(slot, catalogue).await;
                let none = |why| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why);
                given.map(Reply::ok).map_err(none)
            }
            BENCH => network_bench::answer(query, call).await,
            LOG => Ok(Reply::ok(match self.replicas.reach.check().await {
                true => Bytes::from_static(LOG_IN_REACH),
                false => Bytes::new(),
            })),
            JOBS => Ok(Reply::ok(match self.jobs.is_held() {
                true => Bytes::from_static(RUNS_JOBS),
                false => Bytes::new(),
            })),
            PROGRESS => json(&self.replicas.progress()),
            VERSIONS => json(&self.members.versions()),
            LOG_POSITIONS => self.log_positions(query),
            BARRIERS => self.barriers(query).await,
            RESEED => self.reseed(from, query),
            LOG_REPORT => json(&self.logs.report()),
            _ => self.content(from, (path, query), call.body).await,
        }
    }

    fn knows_token(&self, request: &JoinRequest) -> bool {
        self.issuer.knows(request)
    }

    async fn join(&self, request: JoinRequest) -> Result<Bytes, Refusal> {
        self.issuer.join(request).await
    }

    fn event(&self, event: Event) {
        match event {
            Event::DuplicateNode { node } => {
                tracing::error!(
                    node = format!("{node:x}"),
                    "two processes have this node's identity: its data directory was copied. Both are ignored until one of them stops; never start the copy again"
                );
                self.doubles.lock().insert(node, Instant::now());
            }
            Event::OtherProtocol { text, .. } => tracing::error!("{text}"),
        }
    }
}

/// The header of forwarded clients' requests, with their host.
pub const CLIENT: &str = "x-settee-client";
/// The header of requests that a node sends to all others, each for its own part of a response.
pub const GATHERED: &str = "x-settee-gathered";
/// The header of forwarded requests for a part of a spread database: the numbers of the slots,
/// separated by commas.
pub const PART: &str = "x-settee-part";
/// The header of a 503 with which a node refuses a forwarded request before it executes any of it:
/// another node may execute it.
pub const NOT_STARTED: &str = "x-settee-not-started";
/// The header of forwarded requests with the address of their client.
pub const CLIENT_ADDRESS: &str = "x-settee-client-address";

impl NodeHandler {
    fn deliver_to_log(&self, from: NodeId, bundle: Bytes) {
        if let Some(log) = self.logs.own() {
            log.inlet().deliver(from, bundle);
        }
    }

    /// Messages of two processes of one node are not those of that node.
    fn is_double(&self, node: NodeId) -> bool {
        let mut doubles = self.doubles.lock();
        if doubles.is_empty() {
            return false;
        }
        doubles.retain(|_, seen| seen.elapsed() < DOUBLE_TIME);
        doubles.contains_key(&node)
    }

    fn log_positions(&self, query: &str) -> Result<Reply, Refusal> {
        let log = value(query, "log").and_then(|log| log.parse().ok());
        let odd = || {
            Refusal::new(
                StatusCode::BAD_REQUEST,
                "the query needs the number of a log",
            )
        };
        json(&self.replicas.progress_in(log.ok_or_else(odd)?))
    }

    async fn barriers(&self, query: &str) -> Result<Reply, Refusal> {
        let odd = || Refusal::new(StatusCode::BAD_REQUEST, "a slot, a database and a number");
        let question = BarrierQuestion::from_query(query).ok_or_else(odd)?;
        let replica = self.replica(question.slot)?;
        let fresh = replica.fresh(Instant::now() + REPORT_TIME_MAX).await;
        fresh.map_err(|why| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why))?;
        let (validators, database) = (replica.validators(), &question.database);
        let number = question.number;
        json(&BarrierReport {
            in_force: validators.get(database).number,
            has_counted: number != 0 && validators.has_counted(database, number),
        })
    }

    fn reseed(&self, from: NodeId, query: &str) -> Result<Reply, Refusal> {
        let only = value(query, "slot").map(str::parse::<SlotNumber>);
        let odd = |_| {
            Refusal::new(
                StatusCode::BAD_REQUEST,
                "`slot` must be the number of a slot",
            )
        };
        let only = only.transpose().map_err(odd)?;
        let (replicas, members) = (self.replicas.clone(), self.members.clone());
        tokio::spawn(reseed::start_for(from, replicas, members, only));
        Ok(Reply::ok(Bytes::new()))
    }

    fn replica(&self, slot: SlotNumber) -> Result<&Replica, Refusal> {
        let replica = self.replicas.get(slot);
        replica.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "no such slot here"))
    }

    async fn propose(&self, asked: ForwardedRequest, call: Call) -> Result<Reply, Refusal> {
        let replica = self.replica(asked.slot)?;
        let body = read(call).await?;
        let malformed = || Refusal::new(StatusCode::BAD_REQUEST, "this is not a request");
        let request = Request::from_bytes(&body).ok_or_else(malformed)?;
        let encoded = EncodedRequest {
            key: (request.gateway, request.counter),
            needs: request.needs(),
            bytes: body,
            stored_bytes: asked.stored_bytes,
        };
        drop(request);
        let wait = Wait {
            copies: asked.copies,
            deadline: Instant::now() + asked.time.min(TIME_MAX),
        };
        let done = replica.propose(encoded, wait).await;
        let done = done.map_err(refusal)?;
        let copies = u8::try_from(done.copies).unwrap_or(u8::MAX);
        let mut answer = vec![u8::from(done.is_safe), copies];
        answer.extend_from_slice(&done.outcome.encode());
        Ok(Reply::ok(Bytes::from(answer)))
    }

    async fn content(
        &self,
        from: NodeId,
        target: (&str, &str),
        body: peers::Body,
    ) -> Result<Reply, Refusal> {
        match self.contents.answer(from, target, body).await {
            None => Err(Refusal::new(StatusCode::NOT_FOUND, "no such call")),
            Some(Ok(body)) => Ok(Reply::ok(body)),
            Some(Err(ContentError::Missing)) => {
                Err(Refusal::new(StatusCode::NOT_FOUND, "no such content"))
            }
            Some(Err(ContentError::Gone)) => {
                Err(Refusal::new(StatusCode::GONE, "the database was deleted"))
            }
            Some(Err(ContentError::Full(why))) => Err(Refusal::new(FULL, why)),
            Some(Err(ContentError::Failed(why))) => {
                Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why))
            }
        }
    }

    async fn append(&self, asked: ForwardedRequest, call: Call) -> Result<Reply, Refusal> {
        let replica = self.replica(asked.slot)?;
        let body = read(call).await?;
        let malformed = || Refusal::new(StatusCode::BAD_REQUEST, "this is not a record");
        let record = self.members.read_record(&body).ok_or_else(malformed)?;
        let deadline = Instant::now() + asked.time.min(TIME_MAX);
        let done = replica.append(record, deadline).await;
        done.map_err(refusal).map(|()| Reply::ok(Bytes::new()))
    }
}

fn refusal(e: NoOutcome) -> Refusal {
    let status = match e.cause {
        Cause::NotNow => StatusCode::SERVICE_UNAVAILABLE,
        Cause::Behind => BEHIND,
        Cause::Full => FULL,
    };
    Refusal::new(status, e.text)
}

fn json(answer: &impl serde::Serialize) -> Result<Reply, Refusal> {
    let failed =
        |e: serde_json::Error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string());
    let text = serde_json::to_vec(answer);
    text.map(Bytes::from).map(Reply::ok).map_err(failed)
}

async fn read(call: Call) -> Result<Bytes, Refusal> {
    let body = call.body.read(REQUEST_BYTES_MAX).await;
    body.map_err(|e| Refusal::new(StatusCode::BAD_REQUEST, e.to_string()))
}
