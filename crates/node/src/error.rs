//! Refusals and errors.

/// The reason why an operation failed. The text is for clients.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is anonymous, and the database is not public.
    #[error("You are not authorized to access this db.")]
    AnonymousNoMember,
    /// The user is not a member of the database.
    #[error("You are not allowed to access this db.")]
    NoMember,
    /// Only admins of the database maintain it.
    #[error("You are not a server or db admin.")]
    NoMaintainer,
    /// Only admins of the database may change its design documents and properties; the request is
    /// anonymous.
    #[error("You are not a db or server admin.")]
    AnonymousNoDesigner,
    /// As [`Error::AnonymousNoDesigner`], for a user who is logged in.
    #[error("You are not a db or server admin.")]
    NoDesigner,
    /// Only for admins of the server.
    #[error("You are not a server admin.")]
    NoServerAdmin,
    /// Only for users who are logged in.
    #[error("Please login.")]
    NoLogin,
    /// The database's security object cannot be read.
    #[error(transparent)]
    Security(#[from] auth::SecurityError),
    /// An invalid request; the text has the reason.
    #[error("{0}")]
    BadRequest(String),
    /// A parameter is not JSON.
    #[error("invalid UTF-8 JSON")]
    InvalidJson,
    /// The document does not exist.
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
    /// A backup failed; the text is the storage's, for an admin who named the directory.
    #[error("{0}")]
    Backup(String),
    /// Another backup is running.
    #[error("a backup to {0} is under way")]
    BackupRunning(String),
    /// The server's files do not let clients have backups go there.
    #[error(
        "the server's files do not allow backups to {0}: add it to [backup] targets there, or run settee backup on the server's machine as a user who may write there"
    )]
    BackupForbidden(String),
    /// An invalid target of a backup.
    #[error("{0}")]
    BackupTarget(String),
    /// A thread for blocking work panicked.
    #[error("a worker thread failed")]
    WorkerFailed,
    /// The document's text is too long.
    #[error("{id}: the document exceeds max_document_size ({max})")]
    DocumentTooLarge {
        /// Empty when it has no id yet.
        id: String,
        /// `[couchdb] max_document_size`, in bytes.
        max: u64,
    },
    /// The document's id is longer than this number of bytes.
    #[error("Document id is too long: max_document_id_length is {0}")]
    IdTooLong(u64),
    /// No document can have the id.
    #[error(transparent)]
    Id(#[from] document::IdError),
    /// Only a cluster of several nodes supports this.
    #[error("clusters of several nodes are not supported by this version of Settee")]
    NoCluster,
    /// Nodes of a cluster come and go by commands.
    #[error(
        "nodes join and leave by `settee cluster join` and `settee cluster leave` (docs: operations/cluster)"
    )]
    ByCommand,
    /// An error of the configuration.
    #[error(transparent)]
    Config(#[from] config::ConfigError),
    /// An error of users and passwords.
    #[error(transparent)]
    Auth(#[from] auth::AuthError),
    /// An error of the database.
    #[error(transparent)]
    Database(#[from] database::Error),
    /// An error of users' functions.
    #[error(transparent)]
    Functions(#[from] functions::Error),
}

impl Error {
    /// CouchDB's `error` for a refused document; `http` has those of all other errors.
    pub(crate) fn of_document(&self) -> &'static str {
        match self {
            Error::DocumentTooLarge { .. } => "document_too_large",
            Error::IdTooLong(_) | Error::Id(_) => "illegal_docid",
            Error::Database(database::Error::Partition(name, _)) => name,
            _ => "bad_request",
        }
    }
}

/// The result of this crate's functions.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// An invalid request.
pub(crate) fn bad(reason: &str) -> Error {
    Error::BadRequest(reason.to_owned())
}
