//! Databases in a host's process: what the bindings for Python and Node share.
//!
//! [`database`] is an API for Rust. This is one for hosts: options and documents come as JSON text and go as JSON text, which
//! each host turns into values of its own. Everything that a host may forget to let go of is a [`Handle`], so that
//! [`Directory::close`] closes it and a forked process never touches it. What goes wrong is an [`Error`] with CouchDB's
//! status, `error` and `reason`.
//!
//! Functions that are not asynchronous block for the time of a read. Those that are need a Tokio runtime:
//! [`runtime::current`] has one for hosts without.

#![forbid(unsafe_code)]

mod attachments;
mod batch;
mod directory;
mod documents;
mod error;
mod feed;
mod finds;
mod handle;
mod options;
pub mod runtime;
mod views;

pub use attachments::{AttachmentInfo, Reader, Writer};
pub use batch::{Batch, Rows};
pub use directory::{Database, Directory};
pub use documents::WriteResult;
pub use error::Error;
pub use feed::{Feed, Piece};
pub use handle::Handle;

/// An answer of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Rows come in batches of about so many bytes.
const BATCH_BYTES: usize = 64 << 10;
