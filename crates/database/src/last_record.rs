//! The record of the document that was read last.

use std::sync::Arc;

use document::DocId;
use storage::{Record, Shard};

/// Reads the record of many edits of one document once. It is used for a short time: later writes are not seen.
#[derive(Debug, Default)]
pub(crate) struct LastRecord(Option<(DocId, Arc<Record>)>);

impl LastRecord {
    /// Returns the record of a document; an empty one if it does not exist.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn of(&mut self, shard: &Shard, id: &DocId) -> Result<Arc<Record>, storage::Error> {
        if let Some((_, record)) = self.0.as_ref().filter(|(of, _)| of == id) {
            return Ok(record.clone());
        }
        let record = Arc::new(shard.record(id.as_str())?.unwrap_or_default());
        self.0 = Some((id.clone(), record.clone()));
        Ok(record)
    }
}
