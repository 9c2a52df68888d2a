//! The integration tests of `mango`: one program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod recorded;
mod selectors;
mod text_cover;
