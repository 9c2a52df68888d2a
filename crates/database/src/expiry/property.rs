//! The property of a database whose documents expire.

use serde::{Deserialize, Serialize};

/// Maximum length of a member's name, in bytes.
const MEMBER_BYTES_MAX: usize = 256;

/// The member of documents that contains the time when they expire, and the action then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expiry {
    member: String,
    then: ExpiredDocuments,
}

/// The action on documents that expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpiredDocuments {
    /// They are deleted, which replications propagate.
    #[default]
    Delete,
    /// They are purged, of which replicas do not learn.
    Purge,
}

impl ExpiredDocuments {
    /// Parses `delete` or `purge`.
    pub fn parse(text: &str) -> Option<ExpiredDocuments> {
        match text {
            "delete" => Some(ExpiredDocuments::Delete),
            "purge" => Some(ExpiredDocuments::Purge),
            _ => None,
        }
    }

    /// Returns `delete` or `purge`.
    pub fn as_str(self) -> &'static str {
        match self {
            ExpiredDocuments::Delete => "delete",
            ExpiredDocuments::Purge => "purge",
        }
    }
}

impl Expiry {
    /// Creates it from the name of a member at the top level of documents. Returns `None` for a name that no such member can
    /// have, or of more than 256 bytes.
    pub fn new(member: &str, then: ExpiredDocuments) -> Option<Expiry> {
        let is_valid =
            !member.is_empty() && !member.starts_with('_') && member.len() <= MEMBER_BYTES_MAX;
        is_valid.then(|| Expiry {
            member: member.to_owned(),
            then,
        })
    }

    /// Returns the name of the member.
    pub fn member(&self) -> &str {
        &self.member
    }

    /// Returns what happens to expired documents.
    pub fn then(&self) -> ExpiredDocuments {
        self.then
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_a_name_that_documents_can_have() {
        let is_valid = |member: &str| Expiry::new(member, ExpiredDocuments::Delete).is_some();
        for member in ["expires_at", "a.b", "größe", "a_", &"n".repeat(256)] {
            assert!(is_valid(member), "{member}");
        }
        for member in ["", "_id", "_expires", &"n".repeat(257)] {
            assert!(!is_valid(member), "{member}");
        }
    }

    #[test]
    fn properties_have_this_text() {
        let text = r#"{"member":"expires_at","then":"purge"}"#;
        let expiry = Expiry::new("expires_at", ExpiredDocuments::Purge).unwrap();
        assert_eq!(serde_json::to_string(&expiry).unwrap(), text);
        assert_eq!(serde_json::from_str::<Expiry>(text).unwrap(), expiry);
        for then in [ExpiredDocuments::Delete, ExpiredDocuments::Purge] {
            assert_eq!(ExpiredDocuments::parse(then.as_str()), Some(then));
        }
        assert_eq!(ExpiredDocuments::parse("archive"), None);
    }
}
