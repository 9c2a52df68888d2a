//! Names of headers as CouchDB spells them. hyper writes them in lower case, which is legal, but
//! some clients and scripts of proxies search for `ETag`. Sizes of chunks are written in lower case
//! too, as CouchDB does: some scripts split a response at them.
//!
//! hyper's own ways cost each answer more: it can write names in title case, letter by letter,
//! which is wrong for `ETag`, or by a map for each answer. So the heads are respelled on their way
//! to the socket, in one pass over a copy of each. The output has the length of the input, and the
//! rest of the stream is unchanged: bodies are delimited as a client would do it. Other protocols
//! than HTTP/1 pass unchanged.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use memchr::memchr;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The spelling of names that are not in title case.
const EXCEPTIONS: [&[u8]; 7] = [
    b"ETag",
    b"Content-MD5",
    b"traceresponse",
    b"WWW-Authenticate",
    b"X-Couch-Request-ID",
    b"X-CouchDB-Body-Time",
    b"X-Couch-Update-NewRev",
];

/// Parts that are written in one call: a head, and as many parts as hyper passes in one call.
const PARTS_MAX: usize = 65;
/// Most digits of a chunk's size; hyper does not write more, and longer ones are not changed.
const SIZE_DIGITS_MAX: usize = 16;
/// Digits of the sizes of chunks that are written in one call.
const DIGITS_MAX: usize = 8 * SIZE_DIGITS_MAX;

/// The positions of a connection's responses that have no body, whatever their heads declare: those
/// to HEAD.
#[derive(Default)]
pub struct Bodiless {
    answers: AtomicU64,
    waiting: AtomicU64,
    places: Mutex<VecDeque<u64>>,
}

impl Bodiless {
    /// Notes the next answer, in the order of the requests, before it is written.
    pub fn note(&self, is_to_head: bool) {
        let place = self.answers.fetch_add(1, Relaxed);
        if is_to_head {
            self.places.lock().push_back(place);
            self.waiting.fetch_add(1, Relaxed);
        }
    }

    fn take(&self, place: u64) -> bool {
        if self.waiting.load(Relaxed) == 0 {
            return false;
        }
        let mut places = self.places.lock();
        let is_next = places.front() == Some(&place);
        if is_next {
            places.pop_front();
            self.waiting.fetch_sub(1, Relaxed);
        }
        is_next
    }
}

/// A stream that spells the heads which are written to it.
pub struct Spelling<S> {
    stream: S,
    /// The next part to write.
    state: State,
    /// The last head, spelled, and how much of it is written. `state` is the part after it.
    head: Vec<u8>,
    written: usize,
    /// Number of responses whose heads came.
    answers: u64,
    bodiless: Arc<Bodiless>,
}

impl<S> Spelling<S> {
    pub fn new(stream: S, bodiless: Arc<Bodiless>) -> Spelling<S> {
        Spelling {
            stream,
            state: State::Head,
            head: vec![],
            written: 0,
            answers: 0,
            bodiless,
        }
    }
}

/// The next part on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A head.
    Head,
    /// Remaining bytes of a body.
    Body(u64),
    /// A body in chunks.
    Chunks(Chunks),
    /// A body up to the connection's end, or another protocol.
    Through,
}

/// Where in a body in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunks {
    /// In a chunk's size, with its value so far.
    Size(u64),
    /// Before the line feed after this size.
    SizeEnd(u64),
    /// Remaining bytes before a chunk's end.
    Data(u64),
    /// Before the line break after a chunk.
    DataEnd,
    /// Before the line feed of that.
    DataLineFeed,
    /// In a line after the last chunk, which is empty so far or not.
    Line(bool),
    /// Before the line feed of such a line.
    LineEnd(bool),
    Done,
}

impl State {
    /// Passes over bytes up to where the next head begins, and returns how many these are.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            match self.pass_part(&bytes[at..]) {
                0 => break,
                n => at += n,
            }
        }
        at
    }

    /// Passes over the first part of bytes, and returns its length: the digits of a chunk's size, or
    /// what comes before the next such digits or the next head.
    fn pass_part(&mut self, bytes: &[u8]) -> usize {
        match self {
            State::Head => 0,
            State::Through => bytes.len(),
            State::Body(left) => {
                let n = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= n as u64;
                if *left == 0 {
                    *self = State::Head;
                }
                n
            }
            State::Chunks(chunks) => {
                let n = chunks.pass(bytes);
                if *chunks == Chunks::Done {
                    *self = State::Head;
                }
                n
            }
        }
    }

    /// Returns whether bytes that come next begin with digits of a chunk's size. The state after
    /// digits is the same whether more of them follow or not: only the next byte shows it.
    fn is_at_size(&self, bytes: &[u8]) -> bool {
        matches!(self, State::Chunks(Chunks::Size(_)))
            && bytes.first().is_some_and(u8::is_ascii_hexdigit)
    }

    /// Whether this number of bytes is all of the body that is being written.
    fn takes_all(&self, bytes: usize) -> bool {
        match self {
            State::Through => true,
            State::Body(left) => bytes as u64 <= *left,
            State::Head | State::Chunks(_) => false,
        }
    }
}

impl Chunks {
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        if let Chunks::Size(size) = *self {
            let (digits, size) = size_of(size, bytes);
            if digits > 0 {
                *self = Chunks::Size(size);
                return digits;
            }
        }
        while at < bytes.len() && *self != Chunks::Done {
            if at > 0 && matches!(self, Chunks::Size(_)) {
                break;
            }
            if let Chunks::Data(left) = self {
                let rest = bytes.len() - at;
                let n = usize::try_from(*left).map_or(rest, |left| left.min(rest));
                *left -= n as u64;
                at += n;
                if *left == 0 {
                    *self = Chunks::DataEnd;
                }
                continue;
            }
            *self = self.after(bytes[at]);
            at += 1;
        }
        at
    }

    /// After a byte that is not a chunk's content.
    fn after(self, byte: u8) -> Chunks {
        match self {
            Chunks::Size(size) => Chunks::SizeEnd(size),
            Chunks::SizeEnd(0) => Chunks::Line(true),
            Chunks::SizeEnd(size) => Chunks::Data(size),
            Chunks::DataEnd => Chunks::DataLineFeed,
            Chunks::DataLineFeed => Chunks::Size(0),
            Chunks::Line(is_empty) if byte == b'\r' => Chunks::LineEnd(is_empty),
            Chunks::Line(_) => Chunks::Line(false),
            Chunks::LineEnd(true) => Chunks::Done,
            Chunks::LineEnd(false) => Chunks::Line(true),
            Chunks::Data(_) | Chunks::Done => self,
        }
    }
}

/// Reads the digits that some bytes begin with, which continue a chunk's size. Returns how many they
/// are, and the size.
fn size_of(mut size: u64, bytes: &[u8]) -> (usize, u64) {
    let digits = bytes.iter().map_while(|byte| (*byte as char).to_digit(16));
    let count = digits
        .inspect(|digit| size = (size << 4) | u64::from(*digit))
        .count();
    (count, size)
}

/// The contents of a response's head.
struct Said {
    /// Others follow before the answer itself.
    is_interim: bool,
    /// The part that follows the head, unless the response is to HEAD.
    then: State,
}

/// Appends the head at the start of some bytes, respelled; returns its length, and its contents.
/// `None` when it is not complete.
fn spell(bytes: &[u8], head: &mut Vec<u8>) -> Option<(usize, Said)> {
    let mut at = memchr(b'\n', bytes)? + 1;
    let status = bytes.get(9..12)?;
    head.extend_from_slice(&bytes[..at]);
    let mut then = State::Through;
    loop {
        let length = memchr(b'\r', &bytes[at..])?;
        let line = bytes.get(at..at + length + 2)?;
        at += line.len();
        let begin = head.len();
        head.extend_from_slice(line);
        if length == 0 {
            break;
        }
        let line = &mut head[begin..];
        let name = spell_name(line);
        match &line[..name] {
            b"Content-Length" if then == State::Through => then = length_of(&line[name..]),
            b"Transfer-Encoding" => then = State::Chunks(Chunks::Size(0)),
            _ => {}
        }
    }
    let is_interim = status[0] == b'1';
    if is_interim || matches!(status, b"204" | b"304") {
        then = State::Head;
    }
    Some((at, Said { is_interim, then }))
}

/// The part that follows a head with this length, which is given after a colon.
fn length_of(value: &[u8]) -> State {
    let digits = value.iter().filter(|byte| byte.is_ascii_digit());
    let length = digits.fold(0_u64, |n, digit| {
        n.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    });
    match length {
        0 => State::Head,
        length => State::Body(length),
    }
}

/// Spells the name at the start of a line; returns its length.
fn spell_name(line: &mut [u8]) -> usize {
    let mut begins = true;
    let mut length = 0;
    for byte in line.iter_mut() {
        if *byte == b':' {
            break;
        }
        if begins {
            byte.make_ascii_uppercase();
        }
        begins = *byte == b'-';
        length += 1;
    }
    let name = &mut line[..length];
    let is_it = |spelled: &&&[u8]| spelled.len() == length && name.eq_ignore_ascii_case(spelled);
    if let Some(spelled) = EXCEPTIONS.iter().find(is_it) {
        name.copy_from_slice(spelled);
    }
    length
}

impl<S: AsyncWrite + Unpin> Spelling<S> {
    /// Takes the head at the start of the bytes; returns its length. `None` if it is not HTTP/1.
    fn take_head(&mut self, bytes: &[u8]) -> Option<usize> {
        if !bytes.starts_with(b"HTTP/1.") {
            return None;
        }
        self.head.clear();
        self.written = 0;
        // hyper writes a head whole, and a body only after the head.
        let Some((length, said)) = spell(bytes, &mut self.head) else {
            self.head.clear();
            return None;
        };
        self.state = said.then;
        if !said.is_interim {
            if self.bodiless.take(self.answers) {
                self.state = State::Head;
            }
            self.answers += 1;
        }
        Some(length)
    }

    /// Writes the rest of the head, and the following bytes that belong to its response.
    fn poll_parts(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
        skip: usize,
    ) -> Poll<io::Result<usize>> {
        let mut digits = [0; DIGITS_MAX];
        let mut free = &mut digits[..];
        let mut parts = [IoSlice::new(&[]); PARTS_MAX];
        parts[0] = IoSlice::new(&self.head[self.written..]);
        let left = parts[0].len();
        let mut count = 1;
        let (mut ahead, mut skip) = (self.state, skip);
        'bufs: for buf in bufs {
            let skipped = skip.min(buf.len());
            skip -= skipped;
            let mut buf = &buf[skipped..];
            while !buf.is_empty() {
                let is_size = ahead.is_at_size(buf);
                let n = ahead.pass_part(buf);
                // Bytes that are not written now are offered again.
                if n == 0 || count == PARTS_MAX {
                    break 'bufs;
                }
                let (mut part, rest) = buf.split_at(n);
                if is_size && n <= SIZE_DIGITS_MAX && part.iter().any(u8::is_ascii_uppercase) {
                    if n > free.len() {
                        break 'bufs;
                    }
                    let (lower, others) = free.split_at_mut(n);
                    lower.copy_from_slice(part);
                    lower.make_ascii_lowercase();
                    part = lower;
                    free = others;
                }
                parts[count] = IoSlice::new(part);
                count += 1;
                buf = rest;
            }
        }
        let parts = match left {
            0 => &parts[1..count],
            _ => &parts[..count],
        };
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, parts))?;
        let mut of_body = written.saturating_sub(left);
        for part in &parts[usize::from(left > 0)..] {
            let n = of_body.min(part.len());
            self.state.pass(&part[..n]);
            of_body -= n;
        }
        self.written += written.min(left);
        Poll::Ready(Ok(written))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Spelling<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Spelling<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        // The part of a head that was taken before is at the beginning again.
        let taken = me.head.len() - me.written;
        if taken > 0 {
            return me.poll_parts(cx, bufs, taken);
        }
        if me.state == State::Head {
            let first = bufs.iter().position(|buf| !buf.is_empty());
            let bufs = &bufs[first.unwrap_or(0)..];
            match first.map(|_| me.take_head(&bufs[0])) {
                Some(Some(length)) => return me.poll_parts(cx, bufs, length),
                Some(None) => me.state = State::Through,
                None => {}
            }
        }
        let length = bufs.iter().map(|buf| buf.len()).sum();
        if !me.state.takes_all(length) {
            return me.poll_parts(cx, bufs, 0);
        }
        let written = ready!(Pin::new(&mut me.stream).poll_write_vectored(cx, bufs))?;
        if let State::Body(left) = me.state {
            me.state = match left - written as u64 {
                0 => State::Head,
                left => State::Body(left),
            };
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
