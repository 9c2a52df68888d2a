//! Waits for changes of a shard at its nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::feed_text::FeedText;
use super::shard_nodes::ShardNodes;

/// Time limit of one wait, in milliseconds.
const WAIT_MS: u32 = 60_000;
/// Pause after a node failed.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Maximum size of an answer: one row, without its document, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Wakes a feed whenever the shard has a change after the seq where the feed waits, until the future
/// is dropped.
pub(super) async fn wake(
    nodes: Arc<ShardNodes>,
    shard: usize,
    mut since: watch::Receiver<String>,
    waking: watch::Sender<u64>,
) {
    loop {
        let after = since.borrow_and_update().clone();
        if !after.is_empty() {
            match has_change(&nodes, shard, &after).await {
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

/// Waits for a change of a shard; returns whether there is one. `None` if no node knows.
async fn has_change(nodes: &ShardNodes, shard: usize, since: &str) -> Option<bool> {
    let mut query = format!("feed=longpoll&limit=1&timeout={WAIT_MS}&since=");
    node::encode_into(since, &mut query);
    let body = nodes.get(shard, &query).await.ok()?;
    let mut text = FeedText::default();
    text.push(&body.read(ANSWER_BYTES_MAX).await.ok()?);
    Some(!text.end().ok()?.rows.is_empty())
}
