//! Limits of design documents.

/// The most views and text indexes of one design document, together.
pub(crate) const INDEXES_MAX: usize = 1000;

/// The members of a design document that define views and text indexes.
pub(crate) const INDEX_MEMBERS: [&str; 3] = ["views", "indexes", "nouveau"];

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
