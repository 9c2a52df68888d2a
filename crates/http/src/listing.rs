//! `_all_docs`, `_design_docs`, `_local_docs`, a partition's documents, and `/queries` on them.

use database::{Bound, Key, Listing, Rows, RowsQuery};
use serde_json::{Map, Value};

use crate::access::Access;
use crate::app::App;
use crate::design::lists::ListRows;
use crate::errors::ApiError;
use crate::feed::{CHUNK_BYTES, pull};
use crate::query::{Query, parse_json};
use crate::reply::Reply;
use crate::request::Request;
use crate::router::require_method;

type Answer = Result<Reply, ApiError>;

fn listing_of(name: &str) -> Listing {
    match name {
        "_design_docs" => Listing::DesignDocs,
        "_local_docs" => Listing::LocalDocs,
        _ => Listing::AllDocs,
    }
}

/// Where a parameter comes from decides its form: text in a query, JSON in a body.
enum Source<'a> {
    Query(&'a Query),
    Body(&'a Map<String, Value>),
}

impl Source<'_> {
    /// The JSON value of a key parameter.
    fn json(&self, names: &[&str]) -> Result<Option<Value>, ApiError> {
        for name in names {
            match self {
                Source::Query(q) => {
                    if let Some(text) = q.get(name) {
                        return parse_json(text).map(Some);
                    }
                }
                Source::Body(b) => {
                    if let Some(v) = b.get(*name) {
                        return Ok(Some(v.clone()));
                    }
                }
            }
        }
        Ok(None)
    }

    fn text(&self, name: &str) -> Option<String> {
        match self {
            Source::Query(q) => q.get(name).map(str::to_owned),
            Source::Body(b) => b.get(name).map(|v| match v {
                Value::String(s) => s.clone(),
                v => v.to_string(),
            }),
        }
    }

    fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.text(name).as_deref() {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => Err(ApiError::query_parse(format!(
                "Invalid boolean parameter: {}",
                Value::from(other)
            ))),
        }
    }

    fn natural(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match text.parse::<i64>() {
            Ok(n) if n >= 0 => Ok(Some(n as u64)),
            Ok(_) => Err(ApiError::query_parse(format!(
                "Invalid value for positive integer: {}",
                Value::from(text)
            ))),
            Err(_) if text.is_empty() => {
                Err(ApiError::query_parse("Invalid value for integer: []"))
            }
            Err(_) => Err(ApiError::query_parse(format!(
                "Invalid value for integer: {}",
                Value::from(text)
            ))),
        }
    }

    /// Applies every parameter that is here.
    fn apply(&self, q: &mut RowsQuery) -> Result<(), ApiError> {
        if let Some(v) = self.natural("limit")? {
            q.limit = Some(v);
        }
        if let Some(v) = self.natural("skip")? {
            q.skip = v;
        }
        let flags: [(&str, &mut bool); 5] = [
            ("descending", &mut q.descending),
            ("include_docs", &mut q.include_docs),
            ("inclusive_end", &mut q.inclusive_end),
            ("conflicts", &mut q.conflicts),
            ("update_seq", &mut q.update_seq),
        ];
        for (name, flag) in flags {
            if let Some(v) = self.boolean(name)? {
                *flag = v;
            }
        }
        for name in ["attachments", "sorted", "stable"] {
            self.boolean(name)?;
        }
        if self.boolean("group")? == Some(true) || self.natural("group_level")?.is_some() {
            return Err(ApiError::query_parse(
                "Invalid use of grouping on a map view.",
            ));
        }
        if self.boolean("reduce")? == Some(true) {
            return Err(ApiError::query_parse(
                "Reduce is invalid for map-only views.",
            ));
        }
        if let Some(key) = self.json(&["key"])? {
            q.start = Some(bound(&key));
            q.end = Some(bound(&key));
        }
        if let Some(key) = self.json(&["start_key", "startkey"])? {
            q.start = Some(bound(&key));
        }
        if let Some(key) = self.json(&["end_key", "endkey"])? {
            q.end = Some(bound(&key));
        }
        match self.json(&["keys"])? {
            None => {}
            Some(Value::Array(keys)) => q.keys = Some(keys.into_iter().map(key_of).collect()),
            Some(_) => {
                return Err(ApiError::bad_request("`keys` parameter must be an array."));
            }
        }
        Ok(())
    }
}

/// In Erlang's order of terms, which `_all_docs` follows, everything else comes before strings.
fn bound(key: &Value) -> Bound {
    match key {
        Value::String(id) => Bound::Id(id.clone()),
        _ => Bound::BeforeAll,
    }
}

fn key_of(key: Value) -> Key {
    match key {
        Value::String(id) => Key::Id(id),
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
        update_seq: false,
    }
}

fn check_keys(app: &App, q: &RowsQuery) -> Result<(), ApiError> {
    let max = app.limits().max_keys;
    if q.keys.as_ref().is_some_and(|k| k.len() as u64 > max) {
        return Err(ApiError::too_large("max_keys", max));
    }
    Ok(())
}

pub async fn route(app: &App, req: &mut Request, access: &Access, name: &str) -> Answer {
    list(app, req, access, listing_of(name)).await
}

async fn list(app: &App, req: &mut Request, access: &Access, listing: Listing) -> Answer {
    require_method(req, "GET,HEAD,POST")?;
    if matches!(listing, Listing::LocalDocs) && !access.is_admin {
        access.require_admin()?;
    }
    let mut q = empty_query(listing);
    Source::Query(&req.query).apply(&mut q)?;
    if req.method == "POST" {
        req.require_json()?;
        let body = req.json_object(app).await?;
        Source::Body(&body).apply(&mut q)?;
    }
    check_keys(app, &q)?;
    let mut rows = RowsBody::new(access.db.rows(q)?);
    pull("application/json", move |out| rows.next_chunk(out, "\n"))
}

/// The `queries` of a POST body.
pub async fn posted_queries(
    app: &App,
    req: &mut Request,
) -> Result<Vec<Map<String, Value>>, ApiError> {
    req.require_json()?;
    let mut body = req.json_object(app).await?;
    let queries = match body.remove("queries") {
        None => {
            return Err(ApiError::bad_request(
                "POST body must include `queries` parameter.",
            ));
        }
        Some(Value::Array(queries)) => queries,
        Some(_) => return Err(ApiError::bad_request("`queries` member must be an array.")),
    };
    let object = |query| match query {
        Value::Object(query) => Ok(query),
        _ => Err(ApiError::bad_request("a query must be a JSON object")),
    };
    queries.into_iter().map(object).collect()
}

/// Several listings in one answer.
pub async fn queries(app: &App, req: &mut Request, access: &Access, name: &str) -> Answer {
    require_method(req, "POST")?;
    let queries = posted_queries(app, req).await?;
    let mut all = Vec::with_capacity(queries.len());
    for query in queries {
        let mut q = empty_query(listing_of(name));
        Source::Query(&req.query).apply(&mut q)?;
        Source::Body(&query).apply(&mut q)?;
        check_keys(app, &q)?;
        all.push(q);
    }
    let db = access.db.clone();
    let mut todo = all.into_iter();
    let mut current: Option<RowsBody> = None;
    let mut state = QueriesState::Head;
    pull("application/json", move |out| {
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
            current = Some(RowsBody::new(db.rows(q)?));
        }
    })
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
    fn new(rows: Rows) -> Self {
        RowsBody {
            rows,
            state: RowsState::Head,
        }
    }

    /// Appends a piece; false when the last one is out.
    fn next_chunk(&mut self, out: &mut Vec<u8>, end: &str) -> Result<bool, ApiError> {
        if matches!(self.state, RowsState::Done) {
            return Ok(false);
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
    version: String,
}

impl AllDocsRows {
    pub fn open(
        app: &App,
        req: &Request,
        access: &Access,
        posted: Option<&Map<String, Value>>,
    ) -> Result<AllDocsRows, ApiError> {
        let mut q = empty_query(Listing::AllDocs);
        Source::Query(&req.query).apply(&mut q)?;
        if let Some(body) = posted {
            Source::Body(body).apply(&mut q)?;
        }
        check_keys(app, &q)?;
        Ok(AllDocsRows {
            version: access.db.info()?.update_seq,
            rows: access.db.rows(q)?,
            chunk: vec![],
            at: 0,
        })
    }
}

impl ListRows for AllDocsRows {
    fn head(&mut self) -> Result<Vec<u8>, ApiError> {
        let head =
            serde_json::json!({"total_rows": self.rows.total_rows, "offset": self.rows.offset});
        Ok(head.to_string().into_bytes())
    }

    fn next(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        while self.at == self.chunk.len() {
            self.at = 0;
            self.chunk.clear();
            let more = self.rows.next_chunk(&mut self.chunk, CHUNK_BYTES)?;
            // A later chunk goes on with a separator.
            self.at = if self.chunk.starts_with(b",") { 3 } else { 0 };
            if !more && self.chunk.is_empty() {
                return Ok(None);
            }
        }
        let rest = &self.chunk[self.at..];
        // No row holds a line break.
        let end = memchr::memmem::find(rest, b",\r\n").unwrap_or(rest.len());
        let row = rest[..end].to_vec();
        self.at = (self.at + end + 3).min(self.chunk.len());
        Ok(Some(row))
    }

    fn version(&self) -> String {
        self.version.clone()
    }
}

/// `_partition/{p}` and what is under it.
pub async fn partition(app: &App, req: &mut Request, access: &Access) -> Answer {
    let Some(name) = req.segment(2).map(str::to_owned) else {
        return Err(ApiError::bad_request("invalid_partition_req"));
    };
    if !access.db.is_partitioned() {
        return Err(ApiError::bad_request("database is not partitioned"));
    }
    database::check_partition(&name)?;
    match (
        req.segment(3).map(str::to_owned).as_deref(),
        req.segments.len(),
    ) {
        (None, _) => {
            require_method(req, "GET")?;
            let info = access.db.partition_info(&name)?;
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
        (Some("_all_docs"), 4) => list(app, req, access, Listing::Partition(name)).await,
        (Some("_find"), 4) => crate::find::find(app, req, access, Some(name)).await,
        (Some("_explain"), 4) => crate::find::explain(app, req, access, Some(name)).await,
        (Some("_design"), 7..) => {
            let ddoc = req.segment(4).unwrap_or_default();
            let id = format!("_design/{ddoc}");
            let parts: Vec<String> = (5..req.segments.len())
                .filter_map(|i| req.segment(i).map(str::to_owned))
                .collect();
            crate::views::design_part(app, req, access, &id, &parts, Some(name)).await
        }
        _ => Err(ApiError::bad_request("invalid_partition_req")),
    }
}
