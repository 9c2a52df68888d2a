//! Errors of replications, in CouchDB's words.

/// The reason why a replication was refused, or stopped.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The user has reached the maximum number of replications.
    #[error("you have {0} replications already ([replicator] max_jobs_per_user)")]
    TooManyJobs(usize),
    /// The ids or the selector take more memory than a user can get, which is this many bytes.
    #[error(
        "the ids or the selector of the replication take more than half of [memory] replications ({0} bytes)"
    )]
    LargeSelection(u64),
    /// The request of a continuous replication is longer than this number of bytes.
    #[error(
        "the request of a continuous replication is longer than {0} bytes: use a document of a replicator database"
    )]
    TooLong(usize),
    /// The replications that there are leave the user no memory for the ids or the selector.
    #[error(
        "the ids and selectors of replications leave no room for this one ([memory] replications)"
    )]
    NoRoom,
    /// The description of the replication is invalid: the reason.
    #[error("{0}")]
    BadRequest(String),
    /// `source` or `target` is not a valid address: the reason.
    #[error("{0}")]
    InvalidEndpoint(String),
    /// `source` or `target` is missing.
    #[error("Missing replicator database")]
    MissingEndpoint,
    /// The name of a local database where only URLs are allowed.
    #[error("local_endpoints_not_supported")]
    LocalEndpoint,
    /// The database does not exist: its address without credentials.
    #[error("could not open {0}")]
    NoDatabase(String),
    /// The database requires other credentials: its address without credentials.
    #[error("unauthorized to access or create database {0}")]
    Unauthorized(String),
    /// The credentials are valid but lack access to the database: its address without credentials.
    #[error("forbidden to access or create database {0}")]
    NoAccess(String),
    /// The caller may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// The job belongs to another user.
    #[error("You are not a server admin.")]
    NotAdmin,
    /// The filter function could not be read from the source.
    #[error("{0}")]
    FilterFetch(String),
    /// A checkpoint could not be recorded.
    #[error("{0}")]
    CheckpointCommitFailure(String),
    /// A server did not respond, or not validly, in all attempts. Contains no credentials.
    #[error("{0}")]
    Request(String),
    /// The job does not exist.
    #[error("missing")]
    NoJob,
    /// Another owner already runs the replication: its id, then the owner.
    #[error("Replication `{0}` was already started by {1}")]
    Duplicate(String, String),
    /// A row of the changes of the source is longer than this number of bytes.
    #[error("_changes: a row is longer than {0} bytes ([memory] replications)")]
    LongRow(usize),
    /// A database on this server failed.
    #[error("{0}")]
    Database(#[from] database::Error),
    /// The job was cancelled, or the server is stopping.
    #[error("stopped")]
    Stopped,
}

impl Error {
    /// Returns CouchDB's name of the error.
    pub fn name(&self) -> &'static str {
        match self {
            Error::BadRequest(_) => "bad_request",
            Error::InvalidEndpoint(_) => "invalid_replication",
            Error::MissingEndpoint | Error::LocalEndpoint => "error",
            Error::NoDatabase(_) => "db_not_found",
            Error::Unauthorized(_) | Error::NotAdmin => "unauthorized",
            Error::NoAccess(_) | Error::Forbidden(_) => "forbidden",
            Error::FilterFetch(_) => "filter_fetch_error",
            Error::CheckpointCommitFailure(_) => "checkpoint_commit_failure",
            Error::Request(_) | Error::LongRow(_) => "replication_error",
            Error::NoJob => "not_found",
            Error::TooManyJobs(_) | Error::NoRoom => "service_unavailable",
            Error::LargeSelection(_) | Error::TooLong(_) => "too_large",
            Error::Duplicate(..) => "duplicate_job",
            Error::Database(_) => "error",
            Error::Stopped => "stopped",
        }
    }

    /// Returns whether only a change of the document can fix it.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            Error::BadRequest(_)
                | Error::LargeSelection(_)
                | Error::TooLong(_)
                | Error::NoRoom
                | Error::InvalidEndpoint(_)
                | Error::MissingEndpoint
                | Error::LocalEndpoint
                | Error::Forbidden(_)
        )
    }

    /// Returns name and reason, in the form of histories and documents.
    pub fn text(&self) -> String {
        match self {
            Error::MissingEndpoint | Error::LocalEndpoint | Error::Stopped => self.to_string(),
            _ => format!("{}: {self}", self.name()),
        }
    }
}
