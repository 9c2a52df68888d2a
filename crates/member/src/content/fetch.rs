//! Fetches contents that a record names and that this node lacks.

use std::sync::Arc;
use std::time::Duration;

use cluster::slot::StoreError;
use cluster::{NodeId, SlotNumber};
use database::Database;
use peers::Body;
use storage::Content;

use super::{ContentError, ContentExchange, ContentName, FETCH, LackedContent, blocking, stream};
use crate::counters::{CONTENT_FAILURES, CONTENTS_FETCHED};

/// Time limit for a node to begin to send a content; its duration is not limited.
const TIME_MAX: Duration = Duration::from_secs(5);

impl ContentExchange {
    /// Returns a content, from another node if it is not here.
    ///
    /// # Errors
    /// [`StoreError::Lacking`]: no node in reach sent it.
    async fn obtain(&self, slot: SlotNumber, name: &ContentName) -> Result<Content, StoreError> {
        let (_db, contents) = self.place(name).await.map_err(failed)?;
        let _turn = self.turn(contents.home(), &name.id).await;
        let (of, id) = (contents.clone(), name.id);
        let held = blocking(move || of.hold(&id)).await.map_err(failed)?;
        if let Some(content) = held {
            return Ok(content);
        }
        let (mut lacking, mut failure) = (vec![self.me], None);
        for node in self.peers.others() {
            let path = format!("{FETCH}?{}", name.to_query());
            let asked = self.peers.call(node, path, Body::empty(), TIME_MAX).await;
            let fetched = match asked {
                Ok(body) => stream::receive(contents.clone(), name, body).await,
                Err(e) => Err(e),
            };
            match fetched {
                Ok(content) => {
                    CONTENTS_FETCHED.count();
                    return Ok(content);
                }
                Err(ContentError::Missing) => lacking.push(node),
                // This node's.
                Err(ContentError::Full(e)) => return Err(StoreError::Full(e)),
                Err(ContentError::Failed(e)) => failure = Some(format!("node {node:x}: {e}")),
                // It says nothing about the content. This node will know of the deletion, too.
                Err(ContentError::Gone) => {
                    failure = Some(format!("node {node:x} has deleted the database"));
                }
            }
        }
        CONTENT_FAILURES.count();
        Err(self.lacking((slot, name), &lacking, failure))
    }

    /// Returns the error for a content that these nodes lack, and that no other node sent.
    fn lacking(
        &self,
        (slot, name): (SlotNumber, &ContentName),
        lacking: &[NodeId],
        failure: Option<String>,
    ) -> StoreError {
        let replicas = (self.replicas_of)(slot);
        let count = replicas.iter().filter(|node| lacking.contains(node));
        let by_majority = count.count() * 2 > replicas.len();
        let id = data_encoding::HEXLOWER.encode(&name.id);
        let why = match failure {
            Some(failure) => failure,
            None if lacking.len() > 1 => "all nodes in reach lack it".to_owned(),
            None => "no other node is in reach".to_owned(),
        };
        StoreError::Lacking {
            text: format!("the attachment content {id} is not here: {why}"),
            by_majority,
        }
    }

    /// Returns the contents that a record names in a database, as far as they can be obtained, and
    /// the others, each with the reason.
    ///
    /// # Errors
    /// Errors of this node's store.
    pub async fn obtain_all(
        &self,
        slot: SlotNumber,
        db: &Arc<Database>,
        names: Vec<ContentName>,
    ) -> Result<(Vec<Content>, Vec<LackedContent>), StoreError> {
        if names.is_empty() {
            return Ok((vec![], vec![]));
        }
        let db = db.clone();
        let here = blocking(move || {
            let (mut held, mut missing) = (vec![], vec![]);
            for name in names {
                let contents = db.contents_of_shard(name.shard);
                match contents.map(|of| of.hold(&name.id)).transpose()?.flatten() {
                    Some(content) => held.push(content),
                    None => missing.push(name),
                }
            }
            Ok((held, missing))
        });
        let (mut held, missing) = here.await.map_err(failed)?;
        let mut lacking = vec![];
        for name in missing {
            match self.obtain(slot, &name).await {
                Ok(content) => held.push(content),
                Err(e) => lacking.push((name.id, e)),
            }
        }
        Ok((held, lacking))
    }
}

fn failed(e: ContentError) -> StoreError {
    match e {
        ContentError::Missing | ContentError::Gone => {
            StoreError::Failed("there is no such database".into())
        }
        ContentError::Full(why) => StoreError::Full(why),
        ContentError::Failed(why) => StoreError::Failed(why),
    }
}
