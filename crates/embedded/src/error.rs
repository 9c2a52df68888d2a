//! Errors as hosts see them.

use std::borrow::Cow;

use database::Outcome;
use document::{DocError, IdError, RevError};
use statuses::Status as _;

/// CouchDB's three parts of an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}: {reason}")]
pub struct Error {
    /// The status that the server would answer.
    pub status: u16,
    /// A word for programs: `not_found`, `conflict`.
    pub error: Cow<'static, str>,
    /// A sentence for people.
    pub reason: Cow<'static, str>,
}

impl Error {
    /// An error of these parts.
    pub fn new(
        status: u16,
        error: impl Into<Cow<'static, str>>,
        reason: impl Into<Cow<'static, str>>,
    ) -> Error {
        Error {
            status,
            error: error.into(),
            reason: reason.into(),
        }
    }

    /// Returns the error of an impossible request.
    pub fn bad_request(reason: impl Into<Cow<'static, str>>) -> Error {
        Error::new(400, "bad_request", reason)
    }

    /// The directory was closed, or this cursor, reader or writer.
    pub fn closed() -> Error {
        Error::new(503, "closed", "It is closed.")
    }

    /// This process is a fork of the one that opened the directory.
    pub fn forked() -> Error {
        Error::new(
            503,
            "forked",
            "This process was forked from one that has a Settee directory open. A fork has none of its threads: open the directory in \
             one process only, and start others by 'spawn'.",
        )
    }

    /// The operation was cancelled.
    pub fn cancelled() -> Error {
        Error::new(499, "cancelled", "The operation was cancelled.")
    }

    pub(crate) fn missing(reason: &'static str) -> Error {
        Error::new(404, "not_found", reason)
    }

    pub(crate) fn conflict() -> Error {
        Error::new(409, "conflict", "Document update conflict.")
    }

    /// Returns why an edit was refused.
    pub(crate) fn of(refused: Outcome) -> Option<Error> {
        match refused {
            Outcome::Ok { .. } => None,
            Outcome::Conflict => Some(Error::conflict()),
            Outcome::Refused(error, reason) => {
                Some(Error::new(statuses::of_name(&error), error, reason))
            }
        }
    }
}

impl From<database::Error> for Error {
    fn from(e: database::Error) -> Error {
        if let database::Error::Storage(storage::Error::InUse { .. }) = &e {
            return Error::new(423, "in_use", e.to_string());
        }
        Error::new(e.status(), e.name().to_owned(), e.reason())
    }
}

impl From<mango::FindError> for Error {
    fn from(e: mango::FindError) -> Error {
        Error::new(e.status(), e.error(), e.to_string())
    }
}

impl From<DocError> for Error {
    fn from(e: DocError) -> Error {
        Error::new(e.status(), e.error(), e.to_string())
    }
}

impl From<IdError> for Error {
    fn from(e: IdError) -> Error {
        Error::new(e.status(), "illegal_docid", e.to_string())
    }
}

impl From<RevError> for Error {
    fn from(e: RevError) -> Error {
        Error::new(e.status(), e.error(), e.to_string())
    }
}
