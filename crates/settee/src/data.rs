//! The data directory: found, made, and taken back when the server does not start after all.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::Failure;

/// Where the store is inside the data directory.
pub const STORE: &str = "store";

/// A file that every store has.
pub const STORE_MARK: &str = "CURRENT";

/// Checks that a directory exists, before a command creates others.
///
/// # Errors
/// The mistake in the path.
pub fn require_directory(path: &Path) -> Result<(), Failure> {
    let mistake = match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => "this is a file, not a directory".to_owned(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => "this directory does not exist".to_owned(),
        Err(e) => e.to_string(),
    };
    Err(Failure::new(format!("{}: {mistake}", path.display())))
}

/// Directories that were created for this start. Unless they are kept, they are removed with their
/// contents when this is dropped: a start that is refused leaves nothing behind.
pub struct CreatedDirectories {
    /// From the outermost inwards.
    directories: Vec<PathBuf>,
    /// A store that was there when this process came to open its own belongs to another process.
    store_is_others: Cell<bool>,
    is_kept: Cell<bool>,
}

impl CreatedDirectories {
    /// Makes those of the directories that are absent, and the directories around them.
    pub fn new(wanted: &[&Path]) -> Result<CreatedDirectories, Failure> {
        let mut made = CreatedDirectories {
            directories: Vec::new(),
            store_is_others: Cell::new(false),
            is_kept: Cell::new(false),
        };
        for path in wanted {
            // Directories of the first are removed when the second fails.
            made.make(path)
                .map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
        }
        Ok(made)
    }

    fn make(&mut self, path: &Path) -> io::Result<()> {
        let absent: Vec<&Path> = path
            .ancestors()
            .filter(|p| !p.as_os_str().is_empty())
            .take_while(|p| !p.exists())
            .collect();
        for path in absent.into_iter().rev() {
            match fs::create_dir(path) {
                Ok(()) => self.directories.push(path.to_owned()),
                // Another process was faster: it is not ours to remove.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        if path.is_dir() {
            Ok(())
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    /// To be called before the store is opened.
    pub fn look_for_store(&self, data: &Path) {
        self.store_is_others.set(data.join(STORE).exists());
    }

    /// The server has started.
    pub fn keep(&self) {
        self.is_kept.set(true);
    }
}

impl Drop for CreatedDirectories {
    fn drop(&mut self) {
        if self.is_kept.get() || self.store_is_others.get() {
            return;
        }
        for path in self.directories.iter().rev() {
            if let Err(e) = fs::remove_dir_all(path) {
                eprintln!("settee: {} stays: {e}", path.display());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_goes_and_what_was_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (there, data) = (dir.path().join("there"), dir.path().join("there/a/data"));
        fs::create_dir(&there).unwrap();
        let made = CreatedDirectories::new(&[&data, &there, &data]).unwrap();
        fs::write(data.join("local.ini"), "x").unwrap();
        made.look_for_store(&data);
        fs::create_dir(data.join(STORE)).unwrap();
        drop(made);
        assert!(there.is_dir() && !there.join("a").exists());

        let made = CreatedDirectories::new(&[&data]).unwrap();
        made.keep();
        drop(made);
        assert!(data.is_dir());

        let other = dir.path().join("other");
        let made = CreatedDirectories::new(&[&other]).unwrap();
        fs::create_dir(other.join(STORE)).unwrap();
        made.look_for_store(&other);
        drop(made);
        assert!(other.join(STORE).is_dir(), "it is another process's");
    }

    #[test]
    fn a_file_is_no_data_directory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(CreatedDirectories::new(&[&file]).is_err());
        assert!(CreatedDirectories::new(&[&file.join("below")]).is_err());
        assert!(file.is_file());
    }
}
