//! The module `settee._settee`: databases in a Python process, with JSON text in and out. The
//! public API is in Python, in `python/settee`.
//!
//! The interpreter's lock is released during reads, writes and waits. Waiting threads check for
//! signals every [`wait::LOOK_EVERY`].

#![forbid(unsafe_code)]

mod attachments;
mod bulk;
mod database;
mod directory;
mod error;
mod ids;
mod json;
mod rows;
mod wait;

use pyo3::prelude::*;

/// Settee's databases in this process.
#[pymodule]
fn _settee(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<directory::Directory>()?;
    module.add_class::<database::Database>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<rows::Feed>()?;
    module.add_class::<bulk::Bulk>()?;
    module.add_class::<attachments::Reader>()?;
    module.add_class::<attachments::Writer>()?;
    module.add_class::<ids::Ids>()?;
    module.add_function(wrap_pyfunction!(json::dumps, module)?)?;
    module.add("version", env!("CARGO_PKG_VERSION"))
}
