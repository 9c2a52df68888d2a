//! The position after a page of results: opaque to clients.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::error::FindError;
use crate::index::Index;

/// The last row of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bookmark {
    /// The row's position: the id in the index of all documents, the place in other indexes.
    pub place: Vec<u8>,
}

/// The version of the format, and of sort keys.
const VERSION: [u8; 2] = [1, document::collation::VERSION as u8];

/// Identifies the index: positions in one have no meaning in another.
fn name(index: &Index) -> [u8; 4] {
    use sha1::{Digest, Sha1};
    let mut sum = Sha1::new();
    sum.update(index.ddoc.as_deref().unwrap_or_default());
    sum.update([0]);
    sum.update(&index.name);
    let sum = sum.finalize();
    [sum[0], sum[1], sum[2], sum[3]]
}

impl Bookmark {
    /// Encodes it for the client.
    pub fn encode(&self, index: &Index) -> String {
        let bytes = [&VERSION[..], &name(index), &self.place].concat();
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Decodes a text of [`Bookmark::encode`] for the same index.
    ///
    /// # Errors
    /// [`FindError::InvalidBookmark`]
    pub fn decode(text: &str, index: &Index) -> Result<Bookmark, FindError> {
        let invalid = || FindError::InvalidBookmark(Value::from(text));
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| invalid())?;
        let rest = bytes.strip_prefix(&VERSION).ok_or_else(invalid)?;
        let place = rest.strip_prefix(&name(index)).ok_or_else(invalid)?;
        Ok(Bookmark {
            place: place.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bookmark_comes_back_for_its_own_index_only() {
        let index = Index::all_docs();
        let bookmark = Bookmark {
            place: b"some id".to_vec(),
        };
        let text = bookmark.encode(&index);
        assert_eq!(Bookmark::decode(&text, &index), Ok(bookmark));
        let other = Index {
            ddoc: Some("_design/d".into()),
            ..index.clone()
        };
        for (text, index) in [
            (text.as_str(), &other),
            ("nil", &index),
            ("!", &index),
            ("", &index),
        ] {
            assert!(Bookmark::decode(text, index).is_err(), "{text}");
        }
    }
}
