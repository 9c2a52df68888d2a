//! The first documents of an input, for a look before it is loaded.

use crate::collector::Collector;
use crate::column::Layout;
use crate::document::Item;

/// Documents that a preview has.
const DOCUMENTS_MAX: usize = 10;

/// The start of an input.
#[derive(Debug, Clone, Default)]
pub struct Preview {
    /// The columns of a CSV input; `None` for JSON.
    pub layout: Option<Layout>,
    /// The first documents, at most ten.
    pub documents: Vec<String>,
    /// Values before the last of these documents that cannot be written, each with its reason.
    pub refused: Vec<String>,
}

impl Collector for Preview {
    fn collect(&mut self, item: Item) -> bool {
        match item {
            Item::Document(document) => self.documents.push(document.text),
            Item::Refused { label, reason } => self.refused.push(format!("{label}: {reason}")),
            Item::NotADocument => {}
        }
        self.documents.len().max(self.refused.len()) < DOCUMENTS_MAX
    }

    fn layout(&mut self, layout: &Layout) {
        self.layout = Some(layout.clone());
    }
}
