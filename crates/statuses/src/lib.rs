//! The table of HTTP statuses. `http` and `embedded` use it; no other crate decides a status.

#[cfg(feature = "server")]
mod server;

use database::Error as DatabaseError;
use document::{DocError, IdError, RevError};
use functions::Error as FunctionError;
use mango::FindError;

/// An error with an HTTP status.
pub trait Status {
    /// Returns the status that CouchDB answers the error with.
    fn status(&self) -> u16;
}

/// Returns the status of an error that is known by CouchDB's name only, which a function of a design document may have chosen. An
/// unknown name is a fault of the server.
pub fn of_name(name: &str) -> u16 {
    match name {
        "bad_request" | "query_parse_error" | "doc_validation" | "invalid_design_doc" => 400,
        "unauthorized" => 401,
        "forbidden" | "partition_overflow" => 403,
        "not_found" => 404,
        "method_not_allowed" => 405,
        "not_acceptable" => 406,
        "conflict" => 409,
        "file_exists" | "missing_stub" | "precondition_failed" => 412,
        "attachment_too_large" => 413,
        "bad_content_type" => 415,
        _ => 500,
    }
}

impl Status for DatabaseError {
    fn status(&self) -> u16 {
        use DatabaseError as E;
        match self {
            E::IllegalName(_)
            | E::NameTooLong(_)
            | E::MalformedSeq
            | E::QueryParse(_)
            | E::Partition(..)
            | E::BadRequest(_)
            | E::DigestMismatch => 400,
            E::Forbidden(_) => 403,
            E::NoDatabase | E::Missing(_) | E::NoTextIndex(_) => 404,
            E::DatabaseExists | E::DirectoryExists(_) | E::MissingStub(_) => 412,
            E::AttachmentTooLarge
            | E::RowTooLong(_)
            | E::TextAnswerTooLong
            | E::Text(search::Error::TooMuch { .. }) => 413,
            E::Text(e) if e.is_of_request() => 400,
            E::Internal(_) | E::Storage(_) | E::Text(_) => 500,
            E::Unavailable(_) | E::ShuttingDown | E::ClientGone => 503,
            E::InsufficientStorage(_) => 507,
            E::Function(e) => e.status(),
            E::Find(e) => e.status(),
        }
    }
}

impl Status for FunctionError {
    fn status(&self) -> u16 {
        match self {
            FunctionError::Busy { .. } | FunctionError::Late { .. } => 503,
            e => of_name(e.name()),
        }
    }
}

impl Status for FindError {
    fn status(&self) -> u16 {
        match self {
            FindError::AggregateTooLarge(_) => 413,
            FindError::AggregatesFull(_) => 503,
            // CouchDB has no clause for it.
            FindError::InvalidListParams => 500,
            _ => 400,
        }
    }
}

impl Status for DocError {
    fn status(&self) -> u16 {
        match self {
            DocError::TooLong => 413,
            _ => 400,
        }
    }
}

impl Status for IdError {
    fn status(&self) -> u16 {
        match self {
            IdError::TooLong => 413,
            _ => 400,
        }
    }
}

impl Status for RevError {
    fn status(&self) -> u16 {
        400
    }
}
