//! The integration tests of `query-server`: one program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;
mod design_functions;
mod designs;
mod languages;
mod nasty;
mod pools;
