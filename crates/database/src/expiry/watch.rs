//! Databases whose documents expire and that changed.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Names of databases whose documents expire and that were written, or whose property changed, since they were last taken.
#[derive(Debug, Default)]
pub struct ExpiryWatch {
    changed: Mutex<HashSet<Arc<str>>>,
    wake: Notify,
}

impl ExpiryWatch {
    pub(crate) fn note(&self, name: &Arc<str>) {
        self.changed.lock().insert(name.clone());
        self.wake.notify_one();
    }

    /// Returns the names so far, and forgets them.
    pub fn take(&self) -> HashSet<Arc<str>> {
        std::mem::take(&mut self.changed.lock())
    }

    /// Waits until there is a name. For one waiter.
    pub async fn changed(&self) {
        self.wake.notified().await;
    }
}
