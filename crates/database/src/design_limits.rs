//! Limits of design documents.

use document::json::skip;

/// The most views and text indexes of one design document, together.
pub(crate) const INDEXES_MAX: usize = 1000;

/// The members of a design document that define views and text indexes.
pub(crate) const INDEX_MEMBERS: [&str; 3] = ["views", "indexes", "nouveau"];

/// The most JSON values of one design document: those of its views are read into a tree, which takes
/// about a hundred bytes for each.
pub(crate) const VALUES_MAX: usize = 1 << 18;
/// How deep a design document may be nested, so that its views can be read.
pub(crate) const DEPTH_MAX: usize = 127;

/// Design documents that a database keeps in memory.
pub(crate) const KEPT_MAX: usize = 256;
/// Bytes of their texts that a database keeps, besides those of running calls.
pub(crate) const TEXT_BYTES_KEPT_MAX: usize = 8 << 20;
/// Memory of a design document besides its text, in bytes.
const DOC_BYTES: usize = 256;

/// Returns the memory of a design document with a text of this length, in bytes.
pub(crate) fn memory_of_text(text_bytes: usize) -> usize {
    text_bytes + DOC_BYTES
}

/// The reason why a design document with this many views and text indexes is refused.
pub(crate) fn too_many_indexes(count: usize) -> String {
    format!(
        "A design document has at most {INDEXES_MAX} views and text indexes; this one has {count}."
    )
}

/// The reason why a design document that holds this much is refused.
pub(crate) fn excess(extent: Extent) -> Option<String> {
    if extent.values > VALUES_MAX {
        return Some(format!(
            "A design document has at most {VALUES_MAX} JSON values; this one has {}.",
            extent.values
        ));
    }
    let is_deep = extent.depth > DEPTH_MAX;
    is_deep.then(|| format!("A design document is nested at most {DEPTH_MAX} levels deep."))
}

/// How much a value holds, without parsing it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Values in it, itself included; an empty object or array counts as two.
    pub values: usize,
    /// How deep objects and arrays are nested.
    pub depth: usize,
}

impl Extent {
    /// Measures a value's text.
    pub fn of(text: &[u8]) -> Extent {
        let mut extent = Extent {
            values: 1,
            depth: 0,
        };
        let (mut pos, mut depth) = (0, 0);
        while let Some(byte) = text.get(pos) {
            pos += 1;
            match byte {
                b'"' => match skip::string(text, pos) {
                    Some((end, _)) => pos = end,
                    None => break,
                },
                b'{' | b'[' => {
                    depth += 1;
                    extent.values += 1;
                    extent.depth = extent.depth.max(depth);
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                b',' => extent.values += 1,
                _ => {}
            }
        }
        extent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_and_texts_are_not_searched_for_them() {
        for (text, values, depth) in [
            ("1", 1, 0),
            ("[]", 2, 1),
            (r#"{"a":1}"#, 2, 1),
            (r#"{"a":[1,"[,{\""],"b\"[":2}"#, 5, 2),
        ] {
            assert_eq!(
                Extent::of(text.as_bytes()),
                Extent { values, depth },
                "{text}"
            );
        }
    }
}
