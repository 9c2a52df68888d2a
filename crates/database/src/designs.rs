//! Design documents in use: each revision is read once, and a long one not on the threads that serve.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use document::{DocId, Rev};
use functions::DesignDoc;

use crate::database::Database;
use crate::design_limits::memory_of_text;
use crate::views::Design;
use crate::{Error, WorkOwner, run_low_priority};

/// A design document with a longer body is read on a thread with a low priority.
const READ_HERE_BYTES_MAX: u64 = 64 << 10;

/// The stored members of a design document besides its body.
pub(crate) struct DesignHead {
    /// The winning revision.
    pub rev: Rev,
    /// The length of its body, in bytes.
    body_bytes: u64,
}

impl Database {
    /// Returns the head of a design document.
    ///
    /// # Errors
    /// [`Error::Missing`], and errors of the storage.
    pub(crate) fn design_head(&self, id: &str) -> Result<DesignHead, Error> {
        let Some(record) = self.shard_for(id).record(id)? else {
            return Err(Error::Missing("missing"));
        };
        match record.tree.winner().filter(|w| !w.revision.deleted) {
            None => Err(Error::Missing("deleted")),
            Some(winner) => Ok(DesignHead {
                rev: winner.rev.to_rev(),
                body_bytes: winner.revision.size,
            }),
        }
    }

    /// Returns a design document for calls of its functions; `None` when it does not exist, or is
    /// deleted. Calls share one text for each revision. A long document is read on another thread.
    ///
    /// # Errors
    /// Errors of reading it.
    pub async fn design_doc(self: &Arc<Self>, id: &DocId) -> Result<Option<Arc<DesignDoc>>, Error> {
        let read = |db: &Database, id: &str| {
            let id = DocId::new(id).map_err(|e| Error::BadRequest(e.to_string()))?;
            db.design_doc_here(&id)
        };
        let known = |db: &Database, head: &DesignHead| {
            let doc = db.design_cache.docs.lock().get(id.as_str(), &head.rev);
            doc.map(Some)
        };
        self.live()?;
        match self.read_once(id.as_str(), known, read).await {
            Err(Error::Missing(_)) => self.if_live(Ok(None)),
            other => self.if_live(other),
        }
    }

    /// Returns a design document as [`Database::design_doc`] does, but always reads it on this
    /// thread.
    ///
    /// # Errors
    /// Errors of reading it.
    pub fn design_doc_here(&self, id: &DocId) -> Result<Option<Arc<DesignDoc>>, Error> {
        self.live()?;
        let head = match self.design_head(id.as_str()) {
            Ok(head) => head,
            Err(Error::Missing(_)) => return self.if_live(Ok(None)),
            Err(e) => return self.if_live(Err(e)),
        };
        let known = self.design_cache.docs.lock().get(id.as_str(), &head.rev);
        if known.is_some() {
            return Ok(known);
        }
        let Some((rev, doc)) = self.read_design_doc(id)? else {
            return Ok(None);
        };
        let (doc, bytes) = (Arc::new(doc.0), memory_of_text(doc.1));
        let mut docs = self.design_cache.docs.lock();
        docs.insert(id.as_str().to_owned(), rev, doc.clone(), bytes);
        Ok(Some(doc))
    }

    /// Returns the views of a design document as [`Database::design`] does; a long document is read
    /// on another thread.
    ///
    /// # Errors
    /// Those of [`Database::design`].
    pub async fn design_async(self: &Arc<Self>, id: &str) -> Result<Arc<Design>, Error> {
        let known =
            |db: &Database, head: &DesignHead| db.design_cache.views.lock().get(id, &head.rev);
        let read = self.read_once(id, known, Database::design_now).await;
        self.if_live(read.and_then(Design::within_limits))
    }

    /// Returns what `known` finds, or what `read` reads.
    async fn read_once<T: Send + 'static>(
        self: &Arc<Self>,
        id: &str,
        known: impl Fn(&Database, &DesignHead) -> Option<T>,
        read: fn(&Database, &str) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let head = self.design_head(id)?;
        if let Some(known) = known(self, &head) {
            return Ok(known);
        }
        if head.body_bytes <= READ_HERE_BYTES_MAX {
            return read(self, id);
        }
        let turn = self.design_cache.turn.clone().lock_owned().await;
        if let Some(known) = known(self, &self.design_head(id)?) {
            return Ok(known);
        }
        let (db, id) = (self.clone(), id.to_owned());
        self.run_low_priority(move || {
            let _turn = turn;
            read(&db, &id)
        })
        .await
    }

    /// Runs long work for this database on a thread that does not serve.
    pub(crate) async fn run_low_priority<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let owner = WorkOwner {
            user: 0,
            database: hasher.hash_one(self.name()),
        };
        let panicked = |_| Error::Internal("reading design documents failed".to_owned());
        run_low_priority(owner, work).await.map_err(panicked)?
    }
}
