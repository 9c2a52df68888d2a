//! `_all_docs`, `_local_docs` and map views of a spread database: the rows of all shards, merged by
//! their ids, or by their keys and ids.
//!
//! After a node has failed, another one continues behind the last row.

use std::sync::Arc;

use bytes::Bytes;
use database::{Database, write_key_sort};
use futures_util::future::try_join_all;
use futures_util::stream;
use hyper::header::HeaderValue;
use member::Member;
use serde_json::Value;

use super::listing_text::{ListingCounts, ListingText, id_of, key_of};
use super::nth::{NthRow, NthStart, NthStep};
use super::shard_nodes::{ShardNodes, other_parameters};
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::reply::stream::CHUNK_BYTES;
use crate::request::Request;

/// Parameters that each shard's listing has of its own.
const OWN_PARAMETERS: [&str; 2] = ["skip", "limit"];
/// Parameters that say where a listing begins.
const START_PARAMETERS: [&str; 4] = [
    "startkey",
    "start_key",
    "startkey_docid",
    "start_key_doc_id",
];
/// Skips up to this many rows by walking them; more by their ranks.
const SKIP_WALKED_MAX: u64 = 512;
/// Maximum size of the response with a row or a rank, in bytes: rows have no documents.
const ROW_BYTES_MAX: usize = 1 << 20;
/// Maximum number of nodes that fail before the listing ends.
const FAILURES_MAX: u32 = 4;

/// Answers a request for the rows of a map view.
pub async fn view(
    member: &Arc<Member>,
    req: &Request,
    db: Arc<Database>,
    (design, name): (&str, &str),
) -> Result<Reply, ApiError> {
    let design = db.design(design)?;
    let missing = || ApiError::new(404, "not_found", "missing_named_view");
    let at = design.view(name).ok_or_else(missing)?;
    let reduces = at.reduce.is_some() && req.query.get("reduce") != Some("false");
    if reduces
        || req
            .query
            .get("include_docs")
            .is_some_and(|value| value != "false")
    {
        return Err(ApiError::not_implemented(
            "reductions and `include_docs` of views of spread databases",
        ));
    }
    let is_raw = design.spec.views[at.view].raw;
    merged(member, req, db, RowOrder::Keys { is_raw }).await
}

/// Answers a request for a listing of a range.
pub async fn listing(
    member: &Arc<Member>,
    req: &Request,
    db: Arc<Database>,
) -> Result<Reply, ApiError> {
    merged(member, req, db, RowOrder::Ids).await
}

async fn merged(
    member: &Arc<Member>,
    req: &Request,
    db: Arc<Database>,
    order: RowOrder,
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
    // The rows of a view with one key have no ranks by their documents.
    let jumps = skip > SKIP_WALKED_MAX && order == RowOrder::Ids;
    let mut merge = MergedListing {
        shards: shards.map(|shard| ShardRows::new(&nodes, shard)).collect(),
        query: ListingQuery {
            order,
            rows: match jumps {
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
    if jumps {
        merge.jump(&nodes, limit).await?;
    }
    merge.head = head;
    Ok(merge.reply())
}

/// The order of rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowOrder {
    /// By the ids of their documents.
    Ids,
    /// By their keys, and then by the ids of their documents.
    Keys {
        /// Keys are compared as raw text.
        is_raw: bool,
    },
}

/// The place of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RowPlace {
    /// The key in the form in which keys are compared; empty in an order by ids.
    sort: Vec<u8>,
    /// The id of the document.
    id: String,
    /// JSON text of the key; `None` in an order by ids.
    key: Option<String>,
}

impl RowPlace {
    fn of(row: &[u8], order: RowOrder) -> Result<RowPlace, ApiError> {
        let id = id_of(row)?.into_owned();
        let RowOrder::Keys { is_raw } = order else {
            return Ok(RowPlace::of_id(id));
        };
        let (mut sort, key) = (vec![], key_of(row)?);
        let odd = |e: &dyn std::fmt::Display| {
            ApiError::internal("A node's view has a key that is not JSON.", e.to_string())
        };
        write_key_sort(key.as_bytes(), is_raw, &mut sort).map_err(|e| odd(&e))?;
        let key = Some(key.to_owned());
        Ok(RowPlace { sort, id, key })
    }

    /// Returns what places are compared by.
    fn order(&self) -> (&[u8], &str) {
        (&self.sort, &self.id)
    }

    /// Returns the place of a document.
    fn of_id(id: String) -> RowPlace {
        RowPlace {
            sort: vec![],
            id,
            key: None,
        }
    }

    /// Appends the parameters of a query that begins here.
    fn write_to(&self, query: &mut String) {
        query.push_str("&startkey=");
        match &self.key {
            None => node::encode_into(&Value::from(self.id.as_str()).to_string(), query),
            Some(key) => {
                node::encode_into(key, query);
                query.push_str("&startkey_docid=");
                node::encode_into(&self.id, query);
            }
        }
    }
}

/// The query of the shards' listings.
struct ListingQuery {
    order: RowOrder,
    /// Rows of each shard, at most.
    rows: Option<u64>,
    /// The other parameters, each with `&` before it.
    others: String,
    is_descending: bool,
}

impl ListingQuery {
    /// Returns the query of a listing without the documents, from a row on: with this skip and limit,
    /// and without its last row.
    fn rank_text(&self, from: Option<&RowPlace>, skip: u64, limit: u64) -> String {
        const OWN: [&str; 5] = [
            "endkey",
            "end_key",
            "inclusive_end",
            "include_docs",
            "attachments",
        ];
        let mut others = other_parameters(&self.others, &OWN);
        if let Some(place) = from {
            others = other_parameters(&others, &START_PARAMETERS);
            place.write_to(&mut others);
        }
        format!("skip={skip}&limit={limit}{others}")
    }

    /// Returns the query of a shard's listing, from a place on, where this number of rows is returned
    /// again.
    fn text(&self, from: Option<&RowPlace>, repeats: u64) -> String {
        let mut text = String::from("skip=0");
        if let Some(rows) = self.rows {
            let rows = rows.saturating_add(repeats);
            text.push_str(&format!("&limit={rows}"));
        }
        match from {
            None => text.push_str(&self.others),
            Some(place) => {
                text.push_str(&other_parameters(&self.others, &START_PARAMETERS));
                place.write_to(&mut text);
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
    /// The place of the current row, if there is one.
    place: Option<RowPlace>,
    /// The place from which rows are read, if that is another one than the query's.
    start: Option<RowPlace>,
    /// The place of the last row that was passed, or is the current one, and the number of rows
    /// there so far: one document may have several with one key.
    last: Option<(RowPlace, u64)>,
    /// Rows at this place that the node returns again.
    repeats: u64,
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
            place: None,
            start: None,
            last: None,
            repeats: 0,
            failures: 0,
        }
    }

    /// Begins again, at a row.
    fn begin_at(&mut self, start: NthStart<RowPlace>) {
        self.open = None;
        self.text = ListingText::default();
        (self.place, self.start, self.last) = match start {
            NthStart::First => (None, None, None),
            NthStart::At(place) => (None, Some(place), None),
            NthStart::After(place) => (None, None, Some((place, 1))),
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
        while self.place.is_none() && !self.text.is_over() {
            self.read_more(query).await?;
        }
        Ok(())
    }

    async fn read_more(&mut self, query: &ListingQuery) -> Result<(), ApiError> {
        let Some(body) = &mut self.open else {
            let last = self.last.as_ref();
            self.repeats = last.map_or(0, |(_, count)| *count);
            let from = last.map(|(place, _)| place).or(self.start.as_ref());
            let text = query.text(from, self.repeats);
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
                self.note_row(query.order)
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

    /// Notes the place of the current row, and passes the rows from which this node continues.
    fn note_row(&mut self, order: RowOrder) -> Result<(), ApiError> {
        while self.place.is_none()
            && let Some(row) = self.text.row()
        {
            let place = RowPlace::of(row, order)?;
            let last = self.last.as_mut().filter(|(last, _)| *last == place);
            match last {
                Some(_) if self.repeats > 0 => {
                    self.repeats -= 1;
                    self.text.pass();
                    continue;
                }
                Some((_, count)) => *count += 1,
                None => self.last = Some((place.clone(), 1)),
            }
            self.repeats = 0;
            self.place = Some(place);
        }
        Ok(())
    }

    /// Passes the current row.
    fn pass(&mut self, order: RowOrder) -> Result<(), ApiError> {
        self.place = None;
        self.text.pass();
        self.note_row(order)
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
                    let place = RowPlace::of(row, self.query.order)?;
                    let text = self.query.rank_text(Some(&place), 0, 0);
                    let ranks = begins.iter().enumerate();
                    let ranks = ranks.map(|(shard, begin)| rank_of(nodes, (shard, *begin), &text));
                    let ranks = try_join_all(ranks).await?;
                    search.take(shard, place, &ranks);
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
                .any(|rows| rows.place.is_none() && !rows.text.is_over())
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
            rows.pass(self.query.order)?;
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
    let ids = ids.filter_map(|(shard, rows)| Some((rows.place.as_ref()?.order(), shard)));
    let first = ids.min_by(|a, b| match is_descending {
        true => b.0.cmp(&a.0),
        false => a.0.cmp(&b.0),
    });
    first.map(|(_, shard)| shard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_continues_from_its_last_row() {
        let query = ListingQuery {
            order: RowOrder::Ids,
            rows: Some(10),
            others: "&startkey=%22a%22&include_docs=true&endkey=%22z%22".to_owned(),
            is_descending: false,
        };
        let begun = "skip=0&limit=10&startkey=%22a%22&include_docs=true&endkey=%22z%22";
        assert_eq!(query.text(None, 0), begun);
        let continued = "skip=0&limit=11&include_docs=true&endkey=%22z%22&startkey=%22m%22";
        let place = RowPlace::of_id("m".to_owned());
        assert_eq!(query.text(Some(&place), 1), continued);
        let row = br#"{"id":"d 1","key":[1,"a"],"value":{"key":2}}"#;
        let place = RowPlace::of(row, RowOrder::Keys { is_raw: false });
        let place = place.unwrap_or_else(|e| panic!("{}", e.reason));
        let text = query.text(Some(&place), 0);
        assert!(
            text.ends_with("&startkey=%5B1%2C%22a%22%5D&startkey_docid=d%201"),
            "{text}"
        );
    }

    #[test]
    fn rows_of_views_are_in_the_order_of_their_keys_and_ids() {
        let place = |id: &str, key: &str| {
            let row = format!("{{\"id\":\"{id}\",\"key\":{key},\"value\":null}}");
            let place = RowPlace::of(row.as_bytes(), RowOrder::Keys { is_raw: false });
            place.unwrap_or_else(|e| panic!("{}", e.reason))
        };
        let places = [
            place("b", "null"),
            place("a", "2"),
            place("b", "2"),
            place("a", "10"),
            place("a", "\"a\""),
            place("a", "[]"),
        ];
        assert!(
            places.is_sorted_by(|a, b| a.order() < b.order()),
            "{places:?}"
        );
    }
}
