//! Bulks whose attachments come as streams.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::error::detached;
use crate::json::{document, string};
use crate::wait::{soon, wait};

/// A bulk that is being gathered.
#[pyclass(frozen, module = "settee._settee")]
pub struct Bulk(embedded::Bulk);

impl Bulk {
    pub fn new(bulk: embedded::Bulk) -> Bulk {
        Bulk(bulk)
    }
}

#[pymethods]
impl Bulk {
    /// Adds a document, and returns the names of its attachments whose content follows.
    fn add(&self, py: Python<'_>, doc: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
        let text = document(doc)?;
        detached(py, || self.0.add(&text))
    }

    /// Begins the content of the next attachment.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.0.begin())
    }

    /// Takes the next bytes of the content.
    fn write(&self, py: Python<'_>, bytes: &Bound<'_, PyBytes>) -> PyResult<()> {
        let bytes = Bytes::copy_from_slice(bytes.as_bytes());
        wait(py, self.0.write(bytes), soon)
    }

    /// Ends the content.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, self.0.end(), soon)
    }

    /// Writes all documents, and returns their outcomes as JSON text.
    fn commit<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let outcomes = wait(py, self.0.commit(), soon)?;
        string(py, &outcomes)
    }

    /// Gives it up.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}
