//! The table of the nodes that keep the log, as this node uses it.
//!
//! The control slot has the table, and the control slot's own log needs it. So a node starts with the
//! one that it stored or joined with, and takes later ones from the control slot, and from other nodes:
//! one that was away may know no node any more that keeps the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::{NodeId, SlotNumber};
use parking_lot::Mutex;
use raft_log::{LogFigures, RaftLog};
use serde::{Deserialize, Serialize};

use crate::control::Catalogue;
use crate::control::entry::{LogSeat, LogTable};
use crate::membership::{LogKeeper, OwnLog};
use crate::open_log::{LogKind, LogPlace, OpenLog, log_nodes};

/// Nodes that keep the log, and those of a cluster of at least as many members as the latter.
const SEATS: usize = 3;
const SEATS_OF_LARGE: usize = 5;

/// The log of this node, and the table of those that keep it.
pub(crate) struct LogTables {
    number: u64,
    own: Option<Arc<RaftLog>>,
    /// It is to be in Kafka, by the setting.
    wants_kafka: bool,
    catalogue: Arc<Catalogue>,
    /// The latest table that is known here. It may be ahead of the control slot's.
    latest: Mutex<LogTable>,
}

/// A node's report about its log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LogReport {
    /// The number of its log.
    pub number: u64,
    /// The log is to be in Kafka, by its setting.
    pub wants_kafka: bool,
    /// Absent if Kafka keeps it.
    #[serde(default)]
    pub own: Option<OwnLogReport>,
}

/// A node's report about a log that the nodes keep.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OwnLogReport {
    /// The id of its disk.
    pub disk: u64,
    /// The latest table that it knows.
    pub table: LogTable,
    /// The nodes that its groups are compared with.
    pub compared: Vec<LogSeat>,
    /// Groups that it leads.
    pub led: BTreeSet<SlotNumber>,
    /// Those among them whose members are others than these nodes.
    pub unsettled: BTreeSet<SlotNumber>,
}

impl LogTables {
    /// Creates it for a log that was opened, and is to be at a place.
    pub fn new(open: &OpenLog, place: &LogPlace, catalogue: &Arc<Catalogue>) -> LogTables {
        let (own, latest) = match &open.kind {
            LogKind::Kafka(_) => (None, LogTable::default()),
            LogKind::Nodes { log, table, .. } => (Some(log.clone()), table.clone()),
        };
        LogTables {
            number: open.number(),
            own,
            wants_kafka: matches!(place, LogPlace::Kafka(_)),
            catalogue: catalogue.clone(),
            latest: Mutex::new(latest),
        }
    }

    /// Creates it for a log that is not the nodes' own.
    #[cfg(test)]
    pub fn none(catalogue: &Arc<Catalogue>) -> LogTables {
        LogTables {
            number: 0,
            own: None,
            wants_kafka: true,
            catalogue: catalogue.clone(),
            latest: Mutex::default(),
        }
    }

    /// Returns the number of the log.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the log, if the nodes keep it.
    pub fn own(&self) -> Option<&Arc<RaftLog>> {
        self.own.as_ref()
    }

    /// Returns who keeps the log, for a node that joins.
    pub fn keeper(&self) -> LogKeeper {
        match &self.own {
            None => LogKeeper::Kafka {
                number: self.number,
                brokers: None,
            },
            Some(_) => LogKeeper::Nodes(OwnLog {
                number: self.number,
                creates: false,
                nodes: self.latest.lock().nodes.clone(),
            }),
        }
    }

    /// Returns the latest table.
    pub fn latest(&self) -> LogTable {
        self.latest.lock().clone()
    }

    /// Returns the control slot's table, if it is that of this log.
    pub fn in_control(&self) -> Option<LogTable> {
        let table = self.catalogue.with(|state| state.log_table.clone());
        (table.log == self.number && !table.nodes.is_empty()).then_some(table)
    }

    /// Uses the control slot's table unless the one in use is later.
    pub fn take_from_control(&self) {
        if let Some(table) = self.in_control() {
            self.take_unless(&table, |latest| latest == &table || latest.follows(&table));
        }
    }

    /// Uses a table if it is later than the one in use.
    pub fn take(&self, table: &LogTable) {
        self.take_unless(table, |latest| !table.follows(latest));
    }

    fn take_unless(&self, table: &LogTable, is_refused: impl Fn(&LogTable) -> bool) {
        let Some(own) = &self.own else {
            return;
        };
        let mut latest = self.latest.lock();
        let is_usable = table.log == self.number && !table.nodes.is_empty();
        if is_usable && !is_refused(&latest) {
            tracing::info!(nodes = ?table.nodes, "the nodes that keep the log");
            own.set_log_nodes(log_nodes(&table.nodes));
            *latest = table.clone();
        }
    }

    /// Returns this node's report.
    pub fn report(&self) -> LogReport {
        LogReport {
            number: self.number,
            wants_kafka: self.wants_kafka,
            own: self.own.as_ref().map(|own| self.own_report(own)),
        }
    }

    fn own_report(&self, own: &RaftLog) -> OwnLogReport {
        let LogFigures {
            log_nodes,
            led,
            unsettled,
            ..
        } = own.figures();
        let compared = log_nodes.iter().map(|of| LogSeat {
            node: of.node,
            disk: of.raft,
        });
        OwnLogReport {
            disk: own.options().me.raft,
            table: self.latest(),
            compared: compared.collect(),
            led,
            unsettled,
        }
    }
}

/// Returns the table that is to follow; `None` if the one in the control slot is right. `disks` are those
/// of the nodes that answer.
///
/// A later one than that of the control slot was taken back there, by a new generation: others may use it,
/// so another one follows both.
///
/// Nodes stay in the table while they are members. A node that answers with another disk lost the
/// one before, and gets the other id immediately: Raft's own rules decide when that disk gets its vote.
pub(crate) fn next_table(
    (in_control, latest): (Option<&LogTable>, &LogTable),
    members: &BTreeSet<NodeId>,
    disks: &BTreeMap<NodeId, u64>,
    barred: &BTreeSet<NodeId>,
) -> Option<LogTable> {
    let before = in_control.unwrap_or(latest);
    let barred: BTreeSet<NodeId> = barred.intersection(members).copied().collect();
    let is_able = |node: &NodeId| members.contains(node) && !barred.contains(node);
    let able = members.iter().filter(|node| is_able(node)).count();
    let seats = match able < SEATS_OF_LARGE {
        true => SEATS,
        false => SEATS_OF_LARGE,
    };
    let stay = before.nodes.iter().filter(|seat| is_able(&seat.node));
    let mut nodes: Vec<LogSeat> = stay
        .map(|seat| LogSeat {
            disk: disks.get(&seat.node).copied().unwrap_or(seat.disk),
            ..*seat
        })
        .collect();
    for (node, disk) in disks.iter().filter(|(node, _)| is_able(node)) {
        if !before.has(*node) {
            nodes.push(LogSeat {
                node: *node,
                disk: *disk,
            });
        }
    }
    nodes.truncate(seats);
    let is_right = in_control.is_some_and(|table| {
        table.nodes == nodes && table.barred == barred && !latest.follows(table)
    });
    (!is_right && !nodes.is_empty()).then(|| LogTable {
        log: before.log,
        changes: before.changes.max(latest.changes) + 1,
        nodes,
        barred,
    })
}

/// Returns whether all groups have exactly these nodes, as those that lead them report. Reports are of
/// different times, so that two nodes may report the same group.
pub(crate) fn is_settled<'a>(
    nodes: &[LogSeat],
    slots: SlotNumber,
    reports: impl Iterator<Item = &'a OwnLogReport>,
) -> bool {
    let same = reports.filter(|report| report.compared == nodes);
    are_all(
        slots,
        same.flat_map(|report| report.led.difference(&report.unsettled)),
    )
}

/// Returns whether these are all groups of a cluster: the control slot has one, too.
pub(crate) fn are_all<'a>(slots: SlotNumber, groups: impl Iterator<Item = &'a SlotNumber>) -> bool {
    groups.collect::<BTreeSet<_>>().len() > usize::from(slots)
}

#[cfg(test)]
mod tests {
    use cluster::CONTROL;

    use super::*;

    fn seat(node: NodeId) -> LogSeat {
        LogSeat {
            node,
            disk: node * 10,
        }
    }

    fn table(changes: u64, nodes: &[NodeId]) -> LogTable {
        LogTable {
            changes,
            nodes: nodes.iter().copied().map(seat).collect(),
            ..LogTable::default()
        }
    }

    fn numbers(nodes: &[NodeId]) -> BTreeSet<NodeId> {
        nodes.iter().copied().collect()
    }

    fn disks(nodes: &[NodeId]) -> BTreeMap<NodeId, u64> {
        nodes.iter().map(|node| (*node, seat(*node).disk)).collect()
    }

    fn next(before: &LogTable, members: &[NodeId], live: &[NodeId]) -> Option<LogTable> {
        let tables = (Some(before), before);
        next_table(tables, &numbers(members), &disks(live), &before.barred)
    }

    #[test]
    fn the_first_three_members_keep_the_log_and_five_from_five_on() {
        let first = table(0, &[7]);
        let of_start = next_table((None, &first), &numbers(&[7]), &disks(&[7]), &numbers(&[]));
        assert_eq!(of_start, Some(table(1, &[7])));
        let two = next(&table(1, &[7]), &[3, 7], &[3, 7]);
        assert_eq!(two, Some(table(2, &[7, 3])));
        let three = next(&table(2, &[7, 3]), &[1, 3, 7], &[1, 3, 7]);
        assert_eq!(three, Some(table(3, &[7, 3, 1])));
        let four = [1, 2, 3, 7];
        assert_eq!(next(&table(3, &[7, 3, 1]), &four, &four), None);
        let all = [1, 2, 3, 7, 9];
        let five = next(&table(3, &[7, 3, 1]), &all, &all);
        assert_eq!(five, Some(table(4, &[7, 3, 1, 2, 9])));
        let left = next(&table(4, &[7, 3, 1, 2, 9]), &[1, 2, 7, 9], &[1, 2, 7, 9]);
        assert_eq!(left, Some(table(5, &[7, 1, 2])));
    }

    #[test]
    fn a_node_that_is_down_stays_and_one_that_lost_its_disk_gets_another_id() {
        let before = table(3, &[1, 2, 3]);
        assert_eq!(next(&before, &[1, 2, 3], &[1, 3]), None);
        assert_eq!(next(&before, &[1, 2, 3, 4], &[1, 3, 4]), None);
        let mut live = disks(&[1, 3]);
        live.insert(2, 21);
        let tables = (Some(&before), &before);
        let after = next_table(tables, &numbers(&[1, 2, 3]), &live, &numbers(&[])).unwrap();
        assert_eq!(after.nodes[1], LogSeat { node: 2, disk: 21 });
        assert_eq!(after.nodes.len(), 3);
    }

    #[test]
    fn a_node_that_is_about_to_leave_is_replaced_and_not_added_again() {
        let before = table(3, &[1, 2, 3]);
        let (members, live) = (numbers(&[1, 2, 3, 4]), disks(&[1, 2, 3, 4]));
        let tables = (Some(&before), &before);
        let without = next_table(tables, &members, &live, &numbers(&[2])).unwrap();
        assert_eq!(without.nodes, [seat(1), seat(3), seat(4)]);
        assert_eq!(next(&without, &[1, 2, 3, 4], &[1, 2, 3, 4]), None);
        // It has left.
        let after = next(&without, &[1, 3, 4], &[1, 3, 4]).unwrap();
        assert_eq!((after.nodes, after.barred), (without.nodes, numbers(&[])));
    }

    #[test]
    fn a_proposal_exceeds_all_known_tables() {
        let (old, latest) = (table(3, &[1]), table(6, &[1, 2]));
        let next = next_table(
            (Some(&old), &latest),
            &numbers(&[1, 2]),
            &disks(&[1, 2]),
            &numbers(&[]),
        );
        assert_eq!(next.unwrap().changes, 7);
    }

    #[test]
    fn a_table_that_the_control_slot_took_back_is_replaced() {
        let (right, taken_back) = (table(3, &[1, 2]), table(4, &[1, 3]));
        let (members, live) = (numbers(&[1, 2]), disks(&[1, 2]));
        let tables = (Some(&right), &taken_back);
        let next = next_table(tables, &members, &live, &numbers(&[])).unwrap();
        assert_eq!((next.changes, next.nodes), (5, right.nodes));
    }

    #[test]
    fn groups_are_settled_when_the_leaders_of_all_say_so() {
        let report =
            |compared: &[NodeId], led: &[SlotNumber], unsettled: &[SlotNumber]| OwnLogReport {
                disk: 1,
                table: LogTable::default(),
                compared: table(0, compared).nodes,
                led: led.iter().copied().collect(),
                unsettled: unsettled.iter().copied().collect(),
            };
        let nodes = table(0, &[1, 3]).nodes;
        let settled = |reports: &[OwnLogReport]| is_settled(&nodes, 4, reports.iter());
        let first = report(&[1, 3], &[0, 1, CONTROL], &[]);
        assert!(settled(&[first.clone(), report(&[1, 3], &[2, 3], &[])]));
        assert!(!settled(&[first.clone(), report(&[1, 3], &[3], &[])]));
        assert!(!settled(&[first.clone(), report(&[1, 3], &[2, 3], &[2])]));
        // A group that both report hides none.
        assert!(!settled(&[first.clone(), report(&[1, 3], &[0, 2], &[])]));
        // One of them has not heard of the change.
        assert!(!settled(&[first, report(&[1, 2, 3], &[2, 3], &[])]));
    }
}
