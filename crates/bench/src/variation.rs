//! The properties of databases and documents that a sweep varies.

use crate::documents::Shape;

/// The properties at one value of a sweep; `None` for those of the workload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Variation {
    /// Shards of new databases.
    pub(crate) q: Option<u64>,
    /// Bytes of a document, with its id.
    pub(crate) document_bytes: Option<usize>,
    /// Documents in one `_bulk_docs` request.
    pub(crate) bulk_docs: Option<u64>,
}

impl Variation {
    pub(crate) fn shape(self, usual: Shape) -> Shape {
        self.document_bytes.map_or(usual, Shape::Sized)
    }

    pub(crate) fn bulk_docs(self, usual: u64) -> u64 {
        self.bulk_docs.unwrap_or(usual)
    }

    /// The query of the request that creates a database.
    pub(crate) fn create_query(self) -> String {
        self.q.map_or_else(String::new, |q| format!("?q={q}"))
    }
}
