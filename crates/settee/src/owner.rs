//! Protection of root in directories that another user owns. The owner can replace entries with symbolic links
//! at any time, so root either drops its privileges or writes into a directory that the owner cannot enter.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use crate::Failure;

/// The owner and group of a directory.
type Owner = (Uid, Gid);

/// Permanently switches from root to the owner of a directory, or of the directory that contains it. Does nothing
/// when the process is not root, or when root owns the whole path. Call it before other threads start: it changes
/// the calling thread and the threads that it starts later.
///
/// # Errors
/// When the owner cannot be determined, or the kernel refuses the change.
pub fn work_as_owner_of(directory: &Path) -> Result<(), Failure> {
    let worked = match is_root() {
        true => owner_of(directory).and_then(|owner| owner.map_or(Ok(()), work_as)),
        false => Ok(()),
    };
    worked.map_err(|e| at(directory, &e))
}

/// Creates the directory `new` unless it exists, gives it to the owner of `other`, and switches to that owner as
/// [`work_as_owner_of`] does.
///
/// # Errors
/// When a directory cannot be read, created or given away.
pub fn make_for_owner_of(other: &Path, new: &Path) -> Result<(), Failure> {
    let owner = match is_root() {
        true => owner_of(other).map_err(|e| at(other, &e))?,
        false => None,
    };
    fs::create_dir_all(new).map_err(|e| at(new, &e))?;
    let is_empty = || fs::read_dir(new).is_ok_and(|mut entries| entries.next().is_none());
    // Only where root owns the whole path: elsewhere it could be replaced before the call.
    if let Some((user, group)) = owner
        && owner_of(new).map_err(|e| at(new, &e))?.is_none()
        && is_empty()
    {
        std::os::unix::fs::chown(new, Some(user.as_raw()), Some(group.as_raw()))
            .map_err(|e| at(new, &e))?;
    }
    work_as_owner_of(other)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn at(path: &Path, e: &io::Error) -> Failure {
    Failure::new(format!("{}: {e}", path.display()))
}

/// Returns the user that can replace a path or its target: the owner of its deepest component that root does not
/// own. For a path that does not exist, its deepest existing ancestor counts.
fn owner_of(path: &Path) -> io::Result<Option<Owner>> {
    let path = std::path::absolute(path)?;
    let existing = path
        .ancestors()
        .find(|path| fs::symlink_metadata(path).is_ok())
        .ok_or(io::ErrorKind::NotFound)?;
    // A link and its target can have different owners.
    let real = fs::canonicalize(existing)?;
    for path in real.ancestors().chain(existing.ancestors()) {
        let found = fs::symlink_metadata(path)?;
        if found.uid() != 0 {
            return Ok(Some((
                Uid::from_raw(found.uid()),
                Gid::from_raw(found.gid()),
            )));
        }
    }
    Ok(None)
}

// Groups first: only root may change them.
fn work_as((user, group): Owner) -> io::Result<()> {
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)?;
    Ok(())
}

/// A new directory that only root can enter until it is complete. Then the owner of its parent gets it.
pub struct Unfinished {
    parent: File,
    directory: File,
    /// The path for error messages.
    path: PathBuf,
    name: &'static str,
}

impl Unfinished {
    /// Creates it in `parent`, which must exist. Removes what an interrupted run left under its name.
    ///
    /// # Errors
    /// When a directory cannot be read or created, or another user replaces it concurrently.
    pub fn create(parent: &Path, name: &'static str) -> io::Result<Unfinished> {
        let path = parent.join(name);
        let foreign = is_root().then(|| owner_of(parent)).transpose()?.flatten();
        let parent = open_directory(parent)?;
        let metadata = parent.metadata()?;
        if let Some((user, _)) = foreign
            && metadata.uid() != user.as_raw()
        {
            let user = user.as_raw();
            return Err(io::Error::other(format!(
                "user {user} can replace it; use a path that only root and its owner can change"
            )));
        }
        let within = through(&parent);
        match fs::symlink_metadata(within.join(name)) {
            Ok(old) if old.is_dir() => fs::remove_dir_all(within.join(name))?,
            Ok(_) => fs::remove_file(within.join(name))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o700))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = File::from(rustix::fs::openat(&parent, name, flags, Mode::empty())?);
        let made = directory.metadata()?;
        let is_ours = made.uid() == rustix::process::geteuid().as_raw()
            && made.mode() & 0o077 == 0
            && fs::read_dir(through(&directory))?.next().is_none();
        if !is_ours {
            return Err(replaced());
        }
        Ok(Unfinished {
            parent,
            directory,
            path,
            name,
        })
    }

    /// Returns a path to the directory. For root it stays valid when another user renames the directory.
    pub fn within(&self) -> PathBuf {
        match is_root() {
            true => through(&self.directory),
            false => self.path.clone(),
        }
    }

    /// Gives the directory and its contents to the owner of its parent, renames it to `name`, and syncs the parent.
    ///
    /// # Errors
    /// When `name` exists and is not empty, or another user has replaced the directory.
    pub fn finish(self, name: &str) -> io::Result<()> {
        let owner = self.parent.metadata()?;
        if is_root() && owner.uid() != 0 {
            let (user, group) = (Uid::from_raw(owner.uid()), Gid::from_raw(owner.gid()));
            // The directory itself comes last: until then no other user can reach its contents.
            give(&through(&self.directory), (user, group))?;
            rustix::fs::fchown(&self.directory, Some(user), Some(group))?;
        }
        let named = rustix::fs::statat(&self.parent, self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        let made = rustix::fs::fstat(&self.directory)?;
        if (named.st_dev, named.st_ino) != (made.st_dev, made.st_ino) {
            return Err(replaced());
        }
        rustix::fs::renameat(&self.parent, self.name, &self.parent, name)?;
        self.parent.sync_all()
    }
}

fn replaced() -> io::Error {
    io::Error::other("another user replaced it meanwhile")
}

/// Changes the owner of a directory's contents, recursively.
fn give(directory: &Path, owner: Owner) -> io::Result<()> {
    let (user, group) = owner;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give(&entry.path(), owner)?;
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(
            rustix::fs::CWD,
            entry.path(),
            Some(user),
            Some(group),
            flags,
        )?;
    }
    Ok(())
}

/// Returns a path that resolves to an open file, independent of its name.
fn through(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn open_directory(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Copies the file `name` of a directory that another user may own to the new file `to`, with mode 600, and syncs it.
/// Returns its size in bytes.
///
/// # Errors
/// When a component of `name` is a symbolic link, when it is no regular file, or when reading or writing fails.
pub fn copy_from(directory: &Path, name: &str, to: &Path) -> io::Result<u64> {
    let mut from = open_within(&open_directory(directory)?, name)?;
    if !from.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut copy = File::create_new(to)?;
    let bytes = io::copy(&mut from, &mut copy)?;
    copy.set_permissions(Permissions::from_mode(0o600))?;
    copy.sync_all()?;
    Ok(bytes)
}

fn open_within(directory: &File, name: &str) -> io::Result<File> {
    // Opening a pipe would block without NONBLOCK.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let opened = match rustix::fs::openat2(directory, name, flags, Mode::empty(), resolve) {
        // Kernels before 5.6, or a seccomp filter that does not know the call.
        Err(Errno::NOSYS | Errno::PERM) if !is_root() => {
            rustix::fs::openat(directory, name, flags, Mode::empty())?
        }
        other => other?,
    };
    Ok(File::from(opened))
}
