//! What a listing is asked for.

use crate::attachments::ShownAttachments;

/// Which documents are listed.
pub enum Listing {
    /// All but local ones (`_all_docs`).
    AllDocs,
    /// `_design_docs`
    DesignDocs,
    /// `_local_docs`
    LocalDocs,
    /// Those of the partition of this name.
    Partition(String),
}

/// A key of `keys`: only strings can be ids; anything else is echoed as not found.
pub enum Key {
    /// A document's id.
    Id(String),
    /// JSON text.
    Other(String),
}

/// A start or end of a range. JSON that is no string lies before or after every id in the listing's direction.
#[derive(Clone, Debug)]
pub enum Bound {
    /// At this id.
    Id(String),
    /// Before the listing's first id.
    BeforeAll,
    /// After the listing's last id.
    AfterAll,
}

/// A listing as it is asked for.
pub struct RowsQuery {
    /// Which documents.
    pub listing: Listing,
    /// Where the range begins, in the listing's direction.
    pub start: Option<Bound>,
    /// Where it ends.
    pub end: Option<Bound>,
    /// `end` itself is in the range.
    pub inclusive_end: bool,
    /// Rows of these keys, in place of a range.
    pub keys: Option<Vec<Key>>,
    /// Rows at most.
    pub limit: Option<u64>,
    /// Rows left out at the beginning.
    pub skip: u64,
    /// From the last id to the first.
    pub descending: bool,
    /// Rows have the document.
    pub include_docs: bool,
    /// With `include_docs`: documents have `_conflicts`.
    pub conflicts: bool,
    /// With `include_docs`: how attachments are shown.
    pub attachments: ShownAttachments,
    /// The update seq that the listing stands for is asked for too.
    pub update_seq: bool,
}
