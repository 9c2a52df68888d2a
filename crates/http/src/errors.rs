//! Errors as answers in CouchDB's shape. Statuses are those of the crate `statuses`.

use std::borrow::Cow;

use document::{DocError, IdError, RevError};
use hyper::header::{ALLOW, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde_json::{Value, json};
use statuses::Status as _;

/// Why a stream ended early: the connection is cut, so that the client sees that the answer is incomplete.
pub type StreamError = Box<dyn std::error::Error + Send + Sync>;

/// An answer that is an error, in CouchDB's shape.
#[derive(Debug)]
pub struct ApiError {
    pub status: u16,
    pub error: Cow<'static, str>,
    pub reason: Cow<'static, str>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The cause of a fault of the server, for its log.
    pub cause: Option<String>,
}

impl ApiError {
    pub fn new(
        status: u16,
        error: impl Into<Cow<'static, str>>,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        ApiError {
            status,
            error: error.into(),
            reason: reason.into(),
            headers: vec![],
            cause: None,
        }
    }

    pub fn bad_request(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(400, "bad_request", reason)
    }

    /// A fault of the server. The cause is logged with the request's id, and not sent.
    pub fn internal(reason: &'static str, cause: impl ToString) -> Self {
        ApiError {
            cause: Some(cause.to_string()),
            ..Self::new(500, "internal_server_error", reason)
        }
    }

    /// A thread for blocking work panicked.
    pub fn worker_failed(e: impl ToString) -> Self {
        Self::internal("A worker thread failed.", e)
    }

    /// Logs the cause of a fault of the server, and refers to it by the request's id.
    pub fn report(mut self, request_id: &str) -> Self {
        if let Some(cause) = self.cause.take() {
            tracing::error!(request = request_id, cause, "{}", self.reason);
            let reason = format!(
                "{} The log has the cause with the request id {request_id}.",
                self.reason
            );
            self.reason = reason.into();
        }
        self
    }

    /// Too many requests wait already; a retry may succeed.
    pub fn busy(reason: String) -> Self {
        let mut e = Self::new(503, "service_unavailable", reason);
        e.headers.push((RETRY_AFTER, HeaderValue::from_static("1")));
        e
    }

    pub fn invalid_json() -> Self {
        Self::bad_request("invalid UTF-8 JSON")
    }

    pub fn query_parse(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(400, "query_parse_error", reason)
    }

    pub fn missing() -> Self {
        Self::new(404, "not_found", "missing")
    }

    pub fn deleted() -> Self {
        Self::new(404, "not_found", "deleted")
    }

    pub fn conflict() -> Self {
        Self::new(409, "conflict", "Document update conflict.")
    }

    pub fn client_too_slow() -> Self {
        Self::new(
            408,
            "request_timeout",
            "nothing of the request's body came for too long",
        )
    }

    pub fn unauthorized(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(401, "unauthorized", reason)
    }

    pub fn forbidden(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(403, "forbidden", reason)
    }

    pub fn bad_content_type(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(415, "bad_content_type", reason)
    }

    /// The named limit was exceeded.
    pub fn too_large(limit: &str, max: u64) -> Self {
        Self::new(
            413,
            "too_large",
            format!("the request exceeds {limit} ({max})"),
        )
    }

    /// The revision to add an attachment to, or to remove one from, does not exist.
    pub fn missing_rev() -> Self {
        Self::new(409, "not_found", "missing_rev")
    }

    pub fn range_not_satisfiable() -> Self {
        Self::new(
            416,
            "requested_range_not_satisfiable",
            "Requested range not satisfiable",
        )
    }

    /// More documents than the named limit allows in one request. The reason is the limit, as in CouchDB.
    pub fn too_many(limit: &str, max: u64) -> Self {
        Self::new(413, format!("{limit}_exceeded"), max.to_string())
    }

    /// The error of a request that purges too many revisions.
    pub fn too_many_purged() -> Self {
        Self::bad_request("Exceeded maximum number of revisions.")
    }

    pub fn not_implemented(what: &str) -> Self {
        Self::new(
            501,
            "not_implemented",
            format!("{what} are not supported by this version of Settee"),
        )
    }

    /// Converts an error that ends a feed, whose head is sent already. Only a fault of the server is logged.
    pub fn into_stream_error(self) -> StreamError {
        match self.cause {
            Some(_) => self.cut_short(),
            None => self.reason.into_owned().into(),
        }
    }

    /// Logs and converts an error that leaves an answer incomplete.
    pub fn cut_short(self) -> StreamError {
        let cause = self.cause.as_deref();
        tracing::error!(reason = %self.reason, cause, "an answer was cut short");
        self.reason.into_owned().into()
    }

    /// `methods` as CouchDB lists them, separated by commas.
    pub fn method_not_allowed(methods: &'static str) -> Self {
        let mut e = Self::new(405, "method_not_allowed", format!("Only {methods} allowed"));
        if let Ok(v) = HeaderValue::from_str(&methods.replace(", ", ",").replace(',', ", ")) {
            e.headers.push((ALLOW, v));
        }
        e
    }

    pub fn with_www_authenticate(mut self, challenge: &str) -> Self {
        if let Ok(v) = HeaderValue::from_str(challenge) {
            self.headers.push((WWW_AUTHENTICATE, v));
        }
        self
    }

    pub fn to_json(&self) -> Value {
        json!({"error": self.error, "reason": self.reason})
    }
}

impl From<database::Error> for ApiError {
    fn from(e: database::Error) -> Self {
        use database::Error as E;
        match e {
            E::Function(e) => e.into(),
            E::Find(e) => e.into(),
            E::Unavailable(reason) => Self::busy(reason),
            // The causes name files of the server.
            E::Text(ref failed) if !failed.is_of_request() => {
                Self::internal("A text index failed.", e)
            }
            E::Storage(_) => Self::internal("The storage failed.", e),
            E::Internal(cause) => Self::internal("The server failed.", cause),
            e => Self::new(e.status(), e.name().to_owned(), e.reason()),
        }
    }
}

impl From<node::Error> for ApiError {
    fn from(e: node::Error) -> Self {
        use node::Error as E;
        let (status, reason) = (e.status(), e.to_string());
        let name = match e {
            E::Id(e) => return e.into(),
            E::Config(e) => return e.into(),
            E::Auth(e) => return e.into(),
            E::Database(e) => return e.into(),
            E::Functions(e) => return e.into(),
            E::Security(_) | E::Backup(_) | E::WorkerFailed => "internal_server_error",
            E::DocumentTooLarge { .. } => "document_too_large",
            E::IdTooLong(_) => "illegal_docid",
            E::InsecureRewrite(_) => "insecure_rewrite_rule",
            _ => name_of(status),
        };
        Self::new(status, name, reason)
    }
}

/// Returns CouchDB's usual `error` of a status.
fn name_of(status: u16) -> &'static str {
    match status {
        400 => "bad_request",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        409 => "conflict",
        501 => "not_implemented",
        503 => "service_unavailable",
        _ => "internal_server_error",
    }
}

impl From<mango::FindError> for ApiError {
    fn from(e: mango::FindError) -> Self {
        if let mango::FindError::AggregatesFull(reason) = e {
            return Self::busy(reason);
        }
        Self::new(e.status(), e.error(), e.to_string())
    }
}

impl From<replicator::Error> for ApiError {
    fn from(e: replicator::Error) -> Self {
        use replicator::Error as E;
        let (status, name, reason) = (e.status(), e.name(), e.to_string());
        match e {
            E::NoJob => Self::missing(),
            E::TooManyJobs(_) | E::NoRoom => Self::busy(reason),
            E::Database(e) => e.into(),
            E::Stopped => database::Error::ShuttingDown.into(),
            _ if matches!(status, 401 | 403) => Self::new(status, name_of(status), reason),
            _ => Self::new(status, name, reason),
        }
    }
}

impl From<functions::Error> for ApiError {
    fn from(e: functions::Error) -> Self {
        if let functions::Error::Busy { .. } | functions::Error::Late { .. } = e {
            return Self::busy(e.to_string());
        }
        Self::new(e.status(), e.name().to_owned(), e.reason())
    }
}

impl From<fair_queue::Busy> for ApiError {
    /// A queue of functions is full.
    fn from(busy: fair_queue::Busy) -> Self {
        functions::Error::from(busy).into()
    }
}

impl From<crate::shares::NoPlace> for ApiError {
    fn from(e: crate::shares::NoPlace) -> Self {
        Self::busy(e.to_string())
    }
}

impl From<DocError> for ApiError {
    fn from(e: DocError) -> Self {
        Self::new(e.status(), e.error(), e.to_string())
    }
}

impl From<IdError> for ApiError {
    fn from(e: IdError) -> Self {
        let reason = match e {
            IdError::TooLong => format!("{e} (max_document_id_length)"),
            ref e => e.to_string(),
        };
        Self::new(e.status(), "illegal_docid", reason)
    }
}

impl From<document::multipart::MultipartError> for ApiError {
    fn from(e: document::multipart::MultipartError) -> Self {
        Self::bad_request(e.to_string())
    }
}

impl From<RevError> for ApiError {
    fn from(e: RevError) -> Self {
        Self::new(e.status(), e.error(), e.to_string())
    }
}

impl From<auth::AuthError> for ApiError {
    fn from(e: auth::AuthError) -> Self {
        if matches!(e, auth::AuthError::TooManyLogins) {
            return Self::busy(e.to_string());
        }
        let name = match e {
            auth::AuthError::JwtMisconfigured => "misconfigured_server",
            _ => name_of(e.status()),
        };
        Self::new(e.status(), name, e.to_string())
    }
}

impl From<config::ConfigError> for ApiError {
    fn from(e: config::ConfigError) -> Self {
        Self::new(e.status(), name_of(e.status()), e.to_string())
    }
}
