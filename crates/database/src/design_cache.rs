//! The design documents of a database that are kept in memory.

use std::sync::Arc;

use functions::DesignDoc;
use parking_lot::Mutex;

use crate::design_limits::{KEPT_MAX, TEXT_BYTES_KEPT_MAX};
use crate::revision_cache::RevisionCache;
use crate::views::Design;

/// Bytes of their parsed views that a database keeps, besides those of running requests.
const VIEW_BYTES_KEPT_MAX: usize = 8 << 20;

/// The design documents of one database that were read.
pub(crate) struct DesignCache {
    /// Their texts, for calls of functions.
    pub docs: Mutex<RevisionCache<DesignDoc>>,
    /// Their views.
    pub views: Mutex<RevisionCache<Design>>,
    /// One long one is read at a time: requests for the same one wait for its first reader.
    pub turn: Arc<tokio::sync::Mutex<()>>,
}

impl Default for DesignCache {
    fn default() -> Self {
        DesignCache {
            docs: Mutex::new(RevisionCache::new(KEPT_MAX, TEXT_BYTES_KEPT_MAX)),
            views: Mutex::new(RevisionCache::new(KEPT_MAX, VIEW_BYTES_KEPT_MAX)),
            turn: Arc::default(),
        }
    }
}

impl DesignCache {
    /// About how much memory they take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.docs.lock().bytes() + self.views.lock().bytes()
    }
}
