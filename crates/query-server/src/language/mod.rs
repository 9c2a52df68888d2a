//! The traits of a language of users' functions: [`Mapper`] runs map functions, [`Reducer`] custom reduce functions, and
//! [`Designs`] all other functions of design documents.
//!
//! Documents, keys and values are JSON text. All calls block: the caller is a worker thread. Nothing here runs a function:
//! the crate `functions` has the JavaScript engine, the rest of this crate the languages that run in processes of their own.

mod design;
mod error;
mod line;
mod map;
mod reduce;
mod slice;

pub use self::design::{DesignDoc, Designs, ListIo};
pub use self::error::{ANSWER_TIME_LIMIT, ERROR_BYTES_MAX, Error, MEMORY_LIMIT, TIME_LIMIT};
pub use self::line::one_line;
pub use self::map::{
    Doc, Emit, Emits, Indexes, MapFailure, MapGroup, Mapper, Mark, Owner, THROWN_BYTES_MAX,
};
pub use self::reduce::{ReduceRow, Reducer};
pub use self::slice::{EMITS_BYTES_MAX, SLICE};
