//! Which documents are taken.

use config::settings::Couchdb;
use document::{DocId, EditDoc};

use crate::error::{Error, Result};

/// A document's id, no longer than `[couchdb] max_document_id_length`.
///
/// # Errors
/// [`Error::IdTooLong`] and [`Error::Id`].
pub fn parse_id(id: &str, limits: &Couchdb) -> Result<DocId> {
    if id.len() as u64 > limits.max_document_id_length {
        return Err(Error::IdTooLong(limits.max_document_id_length));
    }
    Ok(DocId::new(id)?)
}

/// Checks a parsed document against the limits.
///
/// # Errors
/// [`Error::DocumentTooLarge`], and as [`parse_id`].
pub fn check_document(doc: &EditDoc, limits: &Couchdb) -> Result<()> {
    if doc.body.len() as u64 > limits.max_document_size {
        return Err(Error::DocumentTooLarge {
            id: doc.id.as_ref().map_or("", |id| id.as_str()).to_owned(),
            max: limits.max_document_size,
        });
    }
    match &doc.id {
        Some(id) => parse_id(id.as_str(), limits).map(drop),
        None => Ok(()),
    }
}
