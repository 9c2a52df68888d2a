//! The library that `index.js` loads: databases in a Node process, with JSON text in and out. What people use is in JavaScript.
//!
//! What reads or writes is a promise, and is done by threads of a runtime of its own.

// In a build for tests, which nothing runs, napi's macros register nothing, so that nobody calls what Node would.
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
    // Without it the first call says what the system refuses.
    if let Ok(runtime) = embedded::runtime::new() {
        napi::bindgen_prelude::create_custom_tokio_runtime(runtime);
    }
}

/// The version of the package.
#[napi]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
