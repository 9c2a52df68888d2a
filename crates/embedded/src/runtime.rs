//! A Tokio runtime for hosts that have none.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

use crate::{Error, Result};

/// The runtime, and the process whose threads it has.
static CURRENT: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

/// Creates a runtime whose threads may write to the disk themselves: twice the number of cores.
///
/// # Errors
/// When the system cannot create threads.
pub fn new() -> Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    Builder::new_multi_thread()
        .worker_threads(2 * cores)
        .thread_name("settee")
        .on_thread_start(database::commit_on_this_thread)
        .enable_time()
        .build()
        .map_err(|e| Error::new(500, "internal_server_error", e.to_string()))
}

/// Returns the runtime of this process.
///
/// # Errors
/// [`Error::forked`] in a fork of a process that has one; or when the system gives no threads.
pub fn current() -> Result<Arc<Runtime>> {
    let process = std::process::id();
    let mut current = CURRENT.lock();
    match &*current {
        Some((of, runtime)) if *of == process => Ok(runtime.clone()),
        Some(_) => Err(Error::forked()),
        None => {
            let runtime = Arc::new(new()?);
            *current = Some((process, runtime.clone()));
            Ok(runtime)
        }
    }
}

/// Waits on this thread for at most this time, so that the host can check in between whether to
/// continue; `None` when the work is unfinished, and this is to be called again. A thread that
/// waits this way may write to the disk itself.
pub fn wait_for<W: Future + Unpin>(
    runtime: &Runtime,
    work: &mut W,
    at_most: Duration,
) -> Option<W::Output> {
    database::commit_on_this_thread();
    runtime
        .block_on(async { tokio::time::timeout(at_most, work).await })
        .ok()
}
