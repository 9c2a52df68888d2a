//! Time used by databases, views and text indexes.

use telemetry::UsageByName;

/// The use of databases, and of views and text indexes.
#[derive(Clone, Default)]
pub struct Usage {
    /// By name.
    pub databases: UsageByName,
    /// By database, design document and view or text index.
    pub views: UsageByName,
}

impl Usage {
    pub(crate) fn add(&mut self, other: &Usage) {
        self.databases.add(&other.databases);
        self.views.add(&other.views);
    }
}
