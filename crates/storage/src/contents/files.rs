//! Chunks of long contents: sorted files that the engine takes in as they are, past its log and its memory.

use std::path::PathBuf;
use std::sync::Arc;

use rocksdb::{Options, SstFileWriter};

use crate::Error;
use crate::engine::{Engine, Keyspace};

/// A file is ended when it has this many bytes.
const FILE_BYTES: u64 = 64 << 20;

type Writer<'a> = SstFileWriter<'a>;

self_cell::self_cell!(
    struct OpenFile {
        owner: Options,
        #[covariant]
        dependent: Writer,
    }
);

/// The files of one content. Dropped before [`ContentFiles::ingest`], they are removed.
pub struct ContentFiles {
    engine: Arc<Engine>,
    number: u64,
    open: Option<OpenFile>,
    bytes: u64,
    files: Vec<PathBuf>,
}

impl ContentFiles {
    pub fn new(engine: Arc<Engine>, number: u64) -> ContentFiles {
        ContentFiles {
            engine,
            number,
            open: None,
            bytes: 0,
            files: vec![],
        }
    }

    /// Adds a chunk; keys come in ascending order.
    pub fn put(&mut self, key: &[u8], chunk: &[u8]) -> Result<(), Error> {
        if self.bytes >= FILE_BYTES {
            self.end_file()?;
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin_file()?,
        };
        open.with_dependent_mut(|_, writer| writer.put(key, chunk))?;
        self.bytes += chunk.len() as u64;
        self.open = Some(open);
        Ok(())
    }

    fn begin_file(&mut self) -> Result<OpenFile, Error> {
        let name = format!("content-{}-{}.sst", self.number, self.files.len());
        let path = self.engine.ingest_directory().join(name);
        let options = self.engine.content_file_options();
        let open = OpenFile::new(options, |options| SstFileWriter::create(options));
        open.with_dependent(|_, writer| writer.open(&path))?;
        self.files.push(path);
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

    /// Has the engine take the files. What they hold is durable then.
    pub fn ingest(mut self) -> Result<(), Error> {
        self.end_file()?;
        let files = std::mem::take(&mut self.files);
        let ingested = self.engine.ingest(Keyspace::Attachments, files.clone());
        if ingested.is_err() {
            self.files = files;
        }
        ingested
    }
}

impl Drop for ContentFiles {
    fn drop(&mut self) {
        self.open = None;
        for file in &self.files {
            if let Err(e) = std::fs::remove_file(file) {
                tracing::warn!(error = %e, file = %file.display(), "removing a file failed; the next start does it");
            }
        }
    }
}
