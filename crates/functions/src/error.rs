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
    /// Too many wait for their turn; `limit` is how many may.
    #[error("too many functions wait for their turn ([functions] queue_limit = {limit})")]
    Busy { limit: usize },
    /// No place came free in time, which is in milliseconds.
    #[error(
        "no place to run a function came free in time ([functions] queue_time_limit_ms = {limit_ms})"
    )]
    Late { limit_ms: u64 },
    /// An external process could not be started, died, or spoke nonsense.
    #[error("{0}")]
    Process(String),
}

impl Error {
    /// CouchDB's `error` of it; the reason is what it displays.
    pub fn name(&self) -> &str {
        match self {
            Error::Compile(_) => "compilation_error",
            Error::Thrown { name, .. } => name,
            Error::Forbidden(_) => "forbidden",
            Error::Unauthorized(_) => "unauthorized",
            Error::Limit { .. } => "function_limit_exceeded",
            Error::UnknownLanguage(_) => "unknown_query_language",
            Error::ReduceOverflow(_) => "reduce_overflow_error",
            Error::Busy { .. } | Error::Late { .. } => "service_unavailable",
            Error::Process(_) => "os_process_error",
        }
    }

    /// CouchDB's `reason` of it.
    pub fn reason(&self) -> String {
        match self {
            Error::Thrown { reason, .. } => reason.clone(),
            e => e.to_string(),
        }
    }
}
