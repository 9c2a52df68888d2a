//! Starts new generations on behalf of an operator.

use std::sync::Arc;
use std::time::Duration;

use cluster::SlotNumber;

use crate::replicas::Replicas;

/// Time limit of the start of a generation, and maximum number of attempts.
const RESEED_TIME: Duration = Duration::from_secs(12);
const RESEEDS_MAX: u32 = 10;
/// Interval in which nodes notice a newer log.
pub const LOG_WATCHED_EVERY: Duration = Duration::from_secs(5);

/// Starts a new generation once the other nodes have the new log, too.
pub async fn start_later(replicas: Arc<Replicas>) {
    tokio::time::sleep(2 * LOG_WATCHED_EVERY).await;
    start(replicas, None).await;
}

/// Starts a new generation in all slots, or in one. A start that does not finish in time, for example
/// while brokers start, is repeated.
pub async fn start(replicas: Arc<Replicas>, only: Option<SlotNumber>) {
    let is_wanted = |slot: SlotNumber| only.is_none_or(|only| only == slot);
    let all = replicas.all().filter(|(slot, _)| is_wanted(*slot));
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
    tracing::error!(slots = ?left, "no new generation started: `settee cluster reseed` tries again");
}
