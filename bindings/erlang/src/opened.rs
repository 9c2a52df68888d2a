//! Directories that are open in this node. One is closed by a call, at the end of its owner, or when
//! nothing refers to it or to anything that was opened in it, whichever comes first.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use embedded::{Directory, Error, Result};
use parking_lot::{Condvar, Mutex};
use rustler::{Atom, Env, LocalPid, Monitor, OwnedEnv, Resource, ResourceArc};

use crate::answer::is_alive;

/// An open directory for all that was opened in it. It is closed when the last of them is dropped.
pub struct Opened {
    /// The directory.
    pub directory: Directory,
    /// The atom that stands for JSON's `null`.
    pub null: Atom,
    number: u64,
    /// Monitors the owner, for as long as anything refers to the directory.
    _watch: Option<ResourceArc<Watch>>,
}

/// A monitor of the owner of the directory with this number.
struct Watch(u64);

#[rustler::resource_impl]
impl Resource for Watch {
    fn down<'a>(&'a self, _env: Env<'a>, _owner: LocalPid, _monitor: Monitor) {
        close_later(self.0);
    }
}

struct Entry {
    number: u64,
    /// Canonical path of the store.
    path: PathBuf,
    owner: Option<LocalPid>,
    directory: Directory,
    is_closing: bool,
}

struct Registry {
    entries: Vec<Entry>,
    numbers: u64,
}

static OPEN: Mutex<Registry> = Mutex::new(Registry {
    entries: Vec::new(),
    numbers: 0,
});
/// Notified when an entry is removed.
static REMOVED: Condvar = Condvar::new();

/// A directory that is being closed is free within this time.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(70);
/// Interval at which the owner of a directory is checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Wait for the list of directories at the end of the node, when other threads may have stopped.
const EXIT_LOCK_TIME_MAX: Duration = Duration::from_secs(1);

/// Opens a directory. If it is open in this node, but is being closed or its owner has ended, waits
/// until it is free: a supervisor restarts an owner before Erlang frees what it had. Blocks.
///
/// # Errors
/// Those of [`Directory::open`].
pub fn open(
    path: &Path,
    options: &str,
    owner: Option<LocalPid>,
    null: Atom,
) -> Result<Arc<Opened>> {
    let began = Instant::now();
    let mut is_retried = false;
    loop {
        let e = match Directory::open(path, options) {
            Ok(directory) => return add(directory, owner, null),
            Err(e) => e,
        };
        if e.error != "in_use" || began.elapsed() > CLOSING_TIME_MAX {
            return Err(e);
        }
        match wait_for_close(path) {
            Use::Closing => is_retried = false,
            // It may have been closed since the attempt.
            Use::Unknown if !is_retried => is_retried = true,
            Use::Unknown | Use::Open => return Err(e),
        }
    }
}

/// The user of a directory that is not free.
enum Use {
    /// It is open in this node.
    Open,
    /// It is being closed, or will be.
    Closing,
    /// It is not open in this node.
    Unknown,
}

fn add(directory: Directory, owner: Option<LocalPid>, null: Atom) -> Result<Arc<Opened>> {
    let path = directory.path();
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let mut open = OPEN.lock();
    open.numbers += 1;
    let number = open.numbers;
    open.entries.push(Entry {
        number,
        path,
        owner,
        directory: directory.clone(),
        is_closing: false,
    });
    drop(open);
    let watch = owner.map(|owner| watch(number, &owner)).transpose()?;
    Ok(Arc::new(Opened {
        directory,
        null,
        number,
        _watch: watch,
    }))
}

/// Monitors an owner. Called on a thread that is not a scheduler's.
fn watch(number: u64, owner: &LocalPid) -> Result<ResourceArc<Watch>> {
    let watch = ResourceArc::new(Watch(number));
    if watch.monitor(None, owner).is_none() {
        // It has ended meanwhile.
        close_later(number);
        return Err(Error::closed());
    }
    Ok(watch)
}

/// Returns the user of a directory, after a wait if it is being closed.
fn wait_for_close(path: &Path) -> Use {
    let Ok(path) = path.canonicalize() else {
        return Use::Unknown;
    };
    // A server's data directory has its store in a folder.
    let is_it = |entry: &&Entry| {
        entry.path == path || entry.path.parent().is_some_and(|parent| parent == path)
    };
    let mut open = OPEN.lock();
    let Some(entry) = open.entries.iter().find(is_it) else {
        return Use::Unknown;
    };
    let env = OwnedEnv::new();
    let has_ended = entry.owner.is_some_and(|owner| !is_alive(&env, owner));
    // The monitor closes it when the owner has ended, perhaps a little later than its supervisor
    // restarts it.
    if !entry.is_closing && !has_ended {
        return Use::Open;
    }
    REMOVED.wait_for(&mut open, LOOK_EVERY);
    Use::Closing
}

impl Opened {
    /// Closes it. Blocks. A second call waits for the first.
    ///
    /// # Errors
    /// Those of [`Directory::close`].
    pub fn close(&self) -> Result<()> {
        close(self.number)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        close_later(self.number);
    }
}

/// Starts to close a directory; `None` when it is closed, or being closed.
fn begin(number: u64) -> Option<Directory> {
    let mut open = OPEN.lock();
    let mut entries = open.entries.iter_mut();
    let entry = entries.find(|entry| entry.number == number && !entry.is_closing)?;
    entry.is_closing = true;
    Some(entry.directory.clone())
}

fn close_later(number: u64) {
    // From now on `open` knows that it is being closed.
    let Some(directory) = begin(number) else {
        return;
    };
    let thread = std::thread::Builder::new().name("settee-close".to_owned());
    // Without threads it stays open, and the end of the node closes it.
    let _ = thread.spawn(move || finish(number, &directory));
}

fn close(number: u64) -> Result<()> {
    if let Some(directory) = begin(number) {
        return finish(number, &directory);
    }
    let mut open = OPEN.lock();
    while open.entries.iter().any(|entry| entry.number == number) {
        REMOVED.wait(&mut open);
    }
    Ok(())
}

fn finish(number: u64, directory: &Directory) -> Result<()> {
    let closed = directory.close();
    OPEN.lock().entries.retain(|entry| entry.number != number);
    REMOVED.notify_all();
    closed
}

/// Closes all directories: at the end of the node, after which nothing can be written.
pub fn close_all() {
    let Some(mut open) = OPEN.try_lock_for(EXIT_LOCK_TIME_MAX) else {
        return;
    };
    let entries = std::mem::take(&mut open.entries);
    drop(open);
    for entry in entries {
        // It is too late to report an error.
        let _ = entry.directory.close();
    }
}
