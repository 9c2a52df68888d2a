//! Uploads: bytes in, a stored content out.

use std::io::Write as _;

use bytes::Bytes;
use document::{Attachment, Encoding};
use flate2::write::{GzEncoder, MultiGzDecoder};
use flate2::{Compression, GzBuilder};
use md5::{Digest, Md5};
use storage::{Content, Upload};
use tokio::task::JoinHandle;

use crate::Error;
use crate::lifecycle::Lifecycle;

/// Bytes are worked on (hashed, compressed, written) in portions of this many, on a thread for blocking work.
const PORTION_BYTES: usize = 256 << 10;
/// Pieces of fewer bytes are copied together.
const SHORT_PIECE_BYTES: usize = 1 << 10;
/// The operating system in gzip's header, as zlib writes it on Unix.
const GZIP_OS_UNIX: u8 = 3;

/// Properties of an upload that are known before its bytes.
#[derive(Clone, Debug, Default)]
pub struct SinkOptions {
    /// The client sends gzipped bytes, which are stored as they come.
    pub encoded: bool,
    /// Number of bytes before they were gzipped, as the client states it. If it does not, the length is that of the gzipped
    /// bytes, as in CouchDB.
    ///
    /// Bytes that are not gzip are refused without a length. With a length they are stored, as in
    /// CouchDB: a replication must not lose them.
    pub length: Option<u64>,
    /// The MD5 sum of the bytes as sent, which is verified.
    pub md5: Option<[u8; 16]>,
    /// Maximum number of bytes, before and after decompression.
    pub bytes_max: Option<u64>,
}

/// Takes the bytes of one attachment. Dropped before it is finished, it leaves nothing.
///
/// It holds at most two portions: one that is processed, and one that is received.
pub struct AttachmentSink {
    /// Absent while a portion is worked on.
    work: Option<Box<Work>>,
    working: Option<JoinHandle<Result<Box<Work>, Error>>>,
    portion: Portion,
    taken: u64,
    options: SinkOptions,
    /// The state of the database.
    lifecycle: Lifecycle,
}

impl AttachmentSink {
    pub(super) fn new(
        upload: Upload,
        gzip: Option<u32>,
        options: SinkOptions,
        lifecycle: Lifecycle,
    ) -> AttachmentSink {
        AttachmentSink {
            work: Some(Box::new(Work::new(upload, gzip, &options))),
            working: None,
            portion: Portion::default(),
            taken: 0,
            options,
            lifecycle,
        }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`Error::AttachmentTooLarge`], [`Error::InsufficientStorage`], and errors of writing.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.taken += bytes.len() as u64;
        if self.options.bytes_max.is_some_and(|max| self.taken > max) {
            return Err(Error::AttachmentTooLarge);
        }
        self.portion.push(bytes);
        if self.portion.bytes >= PORTION_BYTES {
            self.start_work().await?;
        }
        Ok(())
    }

    /// Hands the portion to a thread, once the one before is done.
    async fn start_work(&mut self) -> Result<(), Error> {
        let mut work = self.work().await?;
        let portion = std::mem::take(&mut self.portion).into_pieces();
        self.working = Some(tokio::task::spawn_blocking(move || {
            work.take_in(&portion)?;
            Ok(work)
        }));
        Ok(())
    }

    async fn work(&mut self) -> Result<Box<Work>, Error> {
        if let Some(working) = self.working.take() {
            let worked = working.await.map_err(|_| Error::ShuttingDown)?;
            return self.lifecycle.explain(worked);
        }
        self.work.take().ok_or(Error::ShuttingDown)
    }

    /// Ends the upload.
    ///
    /// # Errors
    /// [`Error::DigestMismatch`], [`Error::BadRequest`] for invalid gzip, and errors of `write`.
    pub async fn finish(mut self) -> Result<UploadedContent, Error> {
        let mut work = self.work().await?;
        let portion = std::mem::take(&mut self.portion).into_pieces();
        let options = std::mem::take(&mut self.options);
        // Few bytes, too: a write to the store may wait for others.
        let finish = move || {
            work.take_in(&portion)?;
            work.finish(&options)
        };
        let finished = tokio::task::spawn_blocking(finish).await;
        self.lifecycle
            .explain(finished.map_err(|_| Error::ShuttingDown)?)
    }
}

/// Bytes that have arrived, until they are worked on. Clients choose how long its pieces are, and each
/// takes memory of its own.
#[derive(Default)]
struct Portion {
    pieces: Vec<Bytes>,
    /// Short pieces behind the others, together.
    short: Vec<u8>,
    /// The length of all, in bytes.
    bytes: usize,
}

impl Portion {
    fn push(&mut self, piece: Bytes) {
        let is_first = self.bytes == 0;
        self.bytes += piece.len();
        if piece.len() < SHORT_PIECE_BYTES && !is_first {
            self.short.extend_from_slice(&piece);
            return;
        }
        self.end_short();
        self.pieces.push(piece);
    }

    fn end_short(&mut self) {
        if !self.short.is_empty() {
            self.pieces.push(std::mem::take(&mut self.short).into());
        }
    }

    fn into_pieces(mut self) -> Vec<Bytes> {
        self.end_short();
        self.pieces
    }
}

/// The processing of the bytes.
struct Work {
    upload: Upload,
    /// MD5 sum of the stored bytes.
    stored_md5: Md5,
    /// MD5 sum of the sent bytes, if these differ and the client sent a sum.
    sent_md5: Option<Md5>,
    gzip: Option<GzEncoder<Vec<u8>>>,
    /// Counts the decompressed bytes that the client compressed.
    counting: Option<MultiGzDecoder<Counter>>,
    has_length: bool,
    /// Number of bytes as sent.
    sent: u64,
}

impl Work {
    fn new(upload: Upload, gzip: Option<u32>, options: &SinkOptions) -> Work {
        let gzip = gzip.map(|level| {
            GzBuilder::new()
                .operating_system(GZIP_OS_UNIX)
                .write(Vec::new(), Compression::new(level))
        });
        Work {
            upload,
            stored_md5: Md5::new(),
            sent_md5: (gzip.is_some() && options.md5.is_some()).then(Md5::new),
            gzip,
            counting: options
                .encoded
                .then(|| MultiGzDecoder::new(Counter::up_to(options.bytes_max))),
            has_length: options.length.is_some(),
            sent: 0,
        }
    }

    fn take_in(&mut self, portion: &[Bytes]) -> Result<(), Error> {
        portion.iter().try_for_each(|bytes| self.take(bytes))
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.sent += bytes.len() as u64;
        if let Some(md5) = &mut self.sent_md5 {
            md5.update(bytes);
        }
        if let Some(counting) = &mut self.counting {
            let counted = counting.write_all(bytes);
            self.check_count(counted)?;
        }
        let Some(gzip) = &mut self.gzip else {
            return self.store(bytes);
        };
        gzip.write_all(bytes).map_err(cannot_compress)?;
        let compressed = std::mem::take(gzip.get_mut());
        self.store(&compressed)
    }

    fn check_count(&mut self, counted: std::io::Result<()>) -> Result<(), Error> {
        if let (Err(_), Some(counting)) = (counted, &self.counting) {
            let refusal = counting.get_ref().refusal();
            if !self.has_length || matches!(refusal, Error::AttachmentTooLarge) {
                return Err(refusal);
            }
            self.counting = None;
        }
        Ok(())
    }

    fn store(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stored_md5.update(bytes);
        Ok(self.upload.write(bytes)?)
    }

    fn finish(mut self, options: &SinkOptions) -> Result<UploadedContent, Error> {
        if let Some(counting) = &mut self.counting {
            let counted = counting.try_finish();
            self.check_count(counted)?;
        }
        let inflated = self
            .counting
            .take()
            .map(|counting| counting.get_ref().bytes);
        let encoding = match self.gzip.take() {
            Some(gzip) => {
                let rest = gzip.finish().map_err(cannot_compress)?;
                self.store(&rest)?;
                Encoding::Gzip
            }
            None if options.encoded => Encoding::Gzip,
            None => Encoding::Identity,
        };
        let md5: [u8; 16] = self.stored_md5.finalize().into();
        let sent_md5 = self.sent_md5.map_or(md5, |md5| md5.finalize().into());
        if options.md5.is_some_and(|wanted| wanted != sent_md5) {
            return Err(Error::DigestMismatch);
        }
        let length = options
            .length
            .filter(|_| options.encoded)
            .unwrap_or(self.sent);
        Ok(UploadedContent {
            md5,
            length,
            length_unsure: options.encoded && inflated != Some(length),
            encoding,
            content: self.upload.finish()?,
        })
    }
}

fn cannot_compress(e: std::io::Error) -> Error {
    Error::Internal(format!("an attachment could not be compressed: {e}"))
}

/// Counts the decompressed bytes of a client's gzip, up to the limit of an attachment: counting
/// takes time too.
#[derive(Debug)]
struct Counter {
    bytes: u64,
    max: u64,
}

impl Counter {
    fn up_to(max: Option<u64>) -> Counter {
        Counter {
            bytes: 0,
            max: max.unwrap_or(u64::MAX),
        }
    }

    /// Why the decoder failed.
    fn refusal(&self) -> Error {
        if self.bytes > self.max {
            return Error::AttachmentTooLarge;
        }
        Error::BadRequest("The attachment is not properly gzipped.".into())
    }
}

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes += bytes.len() as u64;
        if self.bytes > self.max {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A content that was uploaded. Hold it until the edit that names it is acknowledged: else it may be removed.
#[derive(Clone, Debug)]
pub struct UploadedContent {
    /// MD5 of the stored bytes.
    pub md5: [u8; 16],
    /// Bytes before any encoding.
    pub length: u64,
    length_unsure: bool,
    /// How it is stored.
    pub encoding: Encoding,
    pub(crate) content: Content,
}

impl UploadedContent {
    /// The attachment that the content becomes in an edit. `revpos`: `None` for the generation of the edit's revision.
    pub fn attachment(&self, name: &str, content_type: &str, revpos: Option<u64>) -> Attachment {
        Attachment {
            name: name.to_owned(),
            content_type: content_type.to_owned(),
            md5: self.md5,
            content: self.content.id,
            length: self.length,
            stored_length: self.content.length(),
            encoding: self.encoding,
            length_unsure: self.length_unsure,
            revpos,
        }
    }
}

/// Stores bytes that are in memory. Blocks.
pub(super) fn store(
    upload: Upload,
    gzip: Option<u32>,
    bytes: &[u8],
) -> Result<UploadedContent, Error> {
    let options = SinkOptions::default();
    let mut work = Work::new(upload, gzip, &options);
    for portion in bytes.chunks(PORTION_BYTES) {
        work.take(portion)?;
    }
    work.finish(&options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pieces_are_kept_together_and_in_order() {
        let mut portion = Portion::default();
        let mut whole: Vec<u8> = vec![];
        for n in 0..20_000_usize {
            let length = match n % 5_000 {
                4_999 => 2 * SHORT_PIECE_BYTES,
                n => 1 + n % 3,
            };
            let piece = vec![(n % 251) as u8; length];
            whole.extend_from_slice(&piece);
            portion.push(piece.into());
        }
        assert_eq!(portion.bytes, whole.len());
        let pieces = portion.into_pieces();
        assert!(pieces.len() < 20, "{} pieces", pieces.len());
        let together: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
        assert_eq!(together, whole);
    }
}
