//! Copies contents to a majority of a slot's replicas, before a record names them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use cluster::{NodeId, SlotNumber};
use peers::Body;
use storage::Content;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{ContentError, ContentExchange, ContentName, KEPT, PIN, STORE, stream};
use crate::counters::{CONTENT_FAILURES, CONTENTS_STAGED};

/// Time limit of a content, and of the question whether a node has it.
const TIME_MAX: Duration = Duration::from_secs(20);
const PIN_TIME_MAX: Duration = Duration::from_secs(5);
/// Long contents have more time: the assumed minimum throughput, in bytes per millisecond.
const BYTES_A_MS: u64 = 1_000;
/// Pause after a failed attempt.
const PAUSE: Duration = Duration::from_millis(300);

/// One content on its way to the replicas.
struct Staging {
    exchange: Arc<ContentExchange>,
    name: ContentName,
    content: Content,
    deadline: Instant,
    /// A majority has it: failed attempts are not repeated.
    is_done: AtomicBool,
}

impl ContentExchange {
    /// Copies a content to the replicas of a slot. Returns when a majority keeps it on disk; the
    /// others get it meanwhile.
    ///
    /// # Errors
    /// The reason why too few have it.
    pub async fn stage(
        self: &Arc<Self>,
        slot: SlotNumber,
        name: ContentName,
        content: Content,
    ) -> Result<(), database::Error> {
        let replicas = (self.replicas_of)(slot);
        let mut needed = replicas.len() / 2 + 1;
        let time_max = TIME_MAX + Duration::from_millis(name.length / BYTES_A_MS);
        let deadline = Instant::now() + time_max;
        let staging = Arc::new(Staging {
            exchange: self.clone(),
            name,
            content,
            deadline,
            is_done: AtomicBool::new(false),
        });
        let (to, mut results) = mpsc::unbounded_channel();
        for node in replicas {
            let (staging, to) = (staging.clone(), to.clone());
            tokio::spawn(async move {
                // The caller may have gone.
                let _ = to.send(staging.copy_to(node).await);
            });
        }
        drop(to);
        let mut why = ContentError::Failed("no node answered in time".into());
        while needed > 0 {
            match tokio::time::timeout_at(deadline, results.recv()).await {
                Ok(Some(Ok(()))) => needed -= 1,
                Ok(Some(Err(e))) => why = e,
                Ok(None) | Err(_) => break,
            }
        }
        staging.is_done.store(true, Relaxed);
        match needed {
            0 => {
                CONTENTS_STAGED.count();
                Ok(())
            }
            _ => Err(refusal(why)),
        }
    }
}

impl Staging {
    /// Repeats attempts until one succeeds.
    async fn copy_to(&self, node: NodeId) -> Result<(), ContentError> {
        loop {
            let done = match node == self.exchange.me {
                true => self.exchange.keep_own(&self.name).await,
                false => self.try_node(node).await,
            };
            let Err(why) = done else {
                return Ok(());
            };
            CONTENT_FAILURES.count();
            // Further attempts would hold the store while the server stops.
            let is_over = self.is_done.load(Relaxed) || self.exchange.catalogue.is_closed();
            if is_over || Instant::now() + PAUSE >= self.deadline {
                return Err(why.at(node));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_node(&self, node: NodeId) -> Result<(), ContentError> {
        let (exchange, query) = (&self.exchange, self.name.to_query());
        let path = format!("{PIN}?{query}");
        let asked = exchange.peers.call(node, path, Body::empty(), PIN_TIME_MAX);
        let answer = asked.await?.read(KEPT.len()).await;
        let answer = answer.map_err(|e| ContentError::Failed(e.to_string()))?;
        if answer == KEPT {
            return Ok(());
        }
        let closed = |_| ContentError::Failed("the server is shutting down".into());
        let room = exchange.sending.clone().acquire_owned().await;
        let body = stream::send(self.content.clone(), room.map_err(closed)?);
        let path = format!("{STORE}?{query}");
        let time_max = self.deadline.saturating_duration_since(Instant::now());
        exchange
            .peers
            .call(node, path, body, time_max)
            .await
            .map(drop)
    }
}

fn refusal(why: ContentError) -> database::Error {
    match why {
        ContentError::Full(why) => database::Error::InsufficientStorage(why),
        ContentError::Missing => refusal(ContentError::Failed("the database was deleted".into())),
        ContentError::Failed(why) => database::Error::Unavailable(format!(
            "an attachment did not reach a majority of the nodes: {why}"
        )),
    }
}
