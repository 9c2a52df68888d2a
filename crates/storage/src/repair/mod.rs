//! Saves what can be read of a damaged store into a new one.
//!
//! The damaged store is only read (`source`; `files` when the engine has lost its list of files).
//! Documents go through the writer of the new store as edits with their history (`documents`), so
//! that the new store is valid: counters, summaries and markers are rebuilt.

mod documents;
mod files;
mod source;

pub use documents::{DocumentCopy, DocumentDestination, RescuedDocuments};
pub use source::{Loss, Source};
