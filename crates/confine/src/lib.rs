//! Confines processes that run users' code, and protects the server from them.
//!
//! A worker process calls [`close_descriptors`] first, then [`deny_files`] and [`deny_calls`], before it reads the first byte of
//! a user's code. What it needs afterwards is in `calls`: memory, its pipes, clocks, and the end. Each step is left out where the
//! kernel does not have it; [`of_this_kernel`] reports what it has.

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

/// What the kernel ends first when memory runs out: `oom_score_adj` of processes that run users' code, 0 to 1000.
const OOM_SCORE: i32 = 500;

/// What confines a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// Landlock: no file, no connection by TCP, no signal to another process.
    pub files: bool,
    /// seccomp: no system call but those that a worker needs.
    pub calls: bool,
}

impl Confinement {
    /// What is missing, by the kernel's names; `None` if nothing is.
    pub fn missing(self) -> Option<&'static str> {
        match (self.files, self.calls) {
            (true, true) => None,
            (false, true) => Some("Landlock"),
            (true, false) => Some("seccomp"),
            (false, false) => Some("Landlock and seccomp"),
        }
    }
}

/// What this kernel, and the container that the process runs in, let a worker confine itself with. It is tried in a thread of its
/// own, once.
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

/// Keeps other processes of the same user, which query servers are, from reading and writing this one's memory. Core dumps of it
/// are not written either.
///
/// # Errors
/// The kernel's.
pub fn hide_memory() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Makes a process, or this one if it is none, one that the kernel ends before others when memory runs out.
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
