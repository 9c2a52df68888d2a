//! A database behind HTTP. Failed requests are retried.

mod attached;
mod auth;
mod bulk_docs;
mod changes;
mod diff;
mod docs;
mod document_streams;
mod single;

use crate::counters;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{
    ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
};
use reqwest::{Method, Response};
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use url::Url;

use self::auth::Auth;
pub use self::docs::edit_json;
pub use self::document_streams::Put;
pub use self::single::MISSING_WAIT;
use super::Info;
use super::budget::{Account, Lane, Socket};
use super::client::Clients;
use super::json_limits;
use super::long_responses::{ResponsePermit, row_bytes_max};
use super::outbound::{Outbound, Rights, TOKEN};
use super::peer_values::{check_seq, cut_reason, short_text};
use super::retry;
use crate::endpoint::Remote;
use crate::error::Error;
use crate::options::Replication;
use crate::settings::Settings;
use crate::spans::RequestSpan;

/// A request answered with 400 may have been damaged in transit: the number of its retries.
const DOUBTS_MAX: u32 = 2;
/// The wait before each of them.
const DOUBT_WAIT: Duration = Duration::from_millis(50);
/// Maximum length of a buffered response, in bytes; single documents may be longer.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Maximum length of an error response, in bytes.
const ERROR_BYTES_MAX: usize = 1 << 20;
/// An answer of this length gets memory for the length that it announced.
const TRUSTED_BYTES: usize = 64 << 10;
/// Longest way that redirects may lead.
const REDIRECTS_MAX: usize = 10;
/// The characters to encode in a path or a query.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// The permits of a request in flight: the job's own, and those of all jobs.
struct Place<'a> {
    // The semaphore is never closed.
    _own: Option<SemaphorePermit<'a>>,
    socket: Socket,
}

pub struct HttpDb {
    ways: Outbound,
    base: Url,
    headers: HeaderMap,
    auth: Auth,
    retries: u32,
    timeout: Duration,
    /// One permit for each request in flight; a feed has its own.
    connections: Arc<Semaphore>,
    account: Account,
    /// Length of the longest row that the server may send, in bytes.
    row_bytes_max: usize,
    /// The purpose of its requests.
    lane: Lane,
    /// Cleared when the server turns out not to support `_bulk_get`.
    bulk_get: AtomicBool,
    /// The kind of server: [`UNKNOWN`], [`COUCHDB`] or [`OTHER`].
    couchdb: AtomicU8,
}

const UNKNOWN: u8 = 0;
const COUCHDB: u8 = 1;
const OTHER: u8 = 2;

/// A request that may be sent repeatedly.
#[derive(Clone)]
struct Call<'a> {
    method: Method,
    /// Relative to the database's URL.
    path: &'a str,
    body: Option<Bytes>,
    accept: &'static str,
    /// Whether the response may be silent for long.
    patient: bool,
}

const JSON: &str = "application/json";

impl<'a> Call<'a> {
    fn new(method: Method, path: &'a str) -> Call<'a> {
        Call {
            method,
            path,
            body: None,
            accept: JSON,
            patient: false,
        }
    }

    fn post(path: &'a str, body: impl Into<Bytes>) -> Call<'a> {
        Call {
            method: Method::POST,
            path,
            body: Some(body.into()),
            accept: JSON,
            patient: false,
        }
    }
}

/// A complete response.
struct Answer {
    status: u16,
    body: Bytes,
    /// Its place while it is long.
    holding: ResponsePermit,
}

impl Answer {
    fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the body; `None` if it is not JSON, or has more values than any answer that is
    /// needed as a whole.
    fn json(&self) -> Option<Value> {
        json_limits::value(&self.body)
    }

    fn is_json(&self) -> bool {
        json_limits::is_json(&self.body)
    }

    /// Returns the server's error message, truncated.
    fn reason(&self) -> String {
        let json = self.json().unwrap_or_default();
        let member = |name: &str| json.get(name).and_then(Value::as_str).map(str::to_owned);
        let text = match (member("error"), member("reason")) {
            (Some(error), Some(reason)) => format!("{} {error}: {reason}", self.status),
            _ => self.status.to_string(),
        };
        text.chars().take(500).collect()
    }
}

/// The reason why one attempt got no response.
struct AttemptFailure {
    reason: String,
    retry_after: Option<Duration>,
    /// The response, or a row of it, is longer than any may be.
    is_too_long: bool,
}

impl AttemptFailure {
    fn of(reason: impl Into<String>) -> AttemptFailure {
        AttemptFailure {
            reason: cut_reason(reason.into()),
            retry_after: None,
            is_too_long: false,
        }
    }

    fn too_long(reason: impl Into<String>) -> AttemptFailure {
        AttemptFailure {
            is_too_long: true,
            ..AttemptFailure::of(reason)
        }
    }
}

/// Describes an error without the URL, which is reported elsewhere, without credentials.
pub(super) fn cause(e: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = e;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let kind = if e.is_timeout() {
        "timed out"
    } else if e.is_connect() {
        "cannot connect"
    } else {
        "failed"
    };
    format!("{kind}: {cause}")
}

pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Returns a document's path: design and local documents keep their slash.
fn doc_path(id: &str) -> String {
    for prefix in ["_design/", "_local/"] {
        if let Some(name) = id.strip_prefix(prefix) {
            return format!("{prefix}{}", encoded(name));
        }
    }
    encoded(id)
}

impl HttpDb {
    /// # Errors
    /// [`Error::Request`] when certificates cannot be read, [`Error::InvalidEndpoint`] for invalid
    /// headers, [`Error::Forbidden`] when the user is not a server admin and may not connect to it.
    pub async fn open(
        remote: &Remote,
        replication: &Replication,
        settings: &Settings,
        clients: &Arc<Clients>,
        (rights, lane): (Rights, Lane),
    ) -> Result<HttpDb, Error> {
        let timeout = replication.connection_timeout;
        let ways = Outbound::new(remote, timeout, settings, clients, rights);
        ways.to(&remote.url).await?;
        let mut headers = HeaderMap::new();
        for (name, value) in &remote.headers {
            let bad = || Error::InvalidEndpoint(format!("{name} is not a valid header"));
            let name: HeaderName = name.parse().map_err(|_| bad())?;
            if is_framing(&name) || name == HOST && !ways.is_admins() {
                return Err(bad());
            }
            let mut value = HeaderValue::from_str(&value.0).map_err(|_| bad())?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let account = clients.budget(settings).account(ways.user());
        let auth = {
            let _socket = account.socket(lane).await;
            Auth::open(&ways, remote, settings.auth_session).await
        };
        Ok(HttpDb {
            ways,
            base: remote.url.clone(),
            headers,
            auth,
            retries: replication.retries_per_request,
            timeout,
            // One connection is always the feed's.
            connections: Arc::new(Semaphore::new(replication.http_connections.max(2))),
            account,
            row_bytes_max: settings.row_bytes_max,
            lane,
            bulk_get: AtomicBool::new(replication.use_bulk_get),
            couchdb: AtomicU8::new(UNKNOWN),
        })
    }

    /// Waits for permits for another request.
    async fn place(&self) -> Place<'_> {
        Place {
            _own: self.connections.acquire().await.ok(),
            socket: self.account.socket(self.lane).await,
        }
    }

    /// Waits for a permit to read a revision with its attachments, even while other responses of
    /// this server are pending.
    pub async fn streamed_socket(&self) -> Socket {
        self.account.socket(Lane::Streamed).await
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Sends a request once, following redirects.
    async fn send(&self, call: &Call<'_>) -> Result<Response, AttemptFailure> {
        let mut url: Url = self
            .url(call.path)
            .parse()
            .map_err(|_| AttemptFailure::of("bad URL"))?;
        let mut method = call.method.clone();
        let mut body = call.body.clone();
        self.auth.keep(&self.ways).await;
        for _ in 0..=REDIRECTS_MAX {
            let way = self.ways.to(&url).await;
            let way = way.map_err(|e| AttemptFailure::of(e.to_string()))?;
            let mut request = way.request(method.clone(), url.clone(), call.patient);
            if !self.headers.contains_key(ACCEPT) {
                request = request.header(ACCEPT, call.accept);
            }
            // Other origins must not receive the credentials.
            if url.origin() == self.base.origin() {
                request = request.headers(self.headers.clone());
                request = self.auth.sign(request);
            }
            if let Some(token) = &way.token {
                request = request.header(TOKEN, token.clone());
            }
            if let Some(body) = &body {
                request = request.header(CONTENT_TYPE, JSON).body(body.clone());
            } else if method == Method::POST {
                request = request.header(CONTENT_TYPE, JSON).body(Bytes::new());
            }
            let mut response = sent(request).await?;
            response
                .extensions_mut()
                .insert(self.account.long_answers(self.row_bytes_max));
            if url.origin() == self.base.origin() {
                self.auth.note(response.headers());
            }
            let status = response.status().as_u16();
            if !matches!(status, 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            let to = response
                .headers()
                .get(LOCATION)
                .and_then(|l| l.to_str().ok());
            let Some(to) = to.and_then(|to| url.join(to).ok()) else {
                return Ok(response);
            };
            if !matches!(to.scheme(), "http" | "https") {
                return Ok(response);
            }
            url = to;
            if status == 303 {
                (method, body) = (Method::GET, None);
            }
        }
        Err(AttemptFailure::of("too many redirects"))
    }

    /// Sends a request, and retries it while the server fails; `take` reads the response, and
    /// returns an error for an invalid one.
    async fn call<T, F: Future<Output = Result<T, AttemptFailure>>>(
        &self,
        socket: &mut Socket,
        call: Call<'_>,
        take: impl Fn(Response) -> F,
    ) -> Result<T, Error> {
        let mut attempt = 0;
        let mut renewed = false;
        let mut doubted = 0;
        loop {
            let began = Instant::now();
            let failed = match self.send(&call).await {
                Err(failed) => failed,
                Ok(response) if response.status() == 400 && doubted < DOUBTS_MAX => {
                    doubted += 1;
                    tokio::time::sleep(DOUBT_WAIT).await;
                    continue;
                }
                Ok(response) if response.status() == 401 && !renewed && self.auth.has_session() => {
                    // The session has expired.
                    renewed = true;
                    drop(response);
                    self.auth.renew(&self.ways).await;
                    continue;
                }
                Ok(response) if retried(response.status().as_u16()) => {
                    let after = response
                        .headers()
                        .get(RETRY_AFTER)
                        .and_then(|v| v.to_str().ok());
                    let retry_after = after.and_then(retry::retry_after);
                    let reason = match whole(response).await {
                        Ok(answer) => answer.reason(),
                        Err(failed) => failed.reason,
                    };
                    AttemptFailure {
                        reason,
                        retry_after,
                        is_too_long: false,
                    }
                }
                Ok(response) => match take(response).await {
                    Ok(answer) => return Ok(answer),
                    Err(failed) => failed,
                },
            };
            if self.ways.hides_failures() {
                tracing::info!(url = %self.base, told = failed.reason, "a server is unreachable");
                // As long as for a server that does not respond.
                let until = (began + self.timeout).saturating_duration_since(Instant::now());
                socket.rest(until).await;
            }
            if attempt >= self.retries {
                return Err(self.error(&call, &failed.reason));
            }
            tracing::debug!(url = %self.base, method = %call.method, told = failed.reason, attempt, "a request is retried");
            socket.rest(retry::wait(attempt, failed.retry_after)).await;
            attempt += 1;
        }
    }

    fn error(&self, call: &Call<'_>, told: &str) -> Error {
        if self.ways.hides_failures() {
            return Error::Request(format!("{} could not be reached", self.base));
        }
        let path = call.path.split('?').next().unwrap_or_default();
        Error::Request(format!("{} {}{path}: {told}", call.method, self.base))
    }

    /// Returns the complete response, for any status below 500.
    async fn answer(&self, call: Call<'_>) -> Result<Answer, Error> {
        let mut place = self.place().await;
        self.call(&mut place.socket, call, whole).await
    }

    /// Returns a complete response whose body is JSON if it is successful. Until the database has
    /// answered once, every response must be JSON if failures have to look alike: a server that is
    /// not a database must look like one that does not exist.
    async fn json_answer(&self, call: Call<'_>) -> Result<Answer, Error> {
        let mut place = self.place().await;
        self.json(&mut place.socket, call).await
    }

    /// Sends a request with a permit that the caller holds, and returns a response that
    /// [`HttpDb::json_answer`] accepts.
    async fn json(&self, socket: &mut Socket, call: Call<'_>) -> Result<Answer, Error> {
        self.call(socket, call, |response| async {
            let answer = whole(response).await?;
            let hides = self.ways.hides_failures();
            let is_odd = hides && !json_limits::opens_with(&answer.body, b'{');
            match (answer.is_ok() || hides) && (is_odd || !answer.is_json()) {
                true => Err(AttemptFailure::of("the answer is not JSON")),
                false => Ok(answer),
            }
        })
        .await
    }

    /// Converts a response to an error.
    fn refusal(&self, call: &Call<'_>, answer: &Answer) -> Error {
        match answer.status {
            401 => Error::Unauthorized(self.base.to_string()),
            403 => Error::NoAccess(self.base.to_string()),
            404 => Error::NoDatabase(self.base.to_string()),
            _ => self.error(call, &answer.reason()),
        }
    }

    pub async fn info(&self) -> Result<Info, Error> {
        let call = Call::new(Method::GET, "");
        let answer = self.json_answer(call.clone()).await?;
        let info = match answer.json() {
            Some(info) if answer.is_ok() && info.is_object() => info,
            _ => return Err(self.refusal(&call, &answer)),
        };
        self.ways.note_answer();
        let count = |name: &str| info.get(name).and_then(Value::as_u64);
        let seq = info.get("update_seq").cloned().unwrap_or(json!(0));
        check_seq(&seq).map_err(|told| self.error(&call, &told))?;
        Ok(Info {
            is_empty: count("doc_count") == Some(0)
                && count("doc_del_count") == Some(0)
                && number_of(&seq) == Some(0),
            update_seq: seq,
            instance_start_time: start_time(&info),
        })
    }

    /// Returns whether the server accepts gzipped attachments, as CouchDB does. PouchDB Server
    /// would store them gzipped; servers identify themselves at their root.
    pub async fn takes_gzipped(&self) -> bool {
        let known = self.couchdb.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return known == COUCHDB;
        }
        let Ok(answer) = self.answer(Call::new(Method::GET, "../")).await else {
            return true;
        };
        let root = answer.json().filter(|_| answer.is_ok());
        let is = root.is_none_or(|root| root.get("couchdb").is_some());
        self.couchdb
            .store(if is { COUCHDB } else { OTHER }, Ordering::Relaxed);
        is
    }

    pub async fn create(&self, params: &Map<String, Value>) -> Result<(), Error> {
        // A server may refuse to create a database that already exists.
        let exists = self.answer(Call::new(Method::HEAD, "")).await?;
        if exists.is_ok() {
            return Ok(());
        }
        let text = |value: &Value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        };
        let params: Vec<String> = params
            .iter()
            .map(|(name, value)| format!("{}={}", encoded(name), encoded(&text(value))))
            .collect();
        let path = match params.is_empty() {
            true => String::new(),
            false => format!("?{}", params.join("&")),
        };
        let call = Call::new(Method::PUT, &path);
        let answer = self.answer(call.clone()).await?;
        match answer.status {
            200..300 | 412 => Ok(()),
            _ => Err(self.refusal(&call, &answer)),
        }
    }

    pub async fn read(&self, id: &str) -> Result<Option<Map<String, Value>>, Error> {
        let path = doc_path(id);
        let call = Call::new(Method::GET, &path);
        let answer = self.json_answer(call.clone()).await?;
        match (answer.status, answer.json()) {
            (404, _) => Ok(None),
            (200..300, Some(Value::Object(doc))) => Ok(Some(doc)),
            _ => Err(self.refusal(&call, &answer)),
        }
    }

    pub async fn write_local(
        &self,
        id: &str,
        rev: Option<&str>,
        body: &Map<String, Value>,
    ) -> Result<String, Error> {
        let mut doc = body.clone();
        doc.insert("_id".into(), id.into());
        if let Some(rev) = rev {
            doc.insert("_rev".into(), rev.into());
        }
        let path = doc_path(id);
        let call = Call {
            method: Method::PUT,
            ..Call::post(&path, Value::Object(doc).to_string())
        };
        let answer = self.json_answer(call).await?;
        let rev = answer
            .json()
            .and_then(|a| short_text(a.get("rev")?.as_str()?));
        match rev {
            Some(rev) if answer.is_ok() => return Ok(rev),
            _ if answer.status != 409 => {
                return Err(Error::CheckpointCommitFailure(answer.reason()));
            }
            _ => {}
        }
        // An earlier attempt may have succeeded although its response was lost.
        match self.read(id).await? {
            Some(mut found) => {
                found.remove("_id");
                let rev = found.remove("_rev");
                match rev.and_then(|r| short_text(r.as_str()?)) {
                    Some(rev) if found == *body => Ok(rev),
                    _ => Err(Error::CheckpointCommitFailure("conflict".into())),
                }
            }
            None => Err(Error::CheckpointCommitFailure("conflict".into())),
        }
    }

    pub async fn ensure_full_commit(&self) -> Result<Option<String>, Error> {
        let call = Call::post("_ensure_full_commit", "");
        let answer = self.json_answer(call.clone()).await?;
        match (answer.status, answer.json()) {
            (200..300, Some(body)) => Ok(start_time(&body)),
            // Not supported: writes are durable when they are acknowledged, or the server has no
            // better guarantee.
            (404 | 405 | 501, _) => self.info().await.map(|info| info.instance_start_time),
            _ => Err(self.refusal(&call, &answer)),
        }
    }
}

/// Returns whether requests with this status are retried.
fn retried(status: u16) -> bool {
    status == 408 || status == 429 || status >= 500 && status != 501
}

async fn whole(response: Response) -> Result<Answer, AttemptFailure> {
    whole_up_to(response, ANSWER_BYTES_MAX).await
}

/// The text of a document that is read alone, and its place while it is long; or the error, and
/// whether the document is too long.
pub async fn whole_document(response: Response) -> Result<(Bytes, ResponsePermit), (String, bool)> {
    let bytes_max = row_bytes_max(&response);
    let answer = whole_up_to(response, bytes_max).await;
    answer
        .map(|answer| (answer.body, answer.holding))
        .map_err(|failed| (failed.reason, failed.is_too_long))
}

/// Reads a whole response of at most `bytes_max` bytes, so that an endless one is given up.
async fn whole_up_to(mut response: Response, bytes_max: usize) -> Result<Answer, AttemptFailure> {
    let status = response.status().as_u16();
    let bytes_max = match response.status().is_success() {
        true => bytes_max,
        false => ERROR_BYTES_MAX,
    };
    let told = response.content_length().unwrap_or(0);
    let too_long = || {
        let told = format!("{status}, and the answer is longer than {bytes_max} bytes");
        AttemptFailure::too_long(told)
    };
    if told > bytes_max as u64 {
        return Err(too_long());
    }
    let mut holding = ResponsePermit::of(&response);
    let mut body = BytesMut::new();
    while let Some(bytes) = response
        .chunk()
        .await
        .map_err(|e| AttemptFailure::of(cause(&e)))?
    {
        if body.len() + bytes.len() > bytes_max {
            return Err(too_long());
        }
        body.extend_from_slice(&bytes);
        let held = holding.hold(body.len(), false).await;
        held.map_err(AttemptFailure::of)?;
        if body.capacity() < told as usize && body.len() > TRUSTED_BYTES {
            body.reserve(told as usize - body.len());
        }
    }
    Ok(Answer {
        status,
        body: body.freeze(),
        holding,
    })
}

/// Headers that frame a request or concern its connection: only the client may set them.
fn is_framing(name: &HeaderName) -> bool {
    const NAMES: [&str; 10] = [
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    NAMES.contains(&name.as_str()) || *name == TOKEN
}

/// Returns [`Info::instance_start_time`]; `None` also if it is too long to be one.
fn start_time(body: &Value) -> Option<String> {
    short_text(body.get("instance_start_time")?.as_str()?)
}

/// Returns the number that a seq starts with.
pub fn number_of(seq: &Value) -> Option<u64> {
    match seq {
        Value::Number(n) => n.as_u64(),
        Value::String(text) => text.split('-').next()?.parse().ok(),
        _ => None,
    }
}

/// Sends a request, and counts it.
async fn sent(request: reqwest::RequestBuilder) -> Result<Response, AttemptFailure> {
    counters::REQUESTS.count();
    let (client, request) = request.build_split();
    let failed = |e: &reqwest::Error| {
        counters::REQUEST_FAILURES.count();
        cause(e)
    };
    let mut request = request.map_err(|e| AttemptFailure::of(failed(&e)))?;
    let asking = RequestSpan::of(&mut request);
    let response = client.execute(request).await.map_err(|e| {
        let cause = failed(&e);
        if let Some(asking) = &asking {
            asking.failed(cause.clone());
        }
        AttemptFailure::of(cause)
    })?;
    if let Some(asking) = &asking {
        asking.answered(response.status().as_u16());
    }
    match response.status().is_server_error() {
        true => counters::REQUEST_FAILURES.count(),
        false => counters::RESPONSES.count(),
    }
    Ok(response)
}
