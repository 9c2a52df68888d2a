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
//! looks like damage. After a sync that failed, the kernel may report success for pages that it
//! dropped, so later syncs of that file do not count.
//!
//! Listed bytes are never cut off: a damaged file stays as it is.

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
/// The endings of the names of raft-engine's files.
const KINDS: [&str; 2] = ["raftlog", "rewrite"];
/// The size of a file's header: a text of 53 bytes, and two numbers.
const HEADER_BYTES_MAX: u64 = 53 + 2 * 8;
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
    has_failed: AtomicBool,
    /// It was there before raft-engine opened the directory, or was made of one that was.
    existed: bool,
}

impl Extent {
    fn of_new_file() -> Extent {
        Extent::default()
    }

    fn of_old_file(bytes: u64, synced: u64) -> Extent {
        Extent {
            written: AtomicU64::new(bytes),
            synced: AtomicU64::new(synced),
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

    fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    fn note_synced(&self, end: u64) {
        let counts = self.was_synced_before.swap(true, Ordering::AcqRel);
        if counts && !self.has_failed.load(Ordering::Acquire) {
            self.synced.fetch_max(end, Ordering::AcqRel);
        }
    }

    fn note_failed_sync(&self) {
        self.has_failed.store(true, Ordering::Release);
    }
}

/// A file system for raft-engine, which notes how far its files were synced.
pub(crate) struct SyncedFiles {
    plain: DefaultFileSystem,
    /// The list as it was before.
    listed: Extents,
    extents: Mutex<BTreeMap<String, Arc<Extent>>>,
}

impl SyncedFiles {
    /// Creates it for a directory with this list.
    pub fn new(listed: Extents) -> SyncedFiles {
        SyncedFiles {
            plain: DefaultFileSystem,
            listed,
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
        let synced = extents.iter();
        let synced = synced.map(|(name, extent)| (name.clone(), extent.synced()));
        synced.filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// Returns a file of which less is readable than was synced, in words.
    pub fn find_cut(&self) -> Option<String> {
        let extents = self.extents.lock();
        extents.iter().find_map(|(name, extent)| {
            let (synced, left) = (extent.synced(), extent.written());
            (left < synced).then(|| {
                format!(
                    "{synced} bytes of the file {name} were synced, and {left} of them are readable"
                )
            })
        })
    }

    /// Returns a file that is listed and is newer than all that raft-engine found.
    pub fn find_missing(&self) -> Option<String> {
        let extents = self.extents.lock();
        let existing = extents.iter().filter(|(_, extent)| extent.existed);
        let names: Vec<&str> = existing.map(|(name, _)| name.as_str()).collect();
        newest_without(&self.listed, &names)
    }
}

/// Returns a file that is listed and is newer than all that the directory has. raft-engine, once it is
/// open, has created a new file, which may have this name.
pub(crate) fn find_gone(directory: &Path, listed: &Extents) -> io::Result<Option<String>> {
    if listed.is_empty() {
        return Ok(None); // a new log, perhaps without a directory
    }
    let names = names_in(directory)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Ok(newest_without(listed, &names))
}

/// Returns a file that is listed and is newer than all of these. Older ones are removed and recycled.
fn newest_without(listed: &Extents, names: &[&str]) -> Option<String> {
    // Numbers have the same number of digits.
    let is_later = |other: &str, name: &str| kind(other) == kind(name) && other >= name;
    let exists_later = |name: &str| names.iter().any(|other| is_later(other, name));
    listed.keys().find(|name| !exists_later(name)).cloned()
}

fn names_in(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = vec![];
    for entry in std::fs::read_dir(directory)? {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
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
        let synced = name(path).and_then(|name| self.listed.get(&name).copied());
        let synced = synced.unwrap_or(0);
        let file = self.add(path, plain, Extent::of_old_file(bytes, synced));
        if bytes < synced {
            return Err(cut());
        }
        Ok(file)
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
    /// raft-engine calls this at the start only, where it finds the first damaged record.
    fn truncate(&self, end: usize) -> io::Result<()> {
        let synced = self.extent.synced();
        if end == 0 && synced > 0 {
            // Damage, or a version that this program does not know. That may be so on all nodes, and
            // proves nothing.
            let why = "the header of a file of the log is not readable";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        self.extent.note_written(end as u64);
        if (end as u64) < synced {
            return Err(cut());
        }
        Handle::truncate(&*self.plain, end)
    }

    fn file_size(&self) -> io::Result<usize> {
        self.plain.file_size()
    }

    fn sync(&self) -> io::Result<()> {
        let written = self.extent.written();
        let synced = self.plain.sync();
        match synced {
            Ok(()) => self.extent.note_synced(written),
            Err(_) => self.extent.note_failed_sync(),
        }
        synced
    }
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "synced bytes are not readable")
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
    /// raft-engine seeks to the end of the last whole record: before its first write, and after one
    /// that failed.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = self.plain.seek(to)?;
        self.extent.note_written(self.at);
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
    /// Continues the list of a directory.
    pub fn new(directory: &Path, files: Arc<SyncedFiles>) -> SyncedList {
        SyncedList {
            directory: directory.to_owned(),
            kept: Mutex::new(files.listed.clone()),
            files,
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

/// Removes the newest file of each kind if it has no record, and another one is older. Returns whether
/// there was one.
///
/// On a full disk, raft-engine begins such a file, and may continue to write to the one before it. At the
/// start it does not accept an unfinished end of that one, which is not its newest.
///
/// # Errors
/// The device fails.
pub(crate) fn remove_empty_newest(directory: &Path, listed: &Extents) -> io::Result<bool> {
    let names = names_in(directory)?;
    let mut has_removed = false;
    for wanted in KINDS {
        let mut files: Vec<&String> = names.iter().filter(|name| kind(name) == wanted).collect();
        files.sort_unstable();
        let [.., _, newest] = files[..] else {
            continue;
        };
        let path = directory.join(newest);
        if !listed.contains_key(newest) && path.symlink_metadata()?.len() <= HEADER_BYTES_MAX {
            tracing::warn!(path = %path.display(), "a file of the log has no record, and is removed");
            std::fs::remove_file(&path)?;
            has_removed = true;
        }
    }
    Ok(has_removed)
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
        let files = SyncedFiles::new(Extents::new());
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
    fn a_sync_after_one_that_failed_does_not_count() {
        let extent = Extent::default();
        extent.note_synced(10);
        extent.note_synced(20);
        extent.note_failed_sync();
        extent.note_synced(30);
        assert_eq!(extent.synced(), 20);
        let files = SyncedFiles::new(Extents::new());
        // A device that has nothing to sync.
        let device = files.open("/dev/null", Permission::ReadWrite).unwrap();
        assert!(device.sync().is_err());
        assert!(device.extent.has_failed.load(Ordering::Acquire));
    }

    #[test]
    fn a_part_of_a_record_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let files = SyncedFiles::new(Extents::new());
        let file = Arc::new(files.create(dir.path().join("1.raftlog")).unwrap());
        let mut writer = files.new_writer(file.clone()).unwrap();
        file.sync().unwrap();
        writer.write_all(b"record").unwrap();
        writer.write_all(b"half of one").unwrap();
        writer.seek(SeekFrom::Start(6)).unwrap();
        file.sync().unwrap();
        let synced = Extents::from([("1.raftlog".to_owned(), 6)]);
        assert_eq!(files.synced(), synced);
    }

    #[test]
    fn older_files_may_be_gone_and_newer_ones_may_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("2.raftlog"), b"records").unwrap();
        let missing = |name: &str| {
            let files = SyncedFiles::new(Extents::from([(name.to_owned(), 7)]));
            let _open = files
                .open(path("2.raftlog"), Permission::ReadWrite)
                .unwrap();
            let _made = files.create(path("4.rewrite")).unwrap();
            files.find_missing().is_some()
        };
        assert!(!missing("1.raftlog"));
        assert!(!missing("2.raftlog"));
        assert!(missing("3.raftlog"));
        assert!(missing("3.rewrite"));
    }

    #[test]
    fn synced_bytes_are_never_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("2.raftlog");
        std::fs::write(&path, b"records and more").unwrap();
        let files = |bytes| SyncedFiles::new(Extents::from([("2.raftlog".to_owned(), bytes)]));
        let short = files(17);
        assert!(short.open(&path, Permission::ReadWrite).is_err());
        assert!(short.find_cut().is_some());
        let damaged = files(7);
        let file = damaged.open(&path, Permission::ReadWrite).unwrap();
        assert!(file.truncate(6).is_err());
        assert!(damaged.find_cut().is_some());
        let other = files(7);
        let file = other.open(&path, Permission::ReadWrite).unwrap();
        assert!(file.truncate(0).is_err());
        assert_eq!(other.find_cut(), None);
        assert_eq!(path.metadata().unwrap().len(), 16);
        let whole = files(7);
        let file = whole.open(&path, Permission::ReadWrite).unwrap();
        file.truncate(7).unwrap();
        assert_eq!(whole.find_cut(), None);
        assert_eq!(path.metadata().unwrap().len(), 7);
    }

    #[test]
    fn a_file_without_a_record_is_removed_if_it_is_the_newest_and_not_listed() {
        let listed = Extents::from([("4.rewrite".to_owned(), 69)]);
        let removed = |sizes: &[(&str, usize)]| {
            let dir = tempfile::tempdir().unwrap();
            for (name, bytes) in sizes {
                std::fs::write(dir.path().join(name), vec![0; *bytes]).unwrap();
            }
            let has_removed = remove_empty_newest(dir.path(), &listed).unwrap();
            let is_gone = |(name, _): &&(&str, usize)| !dir.path().join(name).exists();
            let gone: Vec<&str> = sizes
                .iter()
                .filter(is_gone)
                .map(|(name, _)| *name)
                .collect();
            assert_eq!(has_removed, !gone.is_empty());
            gone.concat()
        };
        assert_eq!(removed(&[]), "");
        assert_eq!(removed(&[("1.raftlog", 0), ("1.rewrite", 0)]), "");
        assert_eq!(removed(&[("1.raftlog", 90), ("2.raftlog", 0)]), "2.raftlog");
        assert_eq!(removed(&[("1.raftlog", 0), ("2.raftlog", 90)]), "");
        assert_eq!(removed(&[("3.rewrite", 90), ("4.rewrite", 69)]), "");
        assert_eq!(
            removed(&[("4.rewrite", 90), ("5.rewrite", 69)]),
            "5.rewrite"
        );
        let reserved = [("1.raftlog", 0), ("2.raftlog.reserved", 0), ("synced", 0)];
        assert_eq!(removed(&reserved), "");
    }
}
