//! Routes of documents: `/{db}/{id}`, `_design` and `_local` documents, and attachments.

pub mod attachments;
pub mod documents;
pub mod open_revs;
mod wide;
pub mod write_mode;
