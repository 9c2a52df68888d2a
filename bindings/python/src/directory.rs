//! An open directory.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::database::Database;
use crate::error::{detached, exception};
use crate::wait::{soon, wait};

/// An open directory.
#[pyclass(frozen, module = "settee._settee")]
pub struct Directory(embedded::Directory);

#[pymethods]
impl Directory {
    /// Opens a directory; `options` are JSON text, or empty.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, options: &str) -> PyResult<Directory> {
        let opened = detached(py, || embedded::Directory::open(&path, options));
        opened.map(Directory)
    }

    /// Where the store is.
    #[getter]
    fn path(&self) -> PathBuf {
        self.0.path().to_path_buf()
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Names of databases.
    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.0.names().map_err(|e| exception(py, &e))
    }

    /// Whether there is a database of this name.
    fn has(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.0.has(name).map_err(|e| exception(py, &e))
    }

    /// Makes a database.
    fn create(&self, py: Python<'_>, name: &str, options: &str) -> PyResult<Database> {
        let made = wait(py, self.0.create(name, options), soon);
        made.map(Database::new)
    }

    /// The database of this name.
    fn database(&self, py: Python<'_>, name: &str) -> PyResult<Database> {
        let found = detached(py, || self.0.database(name));
        found.map(Database::new)
    }

    /// Deletes a database.
    fn delete(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        wait(py, self.0.delete(name), soon)
    }

    /// Compactions and index builds under way, as JSON text.
    fn tasks(&self, py: Python<'_>) -> PyResult<String> {
        detached(py, || self.0.tasks())
    }

    /// Closes it, with everything that was opened in it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.0.close())
    }
}
