//! Writing a content.

use std::sync::Arc;

use rocksdb::WriteBatch;

use super::{
    CHUNK_BYTES, Content, Contents, DIRECT_FROM_BYTES, FILE_BYTES, Place, keys, reclaim,
    remove_chunks,
};
use crate::Error;
use crate::files::FileSequence;
use crate::keyspace::Keyspace;

/// A content being written. If it is dropped before [`Upload::finish`], it is removed.
pub struct Upload {
    contents: Arc<Contents>,
    hasher: Box<blake3::Hasher>,
    /// Set when the first chunk is written.
    number: Option<u64>,
    /// Bytes of the chunks written.
    written: u64,
    /// Bytes after them.
    buffer: Vec<u8>,
    /// Chunks from [`DIRECT_FROM_BYTES`] on.
    files: Option<FileSequence>,
}

impl Upload {
    pub(super) fn new(contents: Arc<Contents>) -> Upload {
        Upload {
            contents,
            hasher: Box::default(),
            number: None,
            written: 0,
            buffer: Vec::new(),
            files: None,
        }
    }

    /// Returns the number of bytes so far.
    pub fn length(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends bytes. Blocks while chunks are written.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Dropped`], and those of the engine.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        self.hasher.update(bytes);
        while self.buffer.len() + bytes.len() >= CHUNK_BYTES {
            let room = CHUNK_BYTES - self.buffer.len();
            let (now, later) = bytes.split_at(room);
            self.buffer.extend_from_slice(now);
            bytes = later;
            self.write_chunk()?;
        }
        if self.buffer.capacity() == 0 && self.written > 0 {
            self.buffer.reserve_exact(CHUNK_BYTES);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn write_chunk(&mut self) -> Result<(), Error> {
        let mut wb = WriteBatch::default();
        self.put_chunk(&mut wb)?;
        if !wb.is_empty() {
            self.contents.write(wb)?;
        }
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn put_chunk(&mut self, wb: &mut WriteBatch) -> Result<(), Error> {
        let contents = &self.contents;
        contents.admit(self.buffer.len() as u64)?;
        let number = match self.number {
            Some(number) => number,
            None => {
                let number = contents.numbers.next(&contents.engine)?;
                let listed = keys::upload(contents.home(), number);
                wb.put_cf(contents.engine.cf(Keyspace::Meta), listed, []);
                self.number = Some(number);
                number
            }
        };
        let chunk = (self.written / CHUNK_BYTES as u64) as u32;
        let key = keys::chunk(contents.home(), number, chunk);
        if self.written >= DIRECT_FROM_BYTES {
            let engine = contents.engine.clone();
            let new = || FileSequence::new(engine, Keyspace::Attachments, FILE_BYTES);
            return self.files.get_or_insert_with(new).put(&key, &self.buffer);
        }
        let cf = contents.engine.cf(Keyspace::Attachments);
        wb.put_cf(cf, key, &self.buffer);
        Ok(())
    }

    /// Ends the content. If the same content is already stored, that is used and this one removed.
    ///
    /// # Errors
    /// Errors of [`Upload::write`].
    pub fn finish(mut self) -> Result<Content, Error> {
        let id = *self.hasher.finalize().as_bytes();
        if let Some(content) = self.contents.hold(&id)? {
            return Ok(content);
        }
        let mut last = WriteBatch::default();
        // An empty content has no chunk, but a number.
        if !self.buffer.is_empty() {
            self.put_chunk(&mut last)?;
        }
        let number = match self.number {
            Some(number) => number,
            None => self.contents.numbers.next(&self.contents.engine)?,
        };
        let place = Place {
            number,
            length: self.length(),
        };
        if let Some(files) = self.files.take() {
            files.ingest()?;
        }
        let (content, new) = self.contents.adopt(id, place, last)?;
        if new {
            self.number = None;
        }
        Ok(content)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(number) = self.number else {
            return;
        };
        let contents = &self.contents;
        let mut wb = WriteBatch::default();
        // Files are removed when their owner is dropped; ingested ones with the rest.
        let length = match self.files {
            Some(_) => DIRECT_FROM_BYTES,
            None => self.length(),
        };
        let place = Place { number, length };
        remove_chunks(&contents.engine, contents.home(), place, &mut wb);
        if !contents.is_dropped() {
            reclaim::list(&contents.engine, contents.home(), place, &mut wb);
        }
        let listed = keys::upload(contents.home(), number);
        wb.delete_cf(contents.engine.cf(Keyspace::Meta), listed);
        if let Err(e) = contents.write(wb) {
            tracing::warn!(error = %e, "removing an unfinished upload failed; the next start does it");
        }
    }
}
