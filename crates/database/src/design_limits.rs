//! Limits of design documents.

/// The most views and text indexes of one design document, together.
pub(crate) const INDEXES_MAX: usize = 1000;

/// The members of a design document that define views and text indexes.
pub(crate) const INDEX_MEMBERS: [&str; 3] = ["views", "indexes", "nouveau"];

/// The reason why a design document with this many views and text indexes is refused.
pub(crate) fn too_many_indexes(count: usize) -> String {
    format!(
        "A design document has at most {INDEXES_MAX} views and text indexes; this one has {count}."
    )
}
