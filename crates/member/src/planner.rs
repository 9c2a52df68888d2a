//! Changes the replicas of all slots to the current members, one node at a time.

use std::sync::Arc;
use std::time::Duration;

use cluster::slot::SlotStatus;
use cluster::{CONTROL, NodeId};
use tokio::time::Instant;

use crate::members::Members;
use crate::replicas::{Replica, Replicas};

/// Interval of checks.
const EVERY: Duration = Duration::from_millis(500);
/// Time limit of a change.
const CHANGE_TIME_MAX: Duration = Duration::from_secs(10);

/// Keeps this node connected to the current members, and reports them to the slots, until the
/// future is dropped.
pub async fn connect(members: Arc<Members>, replicas: Arc<Replicas>, known: Vec<(NodeId, String)>) {
    let mut told = vec![];
    loop {
        tokio::time::sleep(EVERY).await;
        members.connect(&known);
        let mut all: Vec<NodeId> = members.all().into_iter().map(|(id, _)| id).collect();
        if all.is_empty() {
            all.extend(known.iter().map(|(id, _)| *id));
        }
        if all != told {
            (replicas.all()).for_each(|(_, replica)| replica.know(all.clone()));
            told = all;
        }
    }
}

/// Keeps the replicas equal to the members, until the future is dropped.
pub async fn run(members: Arc<Members>, replicas: Arc<Replicas>) {
    loop {
        tokio::time::sleep(EVERY).await;
        for (slot, replica) in replicas.all() {
            let wanted = || {
                let status = replica.status();
                next(&members, &status).filter(|_| leads(&members, &status))
            };
            // The members may have changed since this node last heard.
            if wanted().is_some()
                && let Some(control) = replicas.get(CONTROL)
                && control
                    .fresh(Instant::now() + CHANGE_TIME_MAX)
                    .await
                    .is_ok()
                && let Some(wanted) = wanted()
            {
                change(slot, replica, wanted).await;
            }
        }
    }
}

/// Returns whether this node leads the change: the first of the slot's live replicas that is still
/// a member.
fn leads(members: &Members, status: &SlotStatus) -> bool {
    let replicas = status.members.iter().copied();
    let able = replicas.filter(|id| members.is_live(*id) && members.knows(*id));
    able.min() == Some(members.me)
}

/// Returns the next set on the way to that of all members; `None` when there is nothing to do, or
/// not now.
fn next(members: &Members, status: &SlotStatus) -> Option<Vec<NodeId>> {
    if !status.proposes {
        return None;
    }
    let all: Vec<NodeId> = members.all().into_iter().map(|(id, _)| id).collect();
    let gone = status.members.iter().find(|id| !all.contains(id));
    if let Some(gone) = gone.filter(|_| !all.is_empty()) {
        let rest = status.members.iter().filter(|id| *id != gone);
        return Some(rest.copied().collect());
    }
    let is_new = |id: &&NodeId| !status.members.contains(id) && members.is_live(**id);
    let new = all.iter().find(is_new)?;
    let with = status.members.iter().chain([new]);
    Some(with.copied().collect())
}

async fn change(slot: cluster::SlotNumber, replica: &Replica, wanted: Vec<NodeId>) {
    let deadline = Instant::now() + CHANGE_TIME_MAX;
    match replica.change(wanted.clone(), deadline).await {
        Ok(()) => tracing::info!(slot, members = ?wanted, "the slot's replicas were changed"),
        Err(e) => tracing::debug!(slot, error = %e, "changing the slot's replicas failed"),
    }
}
