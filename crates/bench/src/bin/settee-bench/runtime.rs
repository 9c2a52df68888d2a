//! Threads for connections.

use command_line::Failure;
use tokio::runtime::{Builder, Runtime};

/// Starts a runtime with a thread for each processor.
pub fn start() -> Result<Runtime, Failure> {
    Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::new)
}
