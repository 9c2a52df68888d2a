//! The commands other than `serve`: one file each. Most are clients of a server.

/// Prints a line, as `println` does; ignores a closed pipe.
macro_rules! say {
    ($($what:tt)*) => {
        command_line::print(format_args!($($what)*))
    };
}

pub mod access;
pub mod backup;
pub mod bench;
pub mod check;
pub mod check_functions;
pub mod cluster;
pub mod completions;
pub mod doctor;
pub mod embedded_writer;
pub mod export;
pub mod healthcheck;
pub mod load;
pub mod man;
pub mod migrate;
pub mod monitoring;
pub mod profile;
pub mod query;
pub mod repair;
mod server;
pub mod top;

use crate::Failure;

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::new)
}
