use std::collections::VecDeque;
use std::task::Waker;

use memchr::memmem;
use proptest::prelude::*;

use super::*;

/// Accepts the numbers of bytes in its list, and is not ready when the list is empty.
struct Socket {
    takes: VecDeque<usize>,
    received: Vec<u8>,
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut left = self.takes.pop_front().unwrap_or(usize::MAX);
        if left == 0 {
            return Poll::Pending;
        }
        let before = self.received.len();
        for buf in bufs {
            let n = left.min(buf.len());
            self.received.extend_from_slice(&buf[..n]);
            left -= n;
        }
        Poll::Ready(Ok(self.received.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn spelling(bodiless: Arc<Bodiless>, takes: Vec<usize>) -> Spelling<Socket> {
    let socket = Socket {
        takes: takes.into(),
        received: vec![],
    };
    Spelling::new(socket, bodiless)
}

/// Writes as hyper does: bytes that were not accepted are offered again, with more behind them.
fn write(stream: &mut Spelling<Socket>, mut bytes: &[u8], cuts: &mut impl Iterator<Item = usize>) {
    while !bytes.is_empty() {
        // A head is whole in the first part.
        let head = memmem::find(bytes, b"\r\n\r\n").map_or(bytes.len(), |end| end + 4);
        let (first, mut rest) = bytes.split_at(head);
        let mut bufs = vec![IoSlice::new(first)];
        while !rest.is_empty() {
            let n = cuts.next().unwrap_or(rest.len()).clamp(1, rest.len());
            bufs.push(IoSlice::new(&rest[..n]));
            rest = &rest[n..];
        }
        let mut cx = Context::from_waker(Waker::noop());
        if let Poll::Ready(written) = Pin::new(&mut *stream).poll_write_vectored(&mut cx, &bufs) {
            bytes = &bytes[written.unwrap()..];
        }
    }
}

fn written(text: &str) -> String {
    let mut stream = spelling(Arc::default(), vec![]);
    write(&mut stream, text.as_bytes(), &mut std::iter::empty());
    String::from_utf8(stream.stream.received).unwrap()
}

#[test]
fn names_are_spelled_as_couchdb_does() {
    assert_eq!(
        written(
            "HTTP/1.1 401 Unauthorized\r\nserver: CouchDB/3 (x: y)\r\nwww-authenticate: Basic realm=\"etag\"\r\n\
             etag: \"1-etag\"\r\nx-couch-request-id: 1\r\nx-couchdb-body-time: 0\r\ncontent-md5: x\r\n\
             x-couch-update-newrev: 1-x\r\nset-cookie: a\r\nset-cookie: b\r\ntraceresponse: 00\r\ncontent-length: 6\r\n\r\netag: "
        ),
        "HTTP/1.1 401 Unauthorized\r\nServer: CouchDB/3 (x: y)\r\nWWW-Authenticate: Basic realm=\"etag\"\r\n\
         ETag: \"1-etag\"\r\nX-Couch-Request-ID: 1\r\nX-CouchDB-Body-Time: 0\r\nContent-MD5: x\r\n\
         X-Couch-Update-NewRev: 1-x\r\nSet-Cookie: a\r\nSet-Cookie: b\r\ntraceresponse: 00\r\nContent-Length: 6\r\n\r\netag: "
    );
}

#[test]
fn sizes_of_chunks_are_in_lower_case() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = |size: &str| format!("{head}{size}\r\n{}\r\n0\r\n\r\n", "AB\r\n".repeat(44));
    let (upper, lower) = (body("B0"), body("b0"));
    assert_eq!(written(&upper), lower);
}

#[test]
fn contents_of_short_chunks_keep_their_capitals() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = |size: &str| format!("{head}2\r\nAB\r\n{size}\r\nABCDEFABCD\r\n0\r\n\r\n");
    let (upper, lower) = (body("A"), body("a"));
    assert_eq!(written(&upper), lower);
    for n in 1..12 {
        let mut in_parts = spelling(Arc::default(), vec![]);
        write(&mut in_parts, upper.as_bytes(), &mut std::iter::repeat(n));
        assert_eq!(in_parts.stream.received, lower.as_bytes(), "{n}");
        let mut by_calls = spelling(Arc::default(), vec![n; upper.len()]);
        write(&mut by_calls, upper.as_bytes(), &mut std::iter::empty());
        assert_eq!(by_calls.stream.received, lower.as_bytes(), "{n}");
    }
}

#[test]
fn other_protocols_go_through() {
    for text in [
        "\0\0\x06\x04etag: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\netag: cut",
    ] {
        assert_eq!(written(text), text);
    }
}

/// A response as hyper writes it, whether it is to HEAD, and the expected output.
#[derive(Clone, Debug)]
struct Answer {
    text: String,
    is_to_head: bool,
    expected: String,
}

fn answer() -> impl Strategy<Value = Answer> {
    // Bodies that look like heads.
    let body = prop_oneof![
        Just("HTTP/1.1 200 OK\r\netag: x\r\n\r\n".to_owned()),
        "[a-zA-Z:\r\n ]{0,40}",
        // As short as a size, of its digits.
        "[A-F0-9]{1,12}",
        Just("0\r\n\r\n".to_owned()),
    ];
    (0..6, prop::collection::vec(body, 0..4)).prop_map(|(kind, bodies)| {
        let body = bodies.concat();
        let filled = || bodies.iter().filter(|chunk| !chunk.is_empty());
        let chunks: String = filled()
            .map(|chunk| format!("{:X}\r\n{chunk}\r\n", chunk.len()))
            .collect();
        let lower: String = filled()
            .map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len()))
            .collect();
        let length = |n: usize| format!("content-length: {n}\r\n");
        let spelled_body = match kind {
            1 => Some(format!("{lower}0\r\n\r\n")),
            _ => None,
        };
        let (status, of, body) = match kind {
            0 => ("200 OK", length(body.len()), body),
            1 => (
                "201 Created",
                "transfer-encoding: chunked\r\n".to_owned(),
                format!("{chunks}0\r\n\r\n"),
            ),
            2 => ("200 OK", length(body.len()), String::new()),
            3 => ("304 Not Modified", length(body.len()), String::new()),
            4 => ("204 No Content", String::new(), String::new()),
            _ => ("200 OK", length(0), String::new()),
        };
        let interim = match bodies.len() {
            3 => "HTTP/1.1 100 Continue\r\n\r\n",
            _ => "",
        };
        let head = |names: [&str; 3], of: &str| {
            let [first, etag, last] = names;
            format!(
                "{interim}HTTP/1.1 {status}\r\n{first}: a\r\n{etag}: \"x\"\r\n{of}{last}: 1\r\n\r\n"
            )
        };
        let spelled = of.replace("content-length", "Content-Length");
        let spelled = spelled.replace("transfer-encoding", "Transfer-Encoding");
        Answer {
            text: head(["cache-control", "etag", "x-couch-request-id"], &of) + &body,
            is_to_head: kind == 2,
            expected: head(["Cache-Control", "ETag", "X-Couch-Request-ID"], &spelled)
                + spelled_body.as_ref().unwrap_or(&body),
        }
    })
}

proptest! {
    #[test]
    fn heads_are_spelled_and_nothing_else_is_touched(
        answers in prop::collection::vec(answer(), 1..6),
        takes in prop::collection::vec(0_usize..80, 0..200),
        cuts in prop::collection::vec(1_usize..60, 0..100),
        together: bool,
    ) {
        let bodiless = Arc::new(Bodiless::default());
        let mut stream = spelling(bodiless.clone(), takes);
        let mut cuts = cuts.into_iter();
        let mut pending = String::new();
        for answer in &answers {
            bodiless.note(answer.is_to_head);
            pending.push_str(&answer.text);
            // Answers without a body may be written with the next.
            let has_body = !answer.text.ends_with("\r\n\r\n") || answer.text.contains("chunked");
            if has_body || !together {
                write(&mut stream, pending.as_bytes(), &mut cuts);
                pending.clear();
            }
        }
        write(&mut stream, pending.as_bytes(), &mut cuts);
        let expected: String = answers.iter().map(|answer| answer.expected.as_str()).collect();
        prop_assert_eq!(String::from_utf8(stream.stream.received).unwrap(), expected);
        prop_assert_eq!(stream.state, State::Head);
    }
}
