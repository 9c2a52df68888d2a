//! The files of raft-engine, and how far each of them was synced.
//!
//! At the start, raft-engine cuts off its newest files at the first damaged record, because a crash
//! leaves such ends. A synced record that was damaged later is cut off with everything after it, in
//! the same way. The disk would then have forgotten votes and confirmations, and must not keep its id.
//!
//! So the file `synced` lists how many bytes of each file were synced. It is written every few seconds
//! and at the end, by another thread than the one that writes records.
//!
//! **Invariant: a listed number never exceeds what a crash leaves.** It is taken after the sync, and a
//! file is listed once its name is durable too. So the list may be old, and a power failure never
//! looks like damage.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use raft_engine::env::{DefaultFileSystem, FileSystem, Handle, Permission, WriteExt};

/// The name of the list.
const LIST: &str = "synced";
/// The name of a list that is being written.
const NEW_LIST: &str = "synced.new";
/// The beginning of the line with the list's checksum.
const SUM: &str = "sum ";

type PlainFile = <DefaultFileSystem as FileSystem>::Handle;
type PlainWriter = <DefaultFileSystem as FileSystem>::Writer;
type PlainReader = <DefaultFileSystem as FileSystem>::Reader;

/// Numbers of bytes, by the name of the file.
pub(crate) type Extents = BTreeMap<String, u64>;

/// How far a file was written and synced, in bytes.
#[derive(Debug, Default)]
struct Extent {
    written: AtomicU64,
    synced: AtomicU64,
    /// raft-engine syncs the first bytes of a file before its directory, so the first sync does not
    /// count.
    was_synced_before: AtomicBool,
    /// It was there before raft-engine opened the directory, or was made of one that was.
    existed: bool,
}

impl Extent {
    fn of_new_file() -> Extent {
        Extent::default()
    }

    fn of_old_file(bytes: u64) -> Extent {
        Extent {
            written: AtomicU64::new(bytes),
            existed: true,
            ..Extent::default()
        }
    }

    fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    fn note_written(&self, end: u64) {
        self.written.store(end, Ordering::Release);
    }

    fn note_synced(&self, end: u64) {
        if self.was_synced_before.swap(true, Ordering::AcqRel) {
            self.synced.fetch_max(end, Ordering::AcqRel);
        }
    }
}

/// A file system for raft-engine, which notes how far its files were synced.
pub(crate) struct SyncedFiles {
    plain: DefaultFileSystem,
    extents: Mutex<BTreeMap<String, Arc<Extent>>>,
}

impl SyncedFiles {
    pub(crate) fn new() -> SyncedFiles {
        SyncedFiles {
            plain: DefaultFileSystem,
            extents: Mutex::default(),
        }
    }

    fn add(&self, path: &Path, plain: PlainFile, extent: Extent) -> SyncedFile {
        let extent = Arc::new(extent);
        if let Some(name) = name(path) {
            self.extents.lock().insert(name, extent.clone());
        }
        SyncedFile {
            plain: Arc::new(plain),
            extent,
        }
    }

    fn forget(&self, path: &Path) {
        if let Some(name) = name(path) {
            self.extents.lock().remove(&name);
        }
    }

    /// Returns how far its files were synced.
    fn synced(&self) -> Extents {
        let extents = self.extents.lock();
        let synced = extents.iter().map(|(name, extent)| {
            let synced = extent.synced.load(Ordering::Acquire);
            (name.clone(), synced)
        });
        synced.filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// Returns an existing file that is readable up to less than was synced, in words.
    pub(crate) fn find_cut(&self, synced: &Extents) -> Option<String> {
        let extents = self.extents.lock();
        synced.iter().find_map(|(name, bytes)| {
            let extent = extents.get(name).filter(|extent| extent.existed)?;
            let left = extent.written();
            (left < *bytes).then(|| {
                format!(
                    "{bytes} bytes of the file {name} were synced, and {left} of them are readable"
                )
            })
        })
    }

    /// Returns a file that was synced and is newer than all existing ones, in words. Older ones are
    /// removed and recycled.
    pub(crate) fn find_missing(&self, synced: &Extents) -> Option<String> {
        let extents = self.extents.lock();
        let exists_later = |name: &str| {
            let existing = extents.iter().filter(|(_, extent)| extent.existed);
            let mut existing = existing.map(|(other, _)| other.as_str());
            // Numbers have the same number of digits.
            existing.any(|other| kind(other) == kind(name) && other >= name)
        };
        let missing = synced.keys().find(|name| !exists_later(name))?;
        Some(format!("the file {missing} was synced, and is gone"))
    }

    /// Continues a list that was read.
    fn take_over(&self, synced: &Extents) {
        let extents = self.extents.lock();
        for (name, bytes) in synced {
            if let Some(extent) = extents.get(name) {
                extent.synced.fetch_max(*bytes, Ordering::AcqRel);
            }
        }
    }
}

fn name(path: &Path) -> Option<String> {
    path.file_name().and_then(OsStr::to_str).map(str::to_owned)
}

/// Returns the ending of a file's name: the queue to which it belongs.
fn kind(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, kind)| kind)
}

impl FileSystem for SyncedFiles {
    type Handle = SyncedFile;
    type Reader = PlainReader;
    type Writer = SyncedWriter;

    fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<SyncedFile> {
        let path = path.as_ref();
        let plain = self.plain.create(path)?;
        Ok(self.add(path, plain, Extent::of_new_file()))
    }

    fn open<P: AsRef<Path>>(&self, path: P, permission: Permission) -> io::Result<SyncedFile> {
        let path = path.as_ref();
        let plain = self.plain.open(path, permission)?;
        let bytes = plain.file_size()? as u64;
        Ok(self.add(path, plain, Extent::of_old_file(bytes)))
    }

    fn delete<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.plain.delete(path.as_ref())?;
        self.forget(path.as_ref());
        Ok(())
    }

    /// raft-engine renames a file that it recycles, and opens it then.
    fn rename<P: AsRef<Path>>(&self, from: P, to: P) -> io::Result<()> {
        self.plain.rename(from.as_ref(), to.as_ref())?;
        self.forget(from.as_ref());
        Ok(())
    }

    fn new_reader(&self, file: Arc<SyncedFile>) -> io::Result<PlainReader> {
        self.plain.new_reader(file.plain.clone())
    }

    fn new_writer(&self, file: Arc<SyncedFile>) -> io::Result<SyncedWriter> {
        Ok(SyncedWriter {
            plain: self.plain.new_writer(file.plain.clone())?,
            at: 0,
            extent: file.extent.clone(),
        })
    }
}

/// An open file.
pub(crate) struct SyncedFile {
    plain: Arc<PlainFile>,
    extent: Arc<Extent>,
}

impl Handle for SyncedFile {
    fn truncate(&self, end: usize) -> io::Result<()> {
        // What is behind it is not readable, also if it cannot be cut off.
        self.extent.note_written(end as u64);
        Handle::truncate(&*self.plain, end)
    }

    fn file_size(&self) -> io::Result<usize> {
        self.plain.file_size()
    }

    fn sync(&self) -> io::Result<()> {
        let written = self.extent.written();
        self.plain.sync()?;
        self.extent.note_synced(written);
        Ok(())
    }
}

/// Writes to a file.
pub(crate) struct SyncedWriter {
    plain: PlainWriter,
    at: u64,
    extent: Arc<Extent>,
}

impl Write for SyncedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.plain.write(bytes)?;
        self.at += written as u64;
        self.extent.note_written(self.at);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.plain.flush()
    }
}

impl Seek for SyncedWriter {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = self.plain.seek(to)?;
        Ok(self.at)
    }
}

impl WriteExt for SyncedWriter {
    fn truncate(&mut self, end: usize) -> io::Result<()> {
        self.plain.truncate(end)?;
        self.at = end as u64;
        self.extent.note_written(self.at);
        Ok(())
    }

    fn allocate(&mut self, offset: usize, bytes: usize) -> io::Result<()> {
        self.plain.allocate(offset, bytes)
    }
}

/// The list on disk of how far files were synced. It is written once more when it is dropped.
pub(crate) struct SyncedList {
    directory: PathBuf,
    files: Arc<SyncedFiles>,
    /// Its content on disk.
    kept: Mutex<Extents>,
}

impl SyncedList {
    /// Continues the list of a directory, which had this content.
    pub fn new(directory: &Path, files: Arc<SyncedFiles>, content: Extents) -> SyncedList {
        files.take_over(&content);
        SyncedList {
            directory: directory.to_owned(),
            files,
            kept: Mutex::new(content),
        }
    }

    /// Reads the list of a directory. Without one, or if it is damaged itself, nothing is listed.
    ///
    /// # Errors
    /// The device fails.
    pub fn read(directory: &Path) -> io::Result<Extents> {
        let path = directory.join(LIST);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Extents::new()),
            Err(e) => return Err(e),
        };
        let content = std::str::from_utf8(&bytes).ok().and_then(parse);
        if content.is_none() {
            tracing::warn!(path = %path.display(), "the list of synced bytes is damaged, and is rewritten");
        }
        Ok(content.unwrap_or_default())
    }

    /// Writes it if something was synced since the last time.
    ///
    /// # Errors
    /// The device fails, or is full. The list on disk stays valid.
    pub fn keep(&self) -> io::Result<()> {
        let mut kept = self.kept.lock();
        let now = self.files.synced();
        if *kept == now {
            return Ok(());
        }
        let new = self.directory.join(NEW_LIST);
        let mut file = File::create(&new)?;
        file.write_all(form(&now).as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, self.directory.join(LIST))?;
        *kept = now;
        Ok(())
    }
}

impl Drop for SyncedList {
    fn drop(&mut self) {
        if let Err(e) = self.keep() {
            tracing::warn!("the list of synced bytes was not written: {e}");
        }
    }
}

/// Returns the form of a list on disk.
fn form(extents: &Extents) -> String {
    let lines = extents.iter();
    let lines: Vec<String> = lines
        .map(|(name, bytes)| format!("{name} {bytes}\n"))
        .collect();
    let lines = lines.concat();
    let sum = crc32fast::hash(lines.as_bytes());
    format!("{lines}{SUM}{sum:08x}\n")
}

/// Reads the form of a list on disk.
fn parse(text: &str) -> Option<Extents> {
    let (lines, sum) = text.strip_suffix('\n')?.rsplit_once(SUM)?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    if sum != crc32fast::hash(lines.as_bytes()) {
        return None;
    }
    let extents = lines.lines().map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        Some((name.to_owned(), bytes.parse().ok()?))
    });
    extents.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents() -> Extents {
        let first = |kind: &str| format!("0000000000000001.{kind}");
        Extents::from([(first("raftlog"), 123_456), (first("rewrite"), 71)])
    }

    #[test]
    fn a_list_is_read_back_and_a_damaged_one_is_not() {
        let text = form(&extents());
        assert_eq!(parse(&text), Some(extents()));
        assert_eq!(parse(&form(&Extents::new())), Some(Extents::new()));
        for at in 0..text.len() {
            assert_eq!(parse(&text[..at]), None, "{at}");
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let damaged = String::from_utf8(bytes).unwrap();
            assert_eq!(parse(&damaged), None, "{at}");
        }
    }

    #[test]
    fn the_first_sync_of_a_file_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let files = SyncedFiles::new();
        let file = Arc::new(files.create(dir.path().join("1.raftlog")).unwrap());
        let mut writer = files.new_writer(file.clone()).unwrap();
        writer.write_all(b"head").unwrap();
        file.sync().unwrap();
        assert_eq!(files.synced(), Extents::new());
        writer.write_all(b"record").unwrap();
        assert_eq!(files.synced(), Extents::new());
        file.sync().unwrap();
        writer.write_all(b"more").unwrap();
        let synced = Extents::from([("1.raftlog".to_owned(), 10)]);
        assert_eq!(files.synced(), synced);
    }

    #[test]
    fn older_files_may_be_gone_and_newer_ones_may_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let files = SyncedFiles::new();
        std::fs::write(path("2.raftlog"), b"records").unwrap();
        let _open = files
            .open(path("2.raftlog"), Permission::ReadWrite)
            .unwrap();
        let _made = files.create(path("4.rewrite")).unwrap();
        let missing = |name: &str| {
            let synced = Extents::from([(name.to_owned(), 7)]);
            files.find_missing(&synced).is_some()
        };
        assert!(!missing("1.raftlog"));
        assert!(!missing("2.raftlog"));
        assert!(missing("3.raftlog"));
        assert!(missing("3.rewrite"));
        let cut = |bytes| files.find_cut(&Extents::from([("2.raftlog".to_owned(), bytes)]));
        assert_eq!(cut(7), None);
        assert!(cut(8).is_some());
    }
}
