//! Attachments as streams of bytes.

use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::database::{WrittenPair, pair};
use crate::error::detached;
use crate::wait::{soon, wait};

/// The bytes of an attachment.
#[pyclass(frozen, module = "settee._settee")]
pub struct Reader {
    reader: embedded::Reader,
    /// The rest of the last piece.
    left: Mutex<Bytes>,
}

impl Reader {
    pub fn new(reader: embedded::Reader) -> Reader {
        Reader {
            reader,
            left: Mutex::new(Bytes::new()),
        }
    }
}

#[pymethods]
impl Reader {
    /// As it was said when it was written.
    #[getter]
    fn content_type(&self) -> &str {
        &self.reader.info().content_type
    }

    /// Bytes of the whole.
    #[getter]
    fn length(&self) -> u64 {
        self.reader.info().length
    }

    /// `md5-…`
    #[getter]
    fn digest(&self) -> &str {
        &self.reader.info().digest
    }

    /// At most `size` of the next bytes; empty at the end.
    fn read<'py>(&self, py: Python<'py>, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        py.check_signals()?;
        let piece = detached(py, || {
            let mut left = self.left.lock();
            if left.is_empty() {
                *left = self.reader.next()?.unwrap_or_default();
            }
            let size = size.min(left.len());
            Ok(left.split_to(size))
        })?;
        Ok(PyBytes::new(py, &piece))
    }

    /// Lets go of it.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.reader.close());
    }
}

/// An attachment that is being written.
#[pyclass(frozen, module = "settee._settee")]
pub struct Writer(embedded::Writer);

impl Writer {
    pub fn new(writer: embedded::Writer) -> Writer {
        Writer(writer)
    }
}

#[pymethods]
impl Writer {
    /// Takes the next bytes.
    fn write(&self, py: Python<'_>, bytes: &Bound<'_, PyBytes>) -> PyResult<()> {
        let bytes = Bytes::copy_from_slice(bytes.as_bytes());
        wait(py, self.0.write(bytes), soon)
    }

    /// Ends the upload, and writes the document's new revision.
    fn finish(&self, py: Python<'_>) -> PyResult<WrittenPair> {
        wait(py, self.0.finish(), soon).map(pair)
    }

    /// Discards it.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}
