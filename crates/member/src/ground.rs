//! The parts of a member that exist before its slots run, and its background tasks.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use cluster::record::{RecordVersions, Stamp};
use cluster::{Log, SlotNumber};
use database::Databases;
use parking_lot::Mutex;
use peers::{Identity, IdentityError, Peers, Server};
use tokio::task::JoinHandle;

use crate::Error;
use crate::content::ContentExchange;
use crate::control::Catalogue;
use crate::copy::{Copier, CopySender};
use crate::gateway::Gateway;
use crate::handler::{Clients, NodeHandler};
use crate::jobs::Jobs;
use crate::join::Issuer;
use crate::log_duty::LogDuty;
use crate::log_table::LogTables;
use crate::members::Members;
use crate::membership::{self, Membership};
use crate::open_log::{LogHome, LogKind, OpenLog};
use crate::options::MemberOptions;
use crate::placing::announce_zone;
use crate::replicas::Replicas;
use crate::slot_starter::{SlotStarter, keep_slots};
use crate::{decider, log_trim, log_watch, planner, reseed};

/// The parts of a member that exist before its slots run.
pub(crate) struct Ground {
    pub members: Arc<Members>,
    pub replicas: Arc<Replicas>,
    pub catalogue: Arc<Catalogue>,
    pub issuer: Arc<Issuer>,
    pub clients: Arc<OnceLock<Arc<dyn Clients>>>,
    pub jobs: Arc<Jobs>,
    pub contents: Arc<ContentExchange>,
    pub logs: Arc<LogTables>,
}

impl Ground {
    pub async fn lay(
        home: &Membership,
        identity: &Arc<Identity>,
        databases: &Arc<Databases>,
        open: &OpenLog,
        options: &MemberOptions,
        stamp: Stamp,
    ) -> Result<Ground, Error> {
        let catalogue = Catalogue::open(databases, &options.on_setting).await?;
        let logs = Arc::new(LogTables::new(open, &options.log, &catalogue));
        let members = Arc::new(Members::new(home.node, stamp, catalogue.clone()));
        let of_cluster = home.cluster.clone();
        let (signs, shown) = (identity.clone(), catalogue.clone());
        let issuer = Issuer::new(of_cluster, signs, shown, logs.clone());
        let jobs = Jobs::new(home.node, catalogue.clone());
        let replicas = Arc::new(Replicas::new(home.node, home.cluster.slots));
        let of_store = (databases, &catalogue);
        let nodes_of = Box::new(replicas.nodes_by_slot(&catalogue));
        let contents = ContentExchange::new(home.node, of_store, nodes_of, members.clone());
        Ok(Ground {
            jobs,
            contents,
            logs,
            members,
            replicas,
            catalogue,
            issuer: Arc::new(issuer),
            clients: Arc::new(OnceLock::new()),
        })
    }

    /// Connects to the other nodes, and serves them.
    pub async fn listen(
        &self,
        home: &Membership,
        identity: &Arc<Identity>,
        databases: &Arc<Databases>,
        kind: &LogKind,
    ) -> Result<Server, Error> {
        let options = peers::Options {
            has_bulk: matches!(kind, LogKind::Nodes { .. }),
            ..peers::Options::default()
        };
        let peers = Peers::with(identity.clone(), options)?;
        if let LogKind::Nodes { transport, .. } = kind {
            transport.reach_by(peers.clone());
        }
        self.members.reach_by(peers.clone());
        self.members.connect(&home.others);
        let answering = Arc::new(NodeHandler {
            replicas: self.replicas.clone(),
            members: self.members.clone(),
            jobs: self.jobs.clone(),
            issuer: self.issuer.clone(),
            sender: CopySender::new(databases, &self.catalogue, home.cluster.slots),
            contents: self.contents.clone(),
            logs: self.logs.clone(),
            clients: self.clients.clone(),
            doubles: Mutex::default(),
        });
        let address = home.member.address.as_str();
        let bound = Server::bind(address, &peers, answering).await;
        bound.map_err(|e| match e {
            IdentityError::File { source, .. } => {
                Error::NodeAddress(address.to_owned(), source.to_string())
            }
            e => e.into(),
        })
    }

    pub fn slot_starter(
        &self,
        home: &Membership,
        versions: RecordVersions,
        databases: &Arc<Databases>,
        log: Arc<dyn Log>,
    ) -> SlotStarter {
        let (slots, source) = (home.cluster.slots, self.members.clone());
        let copier = Copier::new(databases, &self.catalogue, slots, source);
        SlotStarter {
            node: home.node,
            cluster: home.cluster.clone(),
            versions,
            databases: databases.clone(),
            catalogue: self.catalogue.clone(),
            log,
            network: self.members.clone(),
            copier: Arc::new(copier),
            contents: self.contents.clone(),
        }
    }

    pub fn gateway(&self, databases: &Arc<Databases>) -> Result<Arc<Gateway>, Error> {
        let gateway = Gateway::new(
            databases,
            &self.catalogue,
            &self.members,
            &self.replicas,
            &self.contents,
        )?;
        self.issuer.propose_by(gateway.clone());
        Ok(gateway)
    }

    pub fn watch_reach(&self, log: Arc<dyn Log>) -> JoinHandle<()> {
        let reach = self.replicas.reach.clone();
        reach.set_log(log);
        tokio::spawn(log_watch::watch(reach, self.members.clone()))
    }

    pub fn log_duty(&self, home: LogHome, gateway: &Arc<Gateway>) -> Arc<LogDuty> {
        Arc::new(LogDuty {
            home,
            tables: self.logs.clone(),
            members: self.members.clone(),
            gateway: gateway.clone(),
        })
    }

    /// Announces the zone of this node, decides about the nodes of slots, and keeps its own.
    pub fn placing(
        &self,
        gateway: &Arc<Gateway>,
        starter: (SlotStarter, BTreeSet<SlotNumber>),
        (zone, users): (Option<String>, String),
    ) -> [JoinHandle<()>; 3] {
        gateway.everywhere.set_users(users);
        let (replicas, members) = (self.replicas.clone(), self.members.clone());
        [
            tokio::spawn(announce_zone(gateway.clone(), zone)),
            tokio::spawn(decider::run(gateway.clone())),
            tokio::spawn(keep_slots(starter, replicas, members)),
        ]
    }

    /// Keeps the table of the nodes that keep the log, trims it, and notices another log.
    /// Starts the generation that was requested with it.
    pub fn watch_log(&self, duty: &Arc<LogDuty>, kind: LogKind) -> Vec<JoinHandle<()>> {
        let (members, replicas) = (self.members.clone(), self.replicas.clone());
        let of_kind = match kind {
            LogKind::Kafka(kafka) => tokio::spawn(watch_kafka(kafka, duty.home.restart.clone())),
            LogKind::Nodes { log, .. } => tokio::spawn(log_trim::run(log, members, replicas)),
        };
        let mut tasks = vec![tokio::spawn(duty.clone().run()), of_kind];
        if membership::take_reseed(&duty.home.data) {
            let (replicas, members) = (self.replicas.clone(), self.members.clone());
            tasks.push(tokio::spawn(reseed::start_later(replicas, members)));
        }
        tasks
    }

    pub fn duties(&self, home: &Membership, identity: &Arc<Identity>) -> Vec<JoinHandle<()>> {
        let (members, replicas) = (self.members.clone(), self.replicas.clone());
        let connecting = planner::connect(members.clone(), replicas.clone(), home.others.clone());
        let planning = planner::run(members, replicas);
        let renewing = keep_certificate(identity.clone());
        vec![
            tokio::spawn(connecting),
            tokio::spawn(planning),
            tokio::spawn(renewing),
            tokio::spawn(self.contents.clone().reclaim_at_times()),
        ]
    }
}

/// Restarts the server when there is a newer log in Kafka.
async fn watch_kafka(kafka: kafka_log::Options, restart: Arc<dyn Fn() + Send + Sync>) {
    loop {
        tokio::time::sleep(reseed::LOG_WATCHED_EVERY).await;
        let numbers = kafka_log::log_numbers(&kafka).await.unwrap_or_default();
        if numbers.iter().any(|number| *number > kafka.log) {
            tracing::warn!("the cluster's log was created again: restarting with it");
            return restart();
        }
    }
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
