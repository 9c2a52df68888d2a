//! What can go wrong when somebody says who they are.

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
    /// The configuration could not be read or changed.
    #[error(transparent)]
    Config(#[from] ConfigError),
}
