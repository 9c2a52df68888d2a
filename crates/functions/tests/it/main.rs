//! The integration tests of `functions`: one program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod js_dates;
mod js_document;
mod js_hostile;
mod js_isolation;
mod js_map;
mod js_property;
mod js_reduce;
mod js_worker;
mod records;
mod support;
