//! A call of a design function. Whatever is long of it is read and made on the function's thread, in
//! its place: requests that wait for a place hold no documents.

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use auth::UserCtx;
use bytes::Bytes;
use database::{DatabaseAs, DesignDoc, Read, ReadOptions};
use document::DocId;
use functions::{Admission, Lane, Languages, Place};
use hyper::HeaderMap;
use hyper::header::{CONTENT_TYPE, HeaderName};
use node::{Access, Node, Query, RequestPart, body_given, for_rewrite, require_function};

use crate::app::App;
use crate::errors::ApiError;
use crate::request::Request;
use crate::request::body::Bounds;

/// A longer reply of a function is read before another function gets the place: so only as many are in
/// memory at a time as functions may run.
const SHORT_REPLY_BYTES_MAX: usize = 64 << 10;

/// A function of a design document, for a request that waits: the document itself stays in memory only
/// as long as others use it. Each revision of a long one would be another text.
pub struct DesignFunction {
    db: DatabaseAs,
    id: DocId,
    ddoc: Weak<DesignDoc>,
    path: Vec<String>,
}

impl DesignFunction {
    /// # Errors
    /// 400 when the design document's id is invalid.
    pub fn of(access: &Access, ddoc: &Arc<DesignDoc>, path: &[&str]) -> Result<Self, ApiError> {
        Ok(DesignFunction {
            db: access.db.clone(),
            id: DocId::new(&ddoc.id)?,
            ddoc: Arc::downgrade(ddoc),
            path: path.iter().map(|part| (*part).to_owned()).collect(),
        })
    }

    /// Returns the design document, or its current revision when it is not in memory any more. Blocks.
    ///
    /// # Errors
    /// 404 when it is gone, or has no such function any more.
    pub fn design(&self) -> Result<Arc<DesignDoc>, ApiError> {
        if let Some(ddoc) = self.ddoc.upgrade() {
            return Ok(ddoc);
        }
        let ddoc = self.db.design_doc_here(&self.id)?;
        let ddoc = ddoc.ok_or_else(ApiError::missing)?;
        require_function(&ddoc, &self.path())?;
        Ok(ddoc)
    }

    /// The function's place in the design document.
    pub fn path(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }

    /// Runs the function on a blocking thread. `args` makes the arguments there, and what `read` needs
    /// besides; `read` makes the result of the reply there: a long one takes a while.
    pub async fn run<A: 'static, T: Send + 'static>(
        self,
        place: Place,
        args: impl FnOnce(&DesignDoc) -> Result<(Vec<u8>, A), ApiError> + Send + 'static,
        read: impl FnOnce(&[u8], A) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let languages: Arc<dyn Languages> = self.db.languages().clone();
        let work = move || {
            let ddoc = self.design()?;
            let (args, others) = args(&ddoc)?;
            let reply =
                languages
                    .designs(&place, &ddoc.language)?
                    .call(&ddoc, &self.path(), &args)?;
            drop(args);
            let _place = Some(place).filter(|_| reply.len() > SHORT_REPLY_BYTES_MAX);
            read(&reply, others)
        };
        tokio::task::spawn_blocking(work)
            .await
            .map_err(ApiError::worker_failed)?
    }
}

/// Waits for leave to run a function of the database for its caller.
pub async fn place(app: &App, access: &Access, lane: Lane) -> Result<Place, ApiError> {
    let languages = access.db.languages();
    in_time(app, languages.admission(lane, &access.db.share())).await
}

/// Waits for a place for functions as long as one may wait.
pub async fn in_time(app: &App, admission: Admission) -> Result<Place, ApiError> {
    let max = app.settings().functions.queue_time_limit_ms;
    let late = functions::Error::Late {
        limit_ms: max.as_millis() as u64,
    };
    match tokio::time::timeout(max, admission).await {
        Ok(place) => Ok(place?),
        Err(_) => Err(late.into()),
    }
}

/// Reads the body for functions; it can be read again.
///
/// # Errors
/// Those of reading it, and 413 for a form with more fields than a JSON body may have values.
pub async fn read_body(req: &mut Request) -> Result<Option<Bytes>, ApiError> {
    let body = req.text().await?;
    let given = body_given(&req.headers, &body);
    if given {
        req.set_body(body.clone());
    }
    let is_form = node::is_form(req.headers.get(CONTENT_TYPE));
    let fields_max = Bounds::of(req.row.body, &req.settings).values_max;
    if is_form && body.len() as u64 > fields_max && node::count_pairs(&body) > fields_max {
        return Err(ApiError::too_large(
            "the number of fields of such a form",
            fields_max,
        ));
    }
    Ok(given.then_some(body))
}

/// The address in the header of `[chttpd] peer_header`.
fn shown_peer(req: &Request) -> Option<IpAddr> {
    let header = req.settings.chttpd.peer_header.as_deref()?;
    req.named_header(header)?.trim().parse().ok()
}

/// A copy of a request, from which the request object for functions is made.
pub struct FunctionRequest {
    node: Arc<Node>,
    method: String,
    path: String,
    raw_query: Option<String>,
    requested_path: Option<String>,
    segments: Vec<Vec<u8>>,
    query: Query,
    headers: HeaderMap,
    credentials: Vec<HeaderName>,
    client_address: Option<IpAddr>,
    user: Arc<UserCtx>,
    body: Option<Bytes>,
}

impl FunctionRequest {
    /// Copies a request, once it does not wait any more.
    pub fn of(app: &App, req: &Request, body: Option<Bytes>) -> FunctionRequest {
        FunctionRequest {
            node: app.node.clone(),
            method: req.method.clone(),
            path: req.path.clone(),
            raw_query: req.raw_query.clone(),
            requested_path: req.requested_path.clone(),
            segments: req.segments.clone(),
            query: req.query.clone(),
            headers: req.headers.clone(),
            credentials: req.settings.login_headers.clone(),
            client_address: shown_peer(req).or(req.peer),
            user: req.user.clone(),
            body,
        }
    }

    fn part(&self) -> RequestPart<'_> {
        RequestPart {
            method: &self.method,
            path: &self.path,
            raw_query: self.raw_query.as_deref(),
            requested_path: self.requested_path.as_deref(),
            segments: &self.segments,
            query: &self.query,
            headers: &self.headers,
            credentials: &self.credentials,
            client_address: self.client_address,
            user: &self.user,
            body: self.body.as_deref(),
        }
    }

    /// The request object of all functions but rewrites, as JSON text.
    ///
    /// # Errors
    /// Those of [`node::request_json`].
    pub fn json(&self, access: &Access, id: Option<&str>) -> Result<Vec<u8>, node::Error> {
        node::request_json(&self.node, &self.part(), access, id)
    }

    /// The request object of rewrite functions, as JSON text.
    ///
    /// # Errors
    /// Those of [`for_rewrite`].
    pub fn rewrite_json(&self, access: &Access) -> Result<Vec<u8>, node::Error> {
        for_rewrite(&self.part(), access)
    }
}

/// A document's revision, and its text as functions see it.
///
/// # Errors
/// Errors of the read.
pub fn document(access: &Access, id: Option<&str>) -> Result<(String, Vec<u8>), ApiError> {
    let found = match id.map(DocId::new) {
        Some(Ok(id)) => access.db.read(&id, &ReadOptions::for_functions())?,
        Some(Err(_)) | None => Read::Missing,
    };
    Ok(match found {
        Read::Found(doc) => (doc.rev.to_string(), doc.json),
        Read::Missing | Read::Deleted => (String::new(), b"null".to_vec()),
    })
}

/// `[document, request]`
pub fn args(document: &[u8], request: &[u8]) -> Vec<u8> {
    [b"[", document, b",", request, b"]"].concat()
}
