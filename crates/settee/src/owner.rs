//! Directories of other users that root works in. Their owners can replace what is in them at any moment, with links to anywhere. So root
//! works there as the owner, or writes where the owner cannot reach.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use crate::Failure;

/// Who a directory belongs to.
type Owner = (Uid, Gid);

/// Gives up root's rights, for good, when the directory belongs to another user, or lies in one that does. To be called before other
/// threads are started. Does nothing for others than root.
///
/// # Errors
/// When it cannot be found out who the owner is, or the kernel refuses.
pub fn work_as_owner_of(directory: &Path) -> Result<(), Failure> {
    let worked = match is_root() {
        true => owner_of(directory).and_then(|owner| owner.map_or(Ok(()), work_as)),
        false => Ok(()),
    };
    worked.map_err(|e| at(directory, &e))
}

/// Makes a directory for what is in another, unless it is there, and works as the owner of that other one: as [`work_as_owner_of`].
///
/// # Errors
/// Of the directories.
pub fn make_for_owner_of(other: &Path, new: &Path) -> Result<(), Failure> {
    let owner = match is_root() {
        true => owner_of(other).map_err(|e| at(other, &e))?,
        false => None,
    };
    fs::create_dir_all(new).map_err(|e| at(new, &e))?;
    let is_empty = || fs::read_dir(new).is_ok_and(|mut entries| entries.next().is_none());
    // When all on the way is root's, nobody replaces it meanwhile. Otherwise its owner decides who may write there.
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

/// Who can replace a path, or what it leads to: the owner of the last of its directories that is not root's. What is not there yet is its
/// parent's owner's.
fn owner_of(path: &Path) -> io::Result<Option<Owner>> {
    let path = std::path::absolute(path)?;
    let existing = path
        .ancestors()
        .find(|path| fs::symlink_metadata(path).is_ok())
        .ok_or(io::ErrorKind::NotFound)?;
    // Of links both they themselves and what they lead to.
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

/// The group goes first: who is not root cannot change it.
fn work_as((user, group): Owner) -> io::Result<()> {
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)?;
    Ok(())
}

/// A new directory that is filled where the owner of its parent cannot reach, and then given to them under its name.
pub struct Unfinished {
    parent: File,
    directory: File,
    /// For messages.
    path: PathBuf,
    name: &'static str,
}

impl Unfinished {
    /// Makes it in `parent`, which is there, in the place of one that was left unfinished.
    ///
    /// # Errors
    /// Of the directories, and when somebody replaces them meanwhile.
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
                "user {user} can replace it: give a path that only root and the owner can change"
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

    /// Where to write. It leads to the directory, whatever its name leads to by now.
    pub fn within(&self) -> PathBuf {
        match is_root() {
            true => through(&self.directory),
            false => self.path.clone(),
        }
    }

    /// Gives it to the owner of its parent, under another name in there. What has that name stays, and is an error.
    ///
    /// # Errors
    /// Of the directories.
    pub fn finish(self, name: &str) -> io::Result<()> {
        let owner = self.parent.metadata()?;
        if is_root() && owner.uid() != 0 {
            let (user, group) = (Uid::from_raw(owner.uid()), Gid::from_raw(owner.gid()));
            // The directory itself comes last: until then nobody else can reach what is in it.
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

/// Gives all that is in a directory.
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

/// The path of what an open descriptor leads to.
fn through(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn open_directory(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Copies a file of a directory that others may own, for its owner only, and synced. Nothing is read through a link. Answers its bytes.
///
/// # Errors
/// Of the files; links and what is no file are errors.
pub fn copy_from(directory: &Path, name: &str, to: &Path) -> io::Result<u64> {
    let mut from = open_within(&open_directory(directory)?, name)?;
    if !from.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut copy = File::create_new(to)?;
    let bytes = io::copy(&mut from, &mut copy)?;
    copy.set_permissions(Permissions::from_mode(0o600))?;
    copy.sync_all()?;
    Ok(bytes)
}

fn open_within(directory: &File, name: &str) -> io::Result<File> {
    // Reading does not wait for the other end of a pipe.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let opened = match rustix::fs::openat2(directory, name, flags, Mode::empty(), resolve) {
        // Kernels before 5.6, and sandboxes of such times.
        Err(Errno::NOSYS | Errno::PERM) if !is_root() => {
            rustix::fs::openat(directory, name, flags, Mode::empty())?
        }
        other => other?,
    };
    Ok(File::from(opened))
}
