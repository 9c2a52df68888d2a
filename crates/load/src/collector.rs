//! The taker of an input's documents.

use crate::column::Layout;
use crate::document::Item;

/// Takes what is read.
pub(crate) trait Collector {
    /// Takes a value; returns false to stop.
    fn collect(&mut self, item: Item) -> bool;

    /// Takes the columns of a CSV input, which come before its documents.
    fn layout(&mut self, _layout: &Layout) {}

    /// Takes a note about the input for the user, at its end.
    fn note(&mut self, _text: String) {}
}
