//! Starts new generations on behalf of an operator.

use std::sync::Arc;
use std::time::Duration;

use cluster::{Generation, NodeId, SlotNumber};

use crate::members::Members;
use crate::planner::leads;
use crate::replicas::{Replica, Replicas};

/// Time limit of the start of a generation, and maximum number of attempts.
const RESEED_TIME: Duration = Duration::from_secs(12);
const RESEEDS_MAX: u32 = 10;
/// Interval in which nodes notice a newer log.
pub const LOG_WATCHED_EVERY: Duration = Duration::from_secs(5);

/// Starts a new generation once the other nodes have the new log, too.
pub async fn start_later(replicas: Arc<Replicas>, members: Arc<Members>) {
    tokio::time::sleep(2 * LOG_WATCHED_EVERY).await;
    start(replicas, members, None).await;
}

/// Starts a new generation in all slots, or in one. Other nodes do so in slots that this node does
/// not have.
pub async fn start(replicas: Arc<Replicas>, members: Arc<Members>, only: Option<SlotNumber>) {
    if members.placement().is_some() {
        let others = members.live_others().into_iter();
        let asked = others.map(|node| members.reseed(node, only));
        futures_util::future::join_all(asked).await;
    }
    // A node that has left a slot keeps its data for a while.
    let is_placed = members.placement().is_some();
    let is_wanted = |slot: SlotNumber, replica: &Replica| {
        only.is_none_or(|only| only == slot) && (!is_placed || replica.is_member())
    };
    let slots = generations(&replicas, is_wanted);
    start_in(replicas, slots).await;
}

/// Starts a new generation in the slots that another node does not have, and that this node leads:
/// in all of them, or in one.
pub async fn start_for(
    asking: NodeId,
    replicas: Arc<Replicas>,
    members: Arc<Members>,
    only: Option<SlotNumber>,
) {
    let is_wanted = |slot: SlotNumber, replica: &Replica| {
        let status = replica.status();
        only.is_none_or(|only| only == slot)
            && !status.members.contains(&asking)
            && leads(&members, &status, Duration::ZERO)
    };
    let slots = generations(&replicas, is_wanted);
    start_in(replicas, slots).await;
}

/// Returns the generations of some of the slots here.
fn generations(
    replicas: &Replicas,
    is_wanted: impl Fn(SlotNumber, &Replica) -> bool,
) -> Vec<(SlotNumber, Generation)> {
    let all = replicas.all();
    let wanted = all.filter(|(slot, replica)| is_wanted(*slot, replica));
    wanted.map(|(slot, r)| (slot, r.generation())).collect()
}

/// Starts the generations that follow these. A start that does not finish in time, for example
/// while brokers start, is repeated.
async fn start_in(replicas: Arc<Replicas>, mut left: Vec<(SlotNumber, Generation)>) {
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
