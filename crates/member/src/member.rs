//! A node as a member of its cluster.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use cluster::record::{RecordVersion, RecordVersions};
use cluster::{CONTROL, NodeId, SlotNumber};
use database::{Database, Databases, StoredDatabase};
use peers::{Identity, Server};
use serde::Serialize;
use tokio::task::JoinHandle;

use crate::Error;
use crate::address_check;
use crate::control::entry::{Entry, EntryOutcome, LogSeat};
use crate::control::{Catalogue, stored_agreement};
use crate::database_lifecycle::finish_drops;
use crate::error::named;
use crate::figures::{CONTROL_NAME, ClusterFigures, LogStatus};
use crate::forward::{self, ForwardedClientRequest};
use crate::gateway::{ClusterSequencer, Gateway};
use crate::ground::Ground;
use crate::handler::{Clients, NOT_STARTED};
use crate::jobs::{self, Jobs};
use crate::join::Issuer;
use crate::log_duty::LogDuty;
use crate::log_table::LogTables;
use crate::members::Members;
use crate::membership::Membership;
use crate::network_bench::{self, NodeNetwork};
use crate::open_log::OpenLog;
use crate::options::MemberOptions;
use crate::replicas::Replicas;
use crate::requested::RequestedReplications;
use crate::reseed;
use crate::slot_summary::{NOT_A_MEMBER, NodeView, SlotSummary};
use crate::versions::{self, VersionKeeper};

/// This node as a member of its cluster.
pub struct Member {
    home: Membership,
    identity: Arc<Identity>,
    members: Arc<Members>,
    replicas: Arc<Replicas>,
    catalogue: Arc<Catalogue>,
    gateway: Arc<Gateway>,
    jobs: Arc<Jobs>,
    requested: RequestedReplications,
    versions: Arc<VersionKeeper>,
    issuer: Arc<Issuer>,
    clients: Arc<OnceLock<Arc<dyn Clients>>>,
    logs: Arc<LogTables>,
    log_duty: Arc<LogDuty>,
    tasks: Vec<JoinHandle<()>>,
    /// Held by a measurement of the network.
    benches: tokio::sync::Mutex<()>,
    _server: Server,
}

/// The status of a member.
#[derive(Clone, Debug, Serialize)]
pub struct NodeStatus {
    /// Its number, in hexadecimal digits.
    pub node: String,
    /// Its name.
    pub name: String,
    /// Its address for other nodes.
    pub address: String,
    /// It was heard from recently.
    pub is_live: bool,
    /// It is this node.
    pub is_me: bool,
    /// The latest record version that its program is known to read.
    pub record_version: RecordVersion,
    /// Its zone; `None` if it has none.
    pub zone: Option<String>,
    /// Its slots move to other nodes.
    pub is_draining: bool,
}

/// The record versions of the cluster, as one of its nodes knows them.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ClusterVersions {
    /// The version in force.
    pub in_force: RecordVersion,
    /// The version that this node writes: the one in force, once it is known to stay so.
    pub written: RecordVersion,
    /// The latest version that this node's program reads.
    pub known: RecordVersion,
}

impl Member {
    /// Starts the member of a data directory. From now on the cluster orders the writes of its
    /// databases.
    ///
    /// # Errors
    /// The reason of the failure, in words for an administrator.
    pub async fn start(
        data: &Path,
        databases: &Arc<Databases>,
        options: MemberOptions,
    ) -> Result<Arc<Member>, Error> {
        let (mut home, identity) = Membership::read(data)?;
        home.set_address(options.address.as_deref());
        // The rest of the state may have a form that this program does not know.
        let agreement = stored_agreement(databases)?;
        versions::check(&agreement, options.record_version)?;
        refuse_own(databases, home.is_started || home.brings_data).await?;
        identity.renew_if_due(SystemTime::now())?;
        // Before the store is this node's: `init` can then be repeated with another address.
        address_check::require_listening(&home).await?;
        home.claim(data, &options.store)?;
        let log_home = options.log_home(&home, data);
        let open = OpenLog::open(&home, &log_home, databases).await?;
        home.note_log(data, open.keeper.clone())?;
        let of_program = RecordVersions::new(options.record_version);
        let stamp = home.cluster.stamp(CONTROL, &of_program)?;
        let ground = Ground::lay(&home, &identity, databases, &open, &options, stamp).await?;
        let listening = ground.listen(&home, &identity, databases, &open.kind);
        let server = listening.await?;
        versions::check_older(&ground.members, &agreement).await?;
        let parts = ground.slot_starter(&home, of_program, databases, open.log.clone());
        let stored = parts.start_slots(&ground.replicas, options.on_setting)?;
        let gateway = ground.gateway(databases)?;
        databases.set_sequencer(Arc::new(ClusterSequencer(gateway.clone())));
        let mut tasks = ground.duties(&home, &identity);
        tasks.push(tokio::spawn(finish_drops(gateway.clone())));
        tasks.extend(ground.placing(&gateway, (parts, stored), (options.zone, options.users)));
        let versions = VersionKeeper::new(gateway.clone());
        tasks.push(tokio::spawn(versions.clone().keep(options.give_up)));
        tasks.push(ground.watch_reach(open.log));
        tasks.extend(jobs::start(&ground.jobs, &ground.members, &gateway));
        let log_duty = ground.log_duty(log_home, &gateway);
        tasks.extend(ground.watch_log(&log_duty, open.kind));
        let Ground {
            members,
            replicas,
            catalogue,
            issuer,
            clients,
            jobs,
            logs,
            ..
        } = ground;
        Ok(Arc::new(Member {
            home,
            identity,
            members,
            replicas,
            catalogue,
            requested: RequestedReplications::new(gateway.clone()),
            gateway,
            jobs,
            versions,
            issuer,
            clients,
            logs,
            log_duty,
            tasks,
            benches: tokio::sync::Mutex::default(),
            _server: server,
        }))
    }

    /// Announces this node, and the first node's settings: must be called once it runs.
    ///
    /// # Errors
    /// [`Error::NotNow`].
    pub async fn announce(&self, settings: Vec<(String, String, String)>) -> Result<(), Error> {
        self.gateway.fresh_control().await?;
        let is_known = self
            .catalogue
            .with(|state| state.members.contains_key(&self.home.node));
        if !is_known && self.home.node == self.home.cluster.first {
            for (section, key, value) in settings {
                let value = Some(value);
                let entry = Entry::Setting {
                    section,
                    key,
                    value,
                };
                self.gateway.enter(entry).await?;
            }
            let entry = Entry::Join {
                node: self.home.node,
                member: self.home.member.clone(),
                token: None,
                version: None,
            };
            self.gateway.enter(entry).await?;
        }
        // A new cluster has the latest version from its beginning. What fails is repeated later.
        while let Ok(true) = self.versions.step().await {}
        self.members.connect(&self.home.others);
        Ok(())
    }

    /// Sets the handler of clients' requests that other nodes forward.
    pub fn answer_by(&self, clients: Arc<dyn Clients>) {
        // A second call has no effect.
        let _ = self.clients.set(clients);
    }

    /// Returns the number of the member with this name.
    pub fn named(&self, name: &str) -> Option<NodeId> {
        let all = self.members.all().into_iter();
        let mut named = all.filter(|(_, member)| member.name == name);
        named.next().map(|(id, _)| id)
    }

    /// Forwards a client's request to another node: one of these, preferably the first, or any.
    /// `None` when none answers. A request that a failed node may have executed is sent to another
    /// one only if it is `repeatable`.
    pub async fn pass_on(
        &self,
        to: Option<Vec<NodeId>>,
        method: &str,
        target: &str,
        headers: http::HeaderMap,
        body: bytes::Bytes,
        repeatable: bool,
    ) -> Option<(http::StatusCode, http::HeaderMap, peers::Body)> {
        let request = ForwardedClientRequest {
            method,
            target,
            headers,
            body,
        };
        forward::pass_on(&self.members, to, request, repeatable).await
    }

    /// Sends a part of a client's request to one of these nodes, which may include this one: then
    /// it is answered here. `None` when none answers.
    pub async fn ask_nodes(
        &self,
        mut nodes: Vec<NodeId>,
        request: ForwardedClientRequest<'_>,
        repeatable: bool,
    ) -> Option<peers::Reply> {
        let me = self.node();
        if nodes.contains(&me)
            && let Some(clients) = self.clients.get()
        {
            nodes.retain(|node| *node != me);
            match clients.answer(request.to_own_call()?).await {
                Ok(reply) if !reply.headers.contains_key(NOT_STARTED) => return Some(reply),
                Ok(_) => {}
                Err(_) if !repeatable => return None,
                Err(_) => {}
            }
        }
        let passed = forward::pass_on(&self.members, Some(nodes), request, repeatable);
        let (status, headers, body) = passed.await?;
        Some(peers::Reply {
            status,
            headers,
            body,
        })
    }

    /// Returns its number.
    pub fn node(&self) -> NodeId {
        self.home.node
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.home.member.name
    }

    /// Returns why other nodes serve clients better than this one does; `None` if they do not.
    pub fn unfit(&self) -> Option<&'static str> {
        if self.replicas.reach.is_elsewhere() {
            return Some("This node cannot reach the log of the cluster, and other nodes can.");
        }
        if self.members.count() == 0 && !self.home.others.is_empty() {
            return Some("This node has not read the state of the cluster yet.");
        }
        if self.members.has_left() {
            return Some(NOT_A_MEMBER);
        }
        let replicas = self.replicas.get(CONTROL)?.status().members;
        let live = replicas.iter().filter(|id| self.reaches(**id));
        (live.count() * 2 <= replicas.len() && !replicas.is_empty())
            .then_some("This node does not reach a majority of the nodes of the cluster.")
    }

    /// Returns which jobs it runs.
    pub fn jobs(&self) -> &Arc<Jobs> {
        &self.jobs
    }

    /// Returns the continuous replications of `_replicate`.
    pub fn requested(&self) -> &RequestedReplications {
        &self.requested
    }

    /// Returns the id of the cluster, 32 hexadecimal digits.
    pub fn cluster_id(&self) -> &str {
        &self.home.cluster.id
    }

    /// Sends a client's request to all other live nodes, and returns the bodies of their responses.
    /// Those that refuse, or do not answer in time, are left out.
    pub async fn ask_others(
        &self,
        method: &str,
        target: &str,
        headers: &http::HeaderMap,
        body: bytes::Bytes,
    ) -> Vec<bytes::Bytes> {
        let request = ForwardedClientRequest {
            method,
            target,
            headers: headers.clone(),
            body,
        };
        forward::ask_others(&self.members, request).await
    }

    /// Returns the gateway of its writes.
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Issues a join token.
    ///
    /// # Errors
    /// Errors of [`Issuer::token`].
    pub async fn token(&self, valid: Duration) -> Result<String, Error> {
        self.issuer.token(valid).await
    }

    /// Removes a node from the cluster: this one, or one that was lost.
    ///
    /// # Errors
    /// [`Error::NotNow`], also for a live node that slots need.
    pub async fn remove(&self, node: NodeId) -> Result<bool, Error> {
        if self.gateway.lacks_slots() && self.members.is_live(node) {
            // Another one may have left just now.
            self.gateway.fresh_control().await?;
        }
        let needing = self.gateway.slots_that_need(node);
        if needing > 0 && self.members.is_live(node) {
            let why = format!(
                "{needing} slots would have no majority of their nodes without it: drain it first"
            );
            return Err(Error::NotNow(why));
        }
        self.log_duty.release(node).await?;
        let done = self.gateway.enter(Entry::Leave { node }).await?;
        Ok(done == EntryOutcome::Done)
    }

    /// Sets a cluster-wide setting.
    ///
    /// # Errors
    /// [`Error::NotNow`].
    pub async fn set(&self, section: &str, key: &str, value: Option<String>) -> Result<(), Error> {
        let entry = Entry::Setting {
            section: section.to_owned(),
            key: key.to_owned(),
            value,
        };
        self.gateway.enter(entry).await.map(drop)
    }

    /// Returns all members.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        let agreement = self.catalogue.agreement();
        let placements = self.catalogue.with(|state| state.placement.nodes.clone());
        let status = |(id, member): (NodeId, crate::MemberInfo)| NodeStatus {
            record_version: agreement.known(id),
            zone: placements.get(&id).and_then(|node| node.zone.clone()),
            is_draining: placements.get(&id).is_some_and(|node| node.is_draining),
            node: format!("{id:x}"),
            is_live: self.members.is_live(id),
            is_me: id == self.home.node,
            name: member.name,
            address: member.address,
        };
        let mut all: Vec<_> = self.members.all().into_iter().map(status).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Returns the record versions of the cluster.
    pub fn record_versions(&self) -> ClusterVersions {
        let of_program = self.members.record_versions();
        ClusterVersions {
            in_force: self.catalogue.agreement().in_force(),
            written: of_program.written(),
            known: of_program.known(),
        }
    }

    /// Whether this node does what one node is to do for all: of those that are alive, it is the first. For a moment two nodes, or
    /// none, may be.
    pub fn is_first(&self) -> bool {
        self.members.live_before_me() == 0
    }

    /// Whether this node does what one node is to do for a database. For a moment two nodes, or
    /// none, may do it.
    pub fn acts_for(&self, database: &str) -> bool {
        let acts = self.gateway.acts_for(database);
        acts.unwrap_or_else(|| self.is_first())
    }

    /// Returns the status of all slots here.
    pub fn slots(&self) -> Vec<SlotSummary> {
        let view = self.view();
        self.replicas
            .all()
            .map(|(slot, replica)| {
                let placement = self.gateway.slot_placement(slot);
                SlotSummary::of(slot, &replica.status(), &placement, &view)
            })
            .collect()
    }

    /// Returns this node's view of the cluster.
    fn view(&self) -> NodeView {
        let members = self.members.all().into_iter().map(|(id, _)| id);
        let own = self.logs.own();
        NodeView {
            has_left: self.members.has_left(),
            is_log_lost: self.replicas.reach.is_lost(),
            is_log_disk_lost: own.is_some_and(|own| {
                let (me, table) = (own.options().me, self.logs.latest());
                let is_other = |seat: &LogSeat| seat.node == me.node && seat.disk != me.raft;
                table.nodes.iter().any(is_other)
            }),
            leaderless: own.map(|own| own.figures().leaderless).unwrap_or_default(),
            reached: members
                .chain([self.home.node])
                .filter(|id| self.reaches(*id))
                .collect(),
        }
    }

    /// Returns whether this node can call another one, or is it. A node that sends messages may be
    /// unreachable for calls.
    fn reaches(&self, node: NodeId) -> bool {
        let is_connected = || {
            let peers = self.members.peers();
            peers.is_some_and(|peers| peers.is_connected(node))
        };
        node == self.home.node || self.members.is_live(node) && is_connected()
    }

    /// Returns figures of this node's part in the cluster.
    pub fn figures(&self) -> ClusterFigures {
        let own = self.logs.own().map(|own| own.figures());
        ClusterFigures::of(&self.members, &self.replicas, self.unfit().is_none(), own)
    }

    /// Returns the status of the log.
    pub fn log(&self) -> LogStatus {
        LogStatus::of(&self.logs, &self.members)
    }

    /// Measures the connections to all other nodes, one after the other; each of the three parts of a
    /// measurement takes at most about `time`.
    ///
    /// # Errors
    /// [`Error::NotNow`] while another measurement runs.
    pub async fn bench_network(&self, time: Duration) -> Result<Vec<NodeNetwork>, Error> {
        let running = || Error::NotNow("the network is being measured already".into());
        let _one = self.benches.try_lock().map_err(|_| running())?;
        Ok(network_bench::measure_all(&self.members, time).await)
    }

    /// Returns the names of the nodes that have a database's shard.
    pub fn holders(&self, db: &Database, shard: usize) -> Vec<String> {
        let slot = self.gateway.shard_slots(db.uuid()).of(shard);
        let replicas = self.gateway.holders_of(slot);
        let names = self.members.all();
        let name = |id: NodeId| {
            let known = names.iter().find(|(other, _)| *other == id);
            known.map_or_else(|| format!("{id:x}"), |(_, member)| member.name.clone())
        };
        replicas.into_iter().map(name).collect()
    }

    /// Starts a new generation in all slots or in one, after the log was lost or cut. If it does not
    /// exist any more, or is to be at another place, it is recreated first, and all nodes restart with it.
    ///
    /// # Errors
    /// [`Error::NotNow`], also for one slot while there is no log; errors of brokers, and of writing.
    pub async fn reseed(&self, slot: Option<SlotNumber>) -> Result<(), Error> {
        if self.log_duty.is_in_place().await? {
            let (replicas, members) = (self.replicas.clone(), self.members.clone());
            tokio::spawn(reseed::start(replicas, members, slot));
            return Ok(());
        }
        if slot.is_some() {
            let why = "the log of the cluster is gone, or is to move: reseed all slots, which creates another one";
            return Err(Error::NotNow(why.into()));
        }
        self.log_duty.recreate().await
    }

    /// Returns the number of a slot by its name in [`SlotSummary::slot`]; `None` for a slot that the
    /// cluster does not have.
    pub fn slot_named(&self, name: &str) -> Option<SlotNumber> {
        match name {
            CONTROL_NAME => Some(CONTROL),
            number => {
                let number = number.parse::<SlotNumber>().ok();
                number.filter(|slot| *slot < self.replicas.count())
            }
        }
    }

    /// Stops it.
    pub async fn stop(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.catalogue.close();
        self.replicas.stop().await;
    }

    /// Returns when its certificate expires.
    pub fn certificate_ends(&self) -> SystemTime {
        self.identity.not_after()
    }
}

/// Refuses databases of this server's own, which would conflict with the cluster's. A node that has
/// not started before has none at all, unless it `may_have_some`: those of another cluster would be
/// deleted.
pub(crate) async fn refuse_own(
    databases: &Arc<Databases>,
    may_have_some: bool,
) -> Result<(), Error> {
    let all = databases.clone();
    let stored = tokio::task::spawn_blocking(move || all.stored()).await;
    let stored = stored.map_err(|e| Error::Membership(e.to_string()))?;
    let stored = stored.map_err(|e| Error::Membership(e.to_string()))?;
    let is_own = |database: &&StoredDatabase| !(database.is_sequenced && may_have_some);
    let own = stored.iter().filter(is_own);
    let names: Vec<&str> = own.map(|database| &*database.name).collect();
    match names.is_empty() {
        true => Ok(()),
        false => Err(Error::OwnDatabases(named(&names))),
    }
}
