//! Protection of root in directories that another user owns. The owner can replace entries with symbolic links
//! at any time, so root either drops its privileges or writes into a directory that the owner cannot enter.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use crate::Failure;

/// The owner and group of a directory.
type Owner = (Uid, Gid);

/// Permanently switches from root to the owner of a directory, or of the directory that contains it. In a data
/// directory the owners of the settings and the store count too. Does nothing when the process is not root, or when
/// root owns the whole path. Call it before other threads start: it changes the calling thread and the threads that
/// it starts later.
///
/// # Errors
/// When the owner cannot be determined, several users share the directory, or the kernel refuses the change.
pub fn work_as_owner_of(directory: &Path) -> Result<(), Failure> {
    if !is_root() {
        return Ok(());
    }
    let found = sole_owner(directory).map_err(|e| at(directory, &e))?;
    let Some((user, group)) = found else {
        return Ok(());
    };
    work_as((user, group)).map_err(|e| {
        let (path, user) = (directory.display(), user.as_raw());
        Failure::new(format!(
            "{path} belongs to user {user}, and switching to that user failed ({e}); run this command as that user"
        ))
    })
}

/// Entries of a data directory that determine which programs run and what they read.
const CONTENTS: [&str; 3] = ["local.ini", "local.d", "store"];

/// Returns the only user besides root that controls a directory.
fn sole_owner(directory: &Path) -> io::Result<Option<Owner>> {
    let mut owner = owner_of(directory)?;
    let contents = CONTENTS.map(|name| directory.join(name));
    let is_there = |path: &&PathBuf| fs::symlink_metadata(path).is_ok();
    for path in contents.iter().filter(is_there) {
        let another = owner_of(path)?;
        match (&owner, another) {
            (Some((user, _)), Some((other, _))) if *user != other => {
                let (user, other) = (user.as_raw(), other.as_raw());
                return Err(io::Error::other(format!(
                    "users {user} and {other} can both change it; run this command as one of them"
                )));
            }
            (None, Some(_)) => owner = another,
            _ => {}
        }
    }
    let found = fs::metadata(nearest(&std::path::absolute(directory)?)?)?;
    // Members of another group than root's can replace what is in it.
    let is_shared = found.mode() & 0o020 != 0 && found.gid() != 0 || found.mode() & 0o002 != 0;
    let is_sticky = found.mode() & 0o1000 != 0;
    if owner.is_none() && is_shared && !is_sticky {
        return Err(io::Error::other(
            "users of its group can change it; run this command as one of them",
        ));
    }
    Ok(owner)
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
    let components = components(nearest(&path)?)?;
    let foreign = components.into_iter().rfind(|found| found.uid() != 0);
    Ok(foreign.map(|found| (Uid::from_raw(found.uid()), Gid::from_raw(found.gid()))))
}

/// Returns the path, or its deepest ancestor that exists.
fn nearest(path: &Path) -> io::Result<&Path> {
    let exists = |path: &&Path| fs::symlink_metadata(path).is_ok();
    let found = path.ancestors().find(exists);
    Ok(found.ok_or(io::ErrorKind::NotFound)?)
}

/// Symbolic links that a path may contain, as in the kernel.
const LINKS_MAX: usize = 40;

/// Returns the metadata of all components of an absolute path, in the order in which the kernel visits them: of a
/// symbolic link first its own, then those of its target.
fn components(path: &Path) -> io::Result<Vec<Metadata>> {
    let reversed = |path: &Path| -> Vec<PathBuf> {
        let parts = path.components().rev();
        parts.map(|part| PathBuf::from(part.as_os_str())).collect()
    };
    let mut left = reversed(path);
    let (mut at, mut found, mut links) = (PathBuf::from("/"), vec![], 0);
    while let Some(part) = left.pop() {
        match part.to_str() {
            Some("/") => at = part,
            Some("..") => {
                at.pop();
            }
            _ => {
                let next = at.join(&part);
                let metadata = fs::symlink_metadata(&next)?;
                if metadata.is_symlink() {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(io::Error::other("too many symbolic links"));
                    }
                    left.extend(reversed(&fs::read_link(&next)?));
                } else {
                    at = next;
                }
                found.push(metadata);
            }
        }
    }
    Ok(found)
}

// Groups first: only root may change them.
fn work_as((user, group): Owner) -> io::Result<()> {
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)?;
    Ok(())
}

/// A new directory that only root can enter until it is complete. Then the owner of its parent gets it.
pub struct NewDirectory {
    parent: File,
    directory: File,
    /// The path for error messages.
    path: PathBuf,
    name: &'static str,
}

impl NewDirectory {
    /// Creates it in `parent`, which must exist. Removes what an interrupted run left under its name.
    ///
    /// # Errors
    /// When a directory cannot be read or created, or another user replaces it concurrently.
    pub fn create(parent: &Path, name: &'static str) -> io::Result<NewDirectory> {
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
        let opened = rustix::fs::openat(&parent, name, flags, Mode::empty());
        let directory = File::from(opened.map_err(replaced_or)?);
        let made = directory.metadata()?;
        // Some network file systems keep neither owners nor modes. There only root is a threat to
        // root.
        let is_private = made.uid() == 0 && made.mode() & 0o077 == 0;
        let is_empty = fs::read_dir(through(&directory))?.next().is_none();
        if !is_empty || foreign.is_some() && !is_private {
            return Err(replaced());
        }
        Ok(NewDirectory {
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
        let named = rustix::fs::statat(&self.parent, self.name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(replaced_or)?;
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

/// Returns the error for a directory that existed a moment ago: its name is gone, or is a link or a file.
fn replaced_or(errno: Errno) -> io::Error {
    match errno {
        Errno::NOTDIR | Errno::LOOP | Errno::NOENT => replaced(),
        _ => errno.into(),
    }
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

/// A directory that is read with the rights of the user who controls its path, and never through symbolic links.
pub struct Source {
    directory: File,
    owner: Option<Owner>,
}

impl Source {
    /// Opens the directory.
    ///
    /// # Errors
    /// When it cannot be opened with those rights.
    pub fn open(path: &Path) -> io::Result<Source> {
        let owner = is_root().then(|| owner_of(path)).transpose()?.flatten();
        let directory = as_owner(owner, || open_directory(path))?;
        Ok(Source { directory, owner })
    }

    /// Calls `work` with a path to the directory, with the rights of its owner.
    ///
    /// # Errors
    /// Errors of `work`, and when the kernel refuses to change the user.
    pub fn with_path<T: Send>(
        &self,
        work: impl FnOnce(&Path) -> io::Result<T> + Send,
    ) -> io::Result<T> {
        as_owner(self.owner, || work(&through(&self.directory)))
    }

    /// Copies the file `name` to the new file `to`, with mode 600, and syncs it. Returns its size in bytes.
    ///
    /// # Errors
    /// When a component of `name` is a symbolic link, when it is not a regular file, or when
    /// reading or writing fails.
    pub fn copy(&self, name: &str, to: &Path) -> io::Result<u64> {
        let mut from = as_owner(self.owner, || open_within(&self.directory, name))?;
        if !from.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut copy = File::create_new(to)?;
        let bytes = io::copy(&mut from, &mut copy)?;
        copy.set_permissions(Permissions::from_mode(0o600))?;
        copy.sync_all()?;
        Ok(bytes)
    }
}

/// Runs `work` on a separate thread that has switched to the user, if there is one.
fn as_owner<T: Send>(
    owner: Option<Owner>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let Some(owner) = owner else {
        return work();
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            work_as(owner)?;
            work()
        });
        let panicked = |_| Err(io::Error::other("a thread panicked"));
        thread.join().unwrap_or_else(panicked)
    })
}

fn open_within(directory: &File, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut at = directory.try_clone()?;
    let mut parts = name.split('/').peekable();
    while let Some(part) = parts.next() {
        // Opening a pipe would block without NONBLOCK.
        let kind = match parts.peek() {
            Some(_) => OFlags::DIRECTORY,
            None => OFlags::NONBLOCK,
        };
        at = File::from(rustix::fs::openat(&at, part, flags | kind, Mode::empty())?);
    }
    Ok(at)
}
