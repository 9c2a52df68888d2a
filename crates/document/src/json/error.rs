//! Errors of JSON and of documents.

use super::{DEPTH_MAX, INPUT_LENGTH_MAX};
use crate::{IdError, RevError};

/// The reason why a body is refused. [`DocError::error`] and the message are CouchDB's `error` and
/// `reason`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocError {
    /// The text is not JSON, not UTF-8, or has a number that no double can hold.
    #[error("invalid UTF-8 JSON")]
    InvalidJson,
    /// Objects and arrays are nested more than [`DEPTH_MAX`] levels deep. CouchDB has no such
    /// limit.
    #[error("JSON is nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    /// The text is longer than [`INPUT_LENGTH_MAX`] bytes.
    #[error("JSON is longer than {INPUT_LENGTH_MAX} bytes")]
    TooLong,
    /// An integer takes more than 255 bytes in binary. CouchDB fails with a 500.
    #[error("JSON has an integer of more than 255 bytes")]
    IntegerTooLarge,
    /// The document is not an object.
    #[error("Document must be a JSON object")]
    NotAnObject,
    /// The body of a request is not an object.
    #[error("Request body must be a JSON object")]
    RequestNotAnObject,
    /// The `_id` is not a document id.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The `_rev` is not a revision, or not a string.
    #[error(transparent)]
    Rev(#[from] RevError),
    /// A member whose name starts with an underscore is unknown, or has a value of the wrong type.
    /// Holds its name.
    #[error("Bad special document member: {0}")]
    BadSpecialMember(String),
    /// `_revisions.start` is missing or not a natural number.
    #[error("_revisions.start isn't an integer.")]
    RevisionsStart,
    /// `_revisions.ids` is missing or not an array.
    #[error("_revisions.ids isn't a array.")]
    RevisionsIds,
    /// An element of `_revisions.ids` is not a string.
    #[error("RevId isn't a string")]
    RevisionsId,
    /// An element of `_revisions.ids` has 32 characters that are not hexadecimal.
    #[error("RevId isn't a valid hexadecimal")]
    RevisionsHex,
    /// `_bulk_docs` with too many documents.
    #[error("too many documents in one request")]
    TooManyDocs,
    /// `_bulk_docs` without `docs`.
    #[error("POST body must include `docs` parameter.")]
    DocsMissing,
    /// `_bulk_docs` with `docs` that are not an array.
    #[error("`docs` parameter must be an array.")]
    DocsNotAnArray,
    /// `_bulk_docs` with `new_edits` that is neither true nor false. CouchDB fails with a 500.
    #[error("`new_edits` parameter must be a boolean.")]
    NewEdits,
}

impl DocError {
    /// Returns CouchDB's name of the error.
    pub fn error(&self) -> &'static str {
        match self {
            Self::Id(error) => error.error(),
            Self::Rev(error) => error.error(),
            Self::BadSpecialMember(_)
            | Self::RevisionsStart
            | Self::RevisionsIds
            | Self::RevisionsId
            | Self::RevisionsHex => "doc_validation",
            Self::InvalidJson
            | Self::TooDeep
            | Self::TooLong
            | Self::IntegerTooLarge
            | Self::NotAnObject
            | Self::RequestNotAnObject
            | Self::DocsMissing
            | Self::TooManyDocs
            | Self::DocsNotAnArray
            | Self::NewEdits => "bad_request",
        }
    }
}
