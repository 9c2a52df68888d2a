//! What can go wrong.

use thiserror::Error;

/// Why something was not migrated. No message holds a password.
#[derive(Debug, Error)]
pub enum Error {
    /// A URL that cannot be used: without its password, and what is wrong with it.
    #[error("{0} is no URL of a server: {1}")]
    Url(String, String),
    /// No connection could be made, or it broke.
    #[error("{server}: {reason}")]
    Unreachable {
        /// URL of the server.
        server: String,
        /// What the system or TLS said.
        reason: String,
    },
    /// The server's answer to a request.
    #[error("{server}: {request}: {status} {error}: {reason}")]
    Refused {
        /// URL of the server.
        server: String,
        /// Method and path.
        request: String,
        /// HTTP status.
        status: u16,
        /// The member `error` of the answer.
        error: String,
        /// The member `reason` of the answer.
        reason: String,
    },
    /// An answer that no CouchDB gives.
    #[error("{server}: {request}: the answer is not what CouchDB answers")]
    Strange {
        /// URL of the server.
        server: String,
        /// Method and path.
        request: String,
    },
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
