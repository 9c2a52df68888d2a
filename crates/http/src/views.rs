//! `_design/{name}/_view/{view}`, `/queries`, `_info`, and the upkeep of indexes.

use std::sync::Arc;

use database::{Design, GroupLevel, Grouping, Update, ViewAt, ViewIndex, ViewQuery, ViewRows};
use serde_json::{Map, Value, json};

use crate::access::Access;
use crate::app::App;
use crate::errors::ApiError;
use crate::feed::{CHUNK_BYTES, pull, pull_blocking};
use crate::listing::posted_queries;
use crate::query::Query;
use crate::reply::Reply;
use crate::request::Request;
use crate::router::require_method;

type Answer = Result<Reply, ApiError>;

/// A view that a request names, with its index.
pub struct View {
    pub design: Arc<Design>,
    pub at: ViewAt,
    pub index: Arc<ViewIndex>,
}

impl View {
    /// Finds a view. `id` is that of the design document.
    pub fn find(access: &Access, id: &str, name: &str) -> Result<View, ApiError> {
        let design = access.db.design(id)?;
        let Some(at) = design.view(name) else {
            return Err(ApiError::new(404, "not_found", "missing_named_view"));
        };
        let index = access.db.view_index(&design)?;
        Ok(View { design, at, index })
    }

    /// Checks a query against the view, as CouchDB does, and waits for the index when the query wants that.
    pub async fn open(&self, access: &Access, query: ViewQuery) -> Result<ViewRows, ApiError> {
        self.check(&query)?;
        let db = &access.db;
        if db.view_must_wait(&self.index, query.update) {
            db.update_view(&self.index).await?;
        } else if query.update == Update::Lazy {
            db.update_view_later(&self.index);
        }
        Ok(db.view_rows(&self.design, &self.index, self.at, query)?)
    }

    fn is_reduced(&self, query: &ViewQuery) -> bool {
        self.at.reduce.is_some() && query.reduce != Some(false)
    }

    /// Whether answering runs code of users.
    fn runs_functions(&self, query: &ViewQuery) -> bool {
        let reduces = &self.design.spec.views[self.at.view].reduces;
        self.is_reduced(query)
            && self
                .at
                .reduce
                .is_some_and(|r| matches!(reduces[r], database::ReduceSpec::Custom(_)))
    }

    fn check(&self, query: &ViewQuery) -> Result<(), ApiError> {
        let refuse = |reason: &'static str| Err(ApiError::query_parse(reason));
        match (self.design.spec.partitioned, &query.partition) {
            (true, None) => {
                return refuse("`partition` parameter is mandatory for queries to this view.");
            }
            (false, Some(_)) => {
                return refuse("`partition` parameter is not supported in this view.");
            }
            _ => {}
        }
        let grouped = query.grouping != Grouping::None;
        if !self.is_reduced(query) {
            if query.reduce == Some(true) {
                return refuse("Reduce is invalid for map-only views.");
            }
            if grouped {
                return refuse("Invalid use of grouping on a map view.");
            }
        } else {
            if query.keys.is_some() && query.grouping != Grouping::By(GroupLevel::Exact) {
                return refuse("Multi-key fetches for reduce views must use `group=true`");
            }
            if query.include_docs {
                return refuse("`include_docs` is invalid for reduce");
            }
        }
        if query.keys.is_none() && self.is_reversed(query)? {
            return refuse(
                "No rows can match your key range, reverse your start_key and end_key or set descending=true",
            );
        }
        Ok(())
    }

    fn is_reversed(&self, query: &ViewQuery) -> Result<bool, ApiError> {
        let (Some(start), Some(end)) = (&query.start, &query.end) else {
            return Ok(false);
        };
        let raw = self.design.spec.views[self.at.view].raw;
        let mut keys = [vec![], vec![]];
        for (key, out) in [start, end].into_iter().zip(&mut keys) {
            database::write_key_sort(key, raw, out).map_err(database::Error::from)?;
        }
        let [start, end] = keys;
        Ok(if query.descending {
            end > start
        } else {
            end < start
        })
    }
}

/// Applies a request's parameters in their order, those of the query string first.
pub fn query_of(
    app: &App,
    query: &Query,
    body: Option<&Map<String, Value>>,
) -> Result<ViewQuery, ApiError> {
    let mut q = ViewQuery::default();
    for (name, text) in &query.0 {
        apply(&mut q, name, Given::Text(text))?;
    }
    for (name, value) in body.into_iter().flatten() {
        apply(&mut q, name, Given::Json(value))?;
    }
    let max = app.limits().max_keys;
    if q.keys.as_ref().is_some_and(|k| k.len() as u64 > max) {
        return Err(ApiError::too_large("max_keys", max));
    }
    Ok(q)
}

/// A parameter's value: text in a query, JSON in a body.
#[derive(Clone, Copy)]
enum Given<'a> {
    Text(&'a str),
    Json(&'a Value),
}

impl Given<'_> {
    fn text(self) -> String {
        match self {
            Given::Text(t) => t.to_owned(),
            Given::Json(Value::String(s)) => s.clone(),
            Given::Json(v) => v.to_string(),
        }
    }

    /// JSON text of a key.
    fn key(self) -> Result<Vec<u8>, ApiError> {
        match self {
            Given::Text(t) => {
                document::normalise(t.as_bytes()).map_err(|_| ApiError::invalid_json())
            }
            Given::Json(v) => Ok(v.to_string().into_bytes()),
        }
    }

    fn keys(self) -> Result<Vec<Vec<u8>>, ApiError> {
        let value = match self {
            Given::Text(t) => crate::query::parse_json(t)?,
            Given::Json(v) => v.clone(),
        };
        match value {
            Value::Array(keys) => Ok(keys.iter().map(|k| k.to_string().into_bytes()).collect()),
            _ => Err(ApiError::query_parse("`keys` member must be an array.")),
        }
    }

    fn boolean(self) -> Result<bool, ApiError> {
        match self.text().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(ApiError::query_parse(format!(
                "Invalid boolean parameter: {}",
                Value::from(other)
            ))),
        }
    }

    fn natural(self) -> Result<u64, ApiError> {
        let text = self.text();
        match text.parse::<i64>() {
            Ok(n) if n >= 0 => Ok(n as u64),
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
}

fn apply(q: &mut ViewQuery, name: &str, given: Given<'_>) -> Result<(), ApiError> {
    match name {
        "key" => {
            let key = given.key()?;
            (q.start, q.end) = (Some(key.clone()), Some(key));
        }
        "keys" => {
            let mut keys = given.keys()?;
            // As CouchDB has it, a single one is a key like any other.
            if let [key] = keys.as_mut_slice() {
                let key = std::mem::take(key);
                (q.start, q.end) = (Some(key.clone()), Some(key));
                q.keys = None;
            } else {
                q.keys = Some(keys);
            }
        }
        "startkey" | "start_key" => q.start = Some(given.key()?),
        "endkey" | "end_key" => q.end = Some(given.key()?),
        "startkey_docid" | "start_key_doc_id" => q.start_id = Some(given.text()),
        "endkey_docid" | "end_key_doc_id" => q.end_id = Some(given.text()),
        "limit" => q.limit = Some(given.natural()?),
        "skip" => q.skip = given.natural()?,
        "descending" => q.descending = given.boolean()?,
        "inclusive_end" => q.inclusive_end = given.boolean()?,
        "include_docs" => q.include_docs = given.boolean()?,
        "conflicts" => q.conflicts = given.boolean()?,
        "update_seq" => q.update_seq = given.boolean()?,
        "reduce" => q.reduce = Some(given.boolean()?),
        "group" => {
            q.grouping = if given.boolean()? {
                Grouping::By(GroupLevel::Exact)
            } else {
                Grouping::None
            };
        }
        "group_level" => {
            q.grouping = match given.natural()? {
                0 => Grouping::None,
                n => Grouping::By(GroupLevel::Elements(
                    usize::try_from(n).unwrap_or(usize::MAX),
                )),
            };
        }
        "update" => {
            q.update = match given.text().as_str() {
                "true" => Update::True,
                "false" => Update::False,
                "lazy" => Update::Lazy,
                _ => return Err(ApiError::query_parse("Invalid value for `update`.")),
            };
        }
        "stale" => {
            q.update = match given.text().as_str() {
                "ok" => Update::False,
                "update_after" => Update::Lazy,
                _ => return Err(ApiError::query_parse("Invalid value for `stale`.")),
            };
        }
        "attachments" => q.attachments.bytes = given.boolean()?,
        "att_encoding_info" => q.attachments.encoding_info = given.boolean()?,
        "stable" | "sorted" => {
            given.boolean()?;
        }
        _ => {}
    }
    Ok(())
}

/// `_design/{name}/_view/…`, `_info` and what has no function behind it. `parts`: the segments after the name; `partition`
/// for those below `_partition`.
pub async fn design_part(
    app: &App,
    req: &mut Request,
    access: &Access,
    id: &str,
    parts: &[String],
    partition: Option<String>,
) -> Answer {
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["_view", name] => view(app, req, access, id, (name, None), partition).await,
        ["_view", name, sub] => view(app, req, access, id, (name, Some(sub)), partition).await,
        ["_info"] if partition.is_none() => info(req, access, id),
        ["_view"] => {
            access.db.design(id)?;
            Err(ApiError::method_not_allowed("GET,POST,HEAD"))
        }
        [
            part @ ("_search" | "_search_info" | "_nouveau" | "_nouveau_info"),
            ..,
        ] => crate::later::text_index(access, id, part),
        _ => {
            access.db.design(id)?;
            Err(ApiError::missing())
        }
    }
}

/// `_view/{name}` and `_view/{name}/queries`.
async fn view(
    app: &App,
    req: &mut Request,
    access: &Access,
    id: &str,
    path: (&str, Option<&str>),
    partition: Option<String>,
) -> Answer {
    let (name, sub) = path;
    match sub {
        None => {}
        Some("queries") => return queries(app, req, access, id, name, partition).await,
        Some(_) => return Err(ApiError::missing()),
    }
    let view = View::find(access, id, name)?;
    require_method(req, "GET,POST,HEAD")?;
    let body = if req.method == "POST" {
        req.require_json()?;
        Some(req.json_object(app).await?)
    } else {
        None
    };
    let mut query = query_of(app, &req.query, body.as_ref())?;
    query.partition = partition;
    let blocking = view.runs_functions(&query) || query.attachments.bytes;
    let started = std::time::Instant::now();
    let rows = view.open(access, query).await?;
    let waited_us = started.elapsed().as_micros() as u64;
    let mut rows = RowsBody::new(rows);
    let next = move |out: &mut Vec<u8>| rows.next_chunk(out, "\n");
    let mut reply = if blocking {
        pull_blocking("application/json", next).await?
    } else {
        pull("application/json", next)?
    };
    reply.timing.wait_us = waited_us;
    Ok(reply)
}

async fn queries(
    app: &App,
    req: &mut Request,
    access: &Access,
    id: &str,
    name: &str,
    partition: Option<String>,
) -> Answer {
    let view = View::find(access, id, name)?;
    require_method(req, "POST")?;
    let queries = posted_queries(app, req).await?;
    let mut all = Vec::with_capacity(queries.len());
    let mut blocking = false;
    for query in queries {
        let mut q = query_of(app, &req.query, Some(&query))?;
        q.partition = partition.clone();
        view.check(&q)?;
        blocking |= view.runs_functions(&q) || q.attachments.bytes;
        all.push(q);
    }
    if all.iter().any(|q| q.update == Update::True) && !access.db.view_is_current(&view.index) {
        access.db.update_view(&view.index).await?;
    } else if all.iter().any(|q| q.update == Update::Lazy) {
        access.db.update_view_later(&view.index);
    }
    let db = access.db.clone();
    let mut todo = all.into_iter();
    let mut current: Option<RowsBody> = None;
    let (mut begun, mut ended, mut first) = (false, false, true);
    let next = move |out: &mut Vec<u8>| {
        if !std::mem::replace(&mut begun, true) {
            out.extend_from_slice(b"{\"results\":[\n");
        }
        loop {
            if let Some(rows) = &mut current {
                if rows.next_chunk(out, "")? {
                    return Ok(true);
                }
                current = None;
            }
            if ended {
                return Ok(false);
            }
            let Some(q) = todo.next() else {
                out.extend_from_slice(b"\n]}\n");
                ended = true;
                return Ok(true);
            };
            if !std::mem::take(&mut first) {
                out.extend_from_slice(b",\n");
            }
            let rows = db.view_rows(&view.design, &view.index, view.at, q)?;
            current = Some(RowsBody::new(rows));
        }
    };
    if blocking {
        pull_blocking("application/json", next).await
    } else {
        pull("application/json", next)
    }
}

/// What stands around the rows.
struct RowsBody {
    rows: ViewRows,
    begun: bool,
    ended: bool,
}

impl RowsBody {
    fn new(rows: ViewRows) -> Self {
        RowsBody {
            rows,
            begun: false,
            ended: false,
        }
    }

    /// Appends a piece; false when the last one is out.
    fn next_chunk(&mut self, out: &mut Vec<u8>, end: &str) -> Result<bool, ApiError> {
        if self.ended {
            return Ok(false);
        }
        if !std::mem::replace(&mut self.begun, true) {
            out.push(b'{');
            if let (Some(total), Some(offset)) = (self.rows.total_rows, self.rows.offset) {
                out.extend_from_slice(
                    format!("\"total_rows\":{total},\"offset\":{offset},").as_bytes(),
                );
            }
            if let Some(seq) = &self.rows.update_seq {
                out.extend_from_slice(format!("\"update_seq\":\"{seq}\",").as_bytes());
            }
            out.extend_from_slice(b"\"rows\":[\r\n");
        }
        if !self.rows.next_chunk(out, CHUNK_BYTES)? {
            out.extend_from_slice(b"\r\n]}");
            out.extend_from_slice(end.as_bytes());
            self.ended = true;
        }
        Ok(true)
    }
}

/// `_design/{name}/_info`; with `?projections=true` also which members of documents each map function is given.
fn info(req: &Request, access: &Access, id: &str) -> Answer {
    let design = access.db.design(id)?;
    require_method(req, "GET")?;
    let index = access.db.view_index(&design)?;
    let info = access.db.view_info(&design, &index)?;
    let mut about = json!({
        "signature": info.signature,
        "language": info.language,
        "update_seq": info.update_seq,
        "purge_seq": info.purge_seq,
        "updates_pending": {
            "minimum": info.updates_pending,
            "preferred": info.updates_pending,
            "total": info.updates_pending,
        },
        "sizes": {
            "file": info.file_bytes,
            "external": info.external_bytes,
            "active": info.active_bytes,
        },
        "updater_running": info.updater_running,
        "compact_running": info.compact_running,
        "waiting_clients": info.waiting_clients,
        "waiting_commit": info.waiting_commit,
        "collator_versions": [database::COLLATOR_VERSION.to_string()],
    });
    // Not among what CouchDB tells, so only for those who ask.
    if req.query.get("projections") == Some("true") {
        about["projections"] = access
            .db
            .view_projections(&design)
            .into_iter()
            .map(|(name, members)| (name, projection(members)))
            .collect::<Map<String, Value>>()
            .into();
    }
    Ok(Reply::json(
        200,
        &json!({"name": id.strip_prefix("_design/").unwrap_or(id), "view_index": about}),
    ))
}

/// `_view_cleanup`
pub async fn cleanup(req: &Request, access: &Access) -> Answer {
    require_method(req, "POST")?;
    access.require_admin()?;
    let db = access.db.clone();
    tokio::task::spawn_blocking(move || db.clean_up_views())
        .await
        .map_err(|_| ApiError::new(500, "internal_server_error", "the clean-up failed"))??;
    Ok(Reply::json_bytes(202, "{\"ok\":true}\n"))
}

/// `_compact/{name}`
pub fn compact(access: &Access, id: &str) -> Answer {
    let design = access.db.design(id)?;
    if design.has_views() {
        access.db.compact_view(&access.db.view_index(&design)?);
    }
    Ok(Reply::json_bytes(202, "{\"ok\":true}\n"))
}

/// What `_info` says of a view's map function.
fn projection(members: Result<String, String>) -> Value {
    match members {
        Ok(paths) => json!({
            "projected": true,
            "members": serde_json::from_str::<Value>(&paths).unwrap_or(Value::String(paths)),
        }),
        Err(reason) => json!({"projected": false, "reason": reason}),
    }
}
