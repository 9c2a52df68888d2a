//! The design documents of a database that are kept in memory.

use std::sync::Arc;

use functions::DesignDoc;
use parking_lot::Mutex;

use crate::recent::Recent;
use crate::views::Design;

/// Design documents that a database keeps.
const KEPT_MAX: usize = 256;
/// Bytes of their texts that a database keeps, besides those of running calls.
const TEXT_BYTES_KEPT_MAX: usize = 8 << 20;
/// Bytes of their parsed views that a database keeps, besides those of running requests.
const VIEW_BYTES_KEPT_MAX: usize = 8 << 20;

/// The design documents of one database that were read.
pub(crate) struct KnownDesigns {
    /// Their texts, for calls of functions.
    pub docs: Mutex<Recent<DesignDoc>>,
    /// Their views.
    pub views: Mutex<Recent<Design>>,
    /// One long one is read at a time: requests for the same one wait for its first reader.
    pub turn: Arc<tokio::sync::Mutex<()>>,
}

impl Default for KnownDesigns {
    fn default() -> Self {
        KnownDesigns {
            docs: Mutex::new(Recent::new(KEPT_MAX, TEXT_BYTES_KEPT_MAX)),
            views: Mutex::new(Recent::new(KEPT_MAX, VIEW_BYTES_KEPT_MAX)),
            turn: Arc::default(),
        }
    }
}

impl KnownDesigns {
    /// About how much memory they take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.docs.lock().bytes() + self.views.lock().bytes()
    }
}
