//! Errors, as Python exceptions.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

static MADE_BY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The exception that `settee._errors.error` makes of CouchDB's three words.
pub fn exception(py: Python<'_>, e: &embedded::Error) -> PyErr {
    let made = MADE_BY.import(py, "settee._errors", "error");
    let made = made.and_then(|make| make.call1((e.status, &*e.error, &*e.reason)));
    made.map_or_else(|e| e, PyErr::from_value)
}

/// Something that is done without the interpreter's lock.
pub fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> embedded::Result<T> + Send,
) -> PyResult<T> {
    py.detach(work).map_err(|e| exception(py, &e))
}
