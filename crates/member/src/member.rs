//! One node of a cluster.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use cluster::{CONTROL, NodeId};
use database::{Database, Databases};
use kafka_log::KafkaLog;
use peers::{Identity, Peers, Server};
use serde::Serialize;

use crate::Error;
use crate::control::entry::{Entry, EntryOutcome};
use crate::control::{Catalogue, OnSetting};
use crate::copy::Giver;
use crate::gateway::{Gateway, Ordering};
use crate::handler::{Answering, Clients};
use crate::home::Home;
use crate::join::Issuer;
use crate::members::Members;
use crate::parts::Parts;
use crate::planner;
use crate::replicas::Replicas;

/// A client's request that is passed on has an answer within this time.
const PASSED_TIME_MAX: Duration = Duration::from_secs(30);

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
    log: Arc<KafkaLog>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
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
        identity.renew_if_due(SystemTime::now())?;
        let log = Arc::new(open_log(&home, &options).await?);
        let catalogue = Catalogue::open(databases, &options.on_setting).await?;
        let stamp = home.cluster.stamp(CONTROL)?;
        let members = Arc::new(Members::new(home.node, stamp, catalogue.clone()));
        let replicas = Arc::new(Replicas::new(home.node, home.cluster.slots));
        let issuer = Arc::new(Issuer::new(
            home.cluster.clone(),
            identity.clone(),
            catalogue.clone(),
        ));
        let clients = Arc::new(OnceLock::new());
        let peers = Peers::new(identity.clone())?;
        members.reach_by(peers.clone());
        members.connect(&home.others);
        let answering = Arc::new(Answering {
            replicas: replicas.clone(),
            members: members.clone(),
            issuer: issuer.clone(),
            giver: Giver::new(databases, &catalogue, home.cluster.slots),
            clients: clients.clone(),
        });
        let server = Server::bind(home.member.address.as_str(), &peers, answering).await?;
        let parts = Parts {
            node: home.node,
            cluster: &home.cluster,
            databases,
            catalogue: &catalogue,
            log: log.clone(),
            network: members.clone(),
            source: members.clone(),
        };
        parts.start_slots(&replicas, options.on_setting)?;
        let gateway = Gateway::new(databases, &catalogue, &members, &replicas)?;
        issuer.propose_by(gateway.clone());
        databases.be_ordered(Arc::new(Ordering(gateway.clone())));
        let planning = planner::run(members.clone(), replicas.clone(), home.others.clone());
        let tasks = vec![
            tokio::spawn(planning),
            tokio::spawn(keep_certificate(identity.clone())),
        ];
        Ok(Arc::new(Member {
            home,
            identity,
            members,
            replicas,
            catalogue,
            gateway,
            issuer,
            clients,
            log,
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

    /// Has another node answer a client's request; `None` when none does.
    pub async fn pass_on(
        &self,
        method: &str,
        target: &str,
        mut headers: http::HeaderMap,
        body: bytes::Bytes,
    ) -> Option<(http::StatusCode, http::HeaderMap, peers::Body)> {
        let method: http::Method = method.parse().ok()?;
        headers.insert(crate::CLIENT, http::HeaderValue::from_static("1"));
        let peers = self.members.peers()?;
        for node in self.members.live_others() {
            let call = peers::Call {
                method: method.clone(),
                path: target.to_owned(),
                headers: headers.clone(),
                body: body.clone().into(),
            };
            match peers.call(node, call, PASSED_TIME_MAX).await {
                Ok(reply) => return Some((reply.status, reply.headers, reply.body)),
                Err(e) => tracing::debug!(error = %e, "a client's request was not passed on"),
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
        self.members.all().into_iter().map(status).collect()
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

    /// Begins a new generation in all slots: the log was lost or cut.
    pub fn reseed(&self) {
        for (_, replica) in self.replicas.all() {
            replica.reseed();
        }
    }

    /// Ends what it does.
    pub async fn stop(&self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
        self.replicas.stop().await;
    }

    /// When its certificate ends.
    pub fn certificate_ends(&self) -> SystemTime {
        self.identity.not_after()
    }

    /// The log.
    pub fn log(&self) -> &KafkaLog {
        &self.log
    }
}

/// Opens the newest log of the cluster. The first node makes the first one.
async fn open_log(home: &Home, options: &MemberOptions) -> Result<KafkaLog, Error> {
    let mut kafka = kafka_log::Options {
        brokers: options.brokers.clone(),
        cluster: home.cluster.name.clone(),
        slots: home.cluster.slots,
        log: home.cluster.log,
        properties: options.properties.clone(),
    };
    let numbers = kafka_log::log_numbers(&kafka).await?;
    match numbers.iter().max() {
        Some(newest) => kafka.log = *newest,
        None if home.node == home.cluster.first => {
            kafka_log::create_topics(&kafka, kafka_log::TopicOptions::default()).await?;
        }
        None => {
            return Err(Error::NoLog(format!(
                "the brokers {} have no topics of the cluster {}",
                kafka.brokers, kafka.cluster
            )));
        }
    }
    kafka_log::check_topics(&kafka).await?;
    Ok(KafkaLog::open(kafka).await?)
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
