//! Duties for the cluster's log: proposes the table of the nodes that keep it, notices that the log was
//! moved, and moves it.
//!
//! A log has a number. A node that recreates or moves it chooses a higher one; every node asks the others
//! for theirs, and restarts with the highest. Replicas do not trust the log, so nothing is lost if nodes use
//! different ones meanwhile: a new generation follows (`reseed.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::NodeId;
use cluster::record::RecordVersion;
use raft_log::RaftLog;
use tokio::time::Instant;

use crate::Error;
use crate::control::entry::{Entry, LogTable};
use crate::gateway::Gateway;
use crate::log_table::{LogReport, LogTables, are_all, is_settled, next_table};
use crate::members::Members;
use crate::membership::{self, LogKeeper, OwnLog, random};
use crate::open_log::{LogHome, LogPlace};

/// Interval of checks, also while the control slot does not change.
const EVERY: Duration = Duration::from_secs(1);
/// Interval of questions to the other nodes, except by the node that proposes.
const ASKED_EVERY: Duration = Duration::from_secs(5);
/// Time in which groups replace a node that is to leave.
const RELEASE_TIME: Duration = Duration::from_secs(20);
/// Time in which a log that has no leaders gets some, or is lost.
const LEADERS_TIME: Duration = Duration::from_secs(5);
/// Interval of checks of both.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Bits of a number that are random: two nodes that recreate the log at the same time make two logs.
const RANDOM_BITS: u32 = 16;

/// The duties of a node.
pub(crate) struct LogDuty {
    pub home: LogHome,
    pub tables: Arc<LogTables>,
    pub members: Arc<Members>,
    pub gateway: Arc<Gateway>,
}

impl LogDuty {
    /// Does what there is to do, until the future is dropped.
    pub async fn run(self: Arc<Self>) {
        let mut changes = self.gateway.catalogue.watch();
        let mut asked = None::<Instant>;
        loop {
            let _timeout = tokio::time::timeout(EVERY, changes.changed()).await;
            self.tables.take_from_control();
            let proposes = self.tables.own().is_some() && self.members.live_before_me() == 0;
            let interval = if proposes { EVERY } else { ASKED_EVERY };
            if asked.is_some_and(|asked| asked.elapsed() < interval) {
                continue;
            }
            asked = Some(Instant::now());
            let reports = self.members.log_reports().await;
            if self.follows(&reports) {
                return (self.home.restart)();
            }
            for report in reports.values().filter_map(|report| report.own.as_ref()) {
                self.tables.take(&report.table);
            }
            if proposes && let Err(e) = self.propose(&reports, &self.barred()).await {
                tracing::debug!(error = %e, "the table of the nodes that keep the log was not changed");
            }
        }
    }

    /// Notes a newer log that another node has. Returns whether there is one.
    fn follows(&self, reports: &BTreeMap<NodeId, LogReport>) -> bool {
        let newest = reports.values().max_by_key(|report| report.number);
        let Some(newest) = newest.filter(|newest| newest.number > self.tables.number()) else {
            return false;
        };
        let number = newest.number;
        let log = match (&newest.own, &self.home.place) {
            (Some(own), _) => LogKeeper::Nodes(OwnLog {
                number,
                creates: false,
                nodes: own.table.nodes.clone(),
            }),
            (None, LogPlace::Kafka(brokers)) => LogKeeper::Kafka {
                number,
                brokers: Some(brokers.clone()),
            },
            (None, LogPlace::Nodes) => {
                tracing::error!(
                    "the log of the cluster was moved to Kafka, and this node does not know where that is: set [cluster] log = kafka://HOST:PORT,HOST:PORT, and restart"
                );
                return false;
            }
        };
        match membership::move_log(&self.home.data, log) {
            Ok(()) => {
                tracing::warn!(number, "the cluster has another log: restarting with it");
                true
            }
            Err(e) => {
                tracing::error!(error = %e, "the cluster has another log, and this node cannot note that");
                false
            }
        }
    }

    fn barred(&self) -> BTreeSet<NodeId> {
        let table = self.tables.in_control();
        table.map(|table| table.barred).unwrap_or_default()
    }

    /// Proposes the table that is to follow, if the one in force is not right.
    async fn propose(
        &self,
        reports: &BTreeMap<NodeId, LogReport>,
        barred: &BTreeSet<NodeId>,
    ) -> Result<(), Error> {
        let in_force = self.gateway.catalogue.agreement().in_force();
        // Until then the nodes that created the log, or joined with it, keep it.
        if in_force < RecordVersion::V4 || self.next_table(reports, barred).is_none() {
            return Ok(());
        }
        // A node that was away would remove members that it does not know yet.
        self.gateway.fresh_control().await?;
        if let Some(table) = self.next_table(reports, barred) {
            self.gateway.enter(Entry::LogTable(table)).await?;
            self.tables.take_from_control();
        }
        Ok(())
    }

    fn next_table(
        &self,
        reports: &BTreeMap<NodeId, LogReport>,
        barred: &BTreeSet<NodeId>,
    ) -> Option<LogTable> {
        let mine = (self.members.me, self.tables.report());
        let all = reports.iter().chain([(&mine.0, &mine.1)]);
        let disks = all.filter_map(|(node, report)| {
            let own = report.own.as_ref()?;
            (report.number == self.tables.number()).then_some((*node, own.disk))
        });
        let disks: BTreeMap<NodeId, u64> = disks.collect();
        let members: BTreeSet<NodeId> = self.members.all().into_iter().map(|(id, _)| id).collect();
        let (in_control, latest) = (self.tables.in_control(), self.tables.latest());
        next_table((in_control.as_ref(), &latest), &members, &disks, barred)
    }

    /// Has the log's groups replace a member that is to leave. Without that, the groups of a cluster of
    /// two would wait for it forever.
    ///
    /// # Errors
    /// [`Error::NotNow`].
    pub async fn release(&self, node: NodeId) -> Result<(), Error> {
        let in_force = self.gateway.catalogue.agreement().in_force();
        let is_last = self.members.count() < 2 || !self.members.knows(node);
        if self.tables.own().is_none() || in_force < RecordVersion::V4 || is_last {
            return Ok(());
        }
        let deadline = Instant::now() + RELEASE_TIME;
        while Instant::now() < deadline {
            let mut reports = self.members.log_reports().await;
            let mut barred = self.barred();
            if barred.insert(node) {
                self.propose(&reports, &barred).await?;
            } else {
                reports.insert(self.members.me, self.tables.report());
                let nodes = self.tables.latest().nodes;
                let slots = self.tables.own().map_or(0, |own| own.options().slots);
                let own = reports.values().filter_map(|report| report.own.as_ref());
                if is_settled(&nodes, slots, own) {
                    return Ok(());
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Err(Error::NotNow(
            "the log has not left that node yet: try again. More than half of the nodes that keep the log have to run".into(),
        ))
    }

    /// Returns whether the log is where it is to be, and exists.
    ///
    /// # Errors
    /// Errors of brokers.
    pub async fn is_in_place(&self) -> Result<bool, Error> {
        match (self.tables.own(), &self.home.place) {
            (Some(own), LogPlace::Nodes) => Ok(self.has_leaders(own).await),
            (None, LogPlace::Kafka(_)) => {
                let numbers = kafka_log::log_numbers(&self.home.kafka).await?;
                Ok(numbers.contains(&self.tables.number()))
            }
            _ => Ok(false),
        }
    }

    /// Returns whether all groups have leaders, or get some: nodes that lost their disks have no groups.
    async fn has_leaders(&self, own: &RaftLog) -> bool {
        let deadline = Instant::now() + LEADERS_TIME;
        loop {
            let mut reports = self.members.log_reports().await;
            reports.insert(self.members.me, self.tables.report());
            reports.retain(|_, report| report.number == self.tables.number());
            let all = reports.values().filter_map(|report| report.own.as_ref());
            if are_all(own.options().slots, all.flat_map(|own| &own.led)) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Moves the log to where it is to be, or recreates it there: all nodes restart with it, and this
    /// one starts a new generation.
    ///
    /// # Errors
    /// [`Error::NotNow`], those of brokers, and those of writing.
    pub async fn recreate(&self) -> Result<(), Error> {
        self.check_others().await?;
        let before = self.tables.number();
        let log = match &self.home.place {
            LogPlace::Nodes => LogKeeper::Nodes(OwnLog {
                number: next_number(before)?,
                creates: true,
                nodes: vec![],
            }),
            LogPlace::Kafka(brokers) => {
                let number = match self.tables.own() {
                    Some(_) => next_number(before)?,
                    // Brokers create a topic once, whoever asks.
                    None => before + 1,
                };
                let next = kafka_log::Options {
                    log: number,
                    ..self.home.kafka.clone()
                };
                kafka_log::create_topics(&next, kafka_log::TopicOptions::default()).await?;
                LogKeeper::Kafka {
                    number,
                    brokers: Some(brokers.clone()),
                }
            }
        };
        membership::ask_for_reseed(&self.home.data)?;
        membership::move_log(&self.home.data, log)?;
        tracing::warn!("the log of the cluster is recreated: restarting with it");
        (self.home.restart)();
        Ok(())
    }

    /// Refuses to move the log while other nodes could not follow.
    async fn check_others(&self) -> Result<(), Error> {
        let (all, live) = (self.members.count(), 1 + self.members.live_others().len());
        if live * 2 <= all {
            return Err(Error::NotNow(format!(
                "{live} of {all} nodes answer: more than half of them have to"
            )));
        }
        let in_force = self.gateway.catalogue.agreement().in_force();
        if self.home.place == LogPlace::Nodes && in_force < RecordVersion::V4 {
            let why = "the log moves to the nodes once all of them run a program that reads record version 4";
            return Err(Error::NotNow(why.into()));
        }
        let wants_kafka = self.home.place != LogPlace::Nodes;
        let reports = self.members.log_reports().await;
        let other = reports.iter().find(|(_, of)| of.wants_kafka != wants_kafka);
        match other {
            None => Ok(()),
            Some((node, _)) => Err(Error::NotNow(format!(
                "the node {node:x} has another [cluster] log: set it alike on all nodes, restart them, and try again"
            ))),
        }
    }
}

/// Returns the number of a log that follows another one.
pub(crate) fn next_number(before: u64) -> Result<u64, Error> {
    let random = u16::from_be_bytes(random()?);
    Ok((((before >> RANDOM_BITS) + 1) << RANDOM_BITS) + u64::from(random))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_logs_grow_and_two_at_once_differ() {
        let mut number = 0;
        for _ in 0..10 {
            let next = next_number(number).unwrap();
            assert!(next > number);
            number = next;
        }
        let all: BTreeSet<u64> = (0..50).map(|_| next_number(number).unwrap()).collect();
        assert!(all.len() > 40, "{all:?}");
    }
}
