//! Confines processes that run users' code, and protects the server from them.
//!
//! A worker process calls [`close_descriptors`] first, then [`deny_files`] and [`deny_calls`],
//! before it reads the first byte of a user's code. Its later needs are in `calls`: memory,
//! its pipes, clocks, and the end. Each step is left out where the kernel does not have it;
//! [`of_this_kernel`] reports what it has.

#![deny(unsafe_code)]

mod calls;
mod descriptors;
mod files;
mod local_time;

use std::fs::{read_to_string, write};
use std::io;
use std::sync::OnceLock;
use std::thread;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

pub use calls::deny_calls;
pub use descriptors::{close_descriptors, keep_descriptors};
pub use files::deny_files;
pub use local_time::read_time_zone;

/// The `oom_score_adj` of processes that run users' code, from 0 to 1000. The kernel kills higher
/// ones first when memory runs out.
const OOM_SCORE: i32 = 500;

/// The mechanisms that confine a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// Landlock: denies files, TCP connections and signals to other processes.
    pub files: bool,
    /// seccomp: denies system calls that a worker does not need.
    pub calls: bool,
}

impl Confinement {
    /// Returns the kernel's names of the missing mechanisms, or `None` if none is missing.
    pub fn missing(self) -> Option<&'static str> {
        match (self.files, self.calls) {
            (true, true) => None,
            (false, true) => Some("Landlock"),
            (true, false) => Some("seccomp"),
            (false, false) => Some("Landlock and seccomp"),
        }
    }
}

/// Returns the mechanisms that this kernel and the container allow. They are tested once, in a
/// separate thread.
pub fn of_this_kernel() -> Confinement {
    static FOUND: OnceLock<Confinement> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let attempt = || Confinement {
            files: deny_files().unwrap_or(false),
            calls: calls::deny_in_this_thread().is_ok(),
        };
        let thread = thread::Builder::new().name("confined".into());
        let attempt = thread.spawn(attempt).map(thread::JoinHandle::join);
        attempt.ok().and_then(Result::ok).unwrap_or(Confinement {
            files: false,
            calls: false,
        })
    })
}

/// Prevents other processes of the same user, such as query servers, from accessing this one's
/// memory. It also disables core dumps.
///
/// # Errors
/// The kernel's.
pub fn hide_memory() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Marks a process, or this one if `None`, to be killed before others when memory runs out.
///
/// # Errors
/// The kernel's; a process that has ended, or is another user's.
pub fn end_early(process: Option<u32>) -> io::Result<()> {
    let process = process.map_or("self".into(), |process| process.to_string());
    let path = format!("/proc/{process}/oom_score_adj");
    let own: i32 = read_to_string(&path)?.trim().parse().unwrap_or(0);
    match own < OOM_SCORE {
        true => write(&path, OOM_SCORE.to_string()),
        false => Ok(()),
    }
}
