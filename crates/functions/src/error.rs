/// What users' code, or the process that runs it, did wrong.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The source does not compile, or is not a function.
    #[error("{0}")]
    Compile(String),
    /// The function threw, or its server answered with an error: CouchDB's `error` and `reason` of it.
    #[error("{name}: {reason}")]
    Thrown { name: String, reason: String },
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    Unauthorized(String),
    /// A function exceeded a limit; `limit` is the name of its configuration key, `value` what it is set to.
    #[error("the function exceeded {limit} = {value}")]
    Limit { limit: &'static str, value: String },
    /// No server for this language: CouchDB's `unknown_query_language`.
    #[error("{0}")]
    UnknownLanguage(String),
    /// The reduction does not shrink: CouchDB's `reduce_overflow_error`.
    #[error("{0}")]
    ReduceOverflow(String),
    /// An external process could not be started, died, or spoke nonsense.
    #[error("{0}")]
    Process(String),
}
