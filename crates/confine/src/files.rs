//! Landlock: the calling thread, and the threads that it starts, can open no files and make no
//! connections.

use std::io;

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetStatus, Scope};

/// The newest version of the kernel's interface that was tested. On older kernels the available
/// restrictions apply.
const INTERFACE: ABI = ABI::V7;

/// Denies this thread, and the threads that it will start, all files, TCP connections, and signals
/// to other processes. Open files stay open. Returns whether the kernel enforces this.
///
/// # Errors
/// The kernel's, where it has Landlock.
pub fn deny_files() -> io::Result<bool> {
    let restrict = || {
        Ruleset::default()
            .handle_access(AccessFs::from_all(INTERFACE))?
            .handle_access(AccessNet::from_all(INTERFACE))?
            .scope(Scope::from_all(INTERFACE))?
            .create()?
            .restrict_self()
    };
    let status = restrict().map_err(io::Error::other)?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}
