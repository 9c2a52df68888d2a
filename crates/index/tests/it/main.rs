//! The integration tests of `index`: one program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod failures;
mod fuzz;
mod long_rows;
mod model;
mod reduce_recorded;
mod row_cache;
mod support;
