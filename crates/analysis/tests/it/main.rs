//! The integration tests of `analysis`: one program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;
mod properties;
mod queries;
mod words;
