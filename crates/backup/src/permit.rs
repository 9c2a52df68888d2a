//! How a client on the same machine proves to a server that it may write into a directory: by a
//! file with a random name in it.
//!
//! A server admin over HTTP need not be an operator of the machine. A client that can create files
//! in a directory could also write a backup there without the server.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The prefix of a permit's file name.
pub(crate) const PREFIX: &str = ".settee-permit-";
/// Digits of the random rest, and at the least.
const RANDOM_DIGITS: usize = 32;

/// A file that shows that its maker may write into a directory, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    path: PathBuf,
    name: String,
}

impl Permit {
    /// Creates a permit for a directory, which need not exist yet. `random`: 32 hexadecimal digits
    /// that cannot be guessed.
    ///
    /// # Errors
    /// The system's error: often, that this process may not write there.
    pub fn create(directory: &Path, random: &str) -> io::Result<Permit> {
        let name = format!("{PREFIX}{random}");
        let path = existing(directory).join(&name);
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        Ok(Permit { path, name })
    }

    /// The file's name, which the server is sent.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // One that stays is a file without contents.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a permit of this name is there for a directory, which need not exist yet.
pub fn has_permit(directory: &Path, name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX).unwrap_or_default();
    let is_name = digits.len() == RANDOM_DIGITS
        && digits
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'));
    let path = existing(directory).join(name);
    is_name && fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// The directory itself, or the nearest above it that exists.
pub fn existing(directory: &Path) -> &Path {
    let is_there = |path: &&Path| path.is_dir();
    let found = directory.ancestors().find(is_there);
    found.unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANDOM: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_permit_holds_for_a_directory_until_it_is_dropped() {
        let root = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| root.path().join(name));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&other).unwrap();
        let permit = Permit::create(&one, RANDOM).unwrap();
        let name = permit.name().to_owned();
        assert!(has_permit(&one, &name));
        assert!(has_permit(&one.join("a/b"), &name), "which would be made");
        assert!(!has_permit(&other, &name));
        assert!(!has_permit(root.path(), &name));
        assert!(!has_permit(&other, &format!("../one/{name}")));
        assert!(!has_permit(&one, ""));
        assert!(Permit::create(&one, RANDOM).is_err(), "it is there");
        drop(permit);
        assert!(!has_permit(&one, &name));
    }

    #[test]
    fn other_files_and_links_are_no_permits() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("CURRENT"), "x").unwrap();
        assert!(!has_permit(root.path(), "CURRENT"));
        let name = format!("{PREFIX}{RANDOM}");
        std::os::unix::fs::symlink("CURRENT", root.path().join(&name)).unwrap();
        assert!(!has_permit(root.path(), &name));
    }
}
