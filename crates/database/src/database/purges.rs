//! Purges of a database.

use std::sync::Arc;

use document::{DocId, Rev};
use storage::{PurgeInfo, ShardPurge};

use super::{Database, PurgeOutcome, PurgePlace};
use crate::{Error, counters};

impl Database {
    /// Removes leaf revisions without a trace in the feed. Returns the removed ones, in the order
    /// of the requests.
    pub async fn purge(
        self: &Arc<Self>,
        requests: Vec<(DocId, Vec<Rev>)>,
    ) -> Result<PurgeOutcome, Error> {
        let documents = requests.len() as u64;
        let done = self.purge_now(requests).await;
        match &done {
            Ok(_) => {
                counters::PURGES.count();
                counters::PURGED_DOCUMENTS.add(documents);
            }
            Err(_) => counters::PURGE_FAILURES.add(documents),
        }
        done
    }

    async fn purge_now(
        self: &Arc<Self>,
        requests: Vec<(DocId, Vec<Rev>)>,
    ) -> Result<PurgeOutcome, Error> {
        self.live()?;
        let mut purges = Vec::with_capacity(requests.len());
        for (id, revs) in &requests {
            self.check_partitioned(id.as_str())?;
            let mut uuid = [0; 16];
            getrandom::fill(&mut uuid)
                .map_err(|e| Error::Internal(format!("no random bytes: {e}")))?;
            purges.push(ShardPurge {
                shard: self.shard_for(id.as_str()).clone(),
                id: id.clone(),
                revs: revs.clone(),
                uuid,
            });
        }
        let (removed, has_few_copies) = match self.sequencer() {
            Some(sequencer) => sequencer.purge(self, purges).await?,
            None => {
                let done = self.store.committer.purge(purges, self.limits()).await;
                let done = done.map_err(|_| Error::ShuttingDown)?;
                (done.or_else(|e| self.if_live(Err(e.into())))?, false)
            }
        };
        let ids = requests.into_iter().map(|(id, _)| id);
        Ok(PurgeOutcome {
            removed: ids.zip(removed).collect(),
            has_few_copies,
        })
    }

    /// Passes the remembered purges from a place on to `take`, oldest first within a shard, until it
    /// returns false. Returns the place of the next one; `None` at the end.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], and errors of the store.
    pub fn purged_infos(
        &self,
        from: PurgePlace,
        take: &mut dyn FnMut(PurgeInfo) -> bool,
    ) -> Result<Option<PurgePlace>, Error> {
        self.if_live(self.purged_infos_now(from, take))
    }

    fn purged_infos_now(
        &self,
        from: PurgePlace,
        take: &mut dyn FnMut(PurgeInfo) -> bool,
    ) -> Result<Option<PurgePlace>, Error> {
        let mut purge_seq = from.purge_seq;
        for (number, shard) in self.shards.iter().enumerate().skip(from.shard) {
            let view = shard.view()?;
            if let Some(next) = storage::read_purges(shard, &view, purge_seq, take)? {
                return Ok(Some(PurgePlace {
                    shard: number,
                    purge_seq: next,
                }));
            }
            purge_seq = 0;
        }
        Ok(None)
    }
}
