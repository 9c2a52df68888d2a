//! The one error of all languages.

/// The configuration key of the limit on the time of a call.
pub const TIME_LIMIT: &str = "time_limit_ms";
/// The configuration key of the limit on the time of one answer of a query server.
pub const ANSWER_TIME_LIMIT: &str = "os_process_timeout";
/// The configuration key of the limit on the memory of a heap.
pub const MEMORY_LIMIT: &str = "memory_limit_bytes";
/// Maximum length of each text of an error that leaves a language, in bytes. Functions choose these
/// texts, and many of them are kept at a time: for each document of a request, and for each index.
pub const ERROR_BYTES_MAX: usize = 64 << 10;
/// The limits that a call exceeds because of its document.
const LIMITS_OF_DOCUMENTS: [&str; 3] = [MEMORY_LIMIT, "emit_rows_limit", "emit_bytes_limit"];

/// An error of users' code, or of the process that runs it.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The source does not compile, or is not a function.
    #[error("{0}")]
    Compile(String),
    /// The function threw, or its server answered with an error.
    #[error("{name}: {reason}")]
    Thrown {
        /// CouchDB's `error` of it.
        name: String,
        /// CouchDB's `reason` of it.
        reason: String,
    },
    /// The function threw `{"forbidden": …}`.
    #[error("{0}")]
    Forbidden(String),
    /// The function threw `{"unauthorized": …}`.
    #[error("{0}")]
    Unauthorized(String),
    /// A document cannot be passed to a function, because it nests too deeply for the language.
    #[error("{0}")]
    BadArgument(String),
    /// A function exceeded a limit.
    #[error("the function exceeded {limit} = {value}")]
    Limit {
        /// The name of the limit's configuration key.
        limit: &'static str,
        /// Its value, in the unit of that key.
        value: String,
    },
    /// No server for this language: CouchDB's `unknown_query_language`.
    #[error("{0}")]
    UnknownLanguage(String),
    /// The reduction does not shrink: CouchDB's `reduce_overflow_error`.
    #[error("{0}")]
    ReduceOverflow(String),
    /// Too many wait for their turn.
    #[error("too many functions wait for their turn ([functions] queue_limit = {limit})")]
    Busy {
        /// Maximum number of waiting callers.
        limit: usize,
    },
    /// No place came free in time.
    #[error(
        "no place to run a function came free in time ([functions] queue_time_limit_ms = {limit_ms})"
    )]
    Late {
        /// The time, in milliseconds.
        limit_ms: u64,
    },
    /// An external process could not be started, died, or spoke nonsense.
    #[error("{0}")]
    Process(String),
}

impl From<fair_queue::Busy> for Error {
    fn from(busy: fair_queue::Busy) -> Error {
        Error::Busy {
            limit: busy.waiting_max,
        }
    }
}

impl Error {
    /// Truncates each text that a function or its server chose to `bytes_max` bytes.
    pub fn cut(self, bytes_max: usize) -> Error {
        let cut = |mut text: String| {
            if text.len() > bytes_max {
                text.truncate(text.floor_char_boundary(bytes_max));
                // Otherwise the text would keep its whole memory.
                text.shrink_to_fit();
            }
            text
        };
        match self {
            Error::Thrown { name, reason } => Error::Thrown {
                name: cut(name),
                reason: cut(reason),
            },
            Error::Forbidden(reason) => Error::Forbidden(cut(reason)),
            Error::Unauthorized(reason) => Error::Unauthorized(cut(reason)),
            Error::Compile(reason) => Error::Compile(cut(reason)),
            Error::ReduceOverflow(reason) => Error::ReduceOverflow(cut(reason)),
            Error::Process(reason) => Error::Process(cut(reason)),
            Error::BadArgument(reason) => Error::BadArgument(cut(reason)),
            Error::UnknownLanguage(reason) => Error::UnknownLanguage(cut(reason)),
            Error::Limit { .. } | Error::Busy { .. } | Error::Late { .. } => self,
        }
    }

    /// The error of a validation that ended, with something else than that the document is valid.
    pub fn unknown_verdict(reply: &[u8]) -> Error {
        let reply = &reply[..reply.len().min(ERROR_BYTES_MAX)];
        Error::Thrown {
            name: "unknown_error".to_owned(),
            reason: String::from_utf8_lossy(reply).into_owned(),
        }
        .bounded()
    }

    /// Truncates its texts to the length that may leave a language, [`ERROR_BYTES_MAX`].
    pub fn bounded(self) -> Error {
        self.cut(ERROR_BYTES_MAX)
    }

    /// Whether the document that a function was called with is at fault, so that calls with other documents may succeed.
    /// The limits of time and of the memory of all workers are not of a document: a busy machine may also
    /// be the reason.
    pub fn is_of_document(&self) -> bool {
        match self {
            Error::Limit { limit, .. } => LIMITS_OF_DOCUMENTS.contains(limit),
            Error::BadArgument(_) => true,
            _ => false,
        }
    }

    /// Whether a call took too much time. The document may be at fault, or a busy machine.
    pub fn is_of_time(&self) -> bool {
        matches!(self, Error::Limit { limit, .. } if [TIME_LIMIT, ANSWER_TIME_LIMIT].contains(limit))
    }

    /// CouchDB's `error` of it; the reason is what it displays.
    pub fn name(&self) -> &str {
        match self {
            Error::Thrown { name, .. } => name,
            e => e.fixed_name().unwrap_or_default(),
        }
    }

    /// The name, unless a function chose it.
    pub fn fixed_name(&self) -> Option<&'static str> {
        Some(match self {
            Error::Compile(_) => "compilation_error",
            Error::Thrown { .. } => return None,
            Error::Forbidden(_) => "forbidden",
            Error::Unauthorized(_) => "unauthorized",
            Error::BadArgument(_) => "bad_request",
            Error::Limit { .. } => "function_limit_exceeded",
            Error::UnknownLanguage(_) => "unknown_query_language",
            Error::ReduceOverflow(_) => "reduce_overflow_error",
            Error::Busy { .. } | Error::Late { .. } => "service_unavailable",
            Error::Process(_) => "os_process_error",
        })
    }

    /// CouchDB's `reason` of it.
    pub fn reason(&self) -> String {
        match self {
            Error::Thrown { reason, .. } => reason.clone(),
            e => e.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_keeps_no_memory_of_the_rest() {
        let long = || "é".repeat(1 << 20);
        let errors = [
            Error::Compile(long()),
            Error::Forbidden(long()),
            Error::Unauthorized(long()),
            Error::BadArgument(long()),
            Error::UnknownLanguage(long()),
            Error::ReduceOverflow(long()),
            Error::Process(long()),
        ];
        for error in errors {
            let what = error.name().to_owned();
            let reason = match error.bounded() {
                Error::Compile(text)
                | Error::Forbidden(text)
                | Error::Unauthorized(text)
                | Error::BadArgument(text)
                | Error::UnknownLanguage(text)
                | Error::ReduceOverflow(text)
                | Error::Process(text) => text,
                other => panic!("another error: {other:?}"),
            };
            assert_eq!(reason.len(), ERROR_BYTES_MAX, "{what}");
            assert!(reason.capacity() < 2 * ERROR_BYTES_MAX, "{what}");
        }
        let thrown = Error::Thrown {
            name: long(),
            reason: "short".to_owned(),
        };
        assert_eq!(thrown.clone().bounded().name().len(), ERROR_BYTES_MAX);
        assert_eq!(thrown.bounded().reason(), "short");
    }
}
