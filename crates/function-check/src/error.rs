//! Why functions cannot be checked.

/// Why nothing was checked, or a database was not.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is not one of a server or a database.
    #[error(
        "invalid URL: {0}. Use http://NAME:PASSWORD@HOST:PORT or http://NAME:PASSWORD@HOST:PORT/DATABASE"
    )]
    Url(String),
    /// The server cannot be reached, or its response ends early.
    #[error("{url}: {reason}")]
    Unreachable {
        /// The requested URL, without credentials.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The server refuses the request.
    #[error("{url}: status {status} ({reason})")]
    Refused {
        /// The requested URL, without credentials.
        url: String,
        /// The status.
        status: u16,
        /// The reason that the server returns.
        reason: String,
    },
    /// The response is not what a CouchDB returns.
    #[error("{0}: the response is not that of a CouchDB")]
    Strange(String),
    /// The documents of a sample are too large.
    #[error("{url}: the response is larger than {bytes_max} bytes. Use a smaller --sample")]
    TooLarge {
        /// The requested URL, without credentials.
        url: String,
        /// The maximum.
        bytes_max: usize,
    },
    /// No database could be read: the first reason.
    #[error("no database could be read: {0}")]
    Nothing(String),
    /// Functions cannot be run on this machine.
    #[error("functions cannot be run: {0}")]
    Run(String),
}
