//! Which indexes somebody asked for rows of, since the server's start. An index that was not is upkeep for nothing.

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use storage::Signature;

use crate::catalogue::DatabaseUuid;

/// Beyond so many it is not known of others whether they are used.
const REMEMBERED_MAX: usize = 100_000;

/// Indexes that were asked, by their databases.
#[derive(Default)]
pub(crate) struct UsedIndexes(Mutex<FxHashSet<(DatabaseUuid, Signature)>>);

impl UsedIndexes {
    /// An index is asked.
    pub fn note(&self, database: DatabaseUuid, signature: Signature) {
        let mut all = self.0.lock();
        if all.len() < REMEMBERED_MAX {
            all.insert((database, signature));
        }
    }

    /// Whether an index was asked; `None` when that is not known.
    pub fn was_used(&self, database: DatabaseUuid, signature: Signature) -> Option<bool> {
        let all = self.0.lock();
        match all.contains(&(database, signature)) {
            true => Some(true),
            false => (all.len() < REMEMBERED_MAX).then_some(false),
        }
    }
}
