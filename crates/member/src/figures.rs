//! Figures of a node's part in its cluster, for metrics and `settee top`.

use std::time::Duration;

use cluster::slot::SlotStatus;
use cluster::{CONTROL, NodeId, SlotNumber};
use peers::Traffic;
use raft_log::{LogFigures, RaftLog};
use serde::Serialize;

use crate::control::entry::LogSeat;
use crate::log_table::LogTables;
use crate::members::Members;
use crate::open_log::log_nodes;
use crate::planner::leads;
use crate::replicas::Replicas;

/// The name of the control slot.
pub(crate) const CONTROL_NAME: &str = "control";

/// Figures of this node's part in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFigures {
    /// This node reaches the log.
    pub is_log_up: bool,
    /// No other node serves clients better.
    pub is_fit: bool,
    /// Members of the cluster, with this node.
    pub members: usize,
    /// Those that were heard from recently, with this node.
    pub live: usize,
    /// The slots of this node.
    pub slots: SlotFigures,
    /// The other members, by name.
    pub peers: Vec<PeerFigures>,
    /// The log, if the nodes keep it.
    pub own_log: Option<LogFigures>,
}

/// The status of the cluster's log, as a node sees it.
#[derive(Clone, Debug, Serialize)]
pub struct LogStatus {
    /// `nodes` or `kafka`.
    pub kept_by: &'static str,
    /// Its number: a log that was recreated has a higher one.
    pub number: u64,
    /// The status of a log that the nodes keep.
    #[serde(flatten)]
    pub own: Option<OwnLogStatus>,
}

/// The status of a log that the nodes keep.
#[derive(Clone, Debug, Serialize)]
pub struct OwnLogStatus {
    /// Names of the nodes that keep it: without this node's until its disk is the one that is to keep it.
    pub nodes: Vec<String>,
    /// How often the nodes and disks that keep it changed, as far as this node knows.
    pub changes: u64,
    /// The id of this node's disk in the log, in hexadecimal digits. A disk that was lost had another.
    pub disk: String,
    /// Slots whose log this node leads.
    pub led: usize,
    /// Those among them that other nodes keep than those above.
    pub unsettled: usize,
    /// Slots whose log is on this node and has no leader that it knows.
    pub leaderless: usize,
    /// Slots whose log cannot continue on this node.
    pub halted: Vec<HaltedLog>,
    /// Its size on this node's disk, in bytes.
    pub bytes: u64,
}

/// The log of a slot that cannot continue on a node.
#[derive(Clone, Debug, Serialize)]
pub struct HaltedLog {
    /// The slot; see [`crate::SlotSummary`].
    pub slot: String,
    /// Why.
    pub reason: String,
}

impl LogStatus {
    pub(crate) fn of(logs: &LogTables, members: &Members) -> LogStatus {
        LogStatus {
            kept_by: match logs.own() {
                Some(_) => "nodes",
                None => "kafka",
            },
            number: logs.number(),
            own: logs.own().map(|own| OwnLogStatus::of(own, logs, members)),
        }
    }
}

impl OwnLogStatus {
    fn of(own: &RaftLog, logs: &LogTables, members: &Members) -> OwnLogStatus {
        // Before the figures: groups that are compared with another table do not count as settled.
        let table = logs.latest();
        let figures = own.figures();
        let are_compared = figures.log_nodes == log_nodes(&table.nodes);
        let unsettled = match are_compared {
            true => &figures.unsettled,
            false => &figures.led,
        };
        let names = members.all();
        let name = |node: NodeId| {
            let known = names.iter().find(|(of, _)| *of == node);
            known.map_or_else(|| format!("{node:x}"), |(_, member)| member.name.clone())
        };
        let halted = figures.halted.iter().map(|(slot, reason)| HaltedLog {
            slot: slot_name(*slot),
            reason: reason.clone(),
        });
        let me = own.options().me;
        let keeps = |seat: &&LogSeat| seat.node != me.node || seat.disk == me.raft;
        let seats = table.nodes.iter().filter(keeps);
        OwnLogStatus {
            nodes: seats.map(|seat| name(seat.node)).collect(),
            changes: table.changes,
            disk: format!("{:x}", me.raft),
            led: figures.led.len(),
            unsettled: unsettled.len(),
            leaderless: figures.leaderless.len(),
            halted: halted.collect(),
            bytes: figures.bytes,
        }
    }
}

/// Returns the name of a slot for people: its number, or `control`.
pub(crate) fn slot_name(slot: SlotNumber) -> String {
    match slot {
        CONTROL => CONTROL_NAME.into(),
        slot => slot.to_string(),
    }
}

/// Figures of the slots of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotFigures {
    /// All of them.
    pub all: usize,
    /// Those whose replicas this node changes when that is necessary.
    pub led: usize,
    /// Those with fewer live replicas than they should have.
    pub under_replicated: usize,
    /// Those that apply nothing here: they are halted, or the store fails.
    pub halted: usize,
    /// Those that accept no writes here.
    pub refusing: usize,
    /// Records of the logs that this node has seen and not applied.
    pub lag_records: u64,
    /// The time since the oldest of these records was first seen.
    pub lag: Duration,
    /// Records that a majority is not known to have.
    pub unstable_records: u64,
    /// Writes that wait.
    pub writes_waiting: usize,
    /// Reads that wait.
    pub reads_waiting: usize,
}

/// Figures of another member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFigures {
    /// Its name.
    pub name: String,
    /// It was heard from recently.
    pub is_live: bool,
    /// There is a connection for calls to it.
    pub is_connected: bool,
    /// Messages between this node and it.
    pub traffic: Traffic,
}

impl ClusterFigures {
    pub(crate) fn of(
        members: &Members,
        replicas: &Replicas,
        is_fit: bool,
        own_log: Option<LogFigures>,
    ) -> ClusterFigures {
        let mut live = members.live_others();
        live.push(members.me);
        let mut slots = SlotFigures::default();
        for (slot, replica) in replicas.all() {
            let status = replica.status();
            slots.add(&status, &live, members.wanted_count(slot));
            slots.led += usize::from(leads(members, &status, Duration::ZERO));
        }
        ClusterFigures {
            is_log_up: !replicas.reach.is_lost(),
            is_fit,
            members: members.count(),
            live: live.len(),
            slots,
            peers: of_others(members),
            own_log,
        }
    }
}

impl SlotFigures {
    fn add(&mut self, status: &SlotStatus, live: &[NodeId], wanted: usize) {
        let replicas = status.members.iter().filter(|id| live.contains(id));
        let next_offset = status.position.next_offset;
        let lag = status.behind_since.map(|since| since.elapsed());
        self.all += 1;
        self.under_replicated += usize::from(replicas.count() < wanted);
        let is_halted = status.halted.is_some() || status.store_fails || status.is_full;
        self.halted += usize::from(is_halted);
        self.refusing += usize::from(!status.proposes);
        self.lag_records += status.end.saturating_sub(next_offset);
        self.lag = self.lag.max(lag.unwrap_or_default());
        self.unstable_records += next_offset.saturating_sub(status.stable);
        self.writes_waiting += status.proposals;
        self.reads_waiting += status.reads;
    }
}

fn of_others(members: &Members) -> Vec<PeerFigures> {
    let Some(peers) = members.peers() else {
        return vec![];
    };
    let others = members
        .all()
        .into_iter()
        .filter(|(id, _)| *id != members.me);
    let mut all: Vec<PeerFigures> = others
        .map(|(id, member)| PeerFigures {
            name: member.name,
            is_live: members.is_live(id),
            is_connected: peers.is_connected(id),
            traffic: peers.traffic(id),
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn each_fault_of_a_slot_is_counted() {
        let mut healthy = SlotStatus {
            members: vec![1, 2, 3],
            proposes: true,
            ..SlotStatus::default()
        };
        healthy.position.next_offset = 10;
        healthy.stable = 10;
        healthy.end = 10;
        let of = |status: &SlotStatus, live: &[NodeId]| {
            let mut figures = SlotFigures::default();
            figures.add(status, live, 3);
            figures
        };
        let none = SlotFigures {
            all: 1,
            ..SlotFigures::default()
        };
        assert_eq!(of(&healthy, &[1, 2, 3]), none);
        assert_eq!(of(&healthy, &[1, 2]).under_replicated, 1);
        let learning = SlotStatus {
            members: vec![1, 2],
            ..healthy.clone()
        };
        assert_eq!(of(&learning, &[1, 2, 3]).under_replicated, 1);
        let full = SlotStatus {
            is_full: true,
            ..healthy.clone()
        };
        assert_eq!(of(&full, &[1, 2, 3]).halted, 1);
        let refusing = SlotStatus {
            proposes: false,
            ..healthy.clone()
        };
        assert_eq!(of(&refusing, &[1, 2, 3]).refusing, 1);
        let behind = SlotStatus {
            end: 17,
            stable: 8,
            behind_since: Instant::now().checked_sub(Duration::from_secs(5)),
            ..healthy.clone()
        };
        let mut all = of(&behind, &[1, 2, 3]);
        assert_eq!((all.lag_records, all.unstable_records), (7, 2));
        assert!(all.lag >= Duration::from_secs(5));
        // The lag is that of the slot that is furthest behind.
        all.add(&healthy, &[1, 2, 3], 3);
        assert_eq!((all.all, all.lag_records), (2, 7));
        assert!(all.lag >= Duration::from_secs(5));
    }
}
