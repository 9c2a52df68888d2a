//! `_changes` of a spread database: the feeds of its shards, one after the other.
//!
//! A node's feed of one shard names the places of the other shards as the client's seq does, and so
//! do its rows. After a node has failed, another one continues behind the last row.

use std::sync::Arc;

use bytes::Bytes;
use database::{Database, Framing};
use member::Member;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::feed_text::{FeedEnd, FeedText, rows_of, seq_of};
use super::feed_waits::wake;
use super::shard_nodes::{ShardNodes, other_parameters};
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::reply::live::{FeedKind, FeedTimes, HEAD, LiveFeed, LiveSource, natural};
use crate::request::Request;
use crate::request::room::Parsed;
use crate::shares::OpenFeed;

/// Parameters that each shard's feed has of its own.
const OWN_PARAMETERS: [&str; 7] = [
    "since",
    "last-event-id",
    "limit",
    "feed",
    "timeout",
    "heartbeat",
    "seq_interval",
];
/// Maximum number of nodes that fail in a row before the feed ends.
const FAILURES_MAX: u32 = 4;

/// Answers a request for a feed.
pub async fn changes(
    member: &Arc<Member>,
    req: &mut Request,
    db: Arc<Database>,
    (place, stopping): (OpenFeed, watch::Receiver<bool>),
) -> Result<Reply, ApiError> {
    let kind = FeedKind::of(&req.query)?;
    let times = FeedTimes::of(&req.query, req.settings.chttpd.changes_timeout)?;
    let is_true = |name| req.query.values(&[name]).any(|value| value == "true");
    if is_true("descending") || req.query.last(&["seq_interval"]).is_some() {
        return Err(ApiError::not_implemented(
            "descending feeds and `seq_interval` of spread databases",
        ));
    }
    let limit = req.query.last(&["limit"]);
    let limit = limit.map(|text| natural("limit", text)).transpose()?;
    let since = req.since(kind == FeedKind::EventSource).map(str::to_owned);
    let body = match req.method == "POST" {
        true => req.bytes_of(req.row.body, Parsed::Values).await?,
        false => Bytes::new(),
    };
    let query = req.raw_query.as_deref().unwrap_or_default();
    let parameters = other_parameters(query, &OWN_PARAMETERS);
    let nodes = Arc::new(ShardNodes::new(member, db, req, body));
    let (waking, changed) = watch::channel(0);
    let mut feed = SpreadFeed {
        shards: nodes.count(),
        nodes,
        parameters,
        kind,
        since: "0".to_owned(),
        left: limit,
        rows: 0,
        shard: 0,
        is_over: false,
        pending: 0,
        open: None,
        failures: 0,
        has_head: false,
        waking,
        waited_since: watch::channel(String::new()).0,
        waits: JoinSet::new(),
    };
    if let Some(since) = since {
        feed.begin(&since).await?;
    }
    // What is refused is refused before anything is sent.
    feed.open_shard().await?;
    let answers = (place, &req.answers);
    Ok(LiveFeed::new(feed, kind, times, changed, stopping, answers).reply())
}

/// A feed over all shards.
struct SpreadFeed {
    nodes: Arc<ShardNodes>,
    /// The parameters that all shards' feeds have, each with `&` before it.
    parameters: String,
    kind: FeedKind,
    /// Where the feed is.
    since: String,
    /// Rows that may still follow.
    left: Option<u64>,
    rows: u64,
    shards: usize,
    /// The shard that is read.
    shard: usize,
    /// The limit was reached before a change: the feed stays where it is.
    is_over: bool,
    /// Changes after the feed's end in the shards that were read.
    pending: u64,
    open: Option<(peers::Body, FeedText)>,
    failures: u32,
    has_head: bool,
    /// Wakes the feed.
    waking: watch::Sender<u64>,
    /// Where the feed waits.
    waited_since: watch::Sender<String>,
    /// The waits at the nodes.
    waits: JoinSet<()>,
}

impl SpreadFeed {
    /// Begins the feed after this seq. Only the nodes of the shards know what is now, or at a time.
    async fn begin(&mut self, since: &str) -> Result<(), ApiError> {
        if since != "now" && !since.contains(':') {
            self.since = since.to_owned();
            return Ok(());
        }
        for shard in 0..self.shards {
            let query = self.query(since, Some(0));
            let mut body = self.nodes.ask(shard, &query).await?;
            let mut text = FeedText::default();
            while let Some(piece) = body.next().await {
                text.push(&piece.map_err(|e| ApiError::busy(e.to_string()))?);
            }
            let end = text.end()?;
            self.since = self
                .nodes
                .db
                .seq_with(&self.since, &end.last_seq, &[shard])?;
        }
        Ok(())
    }

    /// Returns the query of a shard's feed.
    fn query(&self, since: &str, limit: Option<u64>) -> String {
        let limit = limit.map(|limit| format!("&limit={limit}"));
        let mut query = format!(
            "feed=normal{}{}&since=",
            limit.unwrap_or_default(),
            self.parameters
        );
        node::encode_into(since, &mut query);
        query
    }

    /// Opens the feed of the shard that is read.
    async fn open_shard(&mut self) -> Result<(), ApiError> {
        let query = self.query(&self.since, self.left);
        let body = self.nodes.ask(self.shard, &query).await?;
        self.open = Some((body, FeedText::default()));
        Ok(())
    }

    /// Appends rows in the form of the feed.
    fn take(&mut self, rows: &[u8], out: &mut Vec<u8>) {
        for row in rows_of(rows) {
            match self.kind.framing() {
                Framing::Array => {
                    if self.rows > 0 {
                        out.extend_from_slice(b",\n");
                    }
                    out.extend_from_slice(row);
                }
                Framing::Lines => {
                    out.extend_from_slice(row);
                    out.push(b'\n');
                }
                Framing::Events => {
                    out.extend_from_slice(b"data: ");
                    out.extend_from_slice(row);
                    out.extend_from_slice(b"\nid: \"");
                    out.extend_from_slice(seq_of(row).unwrap_or_default().as_bytes());
                    out.extend_from_slice(b"\"\n\n");
                }
            }
            self.rows += 1;
            self.left = self.left.map(|left| left.saturating_sub(1));
            if let Some(seq) = seq_of(row) {
                seq.clone_into(&mut self.since);
            }
        }
    }

    /// Ends the feed of a shard.
    fn end_shard(&mut self, end: FeedEnd, out: &mut Vec<u8>) {
        self.take(&end.rows, out);
        self.pending += end.pending;
        // As on one node: the feed moves over shards without changes, up to the first other one.
        if !self.is_over {
            self.since = end.last_seq;
        }
        self.is_over = self.is_over || self.left == Some(0) && end.pending > 0;
        (self.shard, self.failures) = (self.shard + 1, 0);
    }

    /// Notes that a node failed: another one continues.
    fn note_failure(&mut self, why: ApiError) -> Result<(), ApiError> {
        self.failures += 1;
        match self.failures > FAILURES_MAX {
            true => Err(why),
            false => Ok(()),
        }
    }
}

impl LiveSource for SpreadFeed {
    async fn read(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        if self.kind == FeedKind::Normal && !std::mem::replace(&mut self.has_head, true) {
            out.extend_from_slice(HEAD);
        }
        if self.shard >= self.shards {
            return Ok(false);
        }
        let Some((body, text)) = &mut self.open else {
            self.open_shard().await?;
            return Ok(true);
        };
        match body.next().await {
            Some(Ok(piece)) => {
                text.push(&piece);
                let rows = text.take_rows();
                self.take(&rows, out);
            }
            Some(Err(e)) => {
                self.open = None;
                self.note_failure(ApiError::busy(e.to_string()))?;
            }
            None => {
                let ended = self.open.take().map(|(_, text)| text.end());
                match ended {
                    Some(Ok(end)) => self.end_shard(end, out),
                    Some(Err(e)) => self.note_failure(e)?,
                    None => {}
                }
            }
        }
        Ok(true)
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn is_final(&self) -> bool {
        self.kind == FeedKind::Normal || self.left == Some(0)
    }

    fn refresh(&mut self) -> Result<(), ApiError> {
        (self.shard, self.pending, self.is_over) = (0, 0, false);
        Ok(())
    }

    fn release(&mut self) {
        if self.waits.is_empty() {
            for shard in 0..self.shards {
                let (nodes, since) = (self.nodes.clone(), self.waited_since.subscribe());
                self.waits
                    .spawn(wake(nodes, shard, since, self.waking.clone()));
            }
        }
        self.waited_since.send_replace(self.since.clone());
    }

    fn write_end(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let (since, pending) = (&self.since, self.pending);
        let end = match self.kind {
            FeedKind::Normal | FeedKind::Longpoll => {
                format!("\n],\n\"last_seq\":\"{since}\",\"pending\":{pending}}}\n")
            }
            FeedKind::Continuous => {
                format!("{{\"last_seq\":\"{since}\",\"pending\":{pending}}}\n")
            }
            FeedKind::EventSource => String::new(),
        };
        out.extend_from_slice(end.as_bytes());
        Ok(())
    }
}
