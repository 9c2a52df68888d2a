//! Waits for changes of a shard at its nodes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use database::Database;
use hyper::header::HeaderMap;
use member::{ForwardedClientRequest, Member};
use tokio::sync::watch;

use super::feed_text::FeedText;
use super::part_header;

/// Time limit of one wait, in milliseconds.
const WAIT_MS: u32 = 60_000;
/// Pause after a node failed.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Maximum size of an answer: one row, without its document, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A shard whose changes wake a feed.
pub(super) struct WakingShard {
    pub member: Arc<Member>,
    pub db: Arc<Database>,
    pub shard: usize,
    /// The path of the database's feed.
    pub path: String,
    pub headers: HeaderMap,
}

/// Wakes a feed whenever the shard has a change after the seq where the feed waits, until the future
/// is dropped.
pub(super) async fn wake(
    shard: WakingShard,
    mut since: watch::Receiver<String>,
    waking: watch::Sender<u64>,
) {
    loop {
        let after = since.borrow_and_update().clone();
        if !after.is_empty() {
            match shard.has_change(&after).await {
                Some(true) => waking.send_modify(|count| *count += 1),
                // The feed may wait elsewhere now.
                Some(false) => continue,
                None => {
                    tokio::time::sleep(AGAIN_AFTER).await;
                    continue;
                }
            }
        }
        if since.changed().await.is_err() {
            return;
        }
    }
}

impl WakingShard {
    /// Waits for a change; returns whether there is one. `None` if no node knows.
    async fn has_change(&self, since: &str) -> Option<bool> {
        let gateway = self.member.gateway();
        let slot = gateway.slot_of_shard(&self.db, self.shard);
        let path = &self.path;
        let target = format!("{path}?feed=longpoll&limit=1&timeout={WAIT_MS}&since={since}");
        let mut headers = self.headers.clone();
        headers.extend(part_header(&[slot]));
        let request = ForwardedClientRequest {
            method: "GET",
            target: &target,
            headers,
            body: Bytes::new(),
        };
        let nodes = gateway.nodes_of_slot(&self.db, slot);
        let reply = self.member.ask_nodes(nodes, request, true).await?;
        if !reply.status.is_success() {
            return None;
        }
        let mut text = FeedText::default();
        text.push(&reply.body.read(ANSWER_BYTES_MAX).await.ok()?);
        Some(!text.end().ok()?.rows.is_empty())
    }
}
