//! The kinds of operations.

/// The kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// GET of a document.
    Read,
    /// A document is read for its revision, and written with one field changed.
    Update,
    /// PUT of a new document.
    Insert,
    /// The same requests as an update: the reader needs the document too.
    ReadModifyWrite,
    /// A stretch of `_all_docs` with documents.
    Scan,
    /// `_bulk_docs` of new documents.
    Bulk,
    /// The rows of a key of a view.
    View,
    /// `_find` by an indexed field.
    Find,
    /// The last changes.
    Changes,
}

impl Kind {
    /// All, in the order of reports.
    pub(crate) const ALL: [Self; 9] = [
        Self::Read,
        Self::Update,
        Self::Insert,
        Self::ReadModifyWrite,
        Self::Scan,
        Self::Bulk,
        Self::View,
        Self::Find,
        Self::Changes,
    ];

    /// As in a mix and in the names of lines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::ReadModifyWrite => "rmw",
            Self::Scan => "scan",
            Self::Bulk => "bulk",
            Self::View => "view",
            Self::Find => "find",
            Self::Changes => "changes",
        }
    }

    /// The kind of this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
