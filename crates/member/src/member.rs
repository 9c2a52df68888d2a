//! A node as a member of its cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use cluster::replica::Cursor;
use cluster::{CONTROL, NodeId};
use database::{Database, Databases};
use kafka_log::{KafkaLog, OpenError};
use parking_lot::Mutex;
use peers::{Identity, Peers, Server};
use serde::Serialize;
use tokio::task::JoinHandle;

use crate::Error;
use crate::control::entry::{Entry, EntryOutcome};
use crate::control::{Catalogue, OnSetting};
use crate::copy::Giver;
use crate::database_lifecycle::finish_drops;
use crate::gateway::{Gateway, Ordering};
use crate::handler::{Answering, Clients};
use crate::join::Issuer;
use crate::members::Members;
use crate::membership::{self, Membership};
use crate::planner;
use crate::replicas::Replicas;
use crate::slot::failed;
use crate::slot_starter::SlotStarter;

/// Time limit of a forwarded client request.
const PASSED_TIME_MAX: Duration = Duration::from_secs(30);

/// Time limit to wait for unreachable brokers at the start.
const BROKERS_TIME_MAX: Duration = Duration::from_secs(60);
/// Time limit of the start of a generation, and maximum number of attempts.
const RESEED_TIME: Duration = Duration::from_secs(12);
const RESEEDS_MAX: u32 = 10;
/// Maximum number of databases named in an error.
const NAMED_MAX: usize = 5;
/// Interval of checks for a newer log.
const LOG_WATCHED_EVERY: Duration = Duration::from_secs(5);

/// The options of a member.
pub struct MemberOptions {
    /// Kafka brokers, as `host:port,…`.
    pub brokers: String,
    /// Settings for librdkafka.
    pub properties: BTreeMap<String, String>,
    /// The address for other nodes; `None` for the one that it joined with.
    pub address: Option<String>,
    /// Called with cluster-wide settings.
    pub on_setting: OnSetting,
    /// The directory of the store.
    pub store: PathBuf,
    /// Restarts the server: the log was replaced.
    pub restart: Box<dyn Fn() + Send + Sync>,
}

/// This node as a member of its cluster.
pub struct Member {
    home: Membership,
    identity: Arc<Identity>,
    members: Arc<Members>,
    replicas: Arc<Replicas>,
    catalogue: Arc<Catalogue>,
    gateway: Arc<Gateway>,
    issuer: Arc<Issuer>,
    clients: Arc<OnceLock<Arc<dyn Clients>>>,
    kafka: kafka_log::Options,
    data: PathBuf,
    tasks: Vec<JoinHandle<()>>,
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
}

/// The status of a slot on this node.
#[derive(Clone, Debug, Serialize)]
pub struct SlotSummary {
    /// Its number, `control` for the control slot.
    pub slot: String,
    /// Offset of the next record.
    pub next_offset: u64,
    /// A majority has everything before this offset.
    pub stable: u64,
    /// The end of the log.
    pub log_end: Option<u64>,
    /// The generation's number.
    pub generation: u64,
    /// Hash over all applied records.
    pub chain: String,
    /// The nodes of its replicas.
    pub members: Vec<String>,
    /// It accepts writes.
    pub takes_writes: bool,
    /// Why it does not, or the last error.
    pub reason: Option<String>,
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
        if let Some(address) = &options.address {
            home.member.address.clone_from(address);
        }
        refuse_own(databases).await?;
        identity.renew_if_due(SystemTime::now())?;
        home.claim(data, &options.store)?;
        let kafka = newest_log(&home, databases, &options).await?;
        let log = Arc::new(KafkaLog::open_unchecked(kafka.clone()).await?);
        let ground = Ground::lay(&home, &identity, databases, &options.on_setting).await?;
        let server = ground.listen(&home, &identity, databases).await?;
        let parts = SlotStarter {
            node: home.node,
            cluster: &home.cluster,
            databases,
            catalogue: &ground.catalogue,
            log: log.clone(),
            network: ground.members.clone(),
            source: ground.members.clone(),
        };
        parts.start_slots(&ground.replicas, options.on_setting)?;
        let gateway = ground.gateway(databases)?;
        databases.be_ordered(Arc::new(Ordering(gateway.clone())));
        let mut tasks = ground.duties(&home, &identity);
        tasks.push(tokio::spawn(finish_drops(gateway.clone())));
        tasks.push(tokio::spawn(watch_log(kafka.clone(), options.restart)));
        if membership::take_reseed(data) {
            tasks.push(tokio::spawn(reseed_later(ground.replicas.clone())));
        }
        let Ground {
            members,
            replicas,
            catalogue,
            issuer,
            clients,
        } = ground;
        Ok(Arc::new(Member {
            home,
            identity,
            members,
            replicas,
            catalogue,
            gateway,
            issuer,
            clients,
            kafka,
            data: data.to_owned(),
            tasks,
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
            };
            self.gateway.enter(entry).await?;
        }
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

    /// Forwards a client's request to another node: a given one, or any. `None` when none answers.
    /// A request that a failed node may have executed is sent to another one only if it is
    /// `repeatable`.
    pub async fn pass_on(
        &self,
        to: Option<NodeId>,
        method: &str,
        target: &str,
        mut headers: http::HeaderMap,
        body: bytes::Bytes,
        repeatable: bool,
    ) -> Option<(http::StatusCode, http::HeaderMap, peers::Body)> {
        let method: http::Method = method.parse().ok()?;
        // Between nodes the header has another value.
        let host = headers.remove(http::header::HOST);
        let host = host.unwrap_or(http::HeaderValue::from_static("localhost"));
        headers.insert(crate::CLIENT, host);
        let peers = self.members.peers()?;
        for node in to.map_or_else(|| self.members.live_others(), |to| vec![to]) {
            let call = peers::Call {
                method: method.clone(),
                path: target.to_owned(),
                headers: headers.clone(),
                body: body.clone().into(),
            };
            match peers.call(node, call, PASSED_TIME_MAX).await {
                // Another node may be able to.
                Ok(reply)
                    if repeatable && reply.status == http::StatusCode::SERVICE_UNAVAILABLE => {}
                Ok(reply) => return Some((reply.status, reply.headers, reply.body)),
                Err(e) => {
                    tracing::debug!(error = %e, "a client's request was not forwarded");
                    if !repeatable && !matches!(e, peers::CallError::Unreachable { .. }) {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Returns its number.
    pub fn node(&self) -> NodeId {
        self.home.node
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.home.member.name
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
    /// [`Error::NotNow`].
    pub async fn remove(&self, node: NodeId) -> Result<bool, Error> {
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
        let status = |(id, member): (NodeId, crate::MemberInfo)| NodeStatus {
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

    /// Whether this node does what one node is to do for all: of those that are alive, it is the first. For a moment two nodes, or
    /// none, may be.
    pub fn is_first(&self) -> bool {
        self.members.live_before_me() == 0
    }

    /// Returns the status of all slots here.
    pub fn slots(&self) -> Vec<SlotSummary> {
        self.replicas
            .all()
            .map(|(slot, replica)| {
                let status = replica.status();
                let ok = status.proposes && status.error.is_none();
                SlotSummary {
                    slot: match slot {
                        CONTROL => "control".into(),
                        slot => slot.to_string(),
                    },
                    next_offset: status.position.next_offset,
                    stable: status.stable,
                    log_end: status.log_end,
                    generation: status.position.generation.number,
                    chain: data_encoding::HEXLOWER.encode(&status.position.chain),
                    members: status.members.iter().map(|id| format!("{id:x}")).collect(),
                    takes_writes: status.proposes,
                    reason: (!ok).then(|| status.reason()),
                }
            })
            .collect()
    }

    /// Returns the names of the nodes that have a database's shard.
    pub fn holders(&self, db: &Database, shard: usize) -> Vec<String> {
        let slot = crate::placement::slot_of(db.uuid(), shard, self.replicas.count());
        let replicas = self
            .replicas
            .get(slot)
            .map(|replica| replica.status().members);
        let names = self.members.all();
        let name = |id: NodeId| {
            let known = names.iter().find(|(other, _)| *other == id);
            known.map_or_else(|| format!("{id:x}"), |(_, member)| member.name.clone())
        };
        replicas.unwrap_or_default().into_iter().map(name).collect()
    }

    /// Starts a new generation in all slots, after the log was lost or cut. If its topics are gone,
    /// they are recreated first, and all nodes restart with them.
    ///
    /// # Errors
    /// Errors of the brokers.
    pub async fn reseed(&self) -> Result<(), Error> {
        let numbers = kafka_log::log_numbers(&self.kafka).await?;
        if numbers.contains(&self.kafka.log) {
            tokio::spawn(reseed(self.replicas.clone()));
            return Ok(());
        }
        membership::ask_for_reseed(&self.data)?;
        let next = kafka_log::Options {
            log: self.kafka.log + 1,
            ..self.kafka.clone()
        };
        kafka_log::create_topics(&next, kafka_log::TopicOptions::default()).await?;
        Ok(())
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

/// The parts of a member that exist before its slots run.
struct Ground {
    members: Arc<Members>,
    replicas: Arc<Replicas>,
    catalogue: Arc<Catalogue>,
    issuer: Arc<Issuer>,
    clients: Arc<OnceLock<Arc<dyn Clients>>>,
}

impl Ground {
    async fn lay(
        home: &Membership,
        identity: &Arc<Identity>,
        databases: &Arc<Databases>,
        on_setting: &OnSetting,
    ) -> Result<Ground, Error> {
        let catalogue = Catalogue::open(databases, on_setting).await?;
        let stamp = home.cluster.stamp(CONTROL)?;
        let members = Arc::new(Members::new(home.node, stamp, catalogue.clone()));
        let of_cluster = home.cluster.clone();
        let issuer = Issuer::new(of_cluster, identity.clone(), catalogue.clone());
        Ok(Ground {
            members,
            replicas: Arc::new(Replicas::new(home.node, home.cluster.slots)),
            catalogue,
            issuer: Arc::new(issuer),
            clients: Arc::new(OnceLock::new()),
        })
    }

    /// Connects to the other nodes, and serves them.
    async fn listen(
        &self,
        home: &Membership,
        identity: &Arc<Identity>,
        databases: &Arc<Databases>,
    ) -> Result<Server, Error> {
        let peers = Peers::new(identity.clone())?;
        self.members.reach_by(peers.clone());
        self.members.connect(&home.others);
        let answering = Arc::new(Answering {
            replicas: self.replicas.clone(),
            members: self.members.clone(),
            issuer: self.issuer.clone(),
            giver: Giver::new(databases, &self.catalogue, home.cluster.slots),
            clients: self.clients.clone(),
            doubles: Mutex::default(),
        });
        Ok(Server::bind(home.member.address.as_str(), &peers, answering).await?)
    }

    fn gateway(&self, databases: &Arc<Databases>) -> Result<Arc<Gateway>, Error> {
        let gateway = Gateway::new(databases, &self.catalogue, &self.members, &self.replicas)?;
        self.issuer.propose_by(gateway.clone());
        Ok(gateway)
    }

    fn duties(&self, home: &Membership, identity: &Arc<Identity>) -> Vec<JoinHandle<()>> {
        let (members, replicas) = (self.members.clone(), self.replicas.clone());
        let connecting = planner::connect(members.clone(), replicas.clone(), home.others.clone());
        let planning = planner::run(members, replicas);
        let renewing = keep_certificate(identity.clone());
        vec![
            tokio::spawn(connecting),
            tokio::spawn(planning),
            tokio::spawn(renewing),
        ]
    }
}

/// Refuses databases of this server's own, which would conflict with the cluster's.
async fn refuse_own(databases: &Arc<Databases>) -> Result<(), Error> {
    let all = databases.clone();
    let stored = tokio::task::spawn_blocking(move || all.stored()).await;
    let stored = stored.map_err(|e| Error::Membership(e.to_string()))?;
    let stored = stored.map_err(|e| Error::Membership(e.to_string()))?;
    let own = stored.iter().filter(|database| !database.is_ordered);
    let names: Vec<&str> = own.map(|database| &*database.name).collect();
    match names.len() {
        0 => Ok(()),
        count => {
            let more = if count > NAMED_MAX { ", ..." } else { "" };
            let named = names[..count.min(NAMED_MAX)].join(", ");
            Err(Error::OwnDatabases(format!("{named}{more}")))
        }
    }
}

/// Returns the log to open: the newest of the cluster. The first node creates the first one.
async fn newest_log(
    home: &Membership,
    databases: &Databases,
    options: &MemberOptions,
) -> Result<kafka_log::Options, Error> {
    let mut kafka = kafka_log::Options {
        brokers: options.brokers.clone(),
        cluster: home.cluster.name.clone(),
        slots: home.cluster.slots,
        log: home.cluster.log,
        properties: options.properties.clone(),
    };
    let is_new = databases.store().slots().map_err(failed)?.is_empty();
    let numbers = patiently(async || kafka_log::log_numbers(&kafka).await).await?;
    match numbers.iter().max() {
        Some(newest) => {
            kafka.log = *newest;
            if is_new
                && home.node == home.cluster.first
                && patiently(async || kafka_log::has_records(&kafka).await).await?
            {
                return Err(Error::NoLog(format!(
                    "the brokers {} have a log of a cluster {} already: another name is needed, `settee cluster init --cluster NAME` with another --data. If that cluster is gone, delete its topics first",
                    kafka.brokers, kafka.cluster
                )));
            }
        }
        None if is_new && home.node == home.cluster.first => {
            kafka_log::create_topics(&kafka, kafka_log::TopicOptions::default()).await?;
        }
        None if is_new => {
            return Err(Error::NoLog(format!(
                "the brokers {} have no topics of the cluster {}: they are others than those of the other nodes",
                kafka.brokers, kafka.cluster
            )));
        }
        // They are gone. A recreated log has another number; only an operator recreates it.
        None => {
            let known = databases.store().slot_state(CONTROL, b"@cursor");
            let rows = known.map_err(failed)?;
            let cursor = rows.first().and_then(|(_, row)| Cursor::decode(row));
            kafka.log = cursor.map_or(0, |cursor| cursor.log);
            tracing::error!(
                brokers = kafka.brokers,
                "the topics of the cluster are gone, or [cluster] log names other brokers than those of the other nodes. Reads continue where possible. If the topics are gone, `settee cluster reseed` creates others and continues from the nodes' state"
            );
            return Ok(kafka);
        }
    }
    patiently(async || kafka_log::check_topics(&kafka).await).await?;
    Ok(kafka)
}

/// Asks the brokers again until they answer: those that start together with this node, or are busy,
/// may take a while.
async fn patiently<T>(ask: impl AsyncFn() -> Result<T, OpenError>) -> Result<T, Error> {
    let until = std::time::Instant::now() + BROKERS_TIME_MAX;
    loop {
        match ask().await {
            Err(e @ OpenError::Unreachable { .. }) if std::time::Instant::now() < until => {
                tracing::warn!(error = %e, "waiting for the brokers");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            answer => return Ok(answer?),
        }
    }
}

/// Restarts the server when there is a newer log.
async fn watch_log(kafka: kafka_log::Options, restart: Box<dyn Fn() + Send + Sync>) {
    loop {
        tokio::time::sleep(LOG_WATCHED_EVERY).await;
        let numbers = kafka_log::log_numbers(&kafka).await.unwrap_or_default();
        if numbers.iter().any(|number| *number > kafka.log) {
            tracing::warn!("the cluster's log was created again: restarting with it");
            return restart();
        }
    }
}

/// Starts a new generation once the other nodes have the new log, too.
async fn reseed_later(replicas: Arc<Replicas>) {
    tokio::time::sleep(2 * LOG_WATCHED_EVERY).await;
    reseed(replicas).await;
}

/// Starts a new generation in all slots. A start that does not finish in time, for example while
/// brokers start, is repeated.
async fn reseed(replicas: Arc<Replicas>) {
    let all = replicas.all();
    let mut left: Vec<_> = all.map(|(slot, r)| (slot, r.generation())).collect();
    for _ in 0..RESEEDS_MAX {
        left.retain(|(slot, before)| {
            let replica = replicas.get(*slot);
            let waits = replica.filter(|replica| replica.generation() == *before);
            waits.inspect(|replica| replica.reseed()).is_some()
        });
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(RESEED_TIME).await;
    }
    tracing::error!(slots = ?left, "no new generation started: `settee cluster reseed` tries again");
}

/// Renews the certificate in time.
async fn keep_certificate(identity: Arc<Identity>) {
    loop {
        tokio::time::sleep(Duration::from_hours(1)).await;
        if let Err(e) = identity.renew_if_due(SystemTime::now()) {
            tracing::error!(error = %e, "the certificate of this node was not renewed");
        }
    }
}
