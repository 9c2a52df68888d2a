//! The library that `index.js` loads: databases in a Node process, with JSON text in and out. The
//! public API is in JavaScript.
//!
//! Functions that read or write return promises, and run on threads of a separate runtime.

// In a test build, which is never run, napi's macros register nothing, so functions for Node are
// unused.
#![cfg_attr(test, allow(dead_code))]

mod attachments;
mod bulk;
mod cancel;
mod database;
mod directory;
mod error;
mod ids;
mod rows;

use napi_derive::{module_init, napi};

#[module_init]
fn init() {
    // Without it the first call returns the system's error.
    if let Ok(runtime) = embedded::runtime::new() {
        napi::bindgen_prelude::create_custom_tokio_runtime(runtime);
    }
}

/// The version of the package.
#[napi]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
