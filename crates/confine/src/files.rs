//! Landlock: this thread, and those that it starts, open no file and connect to nothing.

use std::io;

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetStatus, Scope};

/// The newest interface of the kernel that this was tried with. Of an older one, what there is is used.
const INTERFACE: ABI = ABI::V7;

/// Takes all files, connections by TCP, and signals to other processes from this thread and those that it will start. What is open
/// stays open. Answers whether the kernel does so.
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
