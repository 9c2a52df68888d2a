//! What can go wrong.

use thiserror::Error;

/// Why something was not migrated. No message holds a password.
#[derive(Debug, Error)]
pub enum Error {
    #[error("{0} is no URL of a server: {1}")]
    Url(String, String),
    #[error("{server}: {reason}")]
    Unreachable { server: String, reason: String },
    /// The server's answer to a request.
    #[error("{server}: {request}: {status} {error}: {reason}")]
    Refused {
        server: String,
        request: String,
        status: u16,
        error: String,
        reason: String,
    },
    #[error("{server}: {request}: the answer is not what CouchDB answers")]
    Strange { server: String, request: String },
    /// What was asked for cannot be done, in words.
    #[error("{0}")]
    Cannot(String),
}

impl Error {
    /// Whether this is an answer with the status.
    pub fn is_status(&self, wanted: u16) -> bool {
        matches!(self, Error::Refused { status, .. } if *status == wanted)
    }

    /// Whether the same may go well a moment later: the server is not there, or says that it cannot just now.
    pub fn is_passing(&self) -> bool {
        match self {
            Error::Unreachable { .. } => true,
            Error::Refused { status, .. } => matches!(status, 429 | 502..=504),
            _ => false,
        }
    }
}
