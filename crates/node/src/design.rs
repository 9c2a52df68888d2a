//! Design documents, for calls of their functions.

use database::DesignDoc;
use document::DocId;
use serde_json::Value;

use crate::access::Access;
use crate::error::{Error, Result};
use crate::value::value_of;

/// The design document with the id `_design/…`.
///
/// # Errors
/// [`Error::Missing`], and errors of the database.
pub fn design_doc(access: &Access, id: &str) -> Result<DesignDoc> {
    let id = DocId::new(id).map_err(|_| Error::Missing)?;
    access.db.design_doc(&id)?.ok_or(Error::Missing)
}

/// The members of a design document.
///
/// # Errors
/// [`Error::Missing`] when its text is not JSON, which never happens for stored text.
pub fn members(ddoc: &DesignDoc) -> Result<Value> {
    value_of(&ddoc.json).ok_or(Error::Missing)
}

/// Refuses a design document, of which these are the members, that has nothing at `path`.
///
/// # Errors
/// [`Error::MissingKey`].
pub fn require_function(members: &Value, path: &[&str]) -> Result<()> {
    let mut place = members;
    for key in path {
        let inner = place.get(key);
        place = inner.ok_or_else(|| Error::MissingKey((*key).to_owned()))?;
    }
    Ok(())
}

/// The database's security object, for functions.
pub fn security_json(access: &Access) -> Value {
    // It was checked when it was written.
    serde_json::from_str(&access.db.security()).unwrap_or(Value::Null)
}
