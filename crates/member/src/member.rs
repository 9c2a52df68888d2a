//! One node of a cluster.

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
use crate::existence::finish_drops;
use crate::gateway::{Gateway, Ordering};
use crate::handler::{Answering, Clients};
use crate::home::{self, Home};
use crate::join::Issuer;
use crate::members::Members;
use crate::parts::Parts;
use crate::planner;
use crate::replicas::Replicas;
use crate::slot::failed;

/// A client's request that is passed on has an answer within this time.
const PASSED_TIME_MAX: Duration = Duration::from_secs(30);

/// Brokers that cannot be reached at the start are waited for so long.
const BROKERS_TIME_MAX: Duration = Duration::from_secs(60);
/// A new generation has so long to begin, and so many are tried.
const RESEED_TIME: Duration = Duration::from_secs(12);
const RESEEDS_MAX: u32 = 10;
/// So many databases are named in an error.
const NAMED_MAX: usize = 5;
/// How often it is looked whether there is a newer log.
const LOG_WATCHED_EVERY: Duration = Duration::from_secs(5);

/// How a member is started.
pub struct MemberOptions {
    /// Kafka brokers, as `host:port,…`.
    pub brokers: String,
    /// Settings for librdkafka.
    pub properties: BTreeMap<String, String>,
    /// Where other nodes reach this one; `None` for the address that it joined with.
    pub address: Option<String>,
    /// Told of settings that all nodes have alike.
    pub on_setting: OnSetting,
    /// The directory of the store.
    pub store: PathBuf,
    /// Has the server start anew: the log is another one.
    pub restart: Box<dyn Fn() + Send + Sync>,
}

/// This node as a member of its cluster.
pub struct Member {
    home: Home,
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

/// How a member is.
#[derive(Clone, Debug, Serialize)]
pub struct NodeStatus {
    /// Its number, in hexadecimal digits.
    pub node: String,
    /// Its name.
    pub name: String,
    /// Where others reach it.
    pub address: String,
    /// It was heard of lately.
    pub is_live: bool,
    /// It is this one.
    pub is_me: bool,
}

/// How a slot is on this node.
#[derive(Clone, Debug, Serialize)]
pub struct SlotSummary {
    /// Its number, `control` for the control slot.
    pub slot: String,
    /// Offset of the next record.
    pub next_offset: u64,
    /// A majority has what is before this.
    pub stable: u64,
    /// Where the log ends.
    pub log_end: Option<u64>,
    /// The generation's number.
    pub generation: u64,
    /// Hash over all records that were applied.
    pub chain: String,
    /// Its replicas' nodes.
    pub members: Vec<String>,
    /// It takes writes.
    pub takes_writes: bool,
    /// Why it does not, or what went wrong last.
    pub reason: Option<String>,
}

impl Member {
    /// Starts what a data directory is a member of. The databases are ordered by it from now on.
    ///
    /// # Errors
    /// Why that cannot be, in words for an administrator.
    pub async fn start(
        data: &Path,
        databases: &Arc<Databases>,
        options: MemberOptions,
    ) -> Result<Arc<Member>, Error> {
        let (mut home, identity) = Home::read(data)?;
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
        let parts = Parts {
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
        if home::take_reseed(data) {
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

    /// Says that this node is here, and what the first node's settings are: to be called once it runs.
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

    /// By whom clients' requests are answered that other nodes pass on.
    pub fn answer_by(&self, clients: Arc<dyn Clients>) {
        // A second time changes nothing.
        let _ = self.clients.set(clients);
    }

    /// The number of the member of this name.
    pub fn named(&self, name: &str) -> Option<NodeId> {
        let all = self.members.all().into_iter();
        let mut named = all.filter(|(_, member)| member.name == name);
        named.next().map(|(id, _)| id)
    }

    /// Has another node answer a client's request: this one, or any. `None` when none does. Only what is `repeatable` is asked of another
    /// one after a node that may have done it.
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
        // Between nodes the header is another one's.
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
                // Another one may be able.
                Ok(reply)
                    if repeatable && reply.status == http::StatusCode::SERVICE_UNAVAILABLE => {}
                Ok(reply) => return Some((reply.status, reply.headers, reply.body)),
                Err(e) => {
                    tracing::debug!(error = %e, "a client's request was not passed on");
                    if !repeatable && !matches!(e, peers::CallError::Unreachable { .. }) {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Its number.
    pub fn node(&self) -> NodeId {
        self.home.node
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.home.member.name
    }

    /// Writes on their way.
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Who gives out tokens.
    ///
    /// # Errors
    /// Those of [`Issuer::token`].
    pub async fn token(&self, valid: Duration) -> Result<String, Error> {
        self.issuer.token(valid).await
    }

    /// Has a node leave: this one, or one that is gone for good.
    ///
    /// # Errors
    /// [`Error::NotNow`].
    pub async fn remove(&self, node: NodeId) -> Result<bool, Error> {
        let done = self.gateway.enter(Entry::Leave { node }).await?;
        Ok(done == EntryOutcome::Done)
    }

    /// Sets a setting that all nodes have alike.
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

    /// All members.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        let status = |(id, member): (NodeId, crate::MemberFacts)| NodeStatus {
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

    /// How the slots are here.
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

    /// Names of the nodes that have a database's shards.
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

    /// Begins a new generation in all slots: the log was lost or cut. When its topics are gone, others are made first, which all nodes
    /// start anew with.
    ///
    /// # Errors
    /// What the brokers say.
    pub async fn reseed(&self) -> Result<(), Error> {
        let numbers = kafka_log::log_numbers(&self.kafka).await?;
        if numbers.contains(&self.kafka.log) {
            tokio::spawn(reseed(self.replicas.clone()));
            return Ok(());
        }
        home::ask_for_reseed(&self.data)?;
        let next = kafka_log::Options {
            log: self.kafka.log + 1,
            ..self.kafka.clone()
        };
        kafka_log::create_topics(&next, kafka_log::TopicOptions::default()).await?;
        Ok(())
    }

    /// Ends what it does.
    pub async fn stop(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.catalogue.close();
        self.replicas.stop().await;
    }

    /// When its certificate ends.
    pub fn certificate_ends(&self) -> SystemTime {
        self.identity.not_after()
    }
}

/// What a member stands on before its slots run.
struct Ground {
    members: Arc<Members>,
    replicas: Arc<Replicas>,
    catalogue: Arc<Catalogue>,
    issuer: Arc<Issuer>,
    clients: Arc<OnceLock<Arc<dyn Clients>>>,
}

impl Ground {
    async fn lay(
        home: &Home,
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

    /// Reaches the other nodes, and answers them.
    async fn listen(
        &self,
        home: &Home,
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

    fn duties(&self, home: &Home, identity: &Arc<Identity>) -> Vec<JoinHandle<()>> {
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

/// Databases that are of this server alone would be in the way of the cluster's.
async fn refuse_own(databases: &Arc<Databases>) -> Result<(), Error> {
    let all = databases.clone();
    let stored = tokio::task::spawn_blocking(move || all.stored()).await;
    let stored = stored.map_err(|e| Error::Home(e.to_string()))?;
    let stored = stored.map_err(|e| Error::Home(e.to_string()))?;
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

/// Which log to open: the newest of the cluster. The first node makes the first one.
async fn newest_log(
    home: &Home,
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
    let numbers = patiently(&kafka).await?;
    match numbers.iter().max() {
        Some(newest) => {
            kafka.log = *newest;
            if is_new && home.node == home.cluster.first && kafka_log::has_records(&kafka).await? {
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
        // They are gone. A log that is made anew has another number; an operator says that it is to be.
        None => {
            let known = databases.store().slot_state(CONTROL, b"@cursor");
            let rows = known.map_err(failed)?;
            let cursor = rows.first().and_then(|(_, row)| Cursor::decode(row));
            kafka.log = cursor.map_or(0, |cursor| cursor.log);
            tracing::error!(
                brokers = kafka.brokers,
                "the topics of the cluster are gone, or [cluster] log names other brokers than those of the other nodes. Reads go on where they can. If they are gone, `settee cluster reseed` makes others and goes on from what the nodes have"
            );
            return Ok(kafka);
        }
    }
    kafka_log::check_topics(&kafka).await?;
    Ok(kafka)
}

/// Brokers that start together with this node may take a while.
async fn patiently(kafka: &kafka_log::Options) -> Result<Vec<u64>, Error> {
    let until = std::time::Instant::now() + BROKERS_TIME_MAX;
    loop {
        match kafka_log::log_numbers(kafka).await {
            Err(e @ OpenError::Unreachable { .. }) if std::time::Instant::now() < until => {
                tracing::warn!(error = %e, "waiting for the brokers");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            numbers => return Ok(numbers?),
        }
    }
}

/// Has the server start anew when there is a newer log.
async fn watch_log(kafka: kafka_log::Options, restart: Box<dyn Fn() + Send + Sync>) {
    loop {
        tokio::time::sleep(LOG_WATCHED_EVERY).await;
        let numbers = kafka_log::log_numbers(&kafka).await.unwrap_or_default();
        if numbers.iter().any(|number| *number > kafka.log) {
            tracing::warn!("the cluster's log was made anew: starting anew with it");
            return restart();
        }
    }
}

/// Begins a new generation once the other nodes have the new log, too.
async fn reseed_later(replicas: Arc<Replicas>) {
    tokio::time::sleep(2 * LOG_WATCHED_EVERY).await;
    reseed(replicas).await;
}

/// Begins a new generation in all slots. A beginning that does not come to its end in time, as while brokers start, is followed by another.
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
    tracing::error!(slots = ?left, "no new generation began: `settee cluster reseed` tries it again");
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
