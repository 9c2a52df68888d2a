//! Trims the log in the nodes: removes the records that all replicas of a slot have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::slot::SlotStatus;
use cluster::{NodeId, SlotNumber};
use raft_log::RaftLog;

use crate::members::Members;
use crate::replicas::Replicas;

/// Interval of trims.
const EVERY: Duration = Duration::from_secs(10);
/// Records that stay although all replicas have them, so that a replica that restarts finds its last one.
const KEPT: u64 = 1_000;
/// A replica without contact for this time is not waited for: it copies the slot when it is back.
const AWAY_TIME: Duration = Duration::from_hours(72);

/// Trims this node's part of the log, until the future is dropped.
pub(crate) async fn run(log: Arc<RaftLog>, members: Arc<Members>, replicas: Arc<Replicas>) {
    let began = Instant::now();
    let mut trimmed = BTreeMap::<SlotNumber, (u64, u64)>::new();
    loop {
        tokio::time::sleep(EVERY).await;
        let is_away = |node: NodeId| {
            let heard = members.peers().and_then(|peers| peers.last_heard(node));
            node != members.me && heard.unwrap_or(began).elapsed() > AWAY_TIME
        };
        for (slot, replica) in replicas.all() {
            let next = bounds(log.options().log, &replica.status(), is_away);
            if let Some((unneeded, stable)) = next
                && trimmed.insert(slot, (unneeded, stable)) != next
            {
                log.trim(slot, unneeded, stable);
            }
        }
    }
}

/// Returns the offsets before which no replica needs a record, and before which a majority has all of
/// them. `None` while the replica is in an earlier log, which has other offsets.
fn bounds(log: u64, status: &SlotStatus, is_away: impl Fn(NodeId) -> bool) -> Option<(u64, u64)> {
    (status.log == log).then(|| (unneeded(status, is_away), status.stable))
}

/// Returns the offset before which no replica needs a record.
fn unneeded(status: &SlotStatus, is_away: impl Fn(NodeId) -> bool) -> u64 {
    let has = |node: &NodeId| {
        let durable = status.durable.iter().find(|(of, _)| of == node);
        durable.map_or(0, |(_, offset)| *offset)
    };
    let waited_for = status.members.iter().filter(|node| !is_away(**node));
    let all_have = waited_for.map(has).min().unwrap_or(0);
    all_have.saturating_sub(KEPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_in_an_earlier_log_trim_nothing() {
        let mut status = SlotStatus {
            members: vec![1],
            durable: vec![(1, 9_000)],
            stable: 9_000,
            log: 0,
            ..SlotStatus::default()
        };
        assert_eq!(bounds(70_000, &status, |_| false), None);
        status.log = 70_000;
        let trimmed = bounds(70_000, &status, |_| false);
        assert_eq!(trimmed, Some((9_000 - KEPT, 9_000)));
    }

    #[test]
    fn the_replica_that_has_least_decides_unless_it_was_away_for_days() {
        let mut status = SlotStatus {
            members: vec![1, 2, 3],
            durable: vec![(1, 9_000), (2, 5_000), (3, 8_000)],
            ..SlotStatus::default()
        };
        assert_eq!(unneeded(&status, |_| false), 5_000 - KEPT);
        assert_eq!(unneeded(&status, |node| node == 2), 8_000 - KEPT);
        status.durable.pop();
        assert_eq!(unneeded(&status, |_| false), 0);
        assert_eq!(unneeded(&SlotStatus::default(), |_| false), 0);
    }
}
