//! The documents that server and competitor both have.

use crate::documents::{Ids, Order, Shape};
use crate::system::FilledDatabase;

/// Documents in one bulk.
pub(super) const BULK_DOCS: u64 = 1_000;

/// The documents that both have, and ids for new ones.
#[derive(Clone)]
pub(crate) struct Documents {
    pub(crate) ids: Ids,
    pub(crate) count: u64,
    /// Ids of documents that are written during the measurement.
    pub(crate) new: Ids,
}

impl Documents {
    pub(crate) fn of(populated: &FilledDatabase) -> Self {
        Self {
            ids: populated.ids.clone(),
            count: populated.documents,
            new: Ids::new(Order::Sequential),
        }
    }

    /// The id of a document by its number.
    pub(super) fn id(&self, number: u64) -> String {
        let mut id = Vec::with_capacity(32);
        self.ids.push_nth(&mut id, number);
        String::from_utf8_lossy(&id).into_owned()
    }

    /// A new document: id and text.
    pub(super) fn next(&self) -> (String, String) {
        let mut id = Vec::with_capacity(32);
        let number = self.new.push_next(&mut id);
        (String::from_utf8_lossy(&id).into_owned(), body(number))
    }
}

/// A document's text without id.
pub(super) fn body(number: u64) -> String {
    let mut body = Vec::with_capacity(320);
    Shape::Bytes300.push_body(&mut body, number);
    String::from_utf8_lossy(&body).into_owned()
}
