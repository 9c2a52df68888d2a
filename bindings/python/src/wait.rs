//! Waiting, so that Ctrl-C gets through.

use std::pin::pin;
use std::time::{Duration, Instant};

use embedded::runtime;
use pyo3::prelude::*;

use crate::error::exception;

/// Interval at which a waiting thread checks for signals, and reports progress.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits for work. Periodically it checks for signals and calls `look`: an exception of either ends
/// the wait.
pub fn wait<T: Send>(
    py: Python<'_>,
    work: impl Future<Output = embedded::Result<T>> + Send,
    mut look: impl FnMut() -> PyResult<()>,
) -> PyResult<T> {
    let runtime = runtime::current().map_err(|e| exception(py, &e))?;
    let mut work = pin!(work);
    loop {
        let done = py.detach(|| runtime::wait_for(&runtime, &mut work, LOOK_EVERY));
        if let Some(done) = done {
            return done.map_err(|e| exception(py, &e));
        }
        py.check_signals()?;
        look()?;
    }
}

/// Waits for work, but no longer than to the deadline: returns `None` when that has passed.
pub fn wait_until(
    py: Python<'_>,
    deadline: Option<Instant>,
    work: impl Future<Output = embedded::Result<()>> + Send,
) -> PyResult<Option<()>> {
    let runtime = runtime::current().map_err(|e| exception(py, &e))?;
    let mut work = pin!(work);
    loop {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        let slice = left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY));
        let done = py.detach(|| runtime::wait_for(&runtime, &mut work, slice));
        if let Some(done) = done {
            return done.map(Some).map_err(|e| exception(py, &e));
        }
        py.check_signals()?;
        if left.is_some_and(|left| left <= slice) {
            return Ok(None);
        }
    }
}

/// Does nothing: the `look` of work that is too short to report progress.
pub fn soon() -> PyResult<()> {
    Ok(())
}
