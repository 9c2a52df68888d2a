//! Why functions cannot be checked.

/// Why nothing was checked, or a database was not.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is not one of a server or a database.
    #[error("{0}")]
    Url(String),
    /// The server cannot be reached, or its response ends early: the server and the reason.
    #[error("{0}")]
    Unreachable(String),
    /// The server refuses the request: the server, the status and the reason.
    #[error("{0}")]
    Refused(String),
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
