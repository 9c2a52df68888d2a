//! The design documents of a database that are kept in memory.

use std::collections::HashMap;
use std::sync::Arc;

use functions::DesignDoc;
use parking_lot::Mutex;
use storage::Signature;

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
    /// Their definitions without sources.
    pub summaries: Mutex<DesignSummaries>,
    /// One long one is read at a time: requests for the same one wait for its first reader.
    pub turn: Arc<tokio::sync::Mutex<()>>,
    /// One request reads those that validate, the others wait for it.
    pub validators_turn: Arc<tokio::sync::Mutex<()>>,
}

impl Default for DesignCache {
    fn default() -> Self {
        DesignCache {
            docs: Mutex::new(RevisionCache::new(KEPT_MAX, TEXT_BYTES_KEPT_MAX)),
            views: Mutex::new(RevisionCache::new(KEPT_MAX, VIEW_BYTES_KEPT_MAX)),
            summaries: Mutex::default(),
            turn: Arc::default(),
            validators_turn: Arc::default(),
        }
    }
}

impl DesignCache {
    /// About how much memory they take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.docs.lock().bytes() + self.views.lock().bytes() + self.summaries.lock().bytes
    }
}

/// The definitions of a design document, without their sources.
#[derive(Debug)]
pub(crate) struct DesignSummary {
    /// `_design/name`
    pub id: String,
    /// The document was read at this change of it, or later.
    seq: u64,
    /// Identifies the index of its views.
    pub signature: Signature,
    has_views: bool,
    /// Built in the background.
    pub autoupdate: bool,
    /// Whether its language is Mango, and it defines indexes.
    pub has_find_indexes: bool,
    text_indexes: Box<[TextSummary]>,
}

/// A text index of a design document.
#[derive(Debug)]
pub(crate) struct TextSummary {
    signature: Signature,
    /// Whether its analyzers are valid: it cannot be opened otherwise.
    pub has_analyzers: bool,
}

impl TextSummary {
    /// Identifies the index.
    pub fn signature(&self) -> Signature {
        self.signature
    }
}

impl DesignSummary {
    /// Returns what a design document defines that was read after a change.
    pub fn of(design: &Design, seq: u64) -> DesignSummary {
        let text_indexes = design.text_indexes().map(|text| TextSummary {
            signature: text.signature(),
            has_analyzers: text.analyzers().is_ok(),
        });
        DesignSummary {
            id: design.id.clone(),
            seq,
            signature: design.signature,
            has_views: design.has_views(),
            autoupdate: design.autoupdate,
            has_find_indexes: design.spec.language == mango::index::LANGUAGE
                && design.defines_indexes(),
            text_indexes: text_indexes.collect(),
        }
    }

    /// Whether there is anything to index, text indexes aside.
    pub fn has_views(&self) -> bool {
        self.has_views
    }

    /// The text indexes.
    pub fn text_indexes(&self) -> impl Iterator<Item = &TextSummary> {
        self.text_indexes.iter()
    }

    /// About how much memory it takes with its id as a key, in bytes.
    fn memory_bytes(&self) -> usize {
        let texts = self.text_indexes.len() * size_of::<TextSummary>();
        size_of::<DesignSummary>() + 2 * self.id.len() + texts + 64
    }
}

/// The definitions of the design documents that were read.
#[derive(Debug, Default)]
pub(crate) struct DesignSummaries {
    by_id: HashMap<String, Arc<DesignSummary>>,
    bytes: usize,
}

impl DesignSummaries {
    /// Returns what a design document defines, if it was read after its change of this seq.
    pub fn get(&self, id: &str, seq: u64) -> Option<Arc<DesignSummary>> {
        let known = self.by_id.get(id)?;
        (known.seq == seq).then(|| known.clone())
    }

    /// Keeps what a design document defines.
    pub fn keep(&mut self, summary: Arc<DesignSummary>) {
        self.bytes += summary.memory_bytes();
        if let Some(old) = self.by_id.insert(summary.id.clone(), summary) {
            self.bytes -= old.memory_bytes();
        }
    }

    /// Removes those of design documents that exist no more; `all` are those that exist.
    pub fn forget_others(&mut self, all: &[Arc<DesignSummary>]) {
        if self.by_id.len() > all.len() {
            *self = DesignSummaries::default();
            all.iter().for_each(|summary| self.keep(summary.clone()));
        }
    }

    /// Returns their number.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }
}
