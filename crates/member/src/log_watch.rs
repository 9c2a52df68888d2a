//! Checks whether this node reaches the log.

use std::sync::Arc;
use std::time::Duration;

use crate::log_reach::LogReach;
use crate::members::Members;

/// Interval of checks.
const EVERY: Duration = Duration::from_millis(400);
/// Number of checks that fail before the log counts as out of reach: a check that finds a dead
/// broker fails, though others live.
const FAILURES_MAX: u32 = 3;

/// Checks the log, until the future is dropped.
pub(crate) async fn watch(reach: Arc<LogReach>, members: Arc<Members>) {
    let mut failures = 0;
    loop {
        tokio::time::sleep(EVERY).await;
        failures = match reach.check().await {
            true => 0,
            false => failures + 1,
        };
        let is_lost = failures >= FAILURES_MAX;
        reach.set(is_lost, is_lost && members.any_reaches_log().await);
    }
}
