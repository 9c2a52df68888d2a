//! Ids that a process gives its documents itself.

use embedded::ProcessIds;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::exception;

/// A source of ids. The interpreter's lock is held while an id is made, so that no thread is in the middle of one when the
/// process forks.
#[pyclass(frozen, module = "settee._settee")]
pub struct Ids(embedded::Ids);

#[pymethods]
impl Ids {
    /// `kind`: `sequential` or `monotonic`.
    #[new]
    fn new(py: Python<'_>, kind: &str, prefix: &str) -> PyResult<Ids> {
        let kind = match kind {
            "sequential" => ProcessIds::Sequential,
            "monotonic" => ProcessIds::Monotonic,
            _ => return Err(PyValueError::new_err("sequential or monotonic")),
        };
        let ids = embedded::Ids::new(kind, prefix);
        ids.map(Ids).map_err(|e| exception(py, &e))
    }

    /// The prefix.
    #[getter]
    fn prefix(&self) -> &str {
        self.0.prefix()
    }

    /// The next id.
    fn next(&self) -> String {
        self.0.next()
    }
}
