//! Data of `/proc` that is read while it can still be opened, for profiles of a process that
//! confines itself.

use std::fs;
use std::io;
use std::sync::OnceLock;

use crate::sampler;

static REMEMBERED: OnceLock<ProcessState> = OnceLock::new();

/// The state of a process when it called [`remember`].
pub(crate) struct ProcessState {
    /// The path of its program.
    pub program: String,
    /// Its `maps`.
    pub maps: String,
    /// Its threads, by the kernel's numbers, and what each is called.
    pub threads: Vec<(u32, String)>,
}

/// Makes later profiles of this process use what is read now. For a process that starts no more
/// threads, maps no more code, and will not be allowed to open files.
///
/// # Errors
/// Errors of the kernel.
pub fn remember() -> io::Result<()> {
    sampler::find_memory();
    let threads = threads()?.into_iter();
    let remembered = ProcessState {
        program: fs::read_link("/proc/self/exe")?
            .to_string_lossy()
            .into_owned(),
        maps: fs::read_to_string("/proc/self/maps")?,
        threads: threads.map(|thread| (thread, name_of(thread))).collect(),
    };
    REMEMBERED.get_or_init(|| remembered);
    Ok(())
}

pub(crate) fn get() -> Option<&'static ProcessState> {
    REMEMBERED.get()
}

/// Returns the threads that the process has, by the kernel's numbers.
pub(crate) fn threads() -> io::Result<Vec<u32>> {
    if let Some(known) = get() {
        return Ok(known.threads.iter().map(|(thread, _)| *thread).collect());
    }
    let entries = fs::read_dir("/proc/self/task")?.flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    Ok(entries.filter_map(number).collect())
}

/// Returns the name of a thread; empty for one that has ended.
pub(crate) fn name_of(thread: u32) -> String {
    if let Some(known) = get() {
        let found = known.threads.iter().find(|(number, _)| *number == thread);
        return found.map_or_else(String::new, |(_, name)| name.clone());
    }
    fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default()
}
