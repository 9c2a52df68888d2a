//! A log file that is replaced when it has grown: `settee.log` becomes `settee.log.1`, that becomes `settee.log.2`, and the oldest is
//! removed.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// When files are replaced, and how many older ones are kept.
#[derive(Debug, Default)]
pub struct Rotation {
    /// Size at which a new file is started; 0 for never.
    len_max: AtomicU64,
    /// How many older files are kept.
    old_files_max: AtomicU32,
}

impl Rotation {
    /// Sets both, which count from the next line on.
    pub fn set(&self, len_max: u64, old_files_max: u32) {
        self.len_max.store(len_max, Relaxed);
        self.old_files_max.store(old_files_max, Relaxed);
    }
}

/// A file that is appended to, and renamed when it has reached a size.
pub struct RotatedFile {
    path: PathBuf,
    file: File,
    /// Bytes in `file`, as far as this process knows.
    len: u64,
    rotation: Arc<Rotation>,
}

impl RotatedFile {
    /// Opens a file to append to it.
    ///
    /// # Errors
    /// The file can be neither opened nor created.
    pub fn open(path: &Path, rotation: Arc<Rotation>) -> io::Result<RotatedFile> {
        let file = append_to(path)?;
        Ok(RotatedFile {
            path: path.to_owned(),
            len: file.metadata()?.len(),
            file,
            rotation,
        })
    }

    /// Begins a new file. If that fails, the old one is continued, and the next attempt is made
    /// after as many bytes again.
    fn rotate(&mut self) {
        self.len = 0;
        // Another program that rotates may have cut the file, or put another one in its place.
        let is_ours = match (self.file.metadata(), fs::metadata(&self.path)) {
            (Ok(open), Ok(there)) => {
                is_same(&open, &there) && open.len() >= self.rotation.len_max.load(Relaxed)
            }
            _ => false,
        };
        if is_ours && self.rename().is_err() {
            return;
        }
        if let Ok(file) = append_to(&self.path) {
            self.len = file.metadata().map_or(0, |about| about.len());
            self.file = file;
        }
    }

    fn rename(&self) -> io::Result<()> {
        let old_files_max = self.rotation.old_files_max.load(Relaxed);
        if old_files_max == 0 {
            return fs::remove_file(&self.path);
        }
        for number in (1..old_files_max).rev() {
            match fs::rename(self.old(number), self.old(number + 1)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        fs::rename(&self.path, self.old(1))
    }

    fn old(&self, number: u32) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(format!(".{number}"));
        name.into()
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

#[cfg(unix)]
fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
}

impl Write for RotatedFile {
    /// Files end with whole writes, so that lines are not divided.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let len_max = self.rotation.len_max.load(Relaxed);
        if len_max > 0 && self.len >= len_max {
            self.rotate();
        }
        let written = self.file.write(text)?;
        self.len += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, len_max: u64, old_files_max: u32) -> io::Result<RotatedFile> {
        let rotation = Arc::new(Rotation::default());
        rotation.set(len_max, old_files_max);
        RotatedFile::open(path, rotation)
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_that_has_grown_is_replaced_and_the_oldest_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.log");
        let mut log = open(&path, 10, 2).unwrap();
        for n in 0..8 {
            log.write_all(format!("line {n}\n").as_bytes()).unwrap();
        }
        assert_eq!(names(folder.path()), ["s.log", "s.log.1", "s.log.2"]);
        let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(text("s.log"), "line 6\nline 7\n");
        assert_eq!(text("s.log.1"), "line 4\nline 5\n");
        assert_eq!(text("s.log.2"), "line 2\nline 3\n");
    }

    #[test]
    fn what_was_there_counts_and_zero_is_never() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.log");
        fs::write(&path, "from before\n").unwrap();
        let mut log = open(&path, 0, 2).unwrap();
        log.write_all(b"a\n").unwrap();
        assert_eq!(names(folder.path()), ["s.log"]);
        let mut log = open(&path, 10, 0).unwrap();
        log.write_all(b"b\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "b\n");
        assert_eq!(names(folder.path()), ["s.log"]);
    }

    #[test]
    fn another_program_may_rotate_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.log");
        let mut log = open(&path, 10, 3).unwrap();
        log.write_all(b"0123456789\n").unwrap();
        // As logrotate does with `create`: nothing is renamed over its files.
        fs::rename(&path, folder.path().join("s.log.1")).unwrap();
        fs::write(&path, "").unwrap();
        log.write_all(b"new\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(names(folder.path()), ["s.log", "s.log.1"]);
        // And with `copytruncate`.
        log.write_all(b"0123456789\n").unwrap();
        File::create(&path).unwrap();
        log.write_all(b"more\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "more\n");
        assert_eq!(names(folder.path()), ["s.log", "s.log.1"]);
    }

    #[test]
    fn another_size_counts_from_the_next_line_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.log");
        let rotation = Arc::new(Rotation::default());
        let mut log = RotatedFile::open(&path, rotation.clone()).unwrap();
        log.write_all(b"0123456789\n").unwrap();
        log.write_all(b"a\n").unwrap();
        assert_eq!(names(folder.path()), ["s.log"]);
        rotation.set(10, 1);
        log.write_all(b"b\n").unwrap();
        assert_eq!(names(folder.path()), ["s.log", "s.log.1"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "b\n");
    }
}
