//! Dropping indexes that nothing names any more.

use std::collections::HashSet;
use std::sync::Arc;

use storage::Signature;

use super::{SharedRuns, wait};
use crate::database::Database;
use crate::design_cache::DesignSummary;
use crate::turn::Turn;
use crate::{Error, expiry};

impl Database {
    /// The signatures of all indexes, view and text indexes, that design documents name, and of the index of expiry times.
    pub(crate) fn used_signatures(&self) -> Result<HashSet<Signature>, Error> {
        Ok(self.signatures_of(&self.all_designs()?))
    }

    /// Returns the signatures of all indexes if these are the design documents.
    fn signatures_of(&self, designs: &[Arc<DesignSummary>]) -> HashSet<Signature> {
        let text_indexes = designs.iter().flat_map(|d| d.text_indexes());
        let views = designs.iter().filter(|d| d.has_views());
        let times = self.expiry().map(|of| expiry::signature(of.member()));
        views
            .map(|d| d.signature)
            .chain(text_indexes.map(|t| t.signature()))
            .chain(times)
            .collect()
    }

    /// Drops the indexes that no design document names any more, on a thread for blocking work.
    /// Requests that wait together wait without threads, and one clean-up is enough for them.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn clean_up_views_async(self: &Arc<Self>) -> Result<(), Error> {
        let clean_ups = &self.views.view_clean_ups;
        self.clean_up(clean_ups, Database::clean_up_views).await
    }

    /// Runs a clean-up for all requests that wait for one.
    pub(crate) async fn clean_up(
        self: &Arc<Self>,
        clean_ups: &SharedRuns,
        work: fn(&Database) -> Result<usize, Error>,
    ) -> Result<(), Error> {
        let db = self.clone();
        clean_ups
            .run(&self.views.opening, move || work(&db).map(drop))
            .await
    }

    /// Drops the indexes that no design document names any more. Blocks.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn clean_up_views(&self) -> Result<usize, Error> {
        let closed = self.views.changing.lock();
        if *closed {
            return self.if_live(Err(Error::NoDatabase));
        }
        let used = self.used_signatures()?;
        self.drop_indexes_of(|signature| !used.contains(signature))
    }

    /// Stops builds of view indexes that no design document names any more, unless requests wait for them. Their rows stay
    /// until a clean-up. Returns false if the turn is over before all design documents were read: the next call
    /// continues. Blocks meanwhile, but not until the builds end.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn pause_unused_builds(&self, turn: Turn) -> Result<bool, Error> {
        let mut building = self.open_view_indexes();
        building.retain(|index| index.is_built_ahead());
        // Usually none is, and design documents need not be read.
        if building.is_empty() {
            return Ok(true);
        }
        let Some(designs) = self.all_designs_in(turn)? else {
            return Ok(false);
        };
        let used = self.signatures_of(&designs);
        for index in building {
            let signature = index.signature();
            let is_unused = signature.is_some_and(|signature| !used.contains(&signature));
            if is_unused && index.is_built_ahead() {
                tracing::info!(db = %self.name(), design = %index.design, "no design document names a view index any more: its build is stopped");
                index.pause();
            }
        }
        Ok(true)
    }

    /// Drops the index of expiry times of a member that is not the database's any more. Blocks.
    pub(crate) fn drop_expiry_index(&self, member: &str) -> Result<(), Error> {
        let closed = self.views.changing.lock();
        // The indexes of a database that is deleted or replaced go with its shards.
        if !*closed {
            let unused = expiry::signature(member);
            self.drop_indexes_of(|signature| *signature == unused)?;
        }
        Ok(())
    }

    /// Drops indexes of these signatures, except text indexes. The caller sees to it that none is opened meanwhile.
    fn drop_indexes_of(&self, is_unused: impl Fn(&Signature) -> bool) -> Result<usize, Error> {
        let mut dropped = 0;
        for shard in self.all_shards() {
            for (signature, number) in self.store().indexes(shard.number)? {
                // Those with folders are of texts, which have a clean-up of their own.
                if !is_unused(&signature) || self.store().folder(number).exists() {
                    continue;
                }
                let open = self.views.indexes.lock().remove(&signature);
                if let Some(open) = open {
                    open.close();
                }
                self.drop_index(shard.number, &signature, number)?;
                dropped += 1;
            }
        }
        if dropped > 0 {
            self.wake_maintenance();
        }
        Ok(dropped)
    }

    /// Drops an index of a shard; it must not be open.
    pub(crate) fn drop_index(
        &self,
        shard: storage::ShardNumber,
        signature: &Signature,
        number: storage::ShardNumber,
    ) -> Result<(), Error> {
        wait(self.store().drop_index(shard, signature, number))?;
        self.store().note_dropped(&[number]);
        Ok(())
    }
}
