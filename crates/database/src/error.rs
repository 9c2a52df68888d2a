/// Why a database refused or failed an operation. Display is CouchDB's reason where it has one.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The database does not exist, or was deleted.
    #[error("Database does not exist.")]
    NoDatabase,
    /// There is one of that name already.
    #[error("The database could not be created, the file already exists.")]
    DatabaseExists,
    /// Holds the name.
    #[error(
        "Name: '{0}'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, and / are allowed. Must begin with a letter."
    )]
    IllegalName(String),
    /// Holds the name.
    #[error("At least one path segment of `{0}` is too long.")]
    NameTooLong(String),
    /// An invalid update seq.
    #[error("Malformed sequence supplied in 'since' parameter.")]
    MalformedSeq,
    /// Invalid parameters of a listing or a view: the reason.
    #[error("{0}")]
    QueryParse(String),
    /// An id does not fit a partitioned database: the error code (`illegal_partition`, `illegal_docid`), then the reason.
    #[error("{1}")]
    Partition(&'static str, String),
    /// The directory of a copy is there already.
    #[error("{0} exists already")]
    DirectoryExists(String),
    /// The disk is full; reads continue to work, and writes do once space is available.
    #[error("{0}")]
    InsufficientStorage(String),
    /// From the store.
    #[error("{0}")]
    Storage(storage::Error),
    /// An invalid request; the reason, for the client.
    #[error("{0}")]
    BadRequest(String),
    /// An attachment exceeds the limit on its size.
    #[error("the attachment exceeds max_attachment_size")]
    AttachmentTooLarge,
    /// A row with the bytes of its attachments would take more memory than this many bytes.
    #[error("a row with its attachments exceeds {0} bytes")]
    RowTooLong(u64),
    /// The bytes received do not have the MD5 sum that the client sent.
    #[error("Possible message corruption.")]
    DigestMismatch,
    /// One of several edits keeps an attachment that does not exist: CouchDB's reason.
    #[error("{0}")]
    MissingStub(String),
    /// A document or function that a request names does not exist: CouchDB's reason.
    #[error("{0}")]
    Missing(&'static str),
    /// A design document has no text index of this name.
    #[error("{0} not found.")]
    NoTextIndex(String),
    /// A search would answer more than is held in memory.
    #[error("the hits are longer than 64 MiB together: request fewer (limit)")]
    TextAnswerTooLong,
    /// A text index rejected a write or a query, or failed.
    #[error("{0}")]
    Text(search::Error),
    /// The rules of a system database forbid to read this.
    #[error("{0}")]
    Forbidden(&'static str),
    /// Other servers that are needed do not answer, or the ordering of writes does not: the reason.
    #[error("{0}")]
    Unavailable(String),
    /// A fault of the server itself, such as a panic or a thread that could not be started. Holds the cause, for logs.
    #[error("{0}")]
    Internal(String),
    /// The server stops.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The client no longer waits for the response.
    #[error("the client has gone")]
    ClientGone,
    /// A function of a design document failed.
    #[error("{0}")]
    Function(#[from] functions::Error),
    /// A query or an index is refused.
    #[error("{0}")]
    Find(#[from] mango::FindError),
}

impl From<fair_queue::Busy> for Error {
    /// A queue of functions is full.
    fn from(busy: fair_queue::Busy) -> Error {
        functions::Error::from(busy).into()
    }
}

impl From<mango::TookTooLong> for Error {
    fn from(e: mango::TookTooLong) -> Error {
        Error::BadRequest(e.to_string())
    }
}

impl From<search::Error> for Error {
    fn from(e: search::Error) -> Error {
        match e {
            search::Error::Busy => Error::Unavailable(e.to_string()),
            e => Error::Text(e),
        }
    }
}

impl Error {
    /// CouchDB's `error` of it.
    pub fn name(&self) -> &str {
        match self {
            Error::NoDatabase | Error::Missing(_) | Error::NoTextIndex(_) => "not_found",
            Error::DatabaseExists | Error::DirectoryExists(_) => "file_exists",
            Error::IllegalName(_) => "illegal_database_name",
            Error::NameTooLong(_) => "database_name_too_long",
            Error::MalformedSeq | Error::BadRequest(_) => "bad_request",
            Error::QueryParse(_) => "query_parse_error",
            Error::Partition(error, _) => error,
            Error::MissingStub(_) => "missing_stub",
            Error::DigestMismatch => "content_md5_mismatch",
            Error::Forbidden(_) => "forbidden",
            Error::AttachmentTooLarge => "attachment_too_large",
            Error::RowTooLong(_)
            | Error::TextAnswerTooLong
            | Error::Text(search::Error::TooMuch { .. }) => "too_large",
            Error::Text(e) if e.is_of_request() => "bad_request",
            Error::InsufficientStorage(_) => "insufficient_storage",
            Error::Unavailable(_) | Error::ShuttingDown | Error::ClientGone => {
                "service_unavailable"
            }
            Error::Internal(_) | Error::Storage(_) | Error::Text(_) => "internal_server_error",
            Error::Function(e) => e.name(),
            Error::Find(e) => e.error(),
        }
    }

    /// CouchDB's `reason` of it.
    pub fn reason(&self) -> String {
        match self {
            Error::Function(e) => e.reason(),
            e => e.to_string(),
        }
    }
}

impl From<storage::Error> for Error {
    fn from(e: storage::Error) -> Self {
        match e {
            storage::Error::DiskFull { .. } => Error::InsufficientStorage(e.to_string()),
            storage::Error::Closed => Error::ShuttingDown,
            storage::Error::Dropped => Error::NoDatabase,
            e => Error::Storage(e),
        }
    }
}

impl From<index::Error> for Error {
    fn from(e: index::Error) -> Self {
        match e {
            index::Error::Storage(e) => e.into(),
            index::Error::Function(e) => Error::Function(e),
            index::Error::Dropped => Error::Missing("missing"),
            index::Error::Stopped => Error::ShuttingDown,
            // Callers that set a time continue after it.
            e @ index::Error::Paused => Error::Internal(e.to_string()),
            index::Error::Invalid(reason) => Error::BadRequest(reason),
        }
    }
}
