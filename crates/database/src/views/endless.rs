//! Map functions that end for no document.

use std::sync::Arc;

use crate::Error;
use crate::database::Database;
use crate::views::ViewIndex;

/// A database with more documents is not compared: an index does not count more that it lacks.
const DOCS_MAX: u64 = 1_000;

impl Database {
    /// Fails if an index lacks all documents because its functions took too much time. Then the
    /// functions are at fault, and not a document; CouchDB fails too.
    ///
    /// # Errors
    /// The limit of time.
    pub(super) async fn check_that_functions_end(
        self: &Arc<Self>,
        index: &Arc<ViewIndex>,
    ) -> Result<(), Error> {
        let Some(limit) = index.shards.iter().find_map(|i| i.exceeded_time()) else {
            return Ok(());
        };
        if index.shards.iter().any(|i| i.includes_design()) || self.doc_count() > DOCS_MAX {
            return Ok(());
        }
        let (db, index) = (self.clone(), index.clone());
        match self.run_low_priority(move || db.lacks_all(&index)).await? {
            true => Err(limit.into()),
            false => Ok(()),
        }
    }

    fn doc_count(&self) -> u64 {
        let shards = self.all_shards().iter();
        shards.map(|shard| shard.meta().doc_count).sum()
    }

    fn lacks_all(&self, index: &ViewIndex) -> Result<bool, Error> {
        let mut left_out = 0;
        for shard in &index.shards {
            left_out += shard.left_out()?;
        }
        let designs = self.live_designs()?.len() as u64;
        Ok(left_out > 0 && left_out + designs >= self.doc_count())
    }
}
