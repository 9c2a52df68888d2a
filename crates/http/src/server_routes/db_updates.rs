//! `_db_updates`: events of databases, read from the changes of `_global_changes`.

use database::{Changes, ChangesQuery, Filter, Framing, GLOBAL_CHANGES, Since, Style};
use hyper::header::ETAG;
use serde::Deserialize;
use serde_json::json;

use crate::app::App;
use crate::clustered;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::reply::live::{
    FeedKind, FeedTimes, HEAD, LiveFeed, LiveSource, integer_of_updates, until_deleted,
};
use crate::reply::permission::AdminPermission;
use crate::reply::stream::{CHUNK_BYTES, PieceMaker, pull};
use crate::request::Request;

type Answer = Result<Reply, ApiError>;

pub async fn route(app: &App, req: &mut Request) -> Answer {
    match app.node.member() {
        None => feed(app, req).await,
        Some(member) => {
            let here = async |app: &App, req: &mut Request, _: &str| feed(app, req).await;
            Box::pin(clustered::shared(app, member, req, GLOBAL_CHANGES, here)).await
        }
    }
}

async fn feed(app: &App, req: &Request) -> Answer {
    let kind = FeedKind::of_updates(&req.query)?;
    let times = FeedTimes::of_updates(&req.query, req.settings.chttpd.changes_timeout)?;
    // The last of several equal parameters counts.
    let (mut since, mut limit) = (None, None);
    for (name, text) in &req.query.0 {
        match name.as_str() {
            "since" => since = Some(text.as_str()),
            "limit" => limit = Some(integer_of_updates(text)?),
            _ => {}
        }
    }
    let event_id = (kind == FeedKind::EventSource)
        .then(|| req.named_header("last-event-id"))
        .flatten();
    let since = match event_id.or(since) {
        None | Some("0") => Since::Start,
        Some("now") => Since::Now,
        Some(seq) => Since::Seq(seq.to_owned()),
    };
    let db = app.node.databases.get(GLOBAL_CHANGES)?;
    let etag = db.short_update_seq()?;
    if kind == FeedKind::Normal && req.none_match(&etag) {
        return Ok(Reply::empty(304).etag(&etag));
    }
    let changed = db.watch();
    let updates = DbUpdates {
        changes: db.changes(all_changes(since, kind, req))?,
        kind,
        left: limit.unwrap_or(u64::MAX),
        last_seq: None,
        rows: 0,
        permission: AdminPermission::of(app, req),
        is_revoked: false,
    };
    if kind != FeedKind::Normal {
        let place = app.open_feed(req, db.name())?;
        let feed = LiveFeed::new(
            updates,
            kind,
            times,
            changed,
            app.stopping(),
            (place, &req.answers),
        );
        return Ok(feed.reply());
    }
    let body = NormalBody {
        updates,
        has_head: false,
        is_done: false,
    };
    let reply = pull(&req.answers, "application/json", body).await?;
    Ok(reply.header(ETAG, &format!("\"{etag}\"")))
}

/// The body of a feed that ends.
struct NormalBody {
    updates: DbUpdates,
    has_head: bool,
    is_done: bool,
}

impl PieceMaker for NormalBody {
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        if self.is_done {
            return Ok(false);
        }
        if !std::mem::replace(&mut self.has_head, true) {
            out.extend_from_slice(HEAD);
        }
        if !self.updates.append(out)? {
            self.updates.write_end(out)?;
            self.is_done = true;
        }
        Ok(true)
    }

    fn is_long(&self) -> bool {
        self.updates.changes.is_long()
    }
}

fn all_changes(since: Since, kind: FeedKind, req: &Request) -> ChangesQuery {
    ChangesQuery {
        since,
        descending: kind == FeedKind::Normal && req.query.is_true("descending"),
        // The limit is counted here, since not every document need be an event.
        limit: None,
        style: Style::MainOnly,
        include_docs: false,
        conflicts: false,
        attachments: database::ShownAttachments::default(),
        filter: Filter::None,
        seq_interval: None,
    }
}

/// A row of the changes of `_global_changes`.
#[derive(Deserialize)]
struct Change {
    seq: String,
    id: String,
    #[serde(default)]
    deleted: bool,
}

/// The changes of `_global_changes` as events.
struct DbUpdates {
    changes: Changes,
    kind: FeedKind,
    /// Rows that may still be sent.
    left: u64,
    /// The seq of the last row sent, while the limit holds others back.
    last_seq: Option<String>,
    rows: u64,
    permission: AdminPermission,
    /// Its user is not a server admin any more: the feed ends.
    is_revoked: bool,
}

impl DbUpdates {
    /// Appends a piece of the available rows; returns false when that was all.
    fn append(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        if self.left == 0 || self.is_revoked {
            return Ok(false);
        }
        let mut lines = vec![];
        let read = self
            .changes
            .next_chunk(Framing::Lines, &mut lines, CHUNK_BYTES);
        let more = until_deleted(read)?;
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
}

impl LiveSource for DbUpdates {
    async fn read(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        self.append(out)
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn is_final(&self) -> bool {
        self.is_revoked || self.left == 0
    }

    fn refresh(&mut self) -> Result<(), ApiError> {
        self.is_revoked = self.is_revoked || !self.permission.holds();
        if self.is_revoked {
            return Ok(());
        }
        until_deleted(self.changes.refresh())
    }

    fn release(&mut self) {
        self.changes.release();
    }

    fn write_end(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
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
        Ok(())
    }
}
