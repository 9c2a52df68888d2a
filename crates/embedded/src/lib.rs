//! Databases in a host's process: the common part of the bindings for Python, Node.js and Erlang.
//!
//! [`database`] is an API for Rust. This is one for hosts: options and documents are passed as JSON
//! text in both directions, which each host converts to its own values. Everything that a host may
//! forget to release is a [`Handle`], so that [`Directory::close`] closes it and a forked process
//! never touches it. Errors are an [`Error`] with CouchDB's status, `error` and `reason`.
//!
//! Functions that are not asynchronous block for the time of a read. Asynchronous ones need a Tokio
//! runtime: [`runtime::current`] has one for hosts without.

#![forbid(unsafe_code)]

mod attachments;
mod batch;
mod bulk;
mod directory;
mod documents;
mod error;
mod feed;
mod finds;
mod handle;
mod ids;
mod options;
pub mod runtime;
mod views;

pub use attachments::{AttachmentInfo, Reader, Writer};
pub use batch::{Batch, Rows};
pub use bulk::Bulk;
pub use directory::{Database, Directory};
pub use document::ProcessIds;
pub use documents::WriteResult;
pub use error::Error;
pub use feed::{Feed, Piece};
pub use handle::Handle;
pub use ids::Ids;

/// An answer of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Size of a batch of rows, in bytes, approximately.
const BATCH_BYTES: usize = 64 << 10;
