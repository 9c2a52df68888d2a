//! `_design/{name}/_view/{view}`, `/queries`, `_info`, and the upkeep of indexes.

use std::sync::Arc;

use database::{
    ContentPlacement, DatabaseAs, Design, ReadOptions, Update, ViewAt, ViewIndex, ViewQuery,
    ViewRows,
};
use document::{DocId, TextList};
use functions::{Admission, Lane, Place};
use serde_json::{Map, Value, json};

use crate::accounting::slow::Detail;
use crate::app::App;
use crate::database_routes::{queries, texts};
use crate::design_routes::function_call::place;
use crate::errors::ApiError;
use crate::load::SHORT_BODY_BYTES_MAX;
use crate::reply::Reply;
use crate::reply::answers::Answers;
use crate::reply::late::Late;
use crate::reply::stream::{CHUNK_BYTES, PieceMaker, pull, pull_admitted, pull_apart};
use crate::request::Request;
use crate::request::parameters::{Given, GivenGrouping, Params, bound_limit};
use crate::settings::Settings;
use node::{Access, Query};

type Answer = Result<Reply, ApiError>;

/// A view that a request names, with its index.
#[derive(Clone)]
pub struct View {
    pub design: Arc<Design>,
    pub at: ViewAt,
    pub index: Arc<ViewIndex>,
}

impl View {
    /// Finds a view. `id` is that of the design document.
    pub async fn find(access: &Access, id: &str, name: &str) -> Result<View, ApiError> {
        let design = access.db.design_async(id).await?;
        require_visible(access, id)?;
        let Some(at) = design.view(name) else {
            return Err(ApiError::new(404, "not_found", "missing_named_view"));
        };
        let index = access.db.view_index_async(&design).await?;
        Ok(View { design, at, index })
    }

    /// Checks a query against the view, as CouchDB does, and waits for the index when the query
    /// requires that. A query with long keys is checked and opened by threads that give way.
    pub async fn open(
        &self,
        app: &App,
        access: &Access,
        answers: &Answers,
        mut query: ViewQuery,
    ) -> Result<ViewRows, ApiError> {
        if access.db.is_limited() {
            // An older index has rows of documents that were taken away since.
            query.update = Update::True;
        }
        let is_long = query.has_long_keys();
        if is_long {
            let (view, settings) = (self.clone(), app.settings());
            let check = move || view.check(&settings, &mut query).map(|()| query);
            query = answers.apart(check).await??;
        } else {
            self.check(&app.settings(), &mut query)?;
        }
        let db = &access.db;
        match query.update {
            // Also of a current index: it fails if its functions ended for no document.
            Update::True => db.update_view(&self.index).await?,
            Update::Lazy => db.update_view_later(&self.index),
            Update::False => {}
        }
        if is_long {
            let (view, db) = (self.clone(), db.clone());
            let open = move || db.view_rows(&view.design, &view.index, view.at, query);
            return Ok(answers.apart(open).await??);
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

    fn check(&self, settings: &Settings, query: &mut ViewQuery) -> Result<(), ApiError> {
        let limits = &settings.query_server_config;
        let limit_max = match self.design.spec.partitioned {
            true => limits.partition_query_limit,
            false => limits.query_limit,
        };
        bound_limit(&mut query.limit, limit_max)?;
        Ok(query.check(&self.design, self.at)?)
    }
}

/// Refuses views to users who are not admins where rules hide documents or parts of them: rows of
/// views are not filtered.
pub fn require_visible(access: &Access, id: &str) -> Result<(), ApiError> {
    if access.is_admin || access.db.is_open() {
        return Ok(());
    }
    // In the rules' own words, when they hide design documents too.
    access.db.read(&DocId::new(id)?, &ReadOptions::default())?;
    Err(ApiError::forbidden(
        "Only administrators can query views of this database.",
    ))
}

/// Applies the parameters of a request: those of its body, then those of its query string. A long
/// body is read by threads that give way.
pub async fn query_of(
    settings: Arc<Settings>,
    req: &Request,
    body: Option<Map<String, Value>>,
) -> Result<ViewQuery, ApiError> {
    if req.body_bytes <= SHORT_BODY_BYTES_MAX as u64 {
        return parse(&settings, &Params::of(&req.query, body.as_ref()));
    }
    let query = req.query.clone();
    let read = move || parse(&settings, &Params::of(&query, body.as_ref()));
    req.answers.apart(read).await?
}

fn parse(settings: &Settings, given: &[Params<'_>]) -> Result<ViewQuery, ApiError> {
    let mut parsed = GivenQuery::default();
    for params in given {
        parsed.add(params)?;
    }
    parsed.check(settings)
}

/// The parameters of a request that apply to each of its `queries`: as in CouchDB, not its `keys`
/// and grouping.
fn of_all_queries(query: &Query) -> Result<GivenQuery, ApiError> {
    let mut parsed = GivenQuery::default();
    parsed.add(&Params::Query(query))?;
    parsed.query.keys = None;
    parsed.grouping = GivenGrouping::default();
    Ok(parsed)
}

/// Makes the posted queries of a view; the parameters of the URL are parsed once.
async fn make_queries(
    app: &App,
    req: &mut Request,
    view: &View,
    posted: Vec<Map<String, Value>>,
) -> Result<Vec<ViewQuery>, ApiError> {
    let (settings, view, query) = (app.settings(), view.clone(), req.query.clone());
    let mut of_all = None;
    queries::make_all(req, posted, move |posted| {
        let of_all = match &of_all {
            Some(of_all) => of_all,
            None => &*of_all.insert(of_all_queries(&query)?),
        };
        let mut parsed = of_all.clone();
        parsed.add(&Params::Body(posted))?;
        let mut made = parsed.check(&settings)?;
        view.check(&settings, &mut made)?;
        let bytes = made.memory_bytes();
        Ok((made, bytes))
    })
    .await
}

#[derive(Clone, Default)]
struct GivenQuery {
    query: ViewQuery,
    grouping: GivenGrouping,
}

impl GivenQuery {
    fn add(&mut self, params: &Params<'_>) -> Result<(), ApiError> {
        for (name, value) in params.iter() {
            match name {
                "group" => self.grouping.group = Some(value.boolean()?),
                "group_level" => self.grouping.level = Some(value.natural()?),
                name => apply(&mut self.query, name, value)?,
            }
        }
        Ok(())
    }

    fn check(mut self, settings: &Settings) -> Result<ViewQuery, ApiError> {
        let keys_max = settings.limits.max_keys;
        if let Some(keys) = &self.query.keys
            && keys.len() as u64 > keys_max
        {
            return Err(ApiError::too_large("max_keys", keys_max));
        }
        self.query.grouping = self.grouping.grouping()?;
        Ok(self.query)
    }
}

fn apply(q: &mut ViewQuery, name: &str, given: Given<'_>) -> Result<(), ApiError> {
    match name {
        "key" => {
            let key = given.key()?;
            (q.start, q.end) = (Some(key.clone()), Some(key));
        }
        "keys" => {
            let keys = keys(given)?;
            // As CouchDB has it, a single one is a key like any other.
            if let (1, Some(key)) = (keys.len(), keys.get(0)) {
                let key = key.to_vec();
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
        "conflicts" => q.conflicts = Some(given.boolean()?),
        "update_seq" => q.update_seq = given.boolean()?,
        "reduce" => q.reduce = Some(given.boolean()?),
        "update" | "stale" => {
            given.check_freshness(name)?;
            q.update = match given.text().as_str() {
                "false" | "ok" => Update::False,
                "lazy" | "update_after" => Update::Lazy,
                _ => Update::True,
            };
        }
        "stable" => {
            given.check_freshness(name)?;
        }
        "attachments" => q.attachments.bytes = given.boolean()?,
        "att_encoding_info" => q.attachments.encoding_info = given.boolean()?,
        "sorted" => {
            given.boolean()?;
        }
        "partition" => q.partition = Some(given.text()),
        _ => {}
    }
    Ok(())
}

fn keys(given: Given<'_>) -> Result<TextList, ApiError> {
    match given.json()? {
        Value::Array(keys) => Ok(keys.iter().map(Value::to_string).collect()),
        _ => Err(ApiError::query_parse("`keys` must be an array of strings.")),
    }
}

/// The body of a POST to a view: an object whose `keys` are a list, and without the `queries` that have a route of their own.
async fn posted(req: &mut Request) -> Result<Map<String, Value>, ApiError> {
    req.require_json()?;
    let body = req.json_object().await?;
    for name in ["queries", "keys"] {
        if body.get(name).is_some_and(|list| !list.is_array()) {
            return Err(ApiError::bad_request(format!(
                "`{name}` member must be an array."
            )));
        }
    }
    if body.contains_key("queries") {
        return Err(ApiError::bad_request(
            "The `queries` parameter is no longer supported at this endpoint",
        ));
    }
    Ok(body)
}

/// `_view/{name}`
pub async fn view(app: &App, req: &mut Request, access: &Access, id: &str, name: &str) -> Answer {
    let view = View::find(access, id, name).await?;
    let body = if req.method == "POST" {
        Some(posted(req).await?)
    } else {
        None
    };
    let query = query_of(app.settings(), req, body).await?;
    let detail = Arc::new(Detail {
        keys: query.keys.as_ref().map(|keys| keys.len() as u64),
        ..Detail::default()
    });
    req.detail = Some(detail.clone());
    req.keep(query.memory_bytes() + query.sort_key_bytes())
        .await?;
    // The index may have to be built first.
    req.give_room_back();
    let runs = view.runs_functions(&query);
    let late = Late::of(query.attachments.bytes)?;
    let blocking = runs || query.attachments.bytes;
    let started = std::time::Instant::now();
    let rows = view.open(app, access, &req.answers, query).await?;
    let waited_us = started.elapsed().as_micros() as u64;
    let body = ViewBody {
        rows: RowsBody::new(rows, &late.placement()),
        detail,
    };
    let admission = blocking.then(|| answering(access, runs));
    let mut reply = respond(&req.answers, admission, body).await?;
    reply.timing.wait_us = waited_us;
    Ok(late.fill(reply, &req.answers))
}

/// `_view/{name}/queries`
pub async fn queries(
    app: &App,
    req: &mut Request,
    access: &Access,
    id: &str,
    name: &str,
) -> Answer {
    let view = View::find(access, id, name).await?;
    // Unlike for `_all_docs/queries`, CouchDB checks the content type here.
    req.require_json()?;
    let posted = queries::posted(req).await?;
    let all = make_queries(app, req, &view, posted).await?;
    let runs = all.iter().any(|q| view.runs_functions(q));
    let late = Late::of(all.iter().any(|q| q.attachments.bytes))?;
    let placement = late.placement();
    let blocking = runs || all.iter().any(|q| q.attachments.bytes);
    update_for(access, &view, &all).await?;
    let body = QueriesBody {
        db: access.db.clone(),
        view,
        todo: all.into_iter(),
        current: None,
        placement,
        state: QueriesState::Head,
    };
    let admission = blocking.then(|| answering(access, runs));
    let reply = respond(&req.answers, admission, body).await?;
    Ok(late.fill(reply, &req.answers))
}

/// Sends a response. With an `admission` its pieces may call functions or read contents of
/// attachments.
async fn respond(
    answers: &Answers,
    admission: Option<impl Fn() -> Admission + Send + 'static>,
    mut body: impl PieceMaker,
) -> Answer {
    let content_type = "application/json";
    match admission {
        Some(admission) => {
            let next = move |out: &mut Vec<u8>, _: Place| body.next(out);
            pull_admitted(answers, content_type, admission, next).await
        }
        None if body.is_long() => pull_apart(answers, content_type, body).await,
        None => pull(answers, content_type, body).await,
    }
}

/// The response to a query.
struct ViewBody {
    rows: RowsBody,
    detail: Arc<Detail>,
}

impl PieceMaker for ViewBody {
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        let more = self.rows.next_chunk(out, "\n");
        self.detail.done.note_rows(self.rows.rows.given());
        more
    }

    fn is_long(&self) -> bool {
        self.rows.is_long()
    }
}

/// The response to several queries.
struct QueriesBody {
    db: DatabaseAs,
    view: View,
    todo: std::vec::IntoIter<ViewQuery>,
    current: Option<RowsBody>,
    placement: ContentPlacement,
    state: QueriesState,
}

enum QueriesState {
    Head,
    First,
    More,
    Done,
}

impl PieceMaker for QueriesBody {
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        loop {
            if let Some(rows) = &mut self.current {
                if rows.next_chunk(out, "")? {
                    return Ok(true);
                }
                self.current = None;
            }
            match self.state {
                QueriesState::Done => return Ok(false),
                QueriesState::Head => {
                    out.extend_from_slice(b"{\"results\":[\n");
                    self.state = QueriesState::First;
                }
                QueriesState::First | QueriesState::More => {}
            }
            let Some(query) = self.todo.next() else {
                out.extend_from_slice(b"\n]}\n");
                self.state = QueriesState::Done;
                return Ok(true);
            };
            if matches!(self.state, QueriesState::More) {
                out.extend_from_slice(b",\n");
            }
            self.state = QueriesState::More;
            let view = &self.view;
            let rows = self
                .db
                .view_rows(&view.design, &view.index, view.at, query)?;
            self.current = Some(RowsBody::new(rows, &self.placement));
        }
    }

    fn is_long(&self) -> bool {
        match &self.current {
            Some(rows) if !rows.ended => rows.is_long(),
            _ => self.todo.as_slice().first().is_some_and(ViewQuery::is_long),
        }
    }
}

/// Updates the index as the queries require: before they are answered, or afterwards.
async fn update_for(access: &Access, view: &View, queries: &[ViewQuery]) -> Result<(), ApiError> {
    // An older index has rows of documents that were taken away from a user since.
    if access.db.is_limited() || queries.iter().any(|q| q.update == Update::True) {
        access.db.update_view(&view.index).await?;
    } else if queries.iter().any(|q| q.update == Update::Lazy) {
        access.db.update_view_later(&view.index);
    }
    Ok(())
}

/// Requests permission to make a piece of a response, if reduce functions run for it.
fn answering(access: &Access, runs_functions: bool) -> impl Fn() -> Admission + Send + 'static {
    let (languages, share) = (access.db.languages().clone(), access.db.share());
    move || match runs_functions {
        true => languages.admission(Lane::Answers, &share),
        false => Admission::free(),
    }
}

/// The text around the rows.
struct RowsBody {
    rows: ViewRows,
    begun: bool,
    ended: bool,
}

impl RowsBody {
    fn new(mut rows: ViewRows, placement: &ContentPlacement) -> Self {
        rows.place_contents(placement.clone());
        RowsBody {
            rows,
            begun: false,
            ended: false,
        }
    }

    /// Whether the next piece searches for many or long keys.
    fn is_long(&self) -> bool {
        !self.ended && self.rows.is_long()
    }

    /// Appends a piece, which may be empty; false when the last one is out.
    fn next_chunk(&mut self, out: &mut Vec<u8>, end: &str) -> Result<bool, ApiError> {
        if self.ended {
            return Ok(false);
        }
        if self.rows.place()? {
            return Ok(true);
        }
        if !std::mem::replace(&mut self.begun, true) {
            out.push(b'{');
            if let (Some(total), Some(offset)) = (self.rows.total_rows, self.rows.offset) {
                out.extend_from_slice(
                    format!("\"total_rows\":{total},\"offset\":{offset},").as_bytes(),
                );
            }
            if self.rows.hides_counts() {
                out.extend_from_slice(b"\"total_rows\":null,\"offset\":null,");
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
pub async fn info(app: &App, req: &Request, access: &Access, id: &str) -> Answer {
    let design = access.db.design_async(id).await?;
    let index = access.db.view_index_async(&design).await?;
    let (db, of) = (access.db.clone(), design.clone());
    let info = texts::blocking(move || Ok(db.view_info(&of, &index)?)).await?;
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
    // CouchDB does not have these members: one is returned only where it says something, the other only on request.
    if info.left_out > 0 {
        about["num_left_out_docs"] = info.left_out.into();
    }
    if req.query.get("projections") == Some("true") {
        about["projections"] = projections(app, access, design).await?;
    }
    Ok(Reply::json(
        200,
        &json!({"name": id.strip_prefix("_design/").unwrap_or(id), "view_index": about}),
    ))
}

/// The descriptions of all map functions in `_info`, by view. The functions are analysed for it,
/// which takes as long as slow calls of functions, and has a place as they have.
async fn projections(app: &App, access: &Access, design: Arc<Design>) -> Result<Value, ApiError> {
    let place = place(app, access, Lane::Calls).await?;
    let db = access.db.clone();
    texts::blocking(move || {
        let _place = place;
        let all = db.view_projections(&design).into_iter();
        let all = all.map(|(name, members)| (name, projection(members)));
        Ok(Value::Object(all.collect()))
    })
    .await
}

/// `_view_cleanup`
pub async fn cleanup(access: &Access) -> Answer {
    access.db.clean_up_views_async().await?;
    Ok(Reply::json_bytes(202, "{\"ok\":true}\n"))
}

/// `_compact/{name}`
pub async fn compact(access: &Access, id: &str) -> Answer {
    let design = access.db.design_async(id).await?;
    if design.has_views() {
        let index = access.db.view_index_async(&design).await?;
        access.db.compact_view(&index);
    }
    Ok(Reply::json_bytes(202, "{\"ok\":true}\n"))
}

/// The description of a view's map function in `_info`.
fn projection(members: Result<String, String>) -> Value {
    match members {
        Ok(paths) => json!({
            "projected": true,
            "members": serde_json::from_str::<Value>(&paths).unwrap_or(Value::String(paths)),
        }),
        Err(reason) => json!({"projected": false, "reason": reason}),
    }
}
