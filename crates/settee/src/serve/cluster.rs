//! A server that is a node of a cluster.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use config::Config;
use database::Databases;
use http_api::App;
use member::{LogKeeper, LogPlace, Member, MemberOptions, Membership};
use node::{DescriptorPlan, Node};

use crate::Failure;
use crate::data::STORE;
use crate::record_version;

/// The scheme of a log on Kafka.
const KAFKA: &str = "kafka://";
/// The log that the nodes keep.
const NODES: &str = "nodes";
/// Time before it tries again to announce itself: it doubles each time, up to the longest. A node
/// that joins is admitted soon.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(1);

/// Where the cluster's log is to be; `None` when this server is alone.
pub fn log_place(config: &Config, data: &Path) -> Result<Option<LogPlace>, Failure> {
    let log = config.settings().cluster.log.clone().unwrap_or_default();
    let log = log.trim();
    if !member::is_member(data) {
        return match log.is_empty() {
            true => Ok(None),
            false => Err(Failure::usage(format!(
                "[cluster] log is set, and {} is not a node of a cluster yet. Do one of these:\n  \
                 settee cluster init --data {0}                 the first node of a new cluster\n  \
                 settee cluster join --data {0} --token TOKEN   another node of one, with a token from `settee cluster token`",
                data.display()
            ))),
        };
    }
    match log.strip_prefix(KAFKA) {
        Some(brokers) if !brokers.is_empty() => Ok(Some(LogPlace::Kafka(brokers.to_owned()))),
        None if log == NODES => Ok(Some(LogPlace::Nodes)),
        None if log.is_empty() => default_place(data).map(Some),
        _ => Err(Failure::usage(format!(
            "[cluster] log = {log}: it must be {NODES}, or kafka://HOST:PORT,HOST:PORT"
        ))),
    }
}

/// A cluster on Kafka does not lose its log because a setting is missing.
fn default_place(data: &Path) -> Result<LogPlace, Failure> {
    let home = Membership::read_in(&member::folder(data)).map_err(Failure::new)?;
    match home.keeper() {
        LogKeeper::Kafka { .. } => Err(Failure::usage(format!(
            "{} is a node of a cluster whose log is in Kafka, and [cluster] log does not say where: log = kafka://HOST:PORT,HOST:PORT",
            data.display()
        ))),
        LogKeeper::Undecided | LogKeeper::Nodes(_) => Ok(LogPlace::Nodes),
    }
}

/// Gives a node its name in the cluster, and removes what only a node needs from the store of a
/// server that is alone: it can be that of a former node.
pub fn prepare(
    place: Option<&LogPlace>,
    config: &Config,
    data: &Path,
    databases: &Databases,
) -> Result<(), Failure> {
    match place {
        None => databases.store().forget_pins().map_err(Failure::new),
        Some(place) => {
            if *place == LogPlace::Nodes && config.settings().cluster.log.is_none() {
                // Shown also where it is the default: the web interface takes it for a member's.
                let shown = config.set("cluster", "log", NODES, false);
                shown.map_err(Failure::usage)?;
            }
            take_name(config, data)
        }
    }
}

/// Gives the server its name in the cluster.
fn take_name(config: &Config, data: &Path) -> Result<(), Failure> {
    let (home, _) = Membership::read(data).map_err(Failure::new)?;
    let named = config.set("couchdb", "node_name", &home.member.name, false);
    named.map(drop).map_err(Failure::usage)
}

/// Makes the server a member of its cluster.
pub async fn start(log: LogPlace, app: &Arc<App>, data: &Path) -> Result<(), Failure> {
    let (config, databases) = (&app.node.config, &app.node.databases);
    let settings = config.settings();
    let (restarted, ended) = (Arc::downgrade(app), Arc::downgrade(app));
    let taken_over = config.clone();
    let options = MemberOptions {
        log,
        properties: settings.kafka.all.clone().into_iter().collect(),
        address: settings.cluster.node_address.clone(),
        zone: settings.cluster.zone.clone(),
        users: settings.chttpd_auth.authentication_db.clone(),
        store: data.join(STORE),
        restart: Arc::new(move || {
            if let Some(app) = restarted.upgrade() {
                app.ask_to_restart();
            }
        }),
        give_up: Box::new(move |why| {
            tracing::error!("this server ends: {why}");
            if let Some(app) = ended.upgrade() {
                app.fail(format!("cluster: {why}"));
            }
        }),
        record_version: record_version::latest()?,
        on_setting: Box::new(move |section, key, value| {
            if !node::may_be_taken_over(section, key) {
                tracing::error!(
                    section,
                    key,
                    "a setting that the cluster does not share was not taken over"
                );
                return;
            }
            let take_over = |persist| match value {
                Some(value) => taken_over.set(section, key, value, persist),
                None => taken_over.delete(section, key, persist),
            };
            if let Err(e) = take_over(true) {
                tracing::error!(section, key, error = %e, "a setting of the cluster was not written to the file");
                // It is in force until the next start, when the cluster's state is taken over again.
                if let Err(e) = take_over(false) {
                    tracing::error!(section, key, error = %e, "a setting of the cluster was not taken over");
                }
            }
        }),
    };
    let member = Member::start(data, databases, options).await;
    let member = member.map_err(|e| Failure::new(format!("cluster: {e}")))?;
    let sockets = DescriptorPlan::new(true).forwarded_clients;
    member.answer_by(http_api::forwarded_clients(app, sockets));
    app.node.be_member(member);
    Ok(())
}

/// Announces this node to the others, and creates the system databases, retrying until it succeeds.
pub fn announce(node: Arc<Node>, member: Arc<Member>) {
    tokio::spawn(async move {
        let (mut was_told, mut pause) = (false, AGAIN_AFTER);
        while let Err(why) = announce_now(&node, &member).await {
            if !was_told {
                tracing::warn!("the cluster cannot be reached yet: {why}");
                was_told = true;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(AGAIN_AFTER_MAX);
        }
        tracing::info!(node = member.name(), "this node is part of the cluster");
    });
}

async fn announce_now(node: &Node, member: &Member) -> Result<(), String> {
    let shared = node::shared_settings(&node.config);
    member.announce(shared).await.map_err(|e| e.to_string())?;
    let made = node::setup::create_missing(node, &node::setup::SYSTEM_DATABASES).await;
    made.map_err(|e| e.to_string())
}
