//! Reading an attachment's content: its bytes, and the same in Base64.

use std::io::{BufRead, ErrorKind, Read};
use std::ops::Range;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use document::{Attachment, Encoding};
use flate2::bufread::MultiGzDecoder;
use storage::{Content, Contents};

use crate::Error;

/// The maximum number of decoded bytes that are checked before the first piece, or twice as many
/// stored ones.
const CHECKED_BYTES: u64 = 8 << 20;

/// About as many bytes as a piece of decoded content has.
const PIECE_BYTES: usize = 128 << 10;

/// About the most stored bytes that one piece is decoded from. A gzip file may consist of empty
/// members: 1 GiB of them decodes to nothing, and takes 20 s.
const STEP_BYTES: u64 = 1 << 20;

/// The bytes of an attachment, piece by piece. Between two pieces it holds a chunk at most.
pub struct AttachmentReader {
    source: Source,
    /// The client gzipped the bytes, and they may be no gzip: CouchDB stores such uploads, and so does this server.
    is_unsure: bool,
    /// Bytes to be passed over, then bytes to be given.
    skip: u64,
    left: u64,
    /// The last piece ended because the step did.
    is_slow: bool,
}

enum Source {
    Stored(Content),
    /// The decoder takes memory, and is created when the first piece is requested.
    ToDecode(Content),
    /// It is checked whether the beginning is gzip.
    ToCheck(Box<GzipCheck>),
    Decoded(Box<MultiGzDecoder<Chunks>>),
}

impl AttachmentReader {
    pub(super) fn new(
        attachment: &Attachment,
        content: Content,
        range: Option<Range<u64>>,
        decode: bool,
    ) -> AttachmentReader {
        let range = range.unwrap_or(0..u64::MAX);
        let source = match (attachment.encoding, decode) {
            (Encoding::Gzip, true) => Source::ToDecode(content),
            _ => Source::Stored(content),
        };
        AttachmentReader {
            source,
            is_unsure: attachment.length_unsure,
            skip: range.start,
            left: range.end.saturating_sub(range.start),
            is_slow: false,
        }
    }

    /// Returns whether the last piece was slow to decode: 1 MiB of stored bytes was less than a piece.
    /// The next one probably is, too.
    pub fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Returns the next piece; `None` at the end. A piece is empty if much of the stored content
    /// decodes to nothing: the caller may continue, or stop. Bytes that are not gzip, though they
    /// were uploaded as such, are returned without decoding: an error would come in the middle of an
    /// answer with other documents.
    ///
    /// Blocks for the reading of a chunk, and to decode at most 1 MiB of stored bytes.
    ///
    /// # Errors
    /// Corruption; bytes that cease to be gzip after 8 MiB.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.is_slow = !self.open()?;
        if self.is_slow {
            return Ok(Some(Bytes::new()));
        }
        let mut piece = match &mut self.source {
            Source::Decoded(decoder) => {
                let (piece, is_slow) = decode(decoder, &mut self.skip)?;
                self.is_slow = is_slow;
                piece
            }
            Source::Stored(content) | Source::ToDecode(content) => {
                let piece = content.read(self.skip)?;
                self.skip += piece.len() as u64;
                piece
            }
            Source::ToCheck(_) => Vec::new(),
        };
        let is_end = piece.is_empty() && !self.is_slow;
        piece.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= piece.len() as u64;
        if is_end {
            self.left = 0;
            return Ok(None);
        }
        Ok(Some(piece.into()))
    }

    /// Decides whether the content is decoded. Returns false while that is not known.
    fn open(&mut self) -> Result<bool, Error> {
        if let Source::ToDecode(content) = &self.source {
            let content = content.clone();
            self.source = match self.is_unsure {
                true => Source::ToCheck(Box::new(GzipCheck::new(content))),
                false => Source::decoded(content),
            };
        }
        if let Source::ToCheck(check) = &mut self.source {
            let Some(is_gzip) = check.step()? else {
                return Ok(false);
            };
            let content = check.content.clone();
            self.source = match is_gzip {
                true => Source::decoded(content),
                false => Source::Stored(content),
            };
        }
        Ok(true)
    }
}

impl Source {
    fn decoded(content: Content) -> Source {
        Source::Decoded(Box::new(MultiGzDecoder::new(Chunks::new(content))))
    }
}

/// Returns the next decoded bytes after `skip` others, and whether they are not a whole piece because
/// the step has ended.
fn decode(decoder: &mut MultiGzDecoder<Chunks>, skip: &mut u64) -> Result<(Vec<u8>, bool), Error> {
    decoder.get_mut().start_step();
    let mut passed = decoder.by_ref().take(*skip);
    let skipped = std::io::copy(&mut passed, &mut std::io::sink());
    *skip = passed.limit();
    let mut piece = Vec::new();
    let decoded = skipped.and_then(|_| {
        piece.reserve_exact(PIECE_BYTES);
        decoder.take(PIECE_BYTES as u64).read_to_end(&mut piece)
    });
    match decoded {
        Ok(_) => Ok((piece, false)),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok((piece, true)),
        Err(e) => Err(undecodable(e)),
    }
}

/// The decoded bytes of an attachment in Base64, piece by piece.
pub struct Base64Reader {
    reader: AttachmentReader,
    /// Up to two bytes that are left of the piece before.
    left: Vec<u8>,
}

impl Base64Reader {
    /// Opens an attachment whose content is among these.
    pub(super) fn open(
        contents: &Arc<Contents>,
        attachment: &Attachment,
    ) -> Result<Base64Reader, Error> {
        let content = contents.hold(&attachment.content)?;
        let content = content.ok_or(storage::Error::Corrupt("attachment"))?;
        Ok(Base64Reader {
            reader: AttachmentReader::new(attachment, content, None, true),
            left: Vec::new(),
        })
    }

    /// Returns whether the last piece was slow, as [`AttachmentReader::is_slow`].
    pub fn is_slow(&self) -> bool {
        self.reader.is_slow
    }

    /// Returns the next piece, which may be empty, as of [`AttachmentReader::next_piece`]; `None` at
    /// the end. Blocks.
    ///
    /// # Errors
    /// Errors of [`AttachmentReader::next_piece`].
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(piece) = self.reader.next_piece()? else {
            let last = STANDARD.encode(std::mem::take(&mut self.left));
            return Ok((!last.is_empty()).then(|| last.into()));
        };
        self.left.extend_from_slice(&piece);
        let rest = self.left.split_off(self.left.len() / 3 * 3);
        let whole = std::mem::replace(&mut self.left, rest);
        Ok(Some(STANDARD.encode(whole).into()))
    }

    /// Returns all of it, which is held in memory; `None` if it is longer than `bytes_max`. Blocks,
    /// until all stored bytes are decoded: the caller bounds them.
    ///
    /// # Errors
    /// Errors of [`AttachmentReader::next_piece`].
    pub fn read_whole(mut self, bytes_max: u64) -> Result<Option<String>, Error> {
        let mut whole = String::new();
        while let Some(piece) = self.next_piece()? {
            if (whole.len() + piece.len()) as u64 > bytes_max {
                return Ok(None);
            }
            whole.push_str(&String::from_utf8_lossy(&piece));
        }
        Ok(Some(whole))
    }
}

/// Checks whether the beginning of a content is gzip.
struct GzipCheck {
    content: Content,
    decoder: MultiGzDecoder<Chunks>,
    /// Number of decoded bytes that are still checked.
    left: u64,
}

impl GzipCheck {
    fn new(content: Content) -> GzipCheck {
        GzipCheck {
            decoder: MultiGzDecoder::new(Chunks::new(content.clone())),
            content,
            left: CHECKED_BYTES,
        }
    }

    /// Decodes some more. Returns whether it is gzip, once that is known.
    fn step(&mut self) -> Result<Option<bool>, Error> {
        self.decoder.get_mut().start_step();
        let mut checked = self.decoder.by_ref().take(self.left);
        let decoded = std::io::copy(&mut checked, &mut std::io::sink());
        self.left = checked.limit();
        match decoded {
            Ok(_) => Ok(Some(true)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                let is_enough = self.decoder.get_ref().offset >= 2 * CHECKED_BYTES;
                Ok(is_enough.then_some(true))
            }
            // The store's errors.
            Err(e) if e.kind() == ErrorKind::Other => Err(undecodable(e)),
            Err(_) => Ok(Some(false)),
        }
    }
}

fn undecodable(e: std::io::Error) -> Error {
    tracing::warn!(error = %e, "an attachment does not decode");
    storage::Error::Corrupt("attachment: it does not decode as gzip").into()
}

/// A content as a stream of bytes. Beyond a step, reads fail with [`ErrorKind::WouldBlock`]: the
/// decoder keeps its state, and continues in the next step.
struct Chunks {
    content: Content,
    /// Where the next chunk begins.
    offset: u64,
    /// No chunk is read from here on in this step.
    step_end: u64,
    chunk: Vec<u8>,
    at: usize,
}

impl Chunks {
    fn new(content: Content) -> Chunks {
        Chunks {
            content,
            offset: 0,
            step_end: STEP_BYTES,
            chunk: Vec::new(),
            at: 0,
        }
    }

    fn start_step(&mut self) {
        self.step_end = self.offset + STEP_BYTES;
    }
}

impl Read for Chunks {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let mut here = self.fill_buf()?;
        let n = here.read(out)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Chunks {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        if self.at == self.chunk.len() {
            if self.offset >= self.step_end {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.chunk = self
                .content
                .read(self.offset)
                .map_err(std::io::Error::other)?;
            self.offset += self.chunk.len() as u64;
            self.at = 0;
        }
        Ok(&self.chunk[self.at..])
    }

    fn consume(&mut self, n: usize) {
        self.at += n;
    }
}
