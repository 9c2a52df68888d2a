//! Compactions of a database, and what they may remove.

use std::sync::Arc;

use super::Database;
use crate::Error;
use crate::maintenance::RetainedData;

impl Database {
    /// Starts a compaction in the background. If one waits already, does nothing; if one runs,
    /// queues another one, since the running one does not see later writes.
    pub fn compact(self: &Arc<Self>) -> Result<(), Error> {
        self.live()?;
        self.maintenance.compact(self);
        Ok(())
    }

    /// Compacts all shards in this thread; `progress` receives (done, total) rows, and returns
    /// false to stop.
    pub(crate) fn compact_now(
        &self,
        progress: &(dyn Fn(u64, u64) -> bool + Sync),
    ) -> Result<u64, Error> {
        let mut removed = 0;
        for (i, shard) in self.shards.iter().enumerate() {
            self.live()?;
            let committer = &self.store.committer;
            storage::trim_purges(committer, shard, self.purged_infos_limit())?;
            removed += storage::compact(committer, shard, self.homes.of_shard(i), progress)?;
        }
        self.homes.sweep_and_reclaim()?;
        let kept = RetainedData {
            superseded_rows: self.superseded_rows(),
            garbage_bytes: self.attachment_garbage()?,
        };
        self.maintenance.note_kept(&self.name, kept);
        Ok(removed)
    }

    /// Bytes of the bodies and attachments of all leaves.
    pub(crate) fn leaf_bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.meta().external_bytes).sum()
    }

    /// Bytes of attachments that no leaf refers to. Leaves count their attachments each time that
    /// they are referenced, so this is too low where contents are shared.
    pub(super) fn attachment_garbage(&self) -> Result<u64, Error> {
        let stored = self.homes.stored_bytes()?;
        Ok(stored.saturating_sub(self.leaf_bytes()))
    }

    /// Bytes of attachments that a compaction may reclaim.
    pub(crate) fn removable_attachment_bytes(&self) -> Result<u64, Error> {
        let garbage = self.attachment_garbage()?;
        let mut all_kept = self.maintenance.kept(&self.name);
        let kept = all_kept.garbage_bytes.min(garbage);
        if kept < all_kept.garbage_bytes {
            // Data that was kept and later removed must not hide new garbage.
            all_kept.garbage_bytes = kept;
            self.maintenance.note_kept(&self.name, all_kept);
        }
        Ok((garbage - kept).saturating_add(self.homes.reclaimable_bytes()?))
    }

    fn superseded_rows(&self) -> u64 {
        self.shards.iter().map(|s| s.meta().superseded_rows).sum()
    }

    /// Rows that a compaction may remove.
    pub(crate) fn removable_rows(&self) -> u64 {
        let kept = self.maintenance.kept(&self.name).superseded_rows;
        self.superseded_rows().saturating_sub(kept)
    }

    pub(crate) fn is_compacting(&self) -> bool {
        self.maintenance.is_compacting(self)
    }
}
