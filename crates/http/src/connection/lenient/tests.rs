use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use proptest::prelude::*;

use super::*;

/// Returns these pieces to its reader, and discards writes.
struct Pieces(VecDeque<Vec<u8>>);

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(mut piece) = self.0.pop_front() {
            let rest = piece.split_off(piece.len().min(buf.remaining()));
            buf.put_slice(&piece);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, b: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(b.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The output of a reader with a buffer of `buf_len` for these pieces, and whether any of it was
/// copied.
fn read_pieces(pieces: VecDeque<Vec<u8>>, buf_len: usize) -> (Vec<u8>, bool) {
    let mut lenient = Lenient::new(Pieces(pieces));
    let mut cx = Context::from_waker(Waker::noop());
    let (mut out, mut copied) = (Vec::new(), false);
    loop {
        // The previous contents of the reader's buffer must not be examined.
        let mut space = vec![b'"'; buf_len + 3];
        let mut buf = ReadBuf::new(&mut space);
        buf.put_slice(b"\"?<");
        let read = Pin::new(&mut lenient).poll_read(&mut cx, &mut buf);
        assert!(matches!(read, Poll::Ready(Ok(()))));
        assert_eq!(&buf.filled()[..3], b"\"?<");
        if buf.filled().len() == 3 {
            return (out, copied);
        }
        out.extend_from_slice(&buf.filled()[3..]);
        copied |= lenient.overflow.capacity() > 0;
    }
}

fn split(input: &[u8], cuts: &[usize]) -> VecDeque<Vec<u8>> {
    let mut cuts: Vec<_> = cuts.iter().map(|c| c % (input.len() + 1)).collect();
    cuts.extend([0, input.len()]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2)
        .map(|w| input[w[0]..w[1]].to_vec())
        .collect()
}

/// The output for `input`, however it is cut.
fn pass(input: &[u8]) -> Vec<u8> {
    let (whole, _) = read_pieces([input.to_vec()].into(), input.len() * 3 + 1);
    let bytes = || input.iter().map(|b| vec![*b]).collect::<VecDeque<_>>();
    for buf_len in [1, 2, 3, 7, 24, input.len() + 1] {
        assert_eq!(read_pieces(bytes(), buf_len).0, whole);
        assert_eq!(read_pieces([input.to_vec()].into(), buf_len).0, whole);
    }
    for cut in 0..input.len() {
        assert_eq!(read_pieces(split(input, &[cut]), input.len() * 3).0, whole);
    }
    whole
}

#[track_caller]
fn becomes(input: &str, output: &str) {
    assert_eq!(String::from_utf8(pass(input.as_bytes())).unwrap(), output);
}

#[track_caller]
fn stays(input: &str) {
    becomes(input, input);
}

#[test]
fn targets_are_encoded() {
    becomes(
        "GET /a/_all_docs?startkey=\"a\" HTTP/1.1\r\nHost: \"x\"\r\n\r\n",
        "GET /a/_all_docs?startkey=%22a%22 HTTP/1.1\r\nHost: \"x\"\r\n\r\n",
    );
    becomes(
        "GET /\"<`>\" HTTP/1.0\n\n",
        "GET /%22%3C%60%3E%22 HTTP/1.0\n\n",
    );
    becomes(
        "GET /é?k=€ HTTP/1.1\r\n\r\n",
        "GET /%C3%A9?k=%E2%82%AC HTTP/1.1\r\n\r\n",
    );
    becomes(
        "\r\n\n\r\nGET /\" HTTP/1.1\r\n\r\n",
        "\r\n\n\r\nGET /%22 HTTP/1.1\r\n\r\n",
    );
    becomes(
        "GET http://a/\" HTTP/1.1\r\n\r\n",
        "GET http://a/%22 HTTP/1.1\r\n\r\n",
    );
    assert_eq!(
        pass(b"GET /\xff\xfe HTTP/1.1\r\n\r\n"),
        b"GET /%FF%FE HTTP/1.1\r\n\r\n"
    );
    stays("GET /a|b^c\\{d}[e]'%22?a|b^c\\{d}[e]'%zz#x HTTP/1.1\r\n\r\n");
    stays("OPTIONS * HTTP/1.1\r\n\r\n");
}

#[test]
fn bodies_stay() {
    let inner = "GET /\" HTTP/1.1\r\n\r\n";
    let next = "GET /%22 HTTP/1.1\r\n\r\n";
    let n = inner.len();
    for head in [
        format!("PUT /a HTTP/1.1\r\nContent-Length: {n}\r\n\r\n"),
        format!("PUT /a HTTP/1.1\r\ncOnTent-lENGTH:\t 0{n} \t\r\nX: \"\r\n\r\n"),
        format!("PUT /a HTTP/1.1\nContent-Length:{n}\nContent-Length: {n}\n\n"),
    ] {
        becomes(
            &format!("{head}{inner}{inner}{head}{inner}\r\n{inner}"),
            &format!("{head}{inner}{next}{head}{inner}\r\n{next}"),
        );
    }
    for head in [
        "PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "PUT /a HTTP/1.1\r\ntransfer-encoding:gzip , CHUNKED \r\n\r\n",
        "PUT /a HTTP/1.1\r\nTransfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        for end in ["0\r\n\r\n", "000 ;\"\r\nA: \"\nB\r\nC: GET /\"\r\n\r\n"] {
            let body = format!("{n:x}\r\n{inner}\r\n0{n:X} \t;x=\"y\"\r\n{inner}\r\n{end}");
            becomes(
                &format!("{head}{body}{inner}{head}{body}{inner}"),
                &format!("{head}{body}{next}{head}{body}{next}"),
            );
        }
    }
}

#[test]
fn requests_with_both_lengths_are_marked() {
    let start = "PUT /a HTTP/1.1\r\n";
    let (length, chunked) = ("Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n");
    let body = "\r\n1\r\na\r\n0\r\n\r\n";
    let next = "PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    for both in [
        [length, chunked].concat(),
        [chunked, length].concat(),
        [chunked, "Content-Length: x\r\n"].concat(),
        [length, "Transfer-Encoding: gzip, chunked\r\n"].concat(),
    ] {
        becomes(
            &format!("{start}{both}A: b\r\n{body}{next}"),
            &format!("{start}{both}{chunked}A: b\r\n{body}{next}"),
        );
        becomes(
            &format!("{start}A: b\r\n{both}{body}"),
            &format!("{start}A: b\r\n{both}{chunked}{body}"),
        );
    }
    // Once.
    becomes(
        &format!("{start}{length}{chunked}{length}{chunked}{body}"),
        &format!("{start}{length}{chunked}{chunked}{length}{chunked}{body}"),
    );
    // Both here, and the target of the next request on the same connection.
    becomes(
        &format!("GET /\" HTTP/1.1\r\n{length}{chunked}{body}GET /\" HTTP/1.1\r\n\r\n"),
        &format!("GET /%22 HTTP/1.1\r\n{length}{chunked}{chunked}{body}GET /%22 HTTP/1.1\r\n\r\n"),
    );
    for stays_refused in [
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
    ] {
        stays(&format!("{start}{length}{stays_refused}\r\n"));
    }
}

#[test]
fn what_is_not_http_1_stays() {
    let next = "GET /\" HTTP/1.1\r\n\r\n";
    for input in [
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET / HTTP/1.2\r\n\r\n",
        "GET / HTTQ/1.1\r\n\r\n",
        "GET /a b HTTP/1.1\r\n\r\n",
        "GET /\t HTTP/1.1\r\n\r\n",
        "GET /\r\n\r\n",
        "G\u{1}T / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: +0\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length:\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: 18446744073709551616\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        "GET / HTTP/1.1\r\nTransfer-Encoding: é,chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\r\n\r\n",
        "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n",
        "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\n\r\n",
    ] {
        stays(&format!("{input}{next}{next}"));
    }
    for head in [
        "CONNECT a:1 HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n",
    ] {
        becomes(
            &format!("{head}{next}"),
            &format!("{head}GET /%22 HTTP/1.1\r\n\r\n"),
        );
    }
}

#[test]
fn long_lines_stay() {
    let long = "x".repeat(LINE_BYTES_MAX);
    let end = "GET /\" HTTP/1.1\r\n\r\n";
    for input in [
        format!("GET /{long}\" HTTP/1.1\r\n\r\n{end}"),
        format!("{long} /\" HTTP/1.1\r\n\r\n{end}"),
        format!("GET / HTTP/1.1\r\nA: {long}\r\n\r\n{end}"),
    ] {
        for buf_len in [1000, input.len()] {
            let (out, copied) = read_pieces([input.clone().into()].into(), buf_len);
            assert!(out == input.as_bytes() && !copied);
        }
    }
}

#[test]
fn nothing_is_copied_that_stays() {
    let body = "\"".repeat(100_000);
    let input =
        format!("PUT /a HTTP/1.1\r\nContent-Length: 100000\r\n\r\n{body}GET / HTTP/1.1\r\n\r\n");
    for buf_len in [1, 24, 8192, 200_000] {
        let (out, copied) = read_pieces([input.clone().into()].into(), buf_len);
        assert!(out == input.as_bytes() && !copied);
    }
}

type Seen = (Vec<u8>, Result<Vec<u8>, ()>);

/// The targets, decoded, and bodies that a server sees.
fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Vec<Seen> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let service = service_fn(|req: hyper::Request<Incoming>| {
        let seen = seen.clone();
        async move {
            let target = req.uri().to_string();
            let target = percent_encoding::percent_decode_str(&target).collect();
            let body = req.into_body().collect().await;
            let body = body.map(|b| b.to_bytes().to_vec()).map_err(drop);
            seen.lock().unwrap().push((target, body));
            Ok::<_, Infallible>(hyper::Response::new(Empty::<Bytes>::new()))
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    // The end of the input is there before the answer.
    builder.http1().half_close(true);
    let _ = runtime.block_on(builder.serve_connection(TokioIo::new(stream), service));
    std::mem::take(&mut seen.lock().unwrap())
}

#[test]
fn hyper_takes_all_visible_bytes() {
    for b in (b'!'..=0xff).filter(|b| *b != 0x7f && *b != b'#') {
        for prefix in ["/a", "/?a"] {
            let target = [prefix.as_bytes(), &[b]].concat();
            let input = [b"GET ", &target[..], b" HTTP/1.1\r\n\r\n"].concat();
            let seen = serve(Lenient::new(Pieces([input].into())));
            assert_eq!(seen, [(target, Ok(vec![]))], "{b:#x}");
        }
    }
}

fn body() -> impl Strategy<Value = String> {
    "([a\"<\r\n]|GET /\" HTTP/1.1\r\n|\r\n\r\n){0,8}"
}

/// A request without bytes to be encoded in its target.
fn request() -> impl Strategy<Value = String> {
    let head = (
        "(\r\n){0,2}(GET|PUT|PROPFIND)",
        "/[a-z0-9%?=&_|'{}]{0,40}",
        "(X-[A-Z]{1,9}: ?[ -~]{0,30}\r\n){0,4}",
    );
    let sized = body().prop_map(|b| format!("Content-Length: {}\r\n\r\n{b}", b.len()));
    let chunks = prop::collection::vec(body(), 0..4);
    let chunked = (chunks, "(A: [ -~]{0,9}\r\n){0,2}").prop_map(|(chunks, trailers)| {
        let mut out = "Transfer-Encoding: chunked\r\n\r\n".to_owned();
        for c in chunks.iter().filter(|c| !c.is_empty()) {
            out += &format!("{:x};\"\r\n{c}\r\n", c.len());
        }
        out + "0\r\n" + &trailers + "\r\n"
    });
    let rest = prop_oneof![Just("\r\n".to_owned()), sized, chunked];
    (head, rest).prop_map(|((method, target, headers), rest)| {
        format!("{method} {target} HTTP/1.1\r\n{headers}{rest}")
    })
}

/// Input that is a connection's, more or less.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let parts: Vec<&[u8]> = vec![
        b"GET /a HTTP/1.1\r\n",
        b"GET /a HTTP/1.1\r\n\r\n",
        b"PUT /\"a HTTP/1.1\n",
        b"PUT /?\" HTTP/1.1\r\n",
        b"POST /\xc3\xa9 HTTP/1.0\r\nConnection: keep-alive\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"PUT / HTTP/1.1\r\nContent-Length: 20\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n",
        b"Content-Length: 0\r\n",
        b"Content-Length: 5\r\n",
        b"content-length:  20 \n",
        b"Content-Length:\r\n",
        b"Content-Length : 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked, gzip\r\n",
        b"TRANSFER-ENCODING: gzip,chunked \n",
        b"Upgrade: h2c\r\n",
        b"Expect: 100-continue\r\n",
        b" folded: 5\r\n",
        b"X: \"y\"\r\n",
        b"A: b\rc\r\n",
        b"0\r\n\r\n",
        b"0\r\n",
        b"5\r\n\"\"\"\"\"\r\n",
        b"5\r\n",
        b"1;\"\r\n\"\r\n",
        b"1 \t;\n\r\n",
        b"1F\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b"\"",
        b"GET /\" HTTP/1.1\r\n\r\n",
    ];
    prop::collection::vec(prop::sample::select(parts), 0..24).prop_map(|parts| parts.concat())
}

#[test]
fn hyper_sees_every_request() {
    let input = "GET /\"1 HTTP/1.1\r\n\r\nPUT /?\"2 HTTP/1.1\r\nContent-Length: 2\r\n\r\n\"\"\
        PUT /`3 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;\"\r\n\"\r\n0\r\n\r\n";
    let seen = |target: &str, body: &str| (target.into(), Ok(body.into()));
    let first = seen("/\"1", "");
    assert_eq!(serve(Pieces([input.into()].into())), vec![first.clone()]);
    assert_eq!(
        serve(Lenient::new(Pieces([input.into()].into()))),
        [first, seen("/?\"2", "\"\""), seen("/`3", "\"")]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn well_formed_requests_stay(
        requests in prop::collection::vec(request(), 1..6),
        cuts in prop::collection::vec(any::<usize>(), 0..20),
        buf_len in 1usize..200,
    ) {
        let input = requests.concat().into_bytes();
        let (out, copied) = read_pieces(split(&input, &cuts), buf_len);
        prop_assert_eq!(&out, &input);
        prop_assert!(!copied);
        // The framing was followed to the end.
        let next = [&input[..], b"GET /?\"\" HTTP/1.1\r\n\r\n"].concat();
        let expected = [&input[..], b"GET /?%22%22 HTTP/1.1\r\n\r\n"].concat();
        prop_assert_eq!(read_pieces(split(&next, &cuts), buf_len).0, expected);
    }

    #[test]
    fn cuts_change_nothing(
        input in soup(),
        cuts in prop::collection::vec(any::<usize>(), 0..20),
        buf_len in 1usize..200,
    ) {
        let (whole, _) = read_pieces([input.clone()].into(), input.len() * 3 + 1);
        prop_assert_eq!(read_pieces(split(&input, &cuts), buf_len).0, whole);
    }

    /// Requests that hyper accepts are not changed: the framing is hyper's.
    #[test]
    fn requests_that_hyper_takes_stay(input in soup()) {
        let raw = serve(Pieces([input.clone()].into()));
        let lenient = serve(Lenient::new(Pieces([input].into())));
        prop_assert!(lenient.starts_with(&raw), "{:?}\n{:?}", raw, lenient);
    }
}
