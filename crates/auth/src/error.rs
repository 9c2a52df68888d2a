//! Errors of authentication.

use config::ConfigError;
use thiserror::Error;

/// An error of authentication. The text is CouchDB's `reason`.
#[derive(Debug, Error)]
pub enum AuthError {
    /// 400 `bad_request`.
    #[error("Authorization header has invalid base64 value")]
    BadBase64,
    /// 401 `unauthorized`.
    #[error("Name or password is incorrect.")]
    BadCredentials,
    /// 403 `forbidden`.
    #[error("Account is temporarily locked due to multiple authentication failures")]
    LockedOut,
    /// 400 `bad_request`.
    #[error("Malformed AuthSession cookie. Please clear your cookies.")]
    MalformedCookie,
    /// 401 `unauthorized`.
    #[error(
        "User document conflicts must be resolved before the document is used for authentication purposes."
    )]
    UserConflicts,
    /// 503 `service_unavailable`.
    #[error("Too many logins wait for a check of their passwords. Retry later.")]
    TooManyLogins,
    /// 403 `forbidden`.
    #[error("Iteration count is too low for this server")]
    TooFewIterations,
    /// 403 `forbidden`.
    #[error("Iteration count is too high for this server")]
    TooManyIterations,
    /// 400 `bad_request`: a token that cannot be parsed.
    #[error("{0}")]
    BadToken(&'static str),
    /// 401 `unauthorized`: a token that is not valid now, or has no user.
    #[error("{0}")]
    TokenRefused(&'static str),
    /// 500 `misconfigured_server`.
    #[error("JWT is not configured correctly")]
    JwtMisconfigured,
    /// 500: the database of users could not be read.
    #[error("{0}")]
    UsersUnreadable(String),
    /// The configuration could not be read or changed.
    #[error(transparent)]
    Config(#[from] ConfigError),
}
