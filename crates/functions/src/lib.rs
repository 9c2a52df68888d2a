//! Runs users' code: the functions of design documents, in JavaScript in this process (or in worker
//! processes of the same binary), and in any language by CouchDB's query-server line protocol.
//!
//! It knows documents, keys and values as JSON text; it does not know indexes, databases or HTTP.
//! All calls block: the caller is a worker thread.
//!
//! The module `language` of the crate `query-server` defines the traits of a language, which this crate exports too.
//! QuickJS itself is the crate `quickjs`, the analysis of map functions `projection`, other languages `query-server`.

#![forbid(unsafe_code)]

pub mod counters;
mod functions;
pub mod js;
mod languages;
mod places;
mod spidermonkey;
pub mod times;

pub use functions::{Functions, JAVASCRIPT, language_name};
pub use languages::{Languages, NoLanguages};
pub use places::{Admission, Cause, Lane, Place, Places, Requester, Share};
pub use projection::{
    DesignFunction, Difference, Effect, Form, KINDS, Kind, Refusal, design_functions, differences,
};
pub use query_server;
pub use query_server::language::{
    DesignDoc, Designs, Doc, EMITS_BYTES_MAX, ERROR_BYTES_MAX, Emit, Emits, Error, Indexes, ListIo,
    MEMORY_LIMIT, MapFailure, MapGroup, Mapper, Owner, ReduceRow, Reducer, SLICE, THROWN_BYTES_MAX,
    TIME_LIMIT,
};
pub use spidermonkey::{UTC, dialect};
