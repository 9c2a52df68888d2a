//! Time used by databases, views and text indexes.

use telemetry::Used;

/// The use of databases, and of views and text indexes.
#[derive(Clone, Default)]
pub struct Usage {
    /// By name.
    pub databases: Used,
    /// By database, design document and view or text index.
    pub views: Used,
}

impl Usage {
    pub(super) fn add(&mut self, other: &Usage) {
        self.databases.add(&other.databases);
        self.views.add(&other.views);
    }
}
