//! Whether this node reaches the log, which is a property of the node: one check serves all slots.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use cluster::Log;

/// Whether this node and the others reach the log.
#[derive(Default)]
pub(crate) struct LogReach {
    log: OnceLock<Arc<dyn Log>>,
    is_lost: AtomicBool,
    others_have_it: AtomicBool,
}

impl LogReach {
    /// Sets the log, once.
    pub fn set_log(&self, log: Arc<dyn Log>) {
        // A second call has no effect.
        let _ = self.log.set(log);
    }

    /// Checks whether the log answers this node now, which takes at most a few seconds. Nodes notice
    /// a loss at different times, so other nodes need a new result.
    pub async fn check(&self) -> bool {
        match self.log.get() {
            Some(log) => log.is_reachable().await,
            None => true,
        }
    }

    /// Returns whether this node cannot reach the log.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Returns whether other nodes reach the log, and this one does not: they serve its clients
    /// better.
    pub fn is_elsewhere(&self) -> bool {
        self.is_lost() && self.others_have_it.load(Ordering::Relaxed)
    }

    /// Sets both, and logs a change.
    pub fn set(&self, is_lost: bool, others_have_it: bool) {
        let before = (self.is_lost(), self.is_elsewhere());
        self.others_have_it.store(others_have_it, Ordering::Relaxed);
        self.is_lost.store(is_lost, Ordering::Relaxed);
        match (before, (is_lost, others_have_it)) {
            (before, now) if before == now => {}
            (_, (true, true)) => tracing::warn!(
                "this node cannot reach the cluster's log: other nodes answer its clients until it can"
            ),
            (_, (true, false)) => {
                tracing::warn!("no node that this one reaches can reach the cluster's log");
            }
            (_, (false, _)) => tracing::info!("this node reaches the cluster's log again"),
        }
    }
}
