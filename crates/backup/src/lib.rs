//! Backup targets and their contents. A [`Target`] holds many backups of one server, each a list of
//! files by the hashes of their contents ([`Manifest`]), so that each adds only the files changed
//! since the last one.
//!
//! Treats the files of a store as bytes with names. *Does not know* their content, servers,
//! settings, or when backups are made.
#![forbid(unsafe_code)]

mod error;
mod hashes;
mod lease;
mod make;
mod manifest;
mod permit;
mod progress;
mod prune;
mod rate;
mod read;
mod restore;
mod target;
mod verify;

pub use error::{Error, Result};
pub use make::{Copy, back_up, names_in};
pub use manifest::{File, Manifest, parse_time, time_text};
pub use permit::{Permit, existing, has_permit};
pub use progress::Progress;
pub use prune::{PruneResult, Retention, prune};
pub use restore::{BackupSelection, find, restore};
pub use target::{S3Options, Target, TargetName, holds_backups, is_of_server};
pub use verify::{VerifyResult, verify};
