//! What can go wrong with a replication, in CouchDB's words.

/// Why a replication was refused, or stopped.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The user has as many replications as one may have.
    #[error("you have {0} replications already ([replicator] max_jobs_per_user)")]
    TooManyJobs(usize),
    /// The ids or the selector take more memory than a user can get, which is this many bytes.
    #[error(
        "the ids or the selector of the replication take more than half of [memory] replications ({0} bytes)"
    )]
    LargeSelection(u64),
    /// The replications that there are leave the user no memory for the ids or the selector.
    #[error(
        "the ids and selectors of replications leave no room for this one ([memory] replications)"
    )]
    NoRoom,
    /// What describes the replication is wrong: the reason.
    #[error("{0}")]
    BadRequest(String),
    /// `source` or `target` is no database's address: the reason.
    #[error("{0}")]
    InvalidEndpoint(String),
    /// `source` or `target` is not there.
    #[error("Missing replicator database")]
    MissingEndpoint,
    /// A database of this server by its name where only URLs are allowed.
    #[error("local_endpoints_not_supported")]
    LocalEndpoint,
    /// There is no such database: its address without credentials.
    #[error("could not open {0}")]
    NoDatabase(String),
    /// The database wants other credentials: its address without credentials.
    #[error("unauthorized to access or create database {0}")]
    Unauthorized(String),
    /// The credentials are right and lack the rights for the database: its address without credentials.
    #[error("forbidden to access or create database {0}")]
    NoAccess(String),
    /// The caller may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// The job is somebody else's.
    #[error("You are not a server admin.")]
    NotAdmin,
    /// The filter function could not be read from the source.
    #[error("{0}")]
    FilterFetch(String),
    /// A checkpoint could not be recorded.
    #[error("{0}")]
    CheckpointCommitFailure(String),
    /// A server did not answer, or not sensibly, however often it was asked. Holds no credentials.
    #[error("{0}")]
    Request(String),
    /// There is no such job.
    #[error("missing")]
    NoJob,
    /// The same replication runs already for somebody else: its id, then whose it is.
    #[error("Replication `{0}` was already started by {1}")]
    Duplicate(String, String),
    /// A database of this server failed.
    #[error("{0}")]
    Database(#[from] database::Error),
    /// The job was cancelled, or the server stops.
    #[error("stopped")]
    Stopped,
}

impl Error {
    /// CouchDB's name of the error.
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
            Error::Request(_) => "replication_error",
            Error::NoJob => "not_found",
            Error::TooManyJobs(_) | Error::NoRoom => "service_unavailable",
            Error::LargeSelection(_) => "too_large",
            Error::Duplicate(..) => "duplicate_job",
            Error::Database(_) => "error",
            Error::Stopped => "stopped",
        }
    }

    /// Whether only another document can help.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            Error::BadRequest(_)
                | Error::LargeSelection(_)
                | Error::NoRoom
                | Error::InvalidEndpoint(_)
                | Error::MissingEndpoint
                | Error::LocalEndpoint
                | Error::Forbidden(_)
        )
    }

    /// Name and reason, as histories and documents have them.
    pub fn text(&self) -> String {
        match self {
            Error::MissingEndpoint | Error::LocalEndpoint | Error::Stopped => self.to_string(),
            _ => format!("{}: {self}", self.name()),
        }
    }
}
