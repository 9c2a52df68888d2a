//! Design documents, for calls of their functions.

use std::sync::Arc;

use database::DesignDoc;
use document::DocId;
use serde::de::IgnoredAny;

use crate::access::Access;
use crate::error::{Error, Result};

/// The design document with the id `_design/…`.
///
/// # Errors
/// [`Error::Missing`], and errors of the database.
pub async fn design_doc(access: &Access, id: &str) -> Result<Arc<DesignDoc>> {
    let id = DocId::new(id).map_err(|_| Error::Missing)?;
    access.db.design_doc(&id).await?.ok_or(Error::Missing)
}

/// Refuses a design document that has nothing at `path`. Its text is searched, not parsed: it may be
/// long, and clients call it again and again.
///
/// # Errors
/// [`Error::MissingKey`].
pub fn require_function(ddoc: &DesignDoc, path: &[&str]) -> Result<()> {
    let mut place = &*ddoc.json;
    for key in path {
        let inner = document::json::member(place, key);
        place = inner.ok_or_else(|| Error::MissingKey((*key).to_owned()))?;
    }
    Ok(())
}

/// The JSON text of the database's security object, for functions.
pub(crate) fn security_text(access: &Access) -> Arc<str> {
    let text = access.db.security();
    // It was checked when it was written, and is not parsed again: it may be long.
    match serde_json::from_str::<IgnoredAny>(&text) {
        Ok(_) => text,
        Err(_) => "null".into(),
    }
}
