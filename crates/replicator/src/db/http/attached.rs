//! Reads the lengths of attachments, and the revision, from the JSON of a document. Nothing else is
//! kept.

use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::db::peer_values::short_text;

/// The attachments of a document.
#[derive(Deserialize)]
struct Attached {
    #[serde(rename = "_attachments", default)]
    attachments: AttachmentSizes,
}

/// The number of a document's attachments, and their total length. No more is kept: there may be any
/// number.
#[derive(Default)]
struct AttachmentSizes {
    count: usize,
    bytes: u64,
}

impl<'de> Deserialize<'de> for AttachmentSizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sizes;
        impl<'de> Visitor<'de> for Sizes {
            type Value = AttachmentSizes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the attachments of a document")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut sizes = AttachmentSizes::default();
                while map.next_key::<IgnoredAny>()?.is_some() {
                    sizes.count += 1;
                    sizes.bytes = sizes.bytes.saturating_add(map.next_value::<Stub>()?.length);
                }
                Ok(sizes)
            }
        }
        deserializer.deserialize_map(Sizes)
    }
}

#[derive(Deserialize)]
struct Stub {
    #[serde(default)]
    length: u64,
}

/// Returns the total length of a document's attachments; `None` when it has none.
pub fn attached(doc: &Bytes) -> Option<u64> {
    memchr::memmem::find(doc, b"\"_attachments\"")?;
    let attached: Attached = serde_json::from_slice(doc).ok()?;
    let AttachmentSizes { count, bytes } = attached.attachments;
    (count > 0).then_some(bytes)
}

/// Returns the revision of a document; `None` if it has none, or one that is too long.
pub fn rev_of(doc: &Bytes) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(rename = "_rev")]
        rev: String,
    }
    let named = serde_json::from_slice::<Named>(doc).ok()?;
    short_text(&named.rev)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachments_are_summed_and_revisions_are_short() {
        let doc = |members: String| Bytes::from(format!("{{\"_id\":\"a\",{members}}}"));
        let many = vec![r#""":{"length":2}"#; 100].join(",");
        for (members, length) in [
            (r#""_attachments":{}"#.to_owned(), None),
            (format!(r#""_attachments":{{{many}}}"#), Some(200)),
            (
                r#""_attachments":{"a":{},"b":{"length":3,"x":[[]]}}"#.to_owned(),
                Some(3),
            ),
            (
                format!(
                    r#""_attachments":{{"a":{{"length":{0}}},"b":{{"length":{0}}}}}"#,
                    u64::MAX
                ),
                Some(u64::MAX),
            ),
        ] {
            assert_eq!(attached(&doc(members)), length);
        }
        assert_eq!(
            rev_of(&doc(r#""_rev":"1-a""#.to_owned())).as_deref(),
            Some("1-a")
        );
        assert_eq!(
            rev_of(&doc(format!(r#""_rev":"{}""#, "1".repeat(10_000)))),
            None
        );
    }
}
