//! The integration tests of `document`: one program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod collation;
mod fuzz;
mod revision_ids;
