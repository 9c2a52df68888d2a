//! Document ids and the rules for them.

use std::fmt;

/// The maximum length of a document id in bytes.
///
/// CouchDB's `[couchdb] max_document_id_length` is "infinity" by default; the limit here keeps
/// every key far below the limit of a storage engine. Callers may have smaller limits.
pub const ID_LENGTH_MAX: usize = 64 * 1024;

const DESIGN_PREFIX: &str = "_design/";
const LOCAL_PREFIX: &str = "_local/";

/// A valid document id.
///
/// Ids are compared bytewise, which is the order of `_all_docs`.
///
/// ```
/// use document::DocId;
/// let id = DocId::new("_design/app").unwrap();
/// assert!(id.is_design());
/// assert!(DocId::new("_app").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocId(Box<str>);

impl DocId {
    /// Checks `id` against CouchDB's rules for document ids.
    ///
    /// # Errors
    /// [`IdError`] names the violated rule.
    pub fn new(id: &str) -> Result<Self, IdError> {
        check(id)?;
        Ok(Self(id.into()))
    }

    /// Like [`DocId::new`], for bytes that may not be UTF-8.
    ///
    /// # Errors
    /// [`IdError::InvalidUtf8`] besides those of [`DocId::new`].
    pub fn from_utf8(id: &[u8]) -> Result<Self, IdError> {
        Self::new(std::str::from_utf8(id).map_err(|_| IdError::InvalidUtf8)?)
    }

    /// Returns the id's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this is the id of a design document.
    pub fn is_design(&self) -> bool {
        self.0.starts_with(DESIGN_PREFIX)
    }

    /// Returns whether this is the id of a local document, which is neither replicated nor has a
    /// revision tree.
    pub fn is_local(&self) -> bool {
        self.0.starts_with(LOCAL_PREFIX)
    }

    /// Returns the partition that the id names: the text before its first `:`. Design and local
    /// documents have none.
    pub fn partition(&self) -> Option<&str> {
        if self.0.starts_with('_') {
            return None;
        }
        self.0.split_once(':').map(|(partition, _)| partition)
    }
}

fn check(id: &str) -> Result<(), IdError> {
    if id.is_empty() {
        return Err(IdError::Empty);
    }
    if id.len() > ID_LENGTH_MAX {
        return Err(IdError::TooLong);
    }
    if !id.starts_with('_') {
        return Ok(());
    }
    match id {
        DESIGN_PREFIX => Err(IdError::IllegalDesign),
        LOCAL_PREFIX => Err(IdError::IllegalLocal),
        _ if id.starts_with(DESIGN_PREFIX) || id.starts_with(LOCAL_PREFIX) => Ok(()),
        _ => Err(IdError::Reserved),
    }
}

impl AsRef<str> for DocId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DocId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for DocId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The reason why a value is not a document id. The messages are CouchDB's reasons; its error is
/// always `illegal_docid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The `_id` member is not a JSON string.
    #[error("Document id must be a string")]
    NotString,
    /// The id is the empty string.
    #[error("Document id must not be empty")]
    Empty,
    /// The id starts with an underscore, but is neither a design nor a local document's.
    #[error("Only reserved document ids may start with underscore.")]
    Reserved,
    /// The id is `_design/` without a name.
    #[error("Illegal document id `_design/`")]
    IllegalDesign,
    /// The id is `_local/` without a name.
    #[error("Illegal document id `_local/`")]
    IllegalLocal,
    /// The id's bytes are not UTF-8.
    #[error("Document id must be valid UTF-8")]
    InvalidUtf8,
    /// The id is longer than [`ID_LENGTH_MAX`].
    #[error("Document id is too long")]
    TooLong,
}

impl IdError {
    /// Returns CouchDB's name of the error.
    pub fn error(&self) -> &'static str {
        "illegal_docid"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_couchdbs_rules() {
        for good in [
            "a",
            "a/b",
            "_design/d",
            "_local/l",
            "é",
            "a\u{0}b",
            "Ab:c",
            " ",
        ] {
            assert_eq!(DocId::new(good).unwrap().as_str(), good);
        }
        for (bad, error) in [
            ("", IdError::Empty),
            ("_", IdError::Reserved),
            ("_x", IdError::Reserved),
            ("_design", IdError::Reserved),
            ("_design/", IdError::IllegalDesign),
            ("_local", IdError::Reserved),
            ("_local/", IdError::IllegalLocal),
        ] {
            assert_eq!(DocId::new(bad), Err(error));
        }
        assert_eq!(DocId::from_utf8(&[0xff]), Err(IdError::InvalidUtf8));
        assert_eq!(
            DocId::new(&"x".repeat(ID_LENGTH_MAX + 1)),
            Err(IdError::TooLong)
        );
    }

    #[test]
    fn only_normal_documents_have_a_partition() {
        let partition = |id: &str| DocId::new(id).unwrap().partition().map(str::to_owned);
        assert_eq!(partition("p:x:y").as_deref(), Some("p"));
        assert_eq!(partition(":x").as_deref(), Some(""));
        assert_eq!(partition("px"), None);
        assert_eq!(partition("_design/a:b"), None);
        assert_eq!(partition("_local/a:b"), None);
    }

    #[test]
    fn ids_are_ordered_by_bytes() {
        assert!(DocId::new("Z").unwrap() < DocId::new("a").unwrap());
        assert!(DocId::new("a").unwrap() < DocId::new("a\u{0}").unwrap());
    }
}
