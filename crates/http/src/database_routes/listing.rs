//! `_all_docs`, `_design_docs`, `_local_docs`, a partition's documents, and `/queries` on them.

use std::sync::Arc;

use database::{
    Bound, ContentPlacement, Grouping, Key, Keys, Listing, Rows, RowsQuery, ShownAttachments,
};
use serde_json::{Map, Value};

use crate::app::App;
use crate::database_routes::{partition, queries};
use crate::design_routes::lists::{ListRows, whole_contents};
use crate::errors::ApiError;
use crate::load::SHORT_BODY_BYTES_MAX;
use crate::reply::Reply;
use crate::reply::late::Late;
use crate::reply::stream::{CHUNK_BYTES, pull, pull_apart, pull_blocking};
use crate::request::Request;
use crate::request::parameters::{Given, GivenGrouping, Params, bound_limit, keys_with_range};
use crate::settings::Settings;
use node::{Access, Query};
use routes::ListingKind;

type Answer = Result<Reply, ApiError>;

fn listing_of(kind: ListingKind) -> Listing {
    match kind {
        ListingKind::AllDocs => Listing::AllDocs,
        ListingKind::DesignDocs => Listing::DesignDocs,
        ListingKind::LocalDocs => Listing::LocalDocs,
    }
}

/// Applies a parameter that has nothing to do with others.
fn apply(q: &mut RowsQuery, name: &str, given: Given<'_>) -> Result<(), ApiError> {
    match name {
        "limit" => q.limit = Some(given.natural()?),
        "skip" => q.skip = given.natural()?,
        "descending" => q.descending = given.boolean()?,
        "include_docs" => q.include_docs = given.boolean()?,
        "inclusive_end" => q.inclusive_end = given.boolean()?,
        "conflicts" => q.conflicts = given.boolean()?,
        "update_seq" => q.update_seq = given.boolean()?,
        "attachments" => q.attachments.bytes = given.boolean()?,
        "att_encoding_info" => q.attachments.encoding_info = given.boolean()?,
        "sorted" => {
            given.boolean()?;
        }
        "reduce" => {
            if given.boolean()? {
                return Err(ApiError::query_parse(
                    "Reduce is invalid for map-only views.",
                ));
            }
        }
        _ => {
            given.check_freshness(name)?;
        }
    }
    Ok(())
}

/// Parameters as given; of one that is given twice, the later one applies.
#[derive(Clone)]
struct GivenRows {
    query: RowsQuery,
    partition: Option<String>,
    /// Shared: copying a key of many elements is slow.
    start: Option<Arc<Value>>,
    end: Option<Arc<Value>>,
    keys: Option<GivenKeys>,
    grouping: GivenGrouping,
}

#[derive(Clone)]
struct GivenKeys {
    keys: Keys,
    /// The only one, if there is one.
    only: Option<Arc<Value>>,
}

impl GivenRows {
    fn of(listing: Listing) -> GivenRows {
        GivenRows {
            query: empty_query(listing),
            partition: None,
            start: None,
            end: None,
            keys: None,
            grouping: GivenGrouping::default(),
        }
    }

    fn add(&mut self, params: &Params<'_>) -> Result<(), ApiError> {
        for (name, value) in params.iter() {
            match name {
                "partition" => self.partition = Some(value.text()),
                "group" => self.grouping.group = Some(value.boolean()?),
                "group_level" => self.grouping.level = Some(value.natural()?),
                "key" => {
                    let key = Arc::new(value.json()?);
                    (self.start, self.end) = (Some(key.clone()), Some(key));
                }
                "startkey" | "start_key" => self.start = Some(Arc::new(value.json()?)),
                "endkey" | "end_key" => self.end = Some(Arc::new(value.json()?)),
                "keys" => self.add_keys(value)?,
                name => apply(&mut self.query, name, value)?,
            }
        }
        Ok(())
    }

    fn add_keys(&mut self, given: Given<'_>) -> Result<(), ApiError> {
        // Many keys of a body are not copied.
        let parsed;
        let (keys, what) = match given {
            Given::Text(_) => {
                parsed = given.json()?;
                (&parsed, "parameter")
            }
            Given::Json(keys) => (keys, "body member"),
        };
        let Value::Array(keys) = keys else {
            let text = format!("`keys` {what} must be an array.");
            return Err(ApiError::bad_request(text));
        };
        // As CouchDB has it, a single one is the range too, of which what follows may make another.
        let only = match keys.as_slice() {
            [key] => Some(Arc::new(key.clone())),
            _ => None,
        };
        if only.is_some() {
            (self.start, self.end) = (only.clone(), only.clone());
        }
        let keys = keys.iter().map(key_of).collect();
        self.keys = Some(GivenKeys { keys, only });
        Ok(())
    }

    /// The requested listing: a partition's is a separate one.
    fn check(self, settings: &Settings, is_partitioned: bool) -> Result<RowsQuery, ApiError> {
        let mut q = self.query;
        if self.grouping.grouping()? != Grouping::None {
            return Err(ApiError::query_parse(
                "Invalid use of grouping on a map view.",
            ));
        }
        let range = (self.start.as_deref(), self.end.as_deref());
        let is_of_keys = |given: &GivenKeys| {
            let only = given.only.as_deref();
            given.keys.is_empty()
                || range == (None, None)
                || only.is_some() && range == (only, only)
        };
        if !self.keys.as_ref().is_none_or(is_of_keys) {
            return Err(keys_with_range());
        }
        (q.start, q.end) = (range.0.map(bound), range.1.map(bound));
        if let Some(partition) = self.partition {
            if !is_partitioned {
                return Err(ApiError::query_parse(
                    "`partition` parameter is not supported on this db",
                ));
            }
            if partition.is_empty() {
                return Err(ApiError::query_parse("Invalid value for `partition`."));
            }
            bound_limit(
                &mut q.limit,
                settings.query_server_config.partition_query_limit,
            )?;
            q.listing = Listing::Partition(partition);
        } else {
            bound_limit(&mut q.limit, settings.query_server_config.query_limit)?;
        }
        if let Some(GivenKeys { keys, .. }) = self.keys {
            let max = settings.limits.max_keys;
            if keys.len() as u64 > max {
                return Err(ApiError::too_large("max_keys", max));
            }
            q.keys = Some(keys);
        }
        Ok(q)
    }
}

/// Applies the parameters of a request: those of its body, then those of its query string. A long
/// body is read by threads that give way.
async fn query_of(
    app: &App,
    req: &Request,
    access: &Access,
    listing: Listing,
    body: Option<Map<String, Value>>,
) -> Result<RowsQuery, ApiError> {
    let (settings, is_partitioned) = (app.settings(), access.db.is_partitioned());
    let parse = move |query: &Query| {
        let mut rows = GivenRows::of(listing);
        for params in Params::of(query, body.as_ref()) {
            rows.add(&params)?;
        }
        rows.check(&settings, is_partitioned)
    };
    if req.body_bytes <= SHORT_BODY_BYTES_MAX as u64 {
        return parse(&req.query);
    }
    let query = req.query.clone();
    req.answers.apart(move || parse(&query)).await?
}

/// The parameters of a request that apply to each of its `queries`: as in CouchDB, not its `keys`
/// and grouping.
fn of_all_queries(listing: Listing, query: &Query) -> Result<GivenRows, ApiError> {
    let mut rows = GivenRows::of(listing);
    rows.add(&Params::Query(query))?;
    rows.keys = None;
    rows.grouping = GivenGrouping::default();
    Ok(rows)
}

/// One of `queries`.
fn one_of_queries(
    of_all: &GivenRows,
    query: &Map<String, Value>,
    settings: &Settings,
    is_partitioned: bool,
) -> Result<RowsQuery, ApiError> {
    let mut rows = of_all.clone();
    rows.add(&Params::Body(query))?;
    // As in CouchDB, a single key is a range here, so that it has an offset, and no row when missing.
    rows.keys = rows.keys.filter(|given| given.only.is_none());
    rows.check(settings, is_partitioned)
}

/// In Erlang's order of terms, which `_all_docs` follows, everything else comes before strings.
fn bound(key: &Value) -> Bound {
    match key {
        Value::String(id) => Bound::Id(id.clone()),
        _ => Bound::BeforeAll,
    }
}

fn key_of(key: &Value) -> Key {
    match key {
        Value::String(id) => Key::Id(id.clone()),
        other => Key::Other(other.to_string()),
    }
}

fn empty_query(listing: Listing) -> RowsQuery {
    RowsQuery {
        listing,
        start: None,
        end: None,
        inclusive_end: true,
        keys: None,
        limit: None,
        skip: 0,
        descending: false,
        include_docs: false,
        conflicts: false,
        attachments: ShownAttachments::default(),
        update_seq: false,
    }
}

/// Local documents of a database with rules (checkpoints of its replicators, for example) are only
/// for its admins.
fn require_listed(access: &Access, listing: &Listing) -> Result<(), ApiError> {
    match listing {
        Listing::LocalDocs if !access.db.is_open() => Ok(access.require_admin()?),
        _ => Ok(()),
    }
}

/// A listing of documents.
pub async fn list(app: &App, req: &mut Request, access: &Access, kind: ListingKind) -> Answer {
    let listing = listing_of(kind);
    require_listed(access, &listing)?;
    let body = if req.method == "POST" {
        req.require_json()?;
        Some(req.json_object().await?)
    } else {
        None
    };
    let q = query_of(app, req, access, listing, body).await?;
    let blocking = q.attachments.bytes;
    req.keep(q.memory_bytes()).await?;
    let late = Late::of(blocking)?;
    let rows = access.db.start_rows(q)?;
    let is_placed = rows.is_placed();
    let mut rows = RowsBody::new(rows, &late.placement());
    let next = move |out: &mut Vec<u8>| rows.next_chunk(out, "\n");
    let reply = if blocking {
        pull_blocking(&req.answers, "application/json", next).await?
    } else if is_placed {
        pull(&req.answers, "application/json", next).await?
    } else {
        Box::pin(pull_apart(&req.answers, "application/json", next)).await?
    };
    Ok(late.fill(reply, &req.answers))
}

/// Several listings in one answer.
pub async fn queries(app: &App, req: &mut Request, access: &Access, kind: ListingKind) -> Answer {
    require_listed(access, &listing_of(kind))?;
    let posted = queries::posted(req).await?;
    let all = make_queries(app, req, access, kind, posted).await?;
    let blocking = all.iter().any(|q| q.attachments.bytes);
    let late = Late::of(blocking)?;
    let (db, placement) = (access.db.clone(), late.placement());
    let mut todo = all.into_iter();
    let mut current: Option<RowsBody> = None;
    let mut state = QueriesState::Head;
    let next = move |out: &mut Vec<u8>| {
        loop {
            if let Some(rows) = &mut current {
                if rows.next_chunk(out, "")? {
                    return Ok(true);
                }
                current = None;
            }
            match state {
                QueriesState::Done => return Ok(false),
                QueriesState::Head => out.extend_from_slice(b"{\"results\":[\n"),
                QueriesState::Rows => {}
            }
            let Some(q) = todo.next() else {
                out.extend_from_slice(b"\n]}\n");
                state = QueriesState::Done;
                return Ok(true);
            };
            if matches!(state, QueriesState::Rows) {
                out.extend_from_slice(b",\n");
            }
            state = QueriesState::Rows;
            let rows = RowsBody::new(db.start_rows(q)?, &placement);
            if !current.insert(rows).rows.is_placed() {
                return Ok(true);
            }
        }
    };
    let reply = match blocking {
        true => pull_blocking(&req.answers, "application/json", next).await?,
        false => pull(&req.answers, "application/json", next).await?,
    };
    Ok(late.fill(reply, &req.answers))
}

/// Makes the posted queries of a listing; the parameters of the URL are parsed once.
async fn make_queries(
    app: &App,
    req: &mut Request,
    access: &Access,
    kind: ListingKind,
    posted: Vec<Map<String, Value>>,
) -> Result<Vec<RowsQuery>, ApiError> {
    let (settings, is_partitioned) = (app.settings(), access.db.is_partitioned());
    let query = req.query.clone();
    let mut of_all = None;
    queries::make_all(req, posted, move |posted| {
        let of_all = match &of_all {
            Some(of_all) => of_all,
            None => &*of_all.insert(of_all_queries(listing_of(kind), &query)?),
        };
        let made = one_of_queries(of_all, posted, &settings, is_partitioned)?;
        let bytes = made.memory_bytes();
        Ok((made, bytes))
    })
    .await
}

enum QueriesState {
    Head,
    Rows,
    Done,
}

/// `{"total_rows":…,"offset":…,"rows":[…]}` around the rows.
struct RowsBody {
    rows: Rows,
    state: RowsState,
}

enum RowsState {
    Head,
    Rows,
    Done,
}

impl RowsBody {
    fn new(mut rows: Rows, placement: &ContentPlacement) -> Self {
        rows.place_contents(placement.clone());
        RowsBody {
            rows,
            state: RowsState::Head,
        }
    }

    /// Appends a piece, which may be empty; false when the last one is out.
    fn next_chunk(&mut self, out: &mut Vec<u8>, end: &str) -> Result<bool, ApiError> {
        if matches!(self.state, RowsState::Done) {
            return Ok(false);
        }
        if self.rows.place()? {
            return Ok(true);
        }
        if matches!(self.state, RowsState::Head) {
            let number = |n: Option<u64>| n.map_or("null".to_owned(), |n| n.to_string());
            out.extend_from_slice(
                format!(
                    "{{\"total_rows\":{},\"offset\":{},",
                    number(self.rows.total_rows),
                    number(self.rows.offset)
                )
                .as_bytes(),
            );
            if let Some(seq) = &self.rows.update_seq {
                out.extend_from_slice(format!("\"update_seq\":\"{seq}\",").as_bytes());
            }
            out.extend_from_slice(b"\"rows\":[\r\n");
            self.state = RowsState::Rows;
        }
        if !self.rows.next_chunk(out, CHUNK_BYTES)? {
            out.extend_from_slice(b"\r\n]}");
            out.extend_from_slice(end.as_bytes());
            self.state = RowsState::Done;
        }
        Ok(true)
    }
}

/// The rows of `_all_docs`, one by one, for list functions.
pub struct AllDocsRows {
    rows: Rows,
    /// Rows with `,\r\n` between them, and where the next one begins.
    chunk: Vec<u8>,
    at: usize,
    /// There may be more chunks.
    more: bool,
    version: String,
}

impl AllDocsRows {
    pub async fn open(
        app: &App,
        req: &Request,
        access: &Access,
        posted: Option<Map<String, Value>>,
    ) -> Result<AllDocsRows, ApiError> {
        if !access.is_admin && !access.db.is_open() {
            return Err(ApiError::forbidden(
                "Only admins can access _all_docs of system databases.",
            ));
        }
        let q = query_of(app, req, access, Listing::AllDocs, posted).await?;
        // Before the rows, which may be newer then, and never older than the ETag says.
        let version = access.db.info()?.update_seq;
        let mut rows = access.db.start_rows(q)?;
        while !rows.is_placed() {
            let place = move || rows.place().map(|_| rows);
            rows = req.answers.apart(place).await??;
        }
        rows.place_contents(whole_contents(&app.settings()));
        Ok(AllDocsRows {
            version,
            rows,
            chunk: vec![],
            at: 0,
            more: true,
        })
    }
}

impl ListRows for AllDocsRows {
    fn head(&mut self) -> Result<Vec<u8>, ApiError> {
        let head =
            serde_json::json!({"total_rows": self.rows.total_rows, "offset": self.rows.offset});
        Ok(head.to_string().into_bytes())
    }

    fn fetch(&mut self) -> Result<bool, ApiError> {
        if self.at == self.chunk.len() && self.more {
            self.chunk.clear();
            self.more = self.rows.next_chunk(&mut self.chunk, CHUNK_BYTES)?;
            // A later chunk begins with a separator.
            self.at = if self.chunk.starts_with(b",") { 3 } else { 0 };
        }
        Ok(self.at == self.chunk.len() && self.more)
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.at == self.chunk.len() {
            return None;
        }
        let rest = &self.chunk[self.at..];
        // No row holds a line break.
        let end = memchr::memmem::find(rest, b",\r\n").unwrap_or(rest.len());
        let row = rest[..end].to_vec();
        self.at = (self.at + end + 3).min(self.chunk.len());
        Some(row)
    }

    fn fetched_bytes(&self) -> usize {
        self.chunk.len()
    }

    fn version(&self) -> String {
        self.version.clone()
    }
}

/// `_partition/{partition}`. The first documents are counted here, the others by threads that give
/// way, in pieces.
pub async fn partition_info(req: &Request, access: &Access, name: &str) -> Answer {
    database::check_partition(name)?;
    partition::require_partitioned(access)?;
    let mut count = access.db.count_partition(name)?;
    let mut more = count.next_piece()?;
    while more {
        let next = move || (count.next_piece(), count);
        let counted;
        (counted, count) = req.answers.apart(next).await?;
        more = counted?;
    }
    let info = count.into_info();
    Ok(Reply::json(
        200,
        &serde_json::json!({
            "db_name": &**access.db.name(),
            "sizes": {"active": info.active_bytes, "external": info.external_bytes},
            "partition": info.partition,
            "doc_count": info.doc_count,
            "doc_del_count": info.doc_del_count,
        }),
    ))
}
