//! What is done with the documents of an input.

use crate::column::Layout;
use crate::document::Item;

/// Takes what is read.
pub(crate) trait Collector {
    /// Takes a value; returns false to stop.
    fn collect(&mut self, item: Item) -> bool;

    /// Takes the columns of a CSV input, which come before its documents.
    fn layout(&mut self, _layout: &Layout) {}

    /// Takes what the user should know of the input, at its end.
    fn note(&mut self, _text: String) {}
}
