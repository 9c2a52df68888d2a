//! A database: JSON text in, JSON text out.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::attachments::{Reader, Writer};
use crate::bulk::Bulk;
use crate::error::detached;
use crate::json::{document, string, text_of};
use crate::rows::{Feed, Rows};
use crate::wait::{soon, wait};

/// A database.
#[pyclass(frozen, module = "settee._settee")]
pub struct Database(embedded::Database);

impl Database {
    pub fn new(db: embedded::Database) -> Database {
        Database(db)
    }
}

/// A written document for Python: its id and revision.
pub type WrittenPair = (String, String);

pub fn pair(written: embedded::WriteResult) -> WrittenPair {
    (written.id, written.rev)
}

#[pymethods]
impl Database {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Counts and sizes, as JSON text.
    fn info(&self, py: Python<'_>) -> PyResult<String> {
        detached(py, || self.0.info())
    }

    /// Starts a compaction.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.0.compact())
    }

    /// A document, as JSON text.
    fn get<'py>(&self, py: Python<'py>, id: &str, options: &str) -> PyResult<Bound<'py, PyString>> {
        let text = detached(py, || self.0.document(id, options))?;
        string(py, &text)
    }

    /// Writes a document: a `dict`, or JSON text.
    fn put(&self, py: Python<'_>, doc: &Bound<'_, PyAny>, options: &str) -> PyResult<WrittenPair> {
        let text = document(doc)?;
        wait(py, self.0.put(&text, options), soon).map(pair)
    }

    /// Deletes a document.
    fn delete(&self, py: Python<'_>, id: &str, rev: &str, options: &str) -> PyResult<WrittenPair> {
        wait(py, self.0.delete(id, rev, options), soon).map(pair)
    }

    /// Writes documents, and returns the outcome of each, as JSON text.
    fn bulk<'py>(
        &self,
        py: Python<'py>,
        docs: &Bound<'py, PyAny>,
        options: &str,
    ) -> PyResult<Bound<'py, PyString>> {
        let mut texts = Vec::with_capacity(docs.len().unwrap_or(0));
        for doc in docs.try_iter()? {
            texts.push(document(&doc?)?);
        }
        let answer = wait(py, self.0.bulk(&texts, options), soon)?;
        string(py, &answer)
    }

    /// Begins a bulk whose attachments come as streams.
    fn begin_bulk(&self, py: Python<'_>, options: &str) -> PyResult<Bulk> {
        detached(py, || self.0.begin_bulk(options)).map(Bulk::new)
    }

    /// Documents by id.
    fn all_docs(&self, py: Python<'_>, options: &str) -> PyResult<Rows> {
        detached(py, || self.0.all_docs(options)).map(Rows::new)
    }

    /// Rows of a view; `progress` is called with changes done and their number while an index is built.
    fn view(
        &self,
        py: Python<'_>,
        design: &str,
        view: &str,
        options: &str,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Rows> {
        let look = || self.tell(py, design, progress);
        wait(py, self.0.view(design, view, options), look).map(Rows::new)
    }

    /// Updates an index; `progress` as for `view`.
    fn build_index(
        &self,
        py: Python<'_>,
        design: &str,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let look = || self.tell(py, design, progress);
        wait(py, self.0.build_index(design), look)
    }

    /// Opens a feed.
    fn changes(&self, py: Python<'_>, options: &str) -> PyResult<Feed> {
        detached(py, || self.0.changes(options)).map(Feed::new)
    }

    /// Documents that match a query, which is a `dict`.
    fn find(&self, py: Python<'_>, query: &Bound<'_, PyAny>) -> PyResult<Rows> {
        let query = text_of(query)?;
        wait(py, self.0.find(&query), soon).map(Rows::new)
    }

    /// Which index would answer a query, as JSON text.
    fn explain<'py>(
        &self,
        py: Python<'py>,
        query: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyString>> {
        let query = text_of(query)?;
        let answer = detached(py, || self.0.explain(&query))?;
        string(py, &answer)
    }

    /// The indexes, as JSON text.
    fn indexes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let answer = detached(py, || self.0.indexes())?;
        string(py, &answer)
    }

    /// Makes an index, and answers JSON text.
    fn create_index(&self, py: Python<'_>, definition: &Bound<'_, PyAny>) -> PyResult<String> {
        let definition = text_of(definition)?;
        wait(py, self.0.create_index(&definition), soon)
    }

    /// Deletes an index.
    fn delete_index(&self, py: Python<'_>, design: &str, name: &str) -> PyResult<()> {
        wait(py, self.0.delete_index(design, name), soon)
    }

    /// Opens an attachment.
    fn attachment(&self, py: Python<'_>, id: &str, name: &str, options: &str) -> PyResult<Reader> {
        detached(py, || self.0.attachment(id, name, options)).map(Reader::new)
    }

    /// Begins to write an attachment.
    fn put_attachment(
        &self,
        py: Python<'_>,
        id: &str,
        name: &str,
        options: &str,
    ) -> PyResult<Writer> {
        detached(py, || self.0.put_attachment(id, name, options)).map(Writer::new)
    }

    /// Removes an attachment.
    fn delete_attachment(
        &self,
        py: Python<'_>,
        id: &str,
        name: &str,
        rev: &str,
    ) -> PyResult<WrittenPair> {
        wait(py, self.0.delete_attachment(id, name, rev), soon).map(pair)
    }
}

impl Database {
    fn tell(
        &self,
        py: Python<'_>,
        design: &str,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let Some(tell) = progress else {
            return Ok(());
        };
        if let Some((done, total)) = detached(py, || self.0.progress(design))? {
            tell.call1((done, total))?;
        }
        Ok(())
    }
}
