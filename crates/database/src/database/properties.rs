//! The properties of a database: its security object, limits and expiry.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use storage::Store;

use super::Database;
use crate::Error;
use crate::databases::to_the_end;
use crate::expiry::Expiry;
use crate::security::SecurityObject;
use crate::sequencer::Property;
use crate::ttl::Ttl;
use crate::update::blocking;

impl Database {
    /// The security object's JSON text, unchanged.
    pub fn security(&self) -> Arc<str> {
        self.security.read().json().clone()
    }

    /// Returns the security object as `parse` reads its text. It is parsed at its first use, not by
    /// each request.
    ///
    /// # Errors
    /// Errors of `parse`.
    pub fn parsed_security<T: Send + Sync + 'static, E>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        self.security_object().parsed(parse)
    }

    pub(crate) fn security_object(&self) -> Arc<SecurityObject> {
        self.security.read().clone()
    }

    /// Replaces the security object by another JSON text; durable when this returns.
    pub async fn set_security(self: &Arc<Self>, json: String) -> Result<(), Error> {
        self.change(Property::Security(json)).await
    }

    /// Revisions kept of each branch.
    pub fn revs_limit(&self) -> u64 {
        self.record.read().revs_limit
    }

    /// Sets how many revisions of each branch are kept.
    pub async fn set_revs_limit(self: &Arc<Self>, limit: u64) -> Result<(), Error> {
        self.change(Property::RevsLimit(limit)).await
    }

    /// Purges remembered of each shard.
    pub fn purged_infos_limit(&self) -> u64 {
        self.record.read().purged_infos_limit
    }

    /// Sets how many purges of each shard are remembered.
    pub async fn set_purged_infos_limit(self: &Arc<Self>, limit: u64) -> Result<(), Error> {
        self.change(Property::PurgedInfosLimit(limit)).await
    }

    /// The time to live of deleted documents, if the database has its own.
    pub fn deleted_document_ttl(&self) -> Option<Ttl> {
        self.record.read().deleted_document_ttl.clone()
    }

    /// Sets how long deleted documents are kept; `None` for the server's setting.
    pub async fn set_deleted_document_ttl(self: &Arc<Self>, ttl: Option<Ttl>) -> Result<(), Error> {
        self.change(Property::DeletedDocumentTtl(ttl)).await
    }

    /// When documents expire, if they do.
    pub fn expiry(&self) -> Option<Expiry> {
        self.record.read().expiry.clone()
    }

    /// Sets when documents expire; `None` for never.
    pub async fn set_expiry(self: &Arc<Self>, expiry: Option<Expiry>) -> Result<(), Error> {
        self.change(Property::Expiry(expiry)).await
    }

    /// Notes that the index of expiry times is to be updated, if there is one.
    pub(super) fn note_expiry(&self) {
        // The turn that resets it sees this commit, or it is noted again.
        if self.has_expiry.load(Relaxed) && !self.is_expiry_noted.swap(true, AcqRel) {
            self.expiry_watch.note(&self.name);
        }
    }

    async fn change(self: &Arc<Self>, property: Property) -> Result<(), Error> {
        match self.sequencer() {
            Some(sequencer) => sequencer.change(self, property).await,
            None => self.change_sequenced(property).await,
        }
    }

    /// Changes a property, as sequenced; durable when this returns.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], and those of the store.
    pub async fn change_sequenced(self: &Arc<Self>, property: Property) -> Result<(), Error> {
        let me = self.clone();
        to_the_end(async move {
            let _one = me.changing.lock().await;
            me.live()?;
            let mut record = me.record.read().clone();
            match property {
                Property::Security(json) => record.security = json,
                Property::RevsLimit(limit) => record.revs_limit = limit,
                Property::PurgedInfosLimit(limit) => record.purged_infos_limit = limit,
                Property::DeletedDocumentTtl(ttl) => record.deleted_document_ttl = ttl,
                Property::Expiry(expiry) => record.expiry = expiry,
            }
            let put = Store::put_database(&me.name, record.encode());
            let put = me.store.committer.put_for(me.shards[0].clone(), vec![put]);
            put.await.map_err(|_| Error::ShuttingDown)??;
            *me.security.write() = SecurityObject::new(&record.security);
            let before = std::mem::replace(&mut *me.record.write(), record);
            me.apply_expiry(before.expiry).await;
            Ok(())
        })
        .await
    }

    /// Applies the property of documents that expire, after it was stored.
    async fn apply_expiry(self: &Arc<Self>, before: Option<Expiry>) {
        let now = self.expiry();
        if now == before {
            return;
        }
        self.has_expiry.store(now.is_some(), Relaxed);
        // The watcher may not know the database yet.
        self.expiry_watch.note(&self.name);
        let is_of_another =
            |old: &Expiry| now.as_ref().is_none_or(|new| new.member() != old.member());
        if let Some(old) = before.filter(is_of_another) {
            // Openings and clean-ups of indexes may take a while: no thread waits for them.
            let turn = self.views.opening.clone().lock_owned().await;
            let me = self.clone();
            let drop_index = move || {
                let _turn = turn;
                me.drop_expiry_index(old.member())
            };
            let dropped = blocking(drop_index).await;
            if let Err(error) = dropped {
                tracing::warn!(db = %self.name, %error, "an unused index stays until _view_cleanup");
            }
        }
    }
}
