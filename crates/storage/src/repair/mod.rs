//! Saving what can be read of a damaged store into a new one.
//!
//! The damaged store is only read (`source`; `files` when the engine does not know its files any more). What is read of documents goes
//! through the writer of the new store as edits that bring their history (`documents`), so that the new one is as sound as any: counters,
//! summaries and markers are made anew.

mod documents;
mod files;
mod source;

pub use documents::{DocumentCopy, Home, Saved};
pub use source::{Loss, Source};
