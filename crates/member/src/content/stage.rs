//! Copies contents to a majority of a slot's replicas, before a record names them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use cluster::{NodeId, SlotNumber};
use futures_util::future::join_all;
use peers::Body;
use storage::Content;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::{ContentError, ContentExchange, ContentName, KEPT, KEPT_TIME, PIN, STORE, stream};
use crate::counters::{CONTENT_FAILURES, CONTENTS_STAGED};

/// Time limit of a content, and of the question whether a node has it.
const TIME_MAX: Duration = Duration::from_secs(20);
const PIN_TIME_MAX: Duration = Duration::from_secs(5);
/// Long contents have more time: the assumed minimum throughput, in bytes per millisecond.
const BYTES_A_MS: u64 = 1_000;
/// Interval in which contents of a long request are named again.
const KEPT_AGAIN_EVERY: Duration = Duration::from_mins(15);
/// Pause after a failed attempt.
const PAUSE: Duration = Duration::from_millis(300);

// A pause, and a replica's turn, which lasts as long at most.
const _: () = assert!(KEPT_AGAIN_EVERY.as_secs() * 2 < KEPT_TIME.as_secs());

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
    /// others get it meanwhile. If this is dropped or fails, nothing more is copied.
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
        // Dropping it ends the attempts.
        let mut attempts = JoinSet::new();
        for node in replicas {
            let staging = staging.clone();
            attempts.spawn(async move { staging.copy_to(node).await });
        }
        let mut why = ContentError::Failed("no node answered in time".into());
        while needed > 0 {
            match timeout_at(deadline, attempts.join_next()).await {
                Ok(Some(Ok(Ok(())))) => needed -= 1,
                Ok(Some(Ok(Err(e)))) => why = e,
                Ok(Some(Err(e))) => why = ContentError::Failed(e.to_string()),
                Ok(None) | Err(_) => break,
            }
        }
        if needed > 0 {
            return Err(refusal(why));
        }
        staging.is_done.store(true, Relaxed);
        attempts.detach_all();
        CONTENTS_STAGED.count();
        Ok(())
    }
}

impl ContentExchange {
    /// Keeps contents that are copied, or will be, for as long as the others of their request take:
    /// until the future is dropped, or the server stops.
    pub(crate) async fn keep_at_times(&self, slot: SlotNumber, names: &[ContentName]) {
        while !self.catalogue.is_closed() {
            tokio::time::sleep(KEPT_AGAIN_EVERY).await;
            self.keep_again(slot, names).await;
        }
    }

    /// Names contents to the replicas of a slot once more. A replica that does not answer delays no
    /// other, and not the next time.
    pub(crate) async fn keep_again(&self, slot: SlotNumber, names: &[ContentName]) {
        let replicas = (self.replicas_of)(slot).into_iter();
        let turns = replicas.map(|node| timeout(KEPT_AGAIN_EVERY, self.keep_at(node, names)));
        join_all(turns).await;
    }

    /// Names contents to one replica. One that cannot be reached now keeps them from the last time
    /// on.
    async fn keep_at(&self, node: NodeId, names: &[ContentName]) {
        for name in names {
            if node == self.me {
                drop(self.keep_own(name).await);
            } else {
                drop(self.is_kept_at(node, name).await);
            }
        }
    }

    /// Lets another node keep a content. Returns whether it has it.
    async fn is_kept_at(&self, node: NodeId, name: &ContentName) -> Result<bool, ContentError> {
        let path = format!("{PIN}?{}", name.to_query());
        let asked = self.peers.call(node, path, Body::empty(), PIN_TIME_MAX);
        let answer = asked.await?.read(KEPT.len()).await;
        let answer = answer.map_err(|e| ContentError::Failed(e.to_string()))?;
        Ok(answer == KEPT)
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
            // No attempt finds the database or, here, the content again.
            let is_gone = matches!(why, ContentError::Gone | ContentError::Missing);
            // Further attempts would hold the store while the server stops.
            let is_over = self.is_done.load(Relaxed) || self.exchange.catalogue.is_closed();
            if is_gone || is_over || Instant::now() + PAUSE >= self.deadline {
                return Err(why.at(node));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_node(&self, node: NodeId) -> Result<(), ContentError> {
        let exchange = &self.exchange;
        if exchange.is_kept_at(node, &self.name).await? {
            return Ok(());
        }
        let Some(room) = self.room_at(node).await? else {
            return Ok(());
        };
        let body = stream::send(self.content.clone(), room);
        let path = format!("{STORE}?{}", self.name.to_query());
        let time_max = self.deadline.saturating_duration_since(Instant::now());
        exchange
            .peers
            .call(node, path, body, time_max)
            .await
            .map(drop)
    }

    /// Waits until the node may be sent one more content. `None`: a majority has it, and further
    /// contents wait for this node. It fetches it when it needs it.
    async fn room_at(&self, node: NodeId) -> Result<Option<OwnedSemaphorePermit>, ContentError> {
        let failed = |why: &str| ContentError::Failed(why.to_owned());
        let limit = self.exchange.sending.of(node);
        let room = timeout_at(self.deadline, limit.clone().acquire_owned()).await;
        let room = room.map_err(|_| failed("too many contents are being sent to it"))?;
        let room = room.map_err(|_| failed("the server is shutting down"))?;
        let is_busy = limit.available_permits() == 0;
        Ok((!is_busy || !self.is_done.load(Relaxed)).then_some(room))
    }
}

fn refusal(why: ContentError) -> database::Error {
    match why {
        ContentError::Full(why) => database::Error::InsufficientStorage(why),
        ContentError::Gone => database::Error::NoDatabase,
        ContentError::Missing => refusal(ContentError::Failed(
            "a node replaced its copy of the slot".into(),
        )),
        ContentError::Failed(why) => database::Error::Unavailable(format!(
            "an attachment did not reach a majority of the nodes: {why}"
        )),
    }
}
