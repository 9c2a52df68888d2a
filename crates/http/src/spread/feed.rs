//! `_changes` of a spread database: the feeds of its shards, one after the other.
//!
//! A node's feed of one shard names the places of the other shards as the client's seq does, and so
//! do its rows. After a node has failed, another one continues behind the last row.

use std::sync::Arc;

use bytes::Bytes;
use database::{Database, Framing};
use hyper::header::{ACCEPT_ENCODING, HeaderMap, IF_NONE_MATCH};
use member::{ForwardedClientRequest, Member};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::feed_text::{FeedEnd, FeedText, rows_of, seq_of};
use super::feed_waits::{WakingShard, wake};
use super::part_header;
use crate::errors::ApiError;
use crate::forwarded_headers::headers_for_others;
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
/// Maximum size of an error's text, in bytes.
const ERROR_BYTES_MAX: usize = 1 << 20;
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
    let request = FeedRequest::of(req, body);
    let (waking, changed) = watch::channel(0);
    let mut feed = SpreadFeed {
        shards: db.all_shards().len(),
        feeds: ShardFeeds {
            member: member.clone(),
            db,
            request,
        },
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

/// The request for a shard's feed, but for its own parameters.
struct FeedRequest {
    method: String,
    path: String,
    /// Other parameters, each with `&` before it.
    parameters: String,
    headers: HeaderMap,
    body: Bytes,
}

impl FeedRequest {
    fn of(req: &Request, body: Bytes) -> FeedRequest {
        let mut headers = headers_for_others(req);
        headers.remove(IF_NONE_MATCH);
        headers.remove(ACCEPT_ENCODING);
        headers.remove("last-event-id");
        let query = req.raw_query.as_deref().unwrap_or_default();
        FeedRequest {
            method: req.method.clone(),
            path: req.path.clone(),
            parameters: other_parameters(query),
            headers,
            body,
        }
    }
}

/// The feeds of the shards of a database.
struct ShardFeeds {
    member: Arc<Member>,
    db: Arc<Database>,
    request: FeedRequest,
}

impl ShardFeeds {
    /// Opens the feed of a shard at the first of its nodes that answers.
    async fn ask(&self, shard: usize, since: &str, limit: &str) -> Result<peers::Body, ApiError> {
        let gateway = self.member.gateway();
        let slot = gateway.slot_of_shard(&self.db, shard);
        let request = &self.request;
        let (path, others) = (&request.path, &request.parameters);
        let mut target = format!("{path}?feed=normal{limit}{others}&since=");
        node::encode_into(since, &mut target);
        let mut headers = request.headers.clone();
        headers.extend(part_header(&[slot]));
        let nodes = gateway.nodes_of_slot(&self.db, slot);
        let forwarded = ForwardedClientRequest {
            method: &request.method,
            target: &target,
            headers,
            body: request.body.clone(),
        };
        let reply = self.member.ask_nodes(nodes, forwarded, true).await;
        let no_answer = || ApiError::busy("the nodes of a shard do not answer".to_owned());
        let reply = reply.ok_or_else(no_answer)?;
        if reply.status.is_success() {
            return Ok(reply.body);
        }
        let status = reply.status.as_u16();
        let text = reply.body.read(ERROR_BYTES_MAX).await.unwrap_or_default();
        Err(error_of(status, &text))
    }
}

/// Returns the parameters that all shards' feeds have, each with `&` before it.
fn other_parameters(query: &str) -> String {
    let name_of = |pair: &str| {
        pair.split('=')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    let is_other = |pair: &&str| {
        let name = name_of(pair);
        !pair.is_empty() && !OWN_PARAMETERS.contains(&name.as_str())
    };
    let others = query.split('&').filter(is_other);
    others.flat_map(|pair| ["&", pair]).collect()
}

/// A feed over all shards.
struct SpreadFeed {
    feeds: ShardFeeds,
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
            let mut body = self.feeds.ask(shard, since, "&limit=0").await?;
            let mut text = FeedText::default();
            while let Some(piece) = body.next().await {
                text.push(&piece.map_err(|e| ApiError::busy(e.to_string()))?);
            }
            let end = text.end()?;
            self.since = self
                .feeds
                .db
                .seq_with(&self.since, &end.last_seq, &[shard])?;
        }
        Ok(())
    }

    /// Opens the feed of the shard that is read.
    async fn open_shard(&mut self) -> Result<(), ApiError> {
        let limit = self.left.map(|left| format!("&limit={left}"));
        let limit = limit.unwrap_or_default();
        let body = self.feeds.ask(self.shard, &self.since, &limit).await?;
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
                let waking = WakingShard {
                    member: self.feeds.member.clone(),
                    db: self.feeds.db.clone(),
                    shard,
                    path: self.feeds.request.path.clone(),
                    headers: self.feeds.request.headers.clone(),
                };
                let since = self.waited_since.subscribe();
                self.waits.spawn(wake(waking, since, self.waking.clone()));
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

/// Returns the error that a node answered with.
fn error_of(status: u16, text: &[u8]) -> ApiError {
    let value: Value = serde_json::from_slice(text).unwrap_or_default();
    let member = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let error = member("error").unwrap_or_else(|| "service_unavailable".to_owned());
    ApiError::new(status, error, member("reason").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_has_its_own_place_and_the_other_parameters() {
        let others =
            other_parameters("since=3-a&include_docs=true&limit=5&Feed=longpoll&&style=all_docs");
        assert_eq!(others, "&include_docs=true&style=all_docs");
        assert_eq!(other_parameters(""), "");
    }

    #[test]
    fn the_error_of_a_node_is_the_error_of_the_feed() {
        let e = error_of(404, b"{\"error\":\"not_found\",\"reason\":\"missing\"}\n");
        assert_eq!(
            (e.status, &*e.error, &*e.reason),
            (404, "not_found", "missing")
        );
        assert_eq!(error_of(502, b"<html>").error, "service_unavailable");
    }
}
