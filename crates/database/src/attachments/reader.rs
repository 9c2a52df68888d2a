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

/// The maximum number of decoded bytes that are checked before the first piece.
const CHECKED_BYTES: u64 = 8 << 20;

/// About as many bytes as a piece of decoded content has.
const PIECE_BYTES: usize = 128 << 10;

/// The bytes of an attachment, piece by piece. Between two pieces it holds a chunk at most.
pub struct AttachmentReader {
    source: Source,
    /// The client gzipped the bytes, and they may be no gzip: CouchDB stores such uploads, and so does this server.
    is_unsure: bool,
    /// Bytes to be passed over, then bytes to be given.
    skip: u64,
    left: u64,
}

enum Source {
    Stored(Content),
    /// The decoder takes memory, and is created when the first piece is requested.
    ToDecode(Content),
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
        }
    }

    /// The next piece, not empty. Bytes that are not gzip, though they were uploaded as such, are
    /// returned without decoding: an error would come in the middle of an answer with other
    /// documents. `None` at the end.
    ///
    /// Blocks for the reading of a chunk, or, when it has to decode up to where a range begins, for longer.
    ///
    /// # Errors
    /// Corruption; bytes that cease to be gzip after 8 MiB.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        if let Source::ToDecode(content) = &self.source {
            self.source = match self.is_unsure && !is_gzip(content)? {
                true => Source::Stored(content.clone()),
                false => {
                    let decoder = MultiGzDecoder::new(Chunks::new(content.clone()));
                    Source::Decoded(Box::new(decoder))
                }
            };
        }
        let mut piece = match &mut self.source {
            Source::Stored(content) | Source::ToDecode(content) => {
                let piece = content.read(self.skip)?;
                self.skip += piece.len() as u64;
                piece
            }
            Source::Decoded(decoder) => {
                let skipped =
                    std::io::copy(&mut decoder.by_ref().take(self.skip), &mut std::io::sink());
                skipped.map_err(undecodable)?;
                self.skip = 0;
                let mut piece = Vec::with_capacity(PIECE_BYTES);
                let mut some = decoder.by_ref().take(PIECE_BYTES as u64);
                some.read_to_end(&mut piece).map_err(undecodable)?;
                piece
            }
        };
        piece.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= piece.len() as u64;
        if piece.is_empty() {
            self.left = 0;
            return Ok(None);
        }
        Ok(Some(piece.into()))
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

    /// Returns the next piece, not empty; `None` at the end. Blocks.
    ///
    /// # Errors
    /// Errors of [`AttachmentReader::next_piece`].
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let Some(piece) = self.reader.next_piece()? else {
                let last = STANDARD.encode(std::mem::take(&mut self.left));
                return Ok((!last.is_empty()).then(|| last.into()));
            };
            self.left.extend_from_slice(&piece);
            let rest = self.left.split_off(self.left.len() / 3 * 3);
            let whole = std::mem::replace(&mut self.left, rest);
            if !whole.is_empty() {
                return Ok(Some(STANDARD.encode(whole).into()));
            }
        }
    }

    /// Returns all of it, which is held in memory; `None` if it is longer than `bytes_max`. Blocks.
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

/// Returns whether the beginning of a content is gzip.
fn is_gzip(content: &Content) -> Result<bool, Error> {
    let decoder = MultiGzDecoder::new(Chunks::new(content.clone()));
    match std::io::copy(&mut decoder.take(CHECKED_BYTES), &mut std::io::sink()) {
        Ok(_) => Ok(true),
        // The store's errors.
        Err(e) if e.kind() == ErrorKind::Other => Err(undecodable(e)),
        Err(_) => Ok(false),
    }
}

fn undecodable(e: std::io::Error) -> Error {
    tracing::warn!(error = %e, "an attachment does not decode");
    storage::Error::Corrupt("attachment: it does not decode as gzip").into()
}

/// A content as a stream of bytes.
struct Chunks {
    content: Content,
    /// Where the next chunk begins.
    offset: u64,
    chunk: Vec<u8>,
    at: usize,
}

impl Chunks {
    fn new(content: Content) -> Chunks {
        Chunks {
            content,
            offset: 0,
            chunk: Vec::new(),
            at: 0,
        }
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
