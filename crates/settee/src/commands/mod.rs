//! The commands that are clients of a server: one file each.

pub mod backup;
pub mod bench;
pub mod load;
pub mod migrate;

use crate::Failure;

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::new)
}
