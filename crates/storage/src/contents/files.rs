//! Chunks of long contents: sorted files that the engine takes in as they are, past its log and its memory.

use std::sync::Arc;

use rocksdb::{Options, SstFileWriter};

use crate::Error;
use crate::engine::Engine;
use crate::files::SortedFiles;
use crate::keyspace::Keyspace;

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

/// The files of one content. Dropped before [`ContentFiles::ingest`], they are removed: after `open`, which is above them.
pub struct ContentFiles {
    engine: Arc<Engine>,
    number: u64,
    open: Option<OpenFile>,
    bytes: u64,
    files: SortedFiles,
}

impl ContentFiles {
    pub fn new(engine: Arc<Engine>, number: u64) -> ContentFiles {
        ContentFiles {
            engine,
            number,
            open: None,
            bytes: 0,
            files: SortedFiles::default(),
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
        let name = format!("content-{}-{}.sst", self.number, self.files.count());
        let path = self.engine.ingest_directory().join(name);
        let options = self.engine.content_file_options();
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

    /// Has the engine take the files. What they hold is durable then.
    pub fn ingest(mut self) -> Result<(), Error> {
        self.end_file()?;
        self.files.ingest(&self.engine, Keyspace::Attachments)
    }
}
