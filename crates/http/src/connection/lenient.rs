//! A connection whose request targets may be written as `curl` and CouchDB's users write them: `?startkey="a"`.
//! hyper answers an empty 400 to `"`, `<` and `>` in a query, to a backquote, `<` and `>` in a path, and to bytes that
//! are not UTF-8. Here such bytes are percent-encoded before hyper reads them; every other byte passes untouched.
//!
//! A request with both lengths, a `Content-Length` and a `Transfer-Encoding`, is refused, but hyper hides the former. So
//! here such a request gets another `Transfer-Encoding`, which [`crate::request::framing`] refuses.
//!
//! To find request lines, the framing of HTTP/1 is parsed exactly as hyper parses it.
//! Where hyper refuses a request, or HTTP/2 begins, what follows passes untouched for ever.
//! (Nothing else begins on a connection: no request is answered with an upgrade, and hyper
//! continues with HTTP/1 then.) [`crate::connection::head_timeout`] uses this parser to find heads.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use memchr::{memchr, memchr2};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Longest request line or header that is parsed. hyper's own limit on a whole head is lower.
const LINE_BYTES_MAX: usize = 1 << 20;
/// The mark of a request with both lengths.
const BOTH_LENGTHS: &[u8] = b"Transfer-Encoding: chunked\r\n";

pub struct Lenient<S> {
    stream: S,
    framing: Framing,
    /// Bytes that were read but did not fit into the reader's buffer, because encoding made them
    /// longer.
    overflow: Vec<u8>,
    overflow_read: usize,
}

impl<S> Lenient<S> {
    pub fn new(stream: S) -> Self {
        Lenient {
            stream,
            framing: Framing::default(),
            overflow: Vec::new(),
            overflow_read: 0,
        }
    }

    /// Which of the connection's heads is read just now.
    pub fn head_under_way(&self) -> Option<u64> {
        self.framing.head_under_way()
    }

    fn read_overflow(&mut self, buf: &mut ReadBuf<'_>) {
        let rest = &self.overflow[self.overflow_read..];
        let n = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..n]);
        self.overflow_read += n;
        if self.overflow_read == self.overflow.len() {
            self.overflow = Vec::new();
            self.overflow_read = 0;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lenient<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if !me.overflow.is_empty() {
            me.read_overflow(buf);
            return Poll::Ready(Ok(()));
        }
        let start = buf.filled().len();
        ready!(Pin::new(&mut me.stream).poll_read(cx, buf))?;
        let read = &buf.filled()[start..];
        let passed = me.framing.scan(read);
        if passed < read.len() {
            me.overflow = me.framing.encode(&read[passed..]);
            buf.set_filled(start + passed);
            me.read_overflow(buf);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Lenient<S> {
    crate::connection::wrapper::write_through!();

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The class of a byte of a request target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Plain,
    Encoded,
    /// A space, which ends the target, or a byte that hyper refuses and that is left to it.
    End,
}

/// Bytes are classed alike in paths and queries: unnecessary encoding has no effect. So are all
/// bytes beyond ASCII: whether they are UTF-8 would be known only when some have passed.
const CLASSES: [Class; 256] = {
    let mut classes = [Class::Plain; 256];
    let mut b = 0;
    while b < 256 {
        classes[b] = match b as u8 {
            ..=b' ' | 0x7f => Class::End,
            b'"' | b'<' | b'>' | b'`' | 0x80.. => Class::Encoded,
            _ => Class::Plain,
        };
        b += 1;
    }
    classes
};

fn class(b: u8) -> Class {
    CLASSES[usize::from(b)]
}

/// Which part of a connection's input comes next. The parts of a chunked body are those of hyper's decoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// A request line, perhaps after empty lines.
    #[default]
    Start,
    Method,
    Target,
    /// `HTTP/1.1`, of which this many bytes were read, and the end of the line.
    Version(usize),
    VersionLf,
    Header,
    /// A header, before which the request is marked.
    BothLengths,
    Body(u64),
    ChunkStart,
    ChunkSize(u64),
    ChunkSpace(u64),
    ChunkExtension(u64),
    ChunkSizeLf(u64),
    Chunk(u64),
    ChunkCr,
    ChunkLf,
    Trailers,
    Trailer,
    TrailerLf,
    TrailersLf,
    /// Input that is not parsed any more.
    Through,
}

#[derive(Default)]
struct Framing {
    state: State,
    /// How much of the request line was read.
    line_len: usize,
    /// Whether the request has a `Content-Length`, and its value.
    has_length: bool,
    length: Option<u64>,
    /// Whether the request has a `Transfer-Encoding`, and so a chunked body.
    transfer: Option<Chunked>,
    /// Whether it is marked.
    is_marked: bool,
    /// The beginning of a header whose end was not read yet.
    header: Vec<u8>,
    /// How many heads were read to their ends.
    heads: u64,
}

/// Whether the last `Transfer-Encoding` ends with `chunked`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Chunked(bool);

impl Framing {
    fn head_under_way(&self) -> Option<u64> {
        match self.state {
            State::Method
            | State::Target
            | State::Version(_)
            | State::VersionLf
            | State::Header
            | State::BothLengths => Some(self.heads),
            _ => None,
        }
    }

    /// Parses `bytes` up to the first that is to be encoded, or before which the request is marked.
    /// Returns the number of bytes before it, or all of them. A byte to be encoded counts as parsed.
    fn scan(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(&b) = bytes.get(at) {
            let rest = &bytes[at..];
            match self.state {
                State::Through => return bytes.len(),
                State::BothLengths => return at,
                State::Body(left) => at += self.skip(rest, left, State::Body, State::Start),
                State::Chunk(left) => at += self.skip(rest, left, State::Chunk, State::ChunkCr),
                State::Target => {
                    let n = rest.iter().position(|b| class(*b) != Class::Plain);
                    let n = n.unwrap_or(rest.len());
                    at += n;
                    let Some(&b) = rest.get(n) else {
                        self.lengthen_line(n);
                        continue;
                    };
                    self.lengthen_line(n + 1);
                    if self.state == State::Through {
                        continue;
                    }
                    if class(b) == Class::Encoded {
                        return at;
                    }
                    at += 1;
                    self.state = if b == b' ' {
                        State::Version(0)
                    } else {
                        State::Through
                    };
                }
                State::Header => at += self.header(rest),
                State::ChunkExtension(size) => match memchr2(b'\r', b'\n', rest) {
                    None => return bytes.len(),
                    Some(n) => {
                        at += n + 1;
                        self.state = expect(rest[n] == b'\r', State::ChunkSizeLf(size));
                    }
                },
                State::Trailer => match memchr(b'\r', rest) {
                    None => return bytes.len(),
                    Some(n) => {
                        at += n + 1;
                        self.state = State::TrailerLf;
                    }
                },
                _ => {
                    self.step(b);
                    at += 1;
                }
            }
        }
        at
    }

    /// The states that read one byte.
    fn step(&mut self, b: u8) {
        self.state = match self.state {
            State::Start if b == b'\r' || b == b'\n' => State::Start,
            State::Start | State::Method => return self.method(b),
            State::Version(n @ 0..7) => expect(b == b"HTTP/1."[n], State::Version(n + 1)),
            State::Version(7) => expect(matches!(b, b'0' | b'1'), State::Version(8)),
            State::Version(_) => match b {
                b'\r' => State::VersionLf,
                _ => expect(b == b'\n', State::Header),
            },
            State::VersionLf => expect(b == b'\n', State::Header),
            State::ChunkStart => match hex(b) {
                Some(digit) => State::ChunkSize(digit),
                None => State::Through,
            },
            State::ChunkSize(size) => match hex(b) {
                Some(digit) => match size.checked_mul(16) {
                    Some(size) => State::ChunkSize(size + digit),
                    None => State::Through,
                },
                None => after_size(b, size),
            },
            State::ChunkSpace(size) => after_size(b, size),
            State::ChunkSizeLf(0) => expect(b == b'\n', State::Trailers),
            State::ChunkSizeLf(size) => expect(b == b'\n', State::Chunk(size)),
            State::ChunkCr => expect(b == b'\r', State::ChunkLf),
            State::ChunkLf => expect(b == b'\n', State::ChunkStart),
            State::Trailers if b == b'\r' => State::TrailersLf,
            State::Trailers => State::Trailer,
            State::TrailerLf => expect(b == b'\n', State::Trailers),
            State::TrailersLf => expect(b == b'\n', State::Start),
            State::Target
            | State::Header
            | State::BothLengths
            | State::Body(_)
            | State::Chunk(_)
            | State::ChunkExtension(_)
            | State::Trailer
            | State::Through => unreachable!("read by more than a byte"),
        };
    }

    fn skip(&mut self, rest: &[u8], left: u64, more: impl Fn(u64) -> State, then: State) -> usize {
        let n = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
        let left = left - n as u64;
        self.state = if left > 0 { more(left) } else { then };
        n
    }

    fn method(&mut self, b: u8) {
        if self.state == State::Start {
            self.state = State::Method;
            self.line_len = 0;
        }
        self.lengthen_line(1);
        match b {
            b' ' => self.state = State::Target,
            b'!'..=b'~' => {}
            _ => self.state = State::Through,
        }
    }

    fn lengthen_line(&mut self, n: usize) {
        self.line_len += n;
        if self.line_len > LINE_BYTES_MAX {
            self.state = State::Through;
        }
    }

    /// Reads a header, or its available part.
    fn header(&mut self, rest: &[u8]) -> usize {
        let end = memchr(b'\n', rest);
        let part = &rest[..end.unwrap_or(rest.len())];
        if self.header.len() + part.len() > LINE_BYTES_MAX {
            self.header = Vec::new();
            self.state = State::Through;
        } else if end.is_none() {
            self.header.extend_from_slice(part);
        } else if self.header.is_empty() {
            self.header_line(part);
        } else {
            let mut line = std::mem::take(&mut self.header);
            line.extend_from_slice(part);
            self.header_line(&line);
        }
        part.len() + usize::from(end.is_some())
    }

    fn header_line(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            self.state = self.after_head();
            return;
        }
        let Some(colon) = memchr(b':', line) else {
            self.state = State::Through;
            return;
        };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        let is_valid = match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                let last = value.rsplit(|b| *b == b',').next().unwrap_or_default();
                self.transfer = Some(Chunked(last.trim_ascii().eq_ignore_ascii_case(b"chunked")));
                value.is_ascii()
            }
            _ => true,
        };
        let has_both = self.has_length && self.transfer == Some(Chunked(true));
        if !is_valid {
            self.state = State::Through;
        } else if has_both && !self.is_marked {
            self.is_marked = true;
            self.state = State::BothLengths;
        }
    }

    /// Whether hyper takes it: a `Transfer-Encoding` before it makes it void.
    fn content_length(&mut self, value: &[u8]) -> bool {
        self.has_length = true;
        if self.transfer.is_some() {
            return true;
        }
        let value = value.trim_ascii();
        let length = value.iter().try_fold(0u64, |n, b| {
            let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
            n.checked_mul(10)?.checked_add(digit)
        });
        let is_same = self.length.is_none() || self.length == length;
        self.length = length;
        !value.is_empty() && length.is_some() && is_same
    }

    fn after_head(&mut self) -> State {
        let (length, transfer) = (self.length.take(), self.transfer.take());
        (self.has_length, self.is_marked) = (false, false);
        self.heads += 1;
        match transfer {
            Some(Chunked(is_chunked)) => expect(is_chunked, State::ChunkStart),
            None => match length {
                None | Some(0) => State::Start,
                Some(length) => State::Body(length),
            },
        }
    }

    /// Encodes `bytes`, whose first byte has to be encoded, or comes after the mark.
    fn encode(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        let mut out = Vec::with_capacity(bytes.len() + 64);
        while let Some((&b, mut rest)) = bytes.split_first() {
            if self.state == State::BothLengths {
                out.extend_from_slice(BOTH_LENGTHS);
                self.state = State::Header;
                rest = bytes;
            } else {
                let (high, low) = (usize::from(b >> 4), usize::from(b & 15));
                out.extend_from_slice(&[b'%', DIGITS[high], DIGITS[low]]);
            }
            let (passed, rest) = rest.split_at(self.scan(rest));
            out.extend_from_slice(passed);
            bytes = rest;
        }
        out
    }
}

fn expect(is_so: bool, then: State) -> State {
    if is_so { then } else { State::Through }
}

fn after_size(b: u8, size: u64) -> State {
    match b {
        b' ' | b'\t' => State::ChunkSpace(size),
        b';' => State::ChunkExtension(size),
        _ => expect(b == b'\r', State::ChunkSizeLf(size)),
    }
}

fn hex(b: u8) -> Option<u64> {
    (b as char).to_digit(16).map(u64::from)
}

#[cfg(test)]
mod tests;
