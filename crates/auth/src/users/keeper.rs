//! Maintenance independent of requests: the design document `_auth`, and users' databases.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use database::{Durability, EditMode, Read, ReadOptions};
use document::DocId;
use serde_json::json;

use super::Users;
use super::peruser::Progress;

const DESIGN: &str = "_design/_auth";

/// The rules of user documents, for clients that read the design document or replicate it. Settee
/// has applied its own rules ([`super::validate`]) before this function runs.
const VALIDATE: &str = include_str!("auth_design.js");

impl Users {
    /// Keeps the design document and users' databases up, until dropped. Does nothing when that is
    /// being done.
    pub(crate) async fn keep(self: Arc<Self>) {
        if self.kept.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut progress = Progress::default();
        loop {
            if let Err(e) = self.ensure_design().await {
                tracing::warn!(database = self.settings().database, error = %e, "no design document {DESIGN}");
            }
            self.keep_user_databases(&mut progress).await;
            self.changed.notified().await;
        }
    }

    /// Writes the design document unless it is there with this content.
    async fn ensure_design(&self) -> Result<(), database::Error> {
        let Some(db) = self.database() else {
            return Ok(());
        };
        let bad = |e: &dyn std::fmt::Display| database::Error::BadRequest(e.to_string());
        let id = DocId::new(DESIGN).map_err(|e| bad(&e))?;
        let mut doc = json!({"_id": DESIGN});
        match db.read(&id, &ReadOptions::default())? {
            Read::Found(found) => {
                let known: serde_json::Value =
                    serde_json::from_slice(&found.json).map_err(|e| bad(&e))?;
                if known["validate_doc_update"] == VALIDATE {
                    return Ok(());
                }
                doc = known;
            }
            Read::Missing | Read::Deleted => {}
        }
        doc["language"] = "javascript".into();
        doc["validate_doc_update"] = VALIDATE.into();
        let edit = document::parse_document(doc.to_string().as_bytes()).map_err(|e| bad(&e))?;
        // A conflict means a concurrent write, whose change wakes this task again.
        db.update(vec![edit], EditMode::Interactive, Durability::Synced)
            .await?;
        Ok(())
    }
}
