//! `_db_updates`: what happened to databases, read from the changes of `_global_changes`.

use bytes::Bytes;
use database::{Changes, ChangesQuery, Filter, Framing, GLOBAL_CHANGES, Since, Style};
use futures_util::stream;
use hyper::header::{CACHE_CONTROL, ETAG, HeaderValue};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::app::{App, OpenFeed};
use crate::database_routes::changes::{FeedKind, FeedTimes, Woken, wait};
use crate::errors::ApiError;
use crate::reply::stream::CHUNK_BYTES;
use crate::reply::{Reply, StreamError};
use crate::request::Request;
use crate::router::require_method;
use node::require_server_admin;

type Answer = Result<Reply, ApiError>;

pub async fn route(app: &App, req: &Request) -> Answer {
    require_method(req, "GET,HEAD")?;
    require_server_admin(&req.user)?;
    let kind = FeedKind::of(&req.query)?;
    let patience = FeedTimes::of(&req.query, app.limits().changes_timeout_ms)?;
    let event_id = (kind == FeedKind::EventSource)
        .then(|| req.named_header("last-event-id"))
        .flatten();
    let since = match event_id.or(req.query.get("since")) {
        None | Some("0" | "") => Since::Start,
        Some("now") => Since::Now,
        Some(seq) => Since::Seq(seq.to_owned()),
    };
    let limit = match req.query.get("limit").map(str::parse::<u64>) {
        None => None,
        Some(Ok(n)) => Some(n),
        Some(Err(_)) => return Err(ApiError::bad_request("invalid_integer")),
    };
    let db = app.databases.get(GLOBAL_CHANGES)?;
    let etag = db.info()?.update_seq;
    let mut feed = DbUpdates {
        changed: db.watch(),
        changes: db.changes(ChangesQuery {
            since,
            descending: kind == FeedKind::Normal && req.query.is_true("descending"),
            // Counted here, since not every document need be an event.
            limit: None,
            style: Style::MainOnly,
            include_docs: false,
            conflicts: false,
            attachments: database::ShownAttachments::default(),
            filter: Filter::None,
            seq_interval: None,
        })?,
        stopping: app.stopping(),
        kind,
        patience,
        left: limit.unwrap_or(u64::MAX),
        last_seq: None,
        rows: 0,
        head: true,
        done: false,
        _place: match kind {
            FeedKind::Normal => None,
            _ => Some(app.open_feed()?),
        },
    };
    if kind == FeedKind::Normal {
        let mut out = vec![];
        while !feed.done {
            feed.next(&mut out).await?;
        }
        let reply = Reply::json_bytes(200, out);
        return Ok(reply.header(ETAG, &format!("\"{etag}\"")));
    }
    let content_type = match kind {
        FeedKind::EventSource => "text/event-stream",
        _ => "application/json",
    };
    let pieces = stream::unfold(feed, |mut feed| async move {
        let mut out = Vec::new();
        while out.is_empty() && !feed.done {
            if let Err(e) = feed.next(&mut out).await {
                feed.done = true;
                let e: StreamError = e.reason.into_owned().into();
                return Some((Err(e), feed));
            }
        }
        (!out.is_empty()).then(|| (Ok(Bytes::from(out)), feed))
    });
    let reply = Reply::stream(HeaderValue::from_static(content_type), Box::pin(pieces));
    Ok(match kind {
        FeedKind::EventSource => reply.header(CACHE_CONTROL, "no-cache"),
        _ => reply,
    })
}

/// A row of the changes of `_global_changes`.
#[derive(Deserialize)]
struct Change {
    seq: String,
    id: String,
    #[serde(default)]
    deleted: bool,
}

struct DbUpdates {
    changes: Changes,
    changed: watch::Receiver<u64>,
    stopping: watch::Receiver<bool>,
    kind: FeedKind,
    patience: FeedTimes,
    /// Rows that may still be sent.
    left: u64,
    /// Of the last row sent, while the limit keeps others back.
    last_seq: Option<String>,
    rows: u64,
    head: bool,
    done: bool,
    _place: Option<OpenFeed>,
}

impl DbUpdates {
    /// Appends what comes next, waiting for it.
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let array = matches!(self.kind, FeedKind::Normal | FeedKind::Longpoll);
        if std::mem::take(&mut self.head) && array {
            out.extend_from_slice(b"{\"results\":[\n");
        }
        let waiting_since = Instant::now();
        loop {
            let mut more = self.left > 0;
            while more {
                more = self.read(out)? && self.left > 0;
                if !out.is_empty() && self.kind != FeedKind::Normal {
                    break;
                }
            }
            if more {
                return Ok(());
            }
            let enough = self.left == 0 || self.kind == FeedKind::Longpoll && self.rows > 0;
            if enough || self.kind == FeedKind::Normal {
                self.end(out);
                return Ok(());
            }
            if !out.is_empty() {
                return Ok(());
            }
            self.changes.release();
            match wait(
                &mut self.changed,
                &mut self.stopping,
                self.patience,
                waiting_since,
            )
            .await
            {
                Woken::Changed => match self.changes.refresh() {
                    // Deleted: the feed ends as if it had timed out.
                    Err(database::Error::NoDatabase) => self.end(out),
                    other => other?,
                },
                Woken::Heartbeat => out.extend_from_slice(match self.kind {
                    FeedKind::EventSource => b"event: heartbeat\ndata: \n\n",
                    _ => b"\n",
                }),
                Woken::Ended => self.end(out),
            }
            if self.done || !out.is_empty() {
                return Ok(());
            }
        }
    }

    /// Appends a piece of what there is; false when that was all.
    fn read(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        let mut lines = vec![];
        let more = match self
            .changes
            .next_chunk(Framing::Lines, &mut lines, CHUNK_BYTES)
        {
            Err(database::Error::NoDatabase) => false,
            other => other?,
        };
        for line in lines.split(|b| *b == b'\n') {
            if self.left == 0 {
                break;
            }
            // Empty, or not a row of the shape that this process has just written.
            let Ok(change) = serde_json::from_slice::<Change>(line) else {
                continue;
            };
            let Some((kind, name)) = change.id.split_once(':').filter(|_| !change.deleted) else {
                continue;
            };
            let row = json!({"db_name": name, "type": kind, "seq": change.seq});
            let row = match self.kind {
                FeedKind::EventSource => format!("data: {row}\nid: {}\n\n", change.seq),
                FeedKind::Continuous => format!("{row}\n"),
                _ if self.rows > 0 => format!(",\n{row}"),
                _ => row.to_string(),
            };
            out.extend_from_slice(row.as_bytes());
            self.rows += 1;
            self.left -= 1;
            if self.left == 0 {
                self.last_seq = Some(change.seq);
            }
        }
        Ok(more)
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.done = true;
        let last = self
            .last_seq
            .take()
            .unwrap_or_else(|| self.changes.last_seq());
        match self.kind {
            FeedKind::Normal | FeedKind::Longpoll => {
                out.extend_from_slice(format!("\n],\n\"last_seq\":\"{last}\"}}\n").as_bytes());
            }
            FeedKind::Continuous => {
                out.extend_from_slice(format!("{{\"last_seq\":\"{last}\"}}\n").as_bytes());
            }
            FeedKind::EventSource => {}
        }
    }
}
