//! The other nodes: their addresses, whether they are live, and requests to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use cluster::record::{self, EncodedRequest, RecordVersion, RecordVersions, Stamp};
use cluster::replica::Message;
use cluster::slot::Network;
use cluster::{BoxFuture, Generation, NodeId, SlotNumber};
use http::StatusCode;
use peers::{Body, Call, CallError, Peers};
use serde::{Deserialize, Serialize};
use storage::SlotOutcome;
use tokio::time::Instant;

use crate::choice;
use crate::content::{ContentError, ContentPeers};
use crate::control::Catalogue;
use crate::control::entry::MemberInfo;
use crate::control::placement_state::PlacementState;
use crate::copy::Source;
use crate::counters::FORWARD_FAILURES;
use crate::forward_room::ForwardRoom;
use crate::log_table::LogReport;
use crate::placement::{PlacementNode, PlacementNodes};
use crate::progress::Progress;
use crate::propose::{Cause, NoOutcome, ProposalResult};
use crate::query::value;

/// A node without contact for this time counts as down.
const LIVE_TIME: Duration = Duration::from_secs(3);
/// A node that was heard from within this time is taken to answer.
const JUST_NOW: Duration = Duration::from_millis(250);
/// Maximum size of another node's outcome, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The path of forwarded requests.
pub const PROPOSE: &str = "/propose";
/// The path of forwarded records.
pub const APPEND: &str = "/append";

/// The status of a node whose disk is full.
pub const FULL: StatusCode = StatusCode::INSUFFICIENT_STORAGE;
/// The status of a node with too many pending writes.
pub const BEHIND: StatusCode = StatusCode::TOO_MANY_REQUESTS;

/// The path of the question whether a node reaches the log: its response is [`LOG_IN_REACH`], or
/// empty.
pub const LOG: &str = "/log";
/// See [`LOG`].
pub const LOG_IN_REACH: &[u8] = b"1";
/// Time limit of that question.
const LOG_TIME_MAX: Duration = Duration::from_secs(2);

/// The path of the question whether a node can run jobs, because it was up to date a moment ago: its
/// response is [`RUNS_JOBS`], or empty.
pub const JOBS: &str = "/jobs";
/// See [`JOBS`].
pub const RUNS_JOBS: &[u8] = b"1";
/// Time limit of that question.
const JOBS_TIME_MAX: Duration = Duration::from_secs(2);

/// The path of the question which position a node has reached in each slot.
pub const PROGRESS: &str = "/progress";
/// The path of the request for the position that a node has reached in each slot of a log. Its
/// query has the number of the log.
pub const LOG_POSITIONS: &str = "/log-positions";
/// Time limit of these requests.
const PROGRESS_TIME_MAX: Duration = Duration::from_secs(3);

/// The path of the question which record versions a node has: its response is a [`NodeVersions`],
/// as JSON. Programs that do not agree on versions refuse it.
pub const VERSIONS: &str = "/versions";
/// Time limit of that question.
const VERSIONS_TIME_MAX: Duration = Duration::from_secs(2);

/// The path of the question for a node's log: its response is a [`LogReport`], as JSON. Programs that
/// know Kafka only refuse it.
pub const LOG_REPORT: &str = "/log-report";
/// Time limit of that question.
const LOG_REPORT_TIME_MAX: Duration = Duration::from_secs(2);

/// The path of the request to start new generations in slots that the requesting node does not
/// have. Its query may name one slot.
pub const RESEED: &str = "/reseed";
/// Time limit of that request.
const RESEED_TIME_MAX: Duration = Duration::from_secs(2);

/// The path of copies of slots.
pub const COPY: &str = "/copy";
/// Time limit for a copy to start; its duration is not limited.
const COPY_TIME_MAX: Duration = Duration::from_secs(30);

/// The record versions of a node: the response to a query of another one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct NodeVersions {
    /// The latest version that its program reads.
    pub known: RecordVersion,
    /// The version in force, as far as it knows.
    pub in_force: RecordVersion,
}

/// The members of the cluster, as this node sees them.
pub struct Members {
    /// This node.
    pub me: NodeId,
    /// The stamp of forwarded records.
    stamp: Stamp,
    catalogue: Arc<Catalogue>,
    peers: OnceLock<Arc<Peers>>,
    /// When this node started.
    began: Instant,
    /// Room for clients' requests to other nodes.
    pub(crate) forward_room: ForwardRoom,
}

impl Members {
    /// Creates it for this node.
    pub fn new(me: NodeId, stamp: Stamp, catalogue: Arc<Catalogue>) -> Members {
        Members {
            me,
            stamp,
            catalogue,
            peers: OnceLock::new(),
            began: Instant::now(),
            forward_room: ForwardRoom::default(),
        }
    }

    /// Sets the connections to the nodes, once.
    pub fn reach_by(&self, peers: Arc<Peers>) {
        // A second call has no effect.
        let _ = self.peers.set(peers);
    }

    /// Returns the connections to the nodes.
    pub fn peers(&self) -> Option<&Arc<Peers>> {
        self.peers.get()
    }

    /// Returns the record versions of this program.
    pub fn record_versions(&self) -> &RecordVersions {
        &self.stamp.versions
    }

    /// Returns the record versions that this node reports.
    pub(crate) fn versions(&self) -> NodeVersions {
        NodeVersions {
            known: self.record_versions().known(),
            in_force: self.catalogue.agreement().in_force(),
        }
    }

    /// Returns all members with their numbers.
    pub fn all(&self) -> Vec<(NodeId, MemberInfo)> {
        let list = |(id, member): (&NodeId, &MemberInfo)| (*id, member.clone());
        self.catalogue
            .with(|state| state.members.iter().map(list).collect())
    }

    /// Returns whether a node is a member, as far as is known here.
    pub fn knows(&self, node: NodeId) -> bool {
        self.catalogue
            .with(|state| state.members.contains_key(&node))
    }

    /// Returns whether there are members, and this node is not one of them.
    pub fn has_left(&self) -> bool {
        self.catalogue
            .with(|state| !state.members.is_empty() && !state.members.contains_key(&self.me))
    }

    /// Returns the number of members.
    pub fn count(&self) -> usize {
        self.catalogue.with(|state| state.members.len())
    }

    /// Returns whether a node was heard from recently.
    pub fn is_live(&self, node: NodeId) -> bool {
        let heard = || self.peers.get()?.last_heard(node);
        node == self.me || heard().is_some_and(|at| at.elapsed() < LIVE_TIME)
    }

    /// Returns how long a node has been down; `None` while it is live. One that was not heard since
    /// this node started has been down since then.
    pub fn down_for(&self, node: NodeId) -> Option<Duration> {
        if self.is_live(node) {
            return None;
        }
        let heard = self.peers.get().and_then(|peers| peers.last_heard(node));
        let silent = heard.map(|at| at.elapsed());
        Some(silent.unwrap_or_else(|| self.began.elapsed()))
    }

    /// Returns the time since this node started.
    pub(crate) fn up_for(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the placement of slots; `None` while every node has every slot.
    pub(crate) fn placement(&self) -> Option<PlacementState> {
        let is_placed = self.catalogue.is_placed();
        is_placed.then(|| self.catalogue.with(|state| state.placement.clone()))
    }

    /// Returns all members, as the placement of slots sees them.
    pub(crate) fn placement_nodes(&self) -> PlacementNodes {
        let all: Vec<_> = self.catalogue.with(|state| {
            let placement = &state.placement;
            let node = |id: &NodeId| {
                let (zone, is_draining) = (placement.zone(*id), placement.is_draining(*id));
                (*id, zone.to_owned(), is_draining)
            };
            state.members.keys().map(node).collect()
        });
        let node = |(id, zone, is_draining)| {
            let node = PlacementNode {
                zone,
                is_draining,
                down_for: self.down_for(id),
            };
            (id, node)
        };
        all.into_iter().map(node).collect()
    }

    /// Returns the number of nodes that a slot should have.
    pub(crate) fn wanted_count(&self, slot: SlotNumber) -> usize {
        self.catalogue.with(|state| {
            let decided = state.placement.slots.get(&slot);
            decided.map_or(state.members.len(), |of| of.wanted.len())
        })
    }

    /// Returns the other live members, those after this node first, so that requests are spread.
    pub fn live_others(&self) -> Vec<NodeId> {
        let all: Vec<NodeId> = self
            .catalogue
            .with(|state| state.members.keys().copied().collect());
        let (before, after): (Vec<_>, Vec<_>) = all.into_iter().partition(|id| *id <= self.me);
        let in_turn = after.into_iter().chain(before);
        in_turn
            .filter(|id| *id != self.me && self.is_live(*id))
            .collect()
    }

    /// Returns the other live members that have a slot, those after this node first. Returns all of
    /// them if none is known to have it.
    pub(crate) fn live_others_for(&self, slot: SlotNumber) -> Vec<NodeId> {
        let mut all = self.live_others();
        if let Some(holders) = self.holders(slot)
            && (holders.contains(&self.me) || all.iter().any(|node| holders.contains(node)))
        {
            all.retain(|node| holders.contains(node));
        }
        all
    }

    /// Returns the nodes that count in a slot, as the cluster knows; `None` while every node has
    /// it.
    fn holders(&self, slot: SlotNumber) -> Option<BTreeSet<NodeId>> {
        if !self.catalogue.is_placed() {
            return None;
        }
        self.catalogue.with(|state| {
            let of = state.placement.slots.get(&slot);
            of.map(|of| of.replicas.clone())
        })
    }

    /// Returns the number of other live members with lower numbers.
    pub fn live_before_me(&self) -> usize {
        let others = self.live_others().into_iter();
        others.filter(|id| *id < self.me).count()
    }

    /// Connects to the current members, and disconnects from all others.
    pub fn connect(&self, known: &[(NodeId, String)]) {
        let Some(peers) = self.peers.get() else {
            return;
        };
        let all = self.all();
        let is_member = |id: &NodeId| all.iter().any(|(other, _)| other == id);
        for node in peers.nodes() {
            if !is_member(&node) && !known.iter().any(|(id, _)| *id == node) {
                peers.remove(node);
            }
        }
        let members = all.iter().map(|(id, member)| (*id, member.address.clone()));
        for (id, address) in known.iter().cloned().chain(members) {
            if id != self.me {
                peers.set(id, vec![address]);
            }
        }
    }

    /// Forwards a request to another node, which proposes it.
    ///
    /// # Errors
    /// The reason why there is no outcome.
    pub async fn propose(
        &self,
        node: NodeId,
        slot: SlotNumber,
        request: EncodedRequest,
        copies: Option<usize>,
        deadline: Instant,
    ) -> Result<ProposalResult, NoOutcome> {
        let path = format!(
            "{PROPOSE}?{}",
            ForwardedRequest {
                slot,
                copies,
                time: left(deadline),
                stored_bytes: request.stored_bytes,
            }
            .to_query()
        );
        let answer = self.ask(node, path, request.bytes, deadline).await?;
        let malformed = || NoOutcome::from("its answer cannot be read");
        let ([is_safe, copies], outcome) = answer.split_first_chunk().ok_or_else(malformed)?;
        Ok(ProposalResult {
            outcome: SlotOutcome::decode(outcome).map_err(|_| malformed())?,
            is_safe: *is_safe == 1,
            copies: usize::from(*copies),
        })
    }

    /// Forwards a record to another node, which appends it.
    ///
    /// # Errors
    /// The reason why its outcome is unknown.
    pub async fn append(
        &self,
        node: NodeId,
        slot: SlotNumber,
        body: &record::Body,
        deadline: Instant,
    ) -> Result<(), NoOutcome> {
        let asked = ForwardedRequest {
            slot,
            copies: None,
            time: left(deadline),
            stored_bytes: 0,
        };
        let path = format!("{APPEND}?{}", asked.to_query());
        let record = self.stamp.write(Generation::default(), body);
        self.ask(node, path, record.into(), deadline)
            .await
            .map(drop)
    }

    /// Returns whether a live node other than this one reaches the log.
    pub async fn any_reaches_log(&self) -> bool {
        let others = self.live_others().into_iter();
        let answers = others.map(|node| self.reaches_log(node));
        futures_util::future::join_all(answers)
            .await
            .contains(&true)
    }

    async fn reaches_log(&self, node: NodeId) -> bool {
        let deadline = Instant::now() + LOG_TIME_MAX;
        let answer = self.ask(node, LOG.to_owned(), Bytes::new(), deadline).await;
        answer.is_ok_and(|answer| answer == LOG_IN_REACH)
    }

    /// Returns whether another node reports that it can run jobs.
    pub async fn can_run_jobs(&self, node: NodeId) -> bool {
        self.was_up_to_date(node).await == Some(true)
    }

    /// Returns whether another node reports that it was up to date a moment ago; `None` if it does
    /// not answer in time.
    pub async fn was_up_to_date(&self, node: NodeId) -> Option<bool> {
        let deadline = Instant::now() + JOBS_TIME_MAX;
        let answer = self.ask(node, JOBS.to_owned(), Bytes::new(), deadline);
        answer.await.ok().map(|answer| answer == RUNS_JOBS)
    }

    /// Returns which of these nodes a request should be forwarded to; `None` if none answers.
    pub(crate) async fn ready(&self, nodes: &[NodeId]) -> Option<NodeId> {
        let chosen = choice::ready(nodes.to_vec(), |node| self.was_up_to_date(node)).await;
        if chosen.is_none() && !nodes.is_empty() {
            FORWARD_FAILURES.count();
        }
        chosen
    }

    /// Returns which of these nodes a request should be forwarded to: the first one, if it was
    /// heard from just now or there is no other one. `None` if none answers.
    pub(crate) async fn ready_in_order(&self, nodes: &[NodeId]) -> Option<NodeId> {
        match nodes {
            [only] => Some(*only),
            [first, ..] if self.was_heard_just_now(*first) => Some(*first),
            _ => self.ready(nodes).await,
        }
    }

    fn was_heard_just_now(&self, node: NodeId) -> bool {
        let heard = self.peers.get().and_then(|peers| peers.last_heard(node));
        heard.is_some_and(|at| at.elapsed() < JUST_NOW)
    }

    /// Returns the positions that a node has reached; `None` if it does not answer.
    pub(crate) async fn progress(&self, node: NodeId) -> Option<Progress> {
        self.progress_in(node, None).await
    }

    /// Returns the positions that these nodes have reached, of those that answer: in all logs, or
    /// in the one with this number.
    pub(crate) async fn positions(
        &self,
        nodes: BTreeSet<NodeId>,
        log: Option<u64>,
    ) -> BTreeMap<NodeId, Progress> {
        let others = nodes.into_iter();
        let live = others.filter(|node| *node != self.me && self.is_live(*node));
        let asked = live.map(|node| async move { (node, self.progress_in(node, log).await) });
        let answers = futures_util::future::join_all(asked).await.into_iter();
        let found = answers.filter_map(|(node, progress)| Some((node, progress?)));
        found.collect()
    }

    async fn progress_in(&self, node: NodeId, log: Option<u64>) -> Option<Progress> {
        let deadline = Instant::now() + PROGRESS_TIME_MAX;
        let path = match log {
            Some(log) => format!("{LOG_POSITIONS}?log={log}"),
            None => PROGRESS.to_owned(),
        };
        let answer = self.ask(node, path, Bytes::new(), deadline);
        serde_json::from_slice(&answer.await.ok()?).ok()
    }

    /// Returns the record versions of a node; `None` if it does not answer, or its program does not
    /// agree on versions.
    pub(crate) async fn versions_of(&self, node: NodeId) -> Option<NodeVersions> {
        let deadline = Instant::now() + VERSIONS_TIME_MAX;
        let answer = self.ask(node, VERSIONS.to_owned(), Bytes::new(), deadline);
        serde_json::from_slice(&answer.await.ok()?).ok()
    }

    /// Returns the reports of all live nodes that answer about their logs.
    pub(crate) async fn log_reports(&self) -> BTreeMap<NodeId, LogReport> {
        let others = self.live_others().into_iter();
        let asked = others.map(|node| async move { (node, self.log_report(node).await) });
        let answers = futures_util::future::join_all(asked).await.into_iter();
        let found = answers.filter_map(|(node, report)| Some((node, report?)));
        found.collect()
    }

    async fn log_report(&self, node: NodeId) -> Option<LogReport> {
        let deadline = Instant::now() + LOG_REPORT_TIME_MAX;
        let answer = self.ask(node, LOG_REPORT.to_owned(), Bytes::new(), deadline);
        serde_json::from_slice(&answer.await.ok()?).ok()
    }

    /// Asks another node to start new generations in the slots that this node does not have, or in
    /// one of them.
    pub(crate) async fn reseed(&self, node: NodeId, only: Option<SlotNumber>) {
        let deadline = Instant::now() + RESEED_TIME_MAX;
        let path = match only {
            Some(slot) => format!("{RESEED}?slot={slot}"),
            None => RESEED.to_owned(),
        };
        if let Err(e) = self.ask(node, path, Bytes::new(), deadline).await {
            tracing::warn!(node = format!("{node:x}"), error = %e, "the node starts no new generation");
        }
    }

    /// Decodes a record that another node forwards.
    pub fn read_record(&self, bytes: &[u8]) -> Option<record::Body> {
        self.stamp.read(bytes).ok().map(|record| record.body)
    }

    async fn ask(
        &self,
        node: NodeId,
        path: String,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Bytes, NoOutcome> {
        let Some(peers) = self.peers.get() else {
            return Err("this node is not connected yet".into());
        };
        let reply = peers
            .call(node, Call::new(path, body), left(deadline))
            .await;
        let reply = reply.map_err(not_done)?;
        let read = tokio::time::timeout_at(deadline, reply.body.read(ANSWER_BYTES_MAX)).await;
        let read = read.map_err(|_| NoOutcome::from("it did not answer in time"))?;
        read.map_err(|e| e.to_string().into())
    }
}

fn not_done(e: CallError) -> NoOutcome {
    let cause = match &e {
        CallError::Refused { refusal, .. } if refusal.status == FULL => Cause::Full,
        CallError::Refused { refusal, .. } if refusal.status == BEHIND => Cause::Behind,
        _ => Cause::NotNow,
    };
    NoOutcome {
        cause,
        is_sure: cause != Cause::NotNow || matches!(e, CallError::Unreachable { .. }),
        text: match e {
            CallError::Refused { refusal, .. } => refusal.text,
            e => e.to_string(),
        },
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// A request for a copy of a slot.
pub struct CopyRequest {
    /// The slot.
    pub slot: SlotNumber,
    /// The minimum version of the catalogue.
    pub catalogue: u64,
}

impl CopyRequest {
    fn to_query(&self) -> String {
        format!("slot={}&catalogue={}", self.slot, self.catalogue)
    }

    /// Decodes it; `None` for an invalid query.
    pub fn from_query(query: &str) -> Option<CopyRequest> {
        Some(CopyRequest {
            slot: value(query, "slot")?.parse().ok()?,
            catalogue: value(query, "catalogue")?.parse().ok()?,
        })
    }
}

/// The parameters of a forwarded request.
pub struct ForwardedRequest {
    /// The slot.
    pub slot: SlotNumber,
    /// The number of nodes that must have it.
    pub copies: Option<usize>,
    /// The time limit.
    pub time: Duration,
    /// [`EncodedRequest::stored_bytes`].
    pub stored_bytes: usize,
}

impl ForwardedRequest {
    fn to_query(&self) -> String {
        let copies = self.copies.map(|copies| format!("&copies={copies}"));
        let (slot, ms, stored) = (self.slot, self.time.as_millis(), self.stored_bytes);
        let copies = copies.unwrap_or_default();
        format!("slot={slot}&ms={ms}&stored={stored}{copies}")
    }

    /// Decodes it; `None` for an invalid query.
    pub fn from_query(query: &str) -> Option<ForwardedRequest> {
        let value = |name| value(query, name);
        Some(ForwardedRequest {
            slot: value("slot")?.parse().ok()?,
            copies: value("copies").map(str::parse).transpose().ok()?,
            time: Duration::from_millis(value("ms")?.parse().ok()?),
            // Nodes of earlier versions send none.
            stored_bytes: value("stored").map_or(Ok(0), str::parse).ok()?,
        })
    }
}

impl Network for Members {
    fn send(&self, to: NodeId, slot: SlotNumber, message: Message) {
        if let Some(peers) = self.peers.get() {
            let mut bytes = slot.to_be_bytes().to_vec();
            bytes.extend_from_slice(&message.encode());
            peers.send(to, bytes.into());
        }
    }
}

impl Source for Members {
    fn open(
        &self,
        from: NodeId,
        slot: SlotNumber,
        catalogue: u64,
    ) -> BoxFuture<'static, Result<Body, String>> {
        let peers = self.peers.get().cloned();
        Box::pin(async move {
            let peers = peers.ok_or("this node is not connected yet")?;
            let wanted = CopyRequest { slot, catalogue };
            let path = format!("{COPY}?{}", wanted.to_query());
            let call = Call::new(path, Bytes::new());
            let reply = peers.call(from, call, COPY_TIME_MAX).await;
            reply.map(|reply| reply.body).map_err(|e| e.to_string())
        })
    }
}

impl ContentPeers for Members {
    fn others(&self) -> Vec<NodeId> {
        self.live_others()
    }

    fn call(
        &self,
        node: NodeId,
        path: String,
        body: Body,
        time_max: Duration,
    ) -> BoxFuture<'static, Result<Body, ContentError>> {
        let peers = self.peers.get().cloned();
        Box::pin(async move {
            let none = || ContentError::Failed("this node is not connected yet".into());
            let peers = peers.ok_or_else(none)?;
            let called = peers.call(node, Call::new(path, body), time_max).await;
            called.map(|reply| reply.body).map_err(|e| match e {
                CallError::Refused { refusal, .. } => match refusal.status {
                    StatusCode::NOT_FOUND => ContentError::Missing,
                    StatusCode::GONE => ContentError::Gone,
                    FULL => ContentError::Full(refusal.text),
                    _ => ContentError::Failed(refusal.text),
                },
                e => ContentError::Failed(e.to_string()),
            })
        })
    }
}
