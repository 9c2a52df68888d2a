//! Feeds since a time, and numbers of changes by time: each shard's time bins
//! ([`storage::TimeSeq`]).

use std::sync::Arc;

use storage::TimePlace;

use crate::Error;
use crate::database::Database;
use crate::ranges::ShardRange;
use crate::time_text::time_text;

/// The number of changes in a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeBin {
    /// When the period began, as `2026-11-28T12:00:00Z`.
    pub start: String,
    /// Changes in the period.
    pub changes: u64,
}

impl Database {
    /// Returns the time bins of each shard, the oldest first. On a node of a cluster these are the node's own.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn time_seq(&self) -> Result<Vec<(ShardRange, Vec<TimeBin>)>, Error> {
        let of_shard = |shard: &Arc<storage::Shard>| {
            let bins = shard.time_seq()?.histogram(shard.meta().update_seq);
            let bins = bins.into_iter().map(|(start, changes)| TimeBin {
                start: time_text(start),
                changes,
            });
            Ok(bins.collect())
        };
        let all: Result<Vec<_>, Error> = self.all_shards().iter().map(of_shard).collect();
        Ok(self.shards().into_iter().zip(self.if_live(all)?).collect())
    }

    /// Removes the time bins of all shards; durable when this returns. Feeds since any time then begin at the start, until changes
    /// are recorded again.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], and those of the store.
    pub async fn reset_time_seq(&self) -> Result<(), Error> {
        self.live()?;
        let committer = &self.store().committer;
        let shards = self.all_shards().iter();
        let queued: Vec<_> = shards
            .map(|shard| committer.reset_time_seq(shard.clone()))
            .collect();
        for reset in queued {
            let done = reset.await.map_err(|_| Error::ShuttingDown)?;
            done.or_else(|e| self.if_live(Err(e.into())))?;
        }
        Ok(())
    }

    /// The seqs after which each shard's changes since a time come, or earlier ones; `ends` are the
    /// shards' last seqs.
    pub(crate) fn seqs_since(&self, unix_s: u64, ends: &[u64]) -> Result<Vec<u64>, Error> {
        let shards = self.all_shards().iter().zip(ends);
        let found = shards.map(|(shard, &end)| match shard.time_seq()?.since(unix_s) {
            // Bins are read after the snapshot that ends there.
            TimePlace::After(seq) => Ok(seq.min(end)),
            TimePlace::Now => Ok(end),
        });
        self.if_live(found.collect())
    }
}
