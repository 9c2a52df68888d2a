//! Errors of a migration.

use thiserror::Error;

/// Why something was not migrated. No message holds a password.
#[derive(Debug, Error)]
pub enum Error {
    /// A URL that cannot be used: without its password, and what is wrong with it.
    #[error("{0}")]
    Url(String),
    /// No connection could be made, or it broke.
    #[error("{request}: {reason}")]
    Unreachable {
        /// Method and path.
        request: String,
        /// Which server did not answer, and why.
        reason: String,
    },
    /// Nothing listens at the server's address.
    #[error("{request}: {reason}")]
    ConnectionRefused {
        /// Method and path.
        request: String,
        /// The address, and what to do.
        reason: String,
    },
    /// The server's answer to a request.
    #[error("{request}: {reason}")]
    Refused {
        /// Method and path.
        request: String,
        /// HTTP status.
        status: u16,
        /// Which server refused, and why.
        reason: String,
    },
    /// A response that CouchDB does not give.
    #[error("{server}: {request}: the response differs from CouchDB's")]
    Strange {
        /// URL of the server.
        server: String,
        /// Method and path.
        request: String,
    },
    /// A response that is longer than any of CouchDB's.
    #[error("{server}: {request}: the response has more than {bytes_max} bytes")]
    TooLong {
        /// URL of the server.
        server: String,
        /// Path.
        request: String,
        /// The maximum.
        bytes_max: usize,
    },
    /// The request cannot be carried out, for the reason in the text.
    #[error("{0}")]
    Cannot(String),
}

impl Error {
    /// Returns whether this is a response with the status.
    pub fn is_status(&self, wanted: u16) -> bool {
        matches!(self, Error::Refused { status, .. } if *status == wanted)
    }

    /// Returns whether a retry may succeed: the server is unreachable or temporarily unavailable.
    pub fn is_passing(&self) -> bool {
        match self {
            Error::Unreachable { .. } | Error::ConnectionRefused { .. } => true,
            Error::Refused { status, .. } => matches!(status, 429 | 502..=504),
            _ => false,
        }
    }
}
