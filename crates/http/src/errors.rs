//! **The** table from what can go wrong to status, `error` and `reason`. What databases, queries and functions refuse has all three
//! by itself, since who embeds a database is told them too.

use std::borrow::Cow;

use document::{DocError, IdError, RevError};
use hyper::header::{ALLOW, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde_json::{Value, json};

/// An answer that is an error, in CouchDB's shape.
#[derive(Debug)]
pub struct ApiError {
    pub status: u16,
    pub error: Cow<'static, str>,
    pub reason: Cow<'static, str>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
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
        }
    }

    pub fn bad_request(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(400, "bad_request", reason)
    }

    /// A thread for blocking work panicked.
    pub fn worker_failed() -> Self {
        Self::new(500, "internal_server_error", "a worker thread failed")
    }

    /// Too many wait already; it may be otherwise in a moment.
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

    /// A revision that an attachment was to be added to or removed from is not there.
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

    pub fn not_implemented(what: &str) -> Self {
        Self::new(
            501,
            "not_implemented",
            format!("{what} are not supported by this version of Settee"),
        )
    }

    /// `methods` as CouchDB lists them, separated by commas.
    pub fn method_not_allowed(methods: &'static str) -> Self {
        let mut e = Self::new(405, "method_not_allowed", format!("Only {methods} allowed"));
        if let Ok(v) = HeaderValue::from_str(&methods.replace(',', ", ")) {
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
            E::Text(ref failed) if !failed.is_of_request() => {
                tracing::error!(error = %e, "a text index failed");
                // The engine's words name files of the server.
                Self::new(
                    500,
                    "internal_server_error",
                    "A text index failed; the server's log says how.",
                )
            }
            E::Function(e) => e.into(),
            E::Find(e) => e.into(),
            E::Unavailable(reason) => Self::busy(reason),
            E::Storage(_) => {
                tracing::error!(error = %e, "storage failed");
                // The engine's words name files of the server.
                Self::new(
                    500,
                    "internal_server_error",
                    "The storage failed; the server's log says how.",
                )
            }
            e => Self::new(e.status(), e.name().to_owned(), e.reason()),
        }
    }
}

impl From<node::Error> for ApiError {
    fn from(e: node::Error) -> Self {
        use node::Error as E;
        let reason = e.to_string();
        match e {
            E::AnonymousNoMember
            | E::AnonymousNoDesigner
            | E::NoMaintainer
            | E::NoServerAdmin
            | E::NoLogin => Self::unauthorized(reason),
            E::NoMember | E::NoDesigner | E::ForbiddenRewrite => Self::forbidden(reason),
            E::BadRequest(_) | E::InvalidJson => Self::bad_request(reason),
            E::Missing | E::MissingKey(_) => Self::new(404, "not_found", reason),
            E::DocumentTooLarge { .. } => Self::new(413, "document_too_large", reason),
            E::IdTooLong(_) => Self::new(413, "illegal_docid", reason),
            E::NoCluster | E::ByCommand => Self::new(501, "not_implemented", reason),
            E::Id(e) => e.into(),
            E::Config(e) => e.into(),
            E::Auth(e) => e.into(),
            E::InsecureRewrite(_) => Self::new(500, "insecure_rewrite_rule", reason),
            E::BackupRunning(_) => Self::new(409, "conflict", reason),
            E::BackupTarget(_) => Self::bad_request(reason),
            E::BackupForbidden(_) => Self::forbidden(reason),
            E::Security(_) | E::Backup(_) | E::WorkerFailed => {
                Self::new(500, "internal_server_error", reason)
            }
            E::Database(e) => e.into(),
            E::Functions(e) => e.into(),
        }
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
        let (name, reason) = (e.name(), e.to_string());
        match e {
            E::BadRequest(_) | E::InvalidEndpoint(_) => Self::new(400, name, reason),
            E::Unauthorized(_) | E::NotAdmin => Self::unauthorized(reason),
            E::NoAccess(_) | E::Forbidden(_) => Self::forbidden(reason),
            E::NoJob => Self::missing(),
            E::TooManyJobs(_) => Self::busy(reason),
            E::Duplicate(..) => Self::new(409, name, reason),
            E::Database(e) => e.into(),
            E::Stopped => database::Error::ShuttingDown.into(),
            E::MissingEndpoint
            | E::LocalEndpoint
            | E::NoDatabase(_)
            | E::FilterFetch(_)
            | E::CheckpointCommitFailure(_)
            | E::Request(_) => Self::new(500, name, reason),
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
    /// Of a queue of functions.
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
        let status = match e {
            DocError::TooLong => 413,
            _ => 400,
        };
        Self::new(status, e.error(), e.to_string())
    }
}

impl From<IdError> for ApiError {
    fn from(e: IdError) -> Self {
        let status = if matches!(e, IdError::TooLong) {
            413
        } else {
            400
        };
        let reason = match e {
            IdError::TooLong => format!("{e} (max_document_id_length)"),
            e => e.to_string(),
        };
        Self::new(status, "illegal_docid", reason)
    }
}

impl From<document::multipart::MultipartError> for ApiError {
    fn from(e: document::multipart::MultipartError) -> Self {
        Self::bad_request(e.to_string())
    }
}

impl From<RevError> for ApiError {
    fn from(e: RevError) -> Self {
        Self::new(400, e.error(), e.to_string())
    }
}

impl From<auth::AuthError> for ApiError {
    fn from(e: auth::AuthError) -> Self {
        use auth::AuthError as E;
        let reason = e.to_string();
        match e {
            E::BadBase64 | E::MalformedCookie | E::BadToken(_) => Self::bad_request(reason),
            E::BadCredentials | E::UserConflicts | E::TokenRefused(_) => Self::unauthorized(reason),
            E::LockedOut | E::TooFewIterations | E::TooManyIterations => Self::forbidden(reason),
            E::JwtMisconfigured => Self::new(500, "misconfigured_server", reason),
            E::Config(_) | E::UsersUnreadable(_) => Self::new(500, "internal_server_error", reason),
        }
    }
}

impl From<config::ConfigError> for ApiError {
    fn from(e: config::ConfigError) -> Self {
        let reason = e.to_string();
        match e {
            config::ConfigError::Read { .. } | config::ConfigError::Write { .. } => {
                Self::new(500, "internal_server_error", reason)
            }
            _ => Self::bad_request(reason),
        }
    }
}
