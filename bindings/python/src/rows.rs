//! Rows and changes, some at a time.

use std::time::{Duration, Instant};

use embedded::Piece;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::error::{detached, exception};
use crate::json::string;
use crate::wait::wait_until;

/// Rows of a listing, of a view or of a query.
#[pyclass(frozen, module = "settee._settee")]
pub struct Rows(embedded::Rows);

impl Rows {
    pub fn new(rows: embedded::Rows) -> Rows {
        Rows(rows)
    }
}

#[pymethods]
impl Rows {
    /// The members before the rows, as JSON text.
    fn head(&self) -> String {
        self.0.head()
    }

    /// The members after the rows, as JSON text.
    fn tail(&self, py: Python<'_>) -> PyResult<String> {
        detached(py, || self.0.tail())
    }

    /// The next rows as JSON text of a list; `None` at the end.
    fn next_array<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        py.check_signals()?;
        let batch = detached(py, || Ok(self.0.next()?.map(embedded::Batch::into_array)))?;
        batch.map(|text| string(py, &text)).transpose()
    }

    /// The next rows, each as JSON text; `None` at the end.
    fn next_texts<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        py.check_signals()?;
        let batch = detached(py, || self.0.next())?;
        batch.map(|batch| texts(py, &batch)).transpose()
    }

    /// Lets go of its snapshot.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}

fn texts<'py>(py: Python<'py>, batch: &embedded::Batch) -> PyResult<Bound<'py, PyList>> {
    let rows = batch.rows().into_iter().map(|row| string(py, row));
    PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)
}

/// A feed of changes.
#[pyclass(frozen, module = "settee._settee")]
pub struct Feed {
    feed: Mutex<embedded::Feed>,
    /// A second handle of the feed, for calls that need no lock.
    shared: embedded::Feed,
}

impl Feed {
    pub fn new(feed: embedded::Feed) -> Feed {
        Feed {
            feed: Mutex::new(feed.clone()),
            shared: feed,
        }
    }

    /// The next rows; `None` at the end, or after the time-out.
    fn next(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<Option<embedded::Batch>> {
        let timeout = timeout_s.map(|s| Duration::try_from_secs_f64(s.max(0.0)));
        // As good as for ever.
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t.ok()?));
        loop {
            py.check_signals()?;
            let piece = detached(py, || self.feed.lock().next_piece())?;
            match piece {
                Piece::Rows(batch) => return Ok(Some(batch)),
                Piece::End => return Ok(None),
                Piece::Wait => {
                    let feed = py.detach(|| self.feed.lock().clone());
                    if wait_until(py, deadline, feed.wait())?.is_none() {
                        return Ok(None);
                    }
                }
            }
        }
    }
}

#[pymethods]
impl Feed {
    /// The next changes as JSON text of a list; `None` at the end, or when none came within this
    /// number of seconds.
    #[pyo3(signature = (timeout_s))]
    fn next_array<'py>(
        &self,
        py: Python<'py>,
        timeout_s: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyString>>> {
        let batch = self.next(py, timeout_s)?;
        let text = batch.map(|batch| string(py, &batch.into_array()));
        text.transpose()
    }

    /// The next changes, each as JSON text; `None` as of `next_array`.
    #[pyo3(signature = (timeout_s))]
    fn next_texts<'py>(
        &self,
        py: Python<'py>,
        timeout_s: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let batch = self.next(py, timeout_s)?;
        batch.map(|batch| texts(py, &batch)).transpose()
    }

    /// The seq to resume from later.
    fn last_seq(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.shared.last_seq())
            .map_err(|e| exception(py, &e))
    }

    /// Lets go of its snapshot.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.shared.close());
    }
}
