//! What is refused, and what can go wrong.

/// Why something was not done. The text is what a client is told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody said who asks, and the database is not for everybody.
    #[error("You are not authorized to access this db.")]
    AnonymousNoMember,
    /// Whoever asks is no member of the database.
    #[error("You are not allowed to access this db.")]
    NoMember,
    /// Only admins of the database maintain it.
    #[error("You are not a server or db admin.")]
    NoMaintainer,
    /// Only admins of the database change its design documents and properties; nobody said who asks.
    #[error("You are not a db or server admin.")]
    AnonymousNoDesigner,
    /// As [`Error::AnonymousNoDesigner`], of somebody who is known.
    #[error("You are not a db or server admin.")]
    NoDesigner,
    /// Only for admins of the server.
    #[error("You are not a server admin.")]
    NoServerAdmin,
    /// Only for those who said who they are.
    #[error("Please login.")]
    NoLogin,
    /// The database's security object cannot be read.
    #[error(transparent)]
    Security(#[from] auth::SecurityError),
    /// What was asked for makes no sense; the words say why.
    #[error("{0}")]
    BadRequest(String),
    /// A parameter is no JSON.
    #[error("invalid UTF-8 JSON")]
    InvalidJson,
    /// The document is not there.
    #[error("missing")]
    Missing,
    /// A design document has no such member.
    #[error("missing json key: {0}")]
    MissingKey(String),
    /// A rewrite led out of its database.
    #[error("{0}")]
    InsecureRewrite(&'static str),
    /// A rewrite led to where only a client's own words may.
    #[error("A rewrite may not lead here.")]
    ForbiddenRewrite,
    /// The directory of a backup is there already.
    #[error("{0} exists already")]
    DirectoryExists(String),
    /// A backup failed; the words are the storage's, for an admin who named the directory.
    #[error("{0}")]
    Backup(String),
    /// A thread for blocking work panicked.
    #[error("a worker thread failed")]
    WorkerFailed,
    /// Of the database.
    #[error(transparent)]
    Database(#[from] database::Error),
    /// Of users' functions.
    #[error(transparent)]
    Functions(#[from] functions::Error),
}

/// What this crate's functions answer.
pub(crate) type Result<T> = std::result::Result<T, Error>;
