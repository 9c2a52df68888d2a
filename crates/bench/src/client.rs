//! The load client: one keep-alive HTTP/1.1 connection, as lean as can be.
//!
//! The client shares the machine's cores with the server that it measures, so its costs reduce the
//! figure. Requests are prebuilt bytes, replies are parsed with `httparse` in the read buffer, and
//! a body is passed to a [`Sink`] in pieces without being stored.

use std::cell::RefCell;
use std::fmt;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::error::{BenchError, ClientError};
use crate::target::Target;

const BUFFER_BYTES: usize = 64 * 1024;
/// A reply's head may not be larger.
const HEAD_BYTES_MAX: usize = 256 * 1024;
const HEADERS_MAX: usize = 64;
/// How much of the body of a refusal is kept.
const REFUSAL_BYTES_MAX: usize = 2048;

/// Takes the pieces of a successful reply's body.
pub(crate) trait Sink {
    fn take(&mut self, piece: &[u8]);
}

/// Ignores the body.
pub(crate) struct Discard;

impl Sink for Discard {
    fn take(&mut self, _piece: &[u8]) {}
}

/// Keeps the whole body.
impl Sink for Vec<u8> {
    fn take(&mut self, piece: &[u8]) {
        self.extend_from_slice(piece);
    }
}

/// Counts the occurrences of a text in the body, across the borders of pieces.
pub(crate) struct Occurrences {
    finder: memchr::memmem::Finder<'static>,
    /// The last bytes of the previous piece: one fewer than the needle has.
    tail: Vec<u8>,
    pub(crate) count: u64,
    /// The text around the first occurrence.
    pub(crate) first: Option<String>,
}

impl Occurrences {
    pub(crate) fn of(needle: &'static [u8]) -> Self {
        Self {
            finder: memchr::memmem::Finder::new(needle),
            tail: Vec::new(),
            count: 0,
            first: None,
        }
    }

    fn count_in(&mut self, text: &[u8]) {
        for at in self.finder.find_iter(text) {
            self.count += 1;
            if self.first.is_none() {
                let around = &text[at.saturating_sub(100)..text.len().min(at + 200)];
                self.first = Some(String::from_utf8_lossy(around).into_owned());
            }
        }
    }

    fn keep_tail(&mut self, piece: &[u8]) {
        let keep = self.finder.needle().len() - 1;
        self.tail
            .extend_from_slice(&piece[piece.len().saturating_sub(keep)..]);
        let surplus = self.tail.len().saturating_sub(keep);
        self.tail.drain(..surplus);
    }
}

impl Sink for Occurrences {
    fn take(&mut self, piece: &[u8]) {
        let keep = self.finder.needle().len() - 1;
        let mut border = std::mem::take(&mut self.tail);
        border.extend_from_slice(&piece[..piece.len().min(keep)]);
        self.count_in(&border);
        if piece.len() <= keep {
            // The border holds the whole piece, so it is what the next piece continues.
            border.drain(..border.len().saturating_sub(keep));
            self.tail = border;
            return;
        }
        self.count_in(piece);
        self.keep_tail(piece);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Empty,
    Length(u64),
    Chunked,
    UntilClose,
}

struct Head {
    status: u16,
    framing: Framing,
    closes: bool,
}

/// Connections that are kept for the next slice of an interleaved part, so that it does not open
/// new ones.
#[derive(Default)]
pub(crate) struct ConnectionPool {
    /// `None` while none are kept.
    waiting: RefCell<Option<Vec<Connection>>>,
}

impl ConnectionPool {
    /// Keeps connections from now on, or closes those that wait.
    pub(crate) fn keep(&self, wanted: bool) {
        *self.waiting.borrow_mut() = wanted.then(Vec::new);
    }

    /// At most `count` of the kept connections, in the order in which they came.
    pub(crate) fn take(&self, count: usize) -> Vec<Connection> {
        let mut waiting = self.waiting.borrow_mut();
        let Some(waiting) = waiting.as_mut() else {
            return Vec::new();
        };
        waiting.drain(..count.min(waiting.len())).collect()
    }

    /// Keeps a connection that can carry another request, if they are kept.
    pub(crate) fn put(&self, connection: Connection) {
        if let Some(waiting) = self.waiting.borrow_mut().as_mut()
            && connection.is_usable()
        {
            waiting.push(connection);
        }
    }
}

/// A clone of a target has separate connections.
impl Clone for ConnectionPool {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for ConnectionPool {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.waiting.borrow().as_ref().map(Vec::len);
        to.debug_tuple("Kept").field(&count).finish()
    }
}

/// A connection that carries one request after the other.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// The unread bytes are `buffer[start..end]`.
    start: usize,
    end: usize,
    refusal: Vec<u8>,
    usable: bool,
    /// Bytes sent and received, and not reported yet.
    bytes: u64,
}

impl Connection {
    /// Connects to the target.
    pub(crate) async fn open(target: &Target) -> Result<Self, BenchError> {
        Ok(Self {
            stream: stream_to(target).await?,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            refusal: Vec::new(),
            usable: true,
            bytes: 0,
        })
    }

    /// Replaces the connection by a new one to the target.
    pub(crate) async fn renew(&mut self, target: &Target) -> Result<(), BenchError> {
        self.usable = false;
        self.stream = stream_to(target).await?;
        (self.start, self.end) = (0, 0);
        self.usable = true;
        Ok(())
    }

    /// Bytes sent and received since this was last asked.
    pub(crate) fn take_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }

    /// Can another request be sent?
    pub(crate) fn is_usable(&self) -> bool {
        self.usable
    }

    /// The beginning of the body of the last reply, when its status was not 2xx.
    pub(crate) fn refusal(&self) -> String {
        String::from_utf8_lossy(&self.refusal).trim_end().to_owned()
    }

    /// Sends a request and reads its whole reply; the body of a 2xx reply goes to `sink`.
    ///
    /// After an error, or when the server requested it, the connection is no longer usable.
    pub(crate) async fn exchange(
        &mut self,
        request: &[u8],
        sink: &mut impl Sink,
    ) -> Result<u16, ClientError> {
        self.usable = false;
        self.bytes += request.len() as u64;
        let sent = self.stream.write_all(request).await;
        // A server may refuse a large body before it has read it: its reply has more information
        // than the broken pipe.
        let head = match (self.head().await, sent) {
            (Ok(head), _) => head,
            (Err(_), Err(error)) => return Err(error.into()),
            (Err(error), Ok(())) => return Err(error),
        };
        if (200..300).contains(&head.status) {
            self.body(head.framing, sink).await?;
        } else {
            let mut refusal = Beginning(std::mem::take(&mut self.refusal));
            refusal.0.clear();
            let read = self.body(head.framing, &mut refusal).await;
            self.refusal = refusal.0;
            read?;
        }
        self.usable = !head.closes;
        Ok(head.status)
    }

    async fn head(&mut self) -> Result<Head, ClientError> {
        loop {
            if self.start < self.end
                && let Some((used, head)) = parse_head(&self.buffer[self.start..self.end])?
            {
                self.start += used;
                // 100 Continue and other interim replies come before the real one.
                if head.status >= 200 {
                    return Ok(head);
                }
                continue;
            }
            self.fill().await?;
        }
    }

    async fn body(&mut self, framing: Framing, sink: &mut impl Sink) -> Result<(), ClientError> {
        match framing {
            Framing::Empty => Ok(()),
            Framing::Length(length) => self.pass(length, sink).await,
            Framing::Chunked => self.chunks(sink).await,
            Framing::UntilClose => self.until_close(sink).await,
        }
    }

    async fn pass(&mut self, mut left: u64, sink: &mut impl Sink) -> Result<(), ClientError> {
        while left > 0 {
            if self.start == self.end {
                self.fill().await?;
            }
            let here = usize::try_from(left).map_or(usize::MAX, |left| left);
            let piece = here.min(self.end - self.start);
            sink.take(&self.buffer[self.start..self.start + piece]);
            self.start += piece;
            left -= piece as u64;
        }
        Ok(())
    }

    async fn chunks(&mut self, sink: &mut impl Sink) -> Result<(), ClientError> {
        loop {
            let size = self.chunk_size().await?;
            if size == 0 {
                return self.trailers().await;
            }
            self.pass(size, sink).await?;
            if !self.line().await?.is_empty() {
                return Err(malformed("no line end after a chunk"));
            }
        }
    }

    async fn chunk_size(&mut self) -> Result<u64, ClientError> {
        loop {
            match httparse::parse_chunk_size(&self.buffer[self.start..self.end]) {
                Ok(httparse::Status::Complete((used, size))) => {
                    self.start += used;
                    return Ok(size);
                }
                Ok(httparse::Status::Partial) => self.fill().await?,
                Err(_) => return Err(malformed("bad chunk size")),
            }
        }
    }

    async fn trailers(&mut self) -> Result<(), ClientError> {
        while !self.line().await?.is_empty() {}
        Ok(())
    }

    /// The next line, without its end.
    async fn line(&mut self) -> Result<Vec<u8>, ClientError> {
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(at) = memchr::memchr(b'\n', unread) {
                let line = unread[..at].trim_ascii_end().to_vec();
                self.start += at + 1;
                return Ok(line);
            }
            self.fill().await?;
        }
    }

    async fn until_close(&mut self, sink: &mut impl Sink) -> Result<(), ClientError> {
        loop {
            sink.take(&self.buffer[self.start..self.end]);
            self.start = self.end;
            match self.fill().await {
                Ok(()) => {}
                Err(ClientError::Closed) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads more bytes behind the unread ones.
    async fn fill(&mut self) -> Result<(), ClientError> {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.end == self.buffer.len() {
            self.make_room()?;
        }
        let read = self.stream.read(&mut self.buffer[self.end..]).await?;
        if read == 0 {
            return Err(ClientError::Closed);
        }
        self.end += read;
        self.bytes += read as u64;
        Ok(())
    }

    fn make_room(&mut self) -> Result<(), ClientError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            if self.end >= HEAD_BYTES_MAX {
                return Err(malformed("head or line too long"));
            }
            self.buffer.resize(self.end * 2, 0);
        }
        Ok(())
    }
}

/// Opens a socket to the target.
async fn stream_to(target: &Target) -> Result<TcpStream, BenchError> {
    let connect = async {
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    connect.await.map_err(|source| BenchError::Connect {
        address: target.address.to_string(),
        source,
    })
}

/// The header with which a client has the server close the connection after the reply.
pub(crate) const CLOSE: &str = "Connection: close\r\n";

/// Adds [`CLOSE`] to a whole request.
pub(crate) fn add_close(request: &mut Vec<u8>) {
    if let Some(end) = memchr::memchr(b'\n', request) {
        drop(request.splice(end + 1..end + 1, CLOSE.bytes()));
    }
}

/// Keeps the first bytes of a body.
struct Beginning(Vec<u8>);

impl Sink for Beginning {
    fn take(&mut self, piece: &[u8]) {
        let room = REFUSAL_BYTES_MAX.saturating_sub(self.0.len());
        self.0.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

fn parse_head(bytes: &[u8]) -> Result<Option<(usize, Head)>, ClientError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let used = match response.parse(bytes) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(malformed(&error.to_string())),
    };
    let status = response.code.ok_or_else(|| malformed("no status"))?;
    let mut framing = Framing::UntilClose;
    let mut closes = response.version == Some(0);
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") && framing != Framing::Chunked {
            framing = Framing::Length(content_length(header.value)?);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            framing = Framing::Chunked;
        } else if header.name.eq_ignore_ascii_case("connection") {
            closes = header.value.eq_ignore_ascii_case(b"close");
        }
    }
    if status < 200 || status == 204 || status == 304 {
        framing = Framing::Empty;
    }
    closes |= framing == Framing::UntilClose;
    Ok(Some((
        used,
        Head {
            status,
            framing,
            closes,
        },
    )))
}

fn content_length(value: &[u8]) -> Result<u64, ClientError> {
    std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| malformed("bad Content-Length"))
}

fn malformed(what: &str) -> ClientError {
    ClientError::Malformed(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[test]
    fn a_request_that_closes_has_the_header_behind_its_first_line() {
        let mut request = b"PUT /db HTTP/1.1\r\nHost: x\r\n\r\n\n{}".to_vec();
        add_close(&mut request);
        let expected = b"PUT /db HTTP/1.1\r\nConnection: close\r\nHost: x\r\n\r\n\n{}";
        assert_eq!(request, expected);
    }

    /// A connection to a peer that sends `pieces` one by one, then closes.
    async fn connected_to(pieces: Vec<&'static [u8]>) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = socket.read(&mut request).await.unwrap();
            for piece in pieces {
                socket.write_all(piece).await.unwrap();
                socket.flush().await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        let target = Target::resolve(&format!("http://{address}")).await.unwrap();
        Connection::open(&target).await.unwrap()
    }

    async fn reply_of(pieces: Vec<&'static [u8]>) -> (Result<u16, ClientError>, Vec<u8>, bool) {
        let mut connection = connected_to(pieces).await;
        let mut body = Vec::new();
        let status = connection
            .exchange(b"GET / HTTP/1.1\r\n\r\n", &mut body)
            .await;
        (status, body, connection.is_usable())
    }

    #[tokio::test]
    async fn a_body_of_known_length_is_read_whole_from_pieces() {
        let (status, body, usable) = reply_of(vec![
            b"HTTP/1.1 200 OK\r\nConte",
            b"nt-Length: 5\r\n\r\nhe",
            b"llo",
        ])
        .await;
        assert_eq!(
            (status.unwrap(), body.as_slice(), usable),
            (200, &b"hello"[..], true)
        );
    }

    #[tokio::test]
    async fn chunks_are_joined_and_trailers_skipped() {
        let (status, body, usable) = reply_of(vec![
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r",
            b"\n4;x=1\r\ndefg\r\n0\r\nA: b\r\n",
            b"\r\n",
        ])
        .await;
        assert_eq!(
            (status.unwrap(), body.as_slice(), usable),
            (200, &b"abcdefg"[..], true)
        );
    }

    #[tokio::test]
    async fn a_reply_cut_short_is_an_error_and_ends_the_connection() {
        let (status, _, usable) =
            reply_of(vec![b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhe"]).await;
        assert!(matches!(status, Err(ClientError::Closed)));
        assert!(!usable);
    }

    #[tokio::test]
    async fn a_reply_without_length_ends_with_the_connection() {
        let (status, body, usable) = reply_of(vec![b"HTTP/1.0 200 OK\r\n\r\nall", b" of it"]).await;
        assert_eq!(
            (status.unwrap(), body.as_slice(), usable),
            (200, &b"all of it"[..], false)
        );
    }

    #[tokio::test]
    async fn the_body_of_a_refusal_is_kept_apart() {
        let mut connection = connected_to(vec![
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Object Not Found\r\nContent-Length: 22\r\n\r\n{\"error\":\"not_found\"}\n",
        ])
        .await;
        let mut body = Vec::new();
        let status = connection
            .exchange(b"GET /x HTTP/1.1\r\n\r\n", &mut body)
            .await;
        assert_eq!(status.unwrap(), 404);
        assert!(body.is_empty());
        assert_eq!(connection.refusal(), r#"{"error":"not_found"}"#);
    }

    #[test]
    fn occurrences_are_counted_across_every_border() {
        let text = br#"[{"id":"a"},{"id":"b"},{"error":"conflict"},{"error":"x"}]"#;
        for size in 1..text.len() {
            let mut counter = Occurrences::of(br#""error":"#);
            for piece in text.chunks(size) {
                counter.take(piece);
            }
            assert_eq!(counter.count, 2, "pieces of {size}");
            assert!(counter.first.is_some());
        }
    }
}
