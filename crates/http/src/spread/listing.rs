//! `_all_docs` and `_local_docs` of a spread database: the rows of all shards, merged by their ids.
//!
//! After a node has failed, another one continues behind the last row.

use std::sync::Arc;

use bytes::Bytes;
use database::Database;
use futures_util::future::try_join_all;
use futures_util::stream;
use hyper::header::HeaderValue;
use member::Member;
use serde_json::Value;

use super::listing_text::{ListingCounts, ListingText, id_of};
use super::nth::{NthRow, NthStart, NthStep};
use super::shard_nodes::{ShardNodes, other_parameters};
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::reply::stream::CHUNK_BYTES;
use crate::request::Request;

/// Parameters that each shard's listing has of its own.
const OWN_PARAMETERS: [&str; 2] = ["skip", "limit"];
/// Parameters that say where a listing begins.
const START_PARAMETERS: [&str; 2] = ["startkey", "start_key"];
/// Skips up to this many rows by walking them; more by their ranks.
const SKIP_WALKED_MAX: u64 = 512;
/// Maximum size of the response with a row or a rank, in bytes: rows have no documents.
const ROW_BYTES_MAX: usize = 1 << 20;
/// Maximum number of nodes that fail before the listing ends.
const FAILURES_MAX: u32 = 4;

/// Answers a request for a listing of a range.
pub async fn listing(
    member: &Arc<Member>,
    req: &Request,
    db: Arc<Database>,
) -> Result<Reply, ApiError> {
    let has = |name: &str| req.query.get(name).is_some();
    let update_seq = req
        .query
        .get("update_seq")
        .is_some_and(|value| value != "false");
    if req.method == "POST" || has("keys") || update_seq {
        return Err(ApiError::not_implemented(
            "bodies, `keys` and `update_seq` of listings of spread databases",
        ));
    }
    let natural = |name: &str| match req.query.get(name) {
        None => Ok(None),
        Some(text) => text.parse::<u64>().map(Some).map_err(|_| {
            let reason = format!("Invalid value for {name}: {text}");
            ApiError::query_parse(reason)
        }),
    };
    let (skip, limit) = (natural("skip")?.unwrap_or(0), natural("limit")?);
    let query = req.raw_query.as_deref().unwrap_or_default();
    let nodes = Arc::new(ShardNodes::new(member, db, req, Bytes::new()));
    let shards = 0..nodes.count();
    let mut merge = MergedListing {
        shards: shards.map(|shard| ShardRows::new(&nodes, shard)).collect(),
        query: ListingQuery {
            rows: match skip > SKIP_WALKED_MAX {
                true => Some(0),
                false => limit.map(|limit| limit.saturating_add(skip)),
            },
            others: other_parameters(query, &OWN_PARAMETERS),
            is_descending: req.query.get("descending") == Some("true"),
        },
        head: vec![],
        skip,
        left: limit.unwrap_or(u64::MAX),
        state: State::Head,
    };
    // What is refused is refused before anything is sent.
    let query = &merge.query;
    let opened = merge.shards.iter_mut().map(|rows| rows.read_head(query));
    try_join_all(opened).await?;
    let head = merge.head();
    if skip > SKIP_WALKED_MAX {
        merge.jump(&nodes, limit).await?;
    }
    merge.head = head;
    Ok(merge.reply())
}

/// The query of the shards' listings.
struct ListingQuery {
    /// Rows of each shard, at most.
    rows: Option<u64>,
    /// The other parameters, each with `&` before it.
    others: String,
    is_descending: bool,
}

impl ListingQuery {
    /// Returns the query of a listing without the documents, from a row on: with this skip and limit,
    /// and without its last row.
    fn rank_text(&self, from: Option<&str>, skip: u64, limit: u64) -> String {
        const OWN: [&str; 5] = [
            "endkey",
            "end_key",
            "inclusive_end",
            "include_docs",
            "attachments",
        ];
        let mut others = other_parameters(&self.others, &OWN);
        if let Some(id) = from {
            others = other_parameters(&others, &START_PARAMETERS);
            others.push_str("&startkey=");
            node::encode_into(&Value::from(id).to_string(), &mut others);
        }
        format!("skip={skip}&limit={limit}{others}")
    }

    /// Returns the query of a shard's listing, from a row on.
    fn text(&self, from: Option<&str>) -> String {
        let mut text = String::from("skip=0");
        if let Some(rows) = self.rows {
            // The row that it continues from is returned again.
            let rows = rows.saturating_add(u64::from(from.is_some()));
            text.push_str(&format!("&limit={rows}"));
        }
        match from {
            None => text.push_str(&self.others),
            Some(id) => {
                text.push_str(&other_parameters(&self.others, &START_PARAMETERS));
                text.push_str("&startkey=");
                node::encode_into(&Value::from(id).to_string(), &mut text);
            }
        }
        text
    }
}

/// The rows of a shard.
struct ShardRows {
    nodes: Arc<ShardNodes>,
    shard: usize,
    open: Option<peers::Body>,
    text: ListingText,
    /// The counts of the first node.
    counts: Option<ListingCounts>,
    /// The id of the current row, if there is one.
    id: Option<String>,
    /// The id from which rows are read, if that is another one than the query's.
    start: Option<String>,
    /// The last row that was passed, or is the current one.
    last: Option<String>,
    failures: u32,
}

impl ShardRows {
    fn new(nodes: &Arc<ShardNodes>, shard: usize) -> ShardRows {
        ShardRows {
            nodes: nodes.clone(),
            shard,
            open: None,
            text: ListingText::default(),
            counts: None,
            id: None,
            start: None,
            last: None,
            failures: 0,
        }
    }

    /// Begins again, at a row.
    fn begin_at(&mut self, start: NthStart<String>) {
        self.open = None;
        self.text = ListingText::default();
        (self.id, self.start, self.last) = match start {
            NthStart::First => (None, None, None),
            NthStart::At(id) => (None, Some(id), None),
            NthStart::After(id) => (None, None, Some(id)),
        };
    }

    /// Reads until the counts are known.
    async fn read_head(&mut self, query: &ListingQuery) -> Result<(), ApiError> {
        while self.counts.is_none() {
            self.read_more(query).await?;
        }
        Ok(())
    }

    /// Reads until a row is complete, or none follows.
    async fn read_row(&mut self, query: &ListingQuery) -> Result<(), ApiError> {
        while self.id.is_none() && !self.text.is_over() {
            self.read_more(query).await?;
        }
        Ok(())
    }

    async fn read_more(&mut self, query: &ListingQuery) -> Result<(), ApiError> {
        let Some(body) = &mut self.open else {
            let text = query.text(self.last.as_deref().or(self.start.as_deref()));
            self.open = Some(self.nodes.get(self.shard, &text).await?);
            self.text = ListingText::default();
            return Ok(());
        };
        let done = match body.next().await {
            Some(Ok(piece)) => self.text.push(&piece),
            Some(Err(e)) => Err(ApiError::busy(e.to_string())),
            None => self.text.finish(),
        };
        match done {
            Ok(()) => {
                self.counts = self.counts.or(self.text.counts());
                self.note_row()
            }
            // Another node continues.
            Err(_) if self.failures < FAILURES_MAX => {
                self.failures += 1;
                self.open = None;
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Notes the id of the current row, and passes the row from which this node continues.
    fn note_row(&mut self) -> Result<(), ApiError> {
        while self.id.is_none()
            && let Some(row) = self.text.row()
        {
            let id = id_of(row)?.into_owned();
            if self.last.as_ref() == Some(&id) {
                self.text.pass();
                continue;
            }
            self.last = Some(id.clone());
            self.id = Some(id);
        }
        Ok(())
    }

    /// Passes the current row.
    fn pass(&mut self) -> Result<(), ApiError> {
        self.id = None;
        self.text.pass();
        self.note_row()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    First,
    More,
    Done,
}

/// The rows of all shards.
struct MergedListing {
    shards: Vec<ShardRows>,
    query: ListingQuery,
    /// The text before the rows.
    head: Vec<u8>,
    skip: u64,
    left: u64,
    state: State,
}

impl MergedListing {
    /// Returns the response.
    fn reply(self) -> Reply {
        let pieces = stream::unfold(self, |mut merge| async move {
            match merge.next_piece().await {
                Ok(piece) if piece.is_empty() => None,
                Ok(piece) => Some((Ok(Bytes::from(piece)), merge)),
                Err(e) => {
                    merge.state = State::Done;
                    Some((Err(e.into_stream_error()), merge))
                }
            }
        });
        let json = HeaderValue::from_static("application/json");
        Reply::stream(json, Box::pin(pieces))
    }

    /// Returns the next piece; an empty one at the end.
    async fn next_piece(&mut self) -> Result<Vec<u8>, ApiError> {
        let mut out = vec![];
        match self.state {
            State::Done => return Ok(out),
            State::Head => {
                out.append(&mut self.head);
                self.state = State::First;
            }
            State::First | State::More => {}
        }
        while out.len() < CHUNK_BYTES {
            for rows in &mut self.shards {
                rows.read_row(&self.query).await?;
            }
            if !self.write_rows(&mut out)? {
                out.extend_from_slice(b"\r\n]}\n");
                self.state = State::Done;
                break;
            }
        }
        Ok(out)
    }

    /// Begins shortly before the first row that is not skipped.
    async fn jump(&mut self, nodes: &ShardNodes, limit: Option<u64>) -> Result<(), ApiError> {
        let rows_left = |rows: &ShardRows| {
            let counts = rows.counts.unwrap_or_default();
            let total = counts.total_rows.unwrap_or_default();
            total.saturating_sub(counts.offset.unwrap_or_default())
        };
        let begin_of = |rows: &ShardRows| rows.counts.unwrap_or_default().offset;
        let begins: Vec<u64> = self
            .shards
            .iter()
            .map(|rows| begin_of(rows).unwrap_or_default())
            .collect();
        let mut search = NthRow::new(self.skip, self.shards.iter().map(rows_left));
        let (start, skip) = loop {
            match search.step(SKIP_WALKED_MAX) {
                NthStep::Near(start, skip) => break (start, skip),
                NthStep::Row(shard, rank) => {
                    let text = self.query.rank_text(None, rank, 1);
                    let found = listing_of(nodes, shard, &text).await?;
                    let row = found.row().ok_or_else(moved)?;
                    let id = id_of(row)?.into_owned();
                    let text = self.query.rank_text(Some(&id), 0, 0);
                    let ranks = begins.iter().enumerate();
                    let ranks = ranks.map(|(shard, begin)| rank_of(nodes, (shard, *begin), &text));
                    let ranks = try_join_all(ranks).await?;
                    search.take(shard, id, &ranks);
                }
            }
        };
        self.skip = skip;
        self.query.rows = limit.map(|limit| limit.saturating_add(skip));
        for rows in &mut self.shards {
            rows.begin_at(start.clone());
        }
        Ok(())
    }

    /// Returns the text before the rows.
    fn head(&self) -> Vec<u8> {
        let counts = self
            .shards
            .iter()
            .map(|rows| rows.counts.unwrap_or_default());
        let sum = |of: fn(&ListingCounts) -> Option<u64>| {
            let all: Option<Vec<u64>> = counts.clone().map(|counts| of(&counts)).collect();
            all.map(|all| all.iter().sum::<u64>())
        };
        let (total, before) = (sum(|c| c.total_rows), sum(|c| c.offset));
        let offset = before.zip(total);
        let offset = offset.map(|(before, total)| before.saturating_add(self.skip).min(total));
        let number = |n: Option<u64>| n.map_or("null".to_owned(), |n| n.to_string());
        let (total, offset) = (number(total), number(offset));
        let head = format!("{{\"total_rows\":{total},\"offset\":{offset},\"rows\":[\r\n");
        head.into_bytes()
    }

    /// Appends rows until a shard's next row is not known, or the piece is long enough; returns
    /// whether more may follow.
    fn write_rows(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        while out.len() < CHUNK_BYTES {
            if self.left == 0 {
                return Ok(false);
            }
            if self
                .shards
                .iter()
                .any(|rows| rows.id.is_none() && !rows.text.is_over())
            {
                return Ok(true);
            }
            let Some(next) = first(&self.shards, self.query.is_descending) else {
                return Ok(false);
            };
            let rows = &mut self.shards[next];
            if self.skip > 0 {
                self.skip -= 1;
            } else if let Some(row) = rows.text.row() {
                if self.state == State::More {
                    out.extend_from_slice(b",\r\n");
                }
                self.state = State::More;
                out.extend_from_slice(row);
                self.left -= 1;
            }
            rows.pass()?;
        }
        Ok(true)
    }
}

/// Returns a whole listing of a shard.
async fn listing_of(
    nodes: &ShardNodes,
    shard: usize,
    query: &str,
) -> Result<ListingText, ApiError> {
    let body = nodes.get(shard, query).await?;
    let text = body.read(ROW_BYTES_MAX).await;
    let text = text.map_err(|e| ApiError::busy(e.to_string()))?;
    let mut listing = ListingText::default();
    listing.push(&text)?;
    listing.finish()?;
    Ok(listing)
}

/// Returns the number of rows of a shard's listing before a row, which the query names; `begin` is
/// the offset of the first one.
async fn rank_of(
    nodes: &ShardNodes,
    (shard, begin): (usize, u64),
    query: &str,
) -> Result<u64, ApiError> {
    let found = listing_of(nodes, shard, query).await?;
    let offset = found.counts().and_then(|counts| counts.offset);
    Ok(offset.ok_or_else(moved)?.saturating_sub(begin))
}

/// The error for rows that were deleted while they were counted.
fn moved() -> ApiError {
    ApiError::busy("the documents changed while they were counted: try again".to_owned())
}

/// Returns the shard whose row comes first.
fn first(shards: &[ShardRows], is_descending: bool) -> Option<usize> {
    let ids = shards.iter().enumerate();
    let ids = ids.filter_map(|(shard, rows)| Some((rows.id.as_deref()?, shard)));
    let first = ids.min_by(|a, b| match is_descending {
        true => b.0.cmp(a.0),
        false => a.0.cmp(b.0),
    });
    first.map(|(_, shard)| shard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_continues_from_its_last_row() {
        let query = ListingQuery {
            rows: Some(10),
            others: "&startkey=%22a%22&include_docs=true&endkey=%22z%22".to_owned(),
            is_descending: false,
        };
        let begun = "skip=0&limit=10&startkey=%22a%22&include_docs=true&endkey=%22z%22";
        assert_eq!(query.text(None), begun);
        let continued = "skip=0&limit=11&include_docs=true&endkey=%22z%22&startkey=%22m%22";
        assert_eq!(query.text(Some("m")), continued);
    }
}
