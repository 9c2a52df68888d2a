//! Sorted files that the engine ingests unchanged, bypassing its log and memory.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rocksdb::{Options, SstFileWriter};

use crate::Error;
use crate::engine::Engine;
use crate::keyspace::Keyspace;

/// Size at which a file is closed, and another started, in bytes of rows.
pub(crate) const FILE_BYTES_MAX: u64 = 256 << 20;

static NEXT_FILE: AtomicU64 = AtomicU64::new(0);

/// Files to be added to a keyspace. If they were not added they are removed on drop.
#[derive(Debug, Default)]
pub struct SortedFiles {
    pub(crate) paths: Vec<PathBuf>,
}

impl SortedFiles {
    /// Returns the number of files.
    pub fn count(&self) -> usize {
        self.paths.len()
    }

    /// Adds the files to a keyspace, all or none. Their rows are on disk then.
    ///
    /// # Errors
    /// [`Error::Engine`]: none were added.
    pub fn ingest(self, engine: &Engine, k: Keyspace) -> Result<(), Error> {
        if self.paths.is_empty() {
            return Ok(());
        }
        engine.ingest(k, self.paths.clone())
    }
}

impl Drop for SortedFiles {
    fn drop(&mut self) {
        for path in &self.paths {
            match std::fs::remove_file(path) {
                Ok(()) => {}
                // Added, and so moved; or never created.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => {
                    tracing::warn!(path = %path.display(), error = %e, "removing a file failed; the next start does it");
                }
            }
        }
    }
}

/// A sorted file being written.
pub struct FileWriter<'a>(SstFileWriter<'a>);

impl FileWriter<'_> {
    /// Adds a key, which must be greater than those before.
    ///
    /// # Errors
    /// [`Error::Engine`], also when it is not greater.
    #[inline]
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        Ok(self.0.put(key, value)?)
    }
}

type Writer<'a> = SstFileWriter<'a>;

self_cell::self_cell!(
    struct OpenFile {
        owner: Options,
        #[covariant]
        dependent: Writer,
    }
);

/// Sorted files of one keyspace that are written row by row. They are removed if dropped before
/// [`FileSequence::ingest`]: after `open`, which is declared first.
pub(crate) struct FileSequence {
    engine: Arc<Engine>,
    keyspace: Keyspace,
    /// Size at which a file is ended, in bytes.
    file_bytes: u64,
    open: Option<OpenFile>,
    bytes: u64,
    files: SortedFiles,
}

impl FileSequence {
    pub fn new(engine: Arc<Engine>, keyspace: Keyspace, file_bytes: u64) -> FileSequence {
        FileSequence {
            engine,
            keyspace,
            file_bytes,
            open: None,
            bytes: 0,
            files: SortedFiles::default(),
        }
    }

    /// Adds a row; keys must ascend.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if self.bytes >= self.file_bytes {
            self.end_file()?;
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin_file()?,
        };
        open.with_dependent_mut(|_, writer| writer.put(key, value))?;
        self.bytes += (key.len() + value.len()) as u64;
        self.open = Some(open);
        Ok(())
    }

    fn begin_file(&mut self) -> Result<OpenFile, Error> {
        let path = self.engine.new_file();
        let options = match self.keyspace {
            Keyspace::Attachments => self.engine.content_file_options(),
            k => self.engine.table_file_options(k),
        };
        let open = OpenFile::new(options, |options| SstFileWriter::create(options));
        open.with_dependent(|_, writer| writer.open(&path))?;
        self.files.paths.push(path);
        self.bytes = 0;
        Ok(open)
    }

    /// The file is on disk then.
    fn end_file(&mut self) -> Result<(), Error> {
        if let Some(mut open) = self.open.take() {
            open.with_dependent_mut(|_, writer| writer.finish())?;
        }
        Ok(())
    }

    /// Ingests the files. Their rows are durable then.
    pub fn ingest(mut self) -> Result<(), Error> {
        self.end_file()?;
        self.files.ingest(&self.engine, self.keyspace)
    }
}

impl Engine {
    fn new_file(&self) -> PathBuf {
        let n = NEXT_FILE.fetch_add(1, Relaxed);
        self.ingest_directory().join(format!("{n}.sst"))
    }

    /// Writes sorted files for a keyspace. `write` puts keys in ascending order and returns false
    /// when none are left; it is called until then.
    ///
    /// # Errors
    /// Errors of the engine, and those of `write`. No file is left then.
    pub fn write_files<E: From<Error>>(
        &self,
        k: Keyspace,
        mut write: impl FnMut(&mut FileWriter<'_>) -> Result<bool, E>,
    ) -> Result<SortedFiles, E> {
        let options = self.table_file_options(k);
        let mut files = SortedFiles::default();
        loop {
            let mut file = FileWriter(SstFileWriter::create(&options));
            let path = self.new_file();
            files.paths.push(path.clone());
            file.0.open(&path).map_err(Error::from)?;
            let mut any = false;
            let mut more = true;
            while more && file.0.file_size() < FILE_BYTES_MAX {
                more = write(&mut file)?;
                any |= more;
            }
            if any {
                file.0.finish().map_err(Error::from)?;
            } else {
                drop(file);
                // An empty file cannot be finished; the engine's writer may not even have created
                // one.
                let paths = files.paths.split_off(files.paths.len() - 1);
                drop(SortedFiles { paths });
            }
            if !more {
                return Ok(files);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreOptions;

    #[test]
    fn files_that_are_not_added_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), &StoreOptions::default()).unwrap();
        let left = || {
            std::fs::read_dir(engine.ingest_directory())
                .unwrap()
                .count()
        };
        let write = |put: &mut dyn FnMut(&mut FileWriter<'_>) -> Result<bool, Error>| {
            engine.write_files(Keyspace::IndexRows, put)
        };
        let mut once = true;
        let mut one = |file: &mut FileWriter<'_>| {
            let first = std::mem::take(&mut once);
            if first {
                file.put(b"key", b"value")?;
            }
            Ok(first)
        };
        let written = write(&mut one).unwrap();
        assert_eq!((written.count(), left()), (1, 1));
        drop(written);
        assert_eq!(left(), 0);
        let failing = write(&mut |file| {
            file.put(b"key", b"value")?;
            Err(Error::Closed)
        });
        assert!(failing.is_err());
        assert_eq!(left(), 0);
        assert_eq!(write(&mut |_| Ok(false)).unwrap().count(), 0);
        assert_eq!(left(), 0);
    }

    #[test]
    fn files_that_are_added_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), &StoreOptions::default()).unwrap();
        let mut keys = [b"a", b"b"].into_iter();
        let files = engine.write_files(Keyspace::IndexRows, |file| match keys.next() {
            Some(key) => file.put(key, b"value").map(|()| true),
            None => Ok(false),
        });
        files.unwrap().ingest(&engine, Keyspace::IndexRows).unwrap();
        let found = engine.multi_get(Keyspace::IndexRows, [&b"b"[..], b"c", b"a"]);
        let found: Vec<_> = found.map(|v| v.unwrap().map(|v| v.to_vec())).collect();
        assert_eq!(
            found,
            [Some(b"value".to_vec()), None, Some(b"value".to_vec())]
        );
    }
}
