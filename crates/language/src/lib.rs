//! What a language of users' functions has to do: run map functions ([`Mapper`]), custom reduce functions ([`Reducer`]) and
//! all other functions of design documents ([`Designs`]).
//!
//! Documents, keys and values are JSON text. All calls block: the caller is a worker thread. Nothing here runs a function;
//! `functions` has the JavaScript engine, `query-server` the languages that run in processes of their own.

#![forbid(unsafe_code)]

mod design;
mod error;
mod line;
mod map;
mod reduce;

pub use design::{DesignDoc, Designs, ListIo};
pub use error::{Error, TIME_LIMIT};
pub use line::one_line;
pub use map::{Doc, Emit, Emits, Indexes, MapGroup, Mapper, Mark, Owner, THROWN_BYTES_MAX, Thrown};
pub use reduce::{ReduceRow, Reducer};

use std::time::Duration;

/// Work that is made of many calls lets others go first when it has had its place for so long.
pub const SLICE: Duration = Duration::from_millis(250);
