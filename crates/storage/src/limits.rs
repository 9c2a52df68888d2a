//! Limits of the database that an edit belongs to.

use document::TreeLimits;

/// Default maximum number of leaves of a document.
pub const LEAVES_MAX: u64 = 10_000;

/// Limits of the database that an edit belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Revisions kept of each branch.
    pub revs_limit: u64,
    /// Number of purges remembered.
    pub purged_infos_limit: u64,
    /// Maximum number of leaves of a document: an edit that adds another one is refused
    /// ([`crate::Outcome::TooManyLeaves`]). `None` for edits of logs without a limit, and for
    /// repairs.
    pub leaves_max: Option<u64>,
}

impl Limits {
    pub(crate) fn of_trees(&self) -> TreeLimits {
        TreeLimits {
            revs: self.revs_limit,
            leaves: self.leaves_max,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            revs_limit: 1000,
            purged_infos_limit: 1000,
            leaves_max: Some(LEAVES_MAX),
        }
    }
}
