//! A connection whose first request is read in one system call.
//!
//! hyper reads as many bytes as the preface of HTTP/2 has, to find the protocol of a connection, and
//! then the rest of the first head. Here the first of these reads takes everything that has arrived.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A read of at most this number of bytes is one for the protocol.
const PREFACE_BYTES: usize = 24;
/// Bytes that are read instead: most heads are shorter.
const FIRST_BYTES: usize = 2048;

pub(crate) struct FirstRead<S> {
    stream: S,
    /// Bytes that were read and not requested yet.
    ahead: Vec<u8>,
    /// How many of them were passed on.
    passed: usize,
}

impl<S> FirstRead<S> {
    pub fn new(stream: S) -> FirstRead<S> {
        FirstRead {
            stream,
            ahead: vec![],
            passed: 0,
        }
    }

    fn pass(&mut self, buf: &mut ReadBuf<'_>) {
        let rest = &self.ahead[self.passed..];
        let length = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..length]);
        self.passed += length;
        if self.passed == self.ahead.len() {
            (self.ahead, self.passed) = (vec![], 0);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstRead<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if !me.ahead.is_empty() {
            me.pass(buf);
            return Poll::Ready(Ok(()));
        }
        if buf.remaining() > PREFACE_BYTES {
            return Pin::new(&mut me.stream).poll_read(cx, buf);
        }
        let mut space = [MaybeUninit::<u8>::uninit(); FIRST_BYTES];
        let mut first = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut me.stream).poll_read(cx, &mut first))?;
        let (now, later) = first
            .filled()
            .split_at(first.filled().len().min(buf.remaining()));
        buf.put_slice(now);
        me.ahead.extend_from_slice(later);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstRead<S> {
    crate::connection::wrapper::write_through!();

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Bytes that have arrived.
    struct Arrived {
        bytes: Vec<u8>,
        reads: usize,
    }

    impl AsyncRead for Arrived {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.reads += 1;
            let length = self.bytes.len().min(buf.remaining());
            let rest = self.bytes.split_off(length);
            buf.put_slice(&std::mem::replace(&mut self.bytes, rest));
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_head_is_read_at_once_and_no_byte_is_lost() {
        for length in [0, 1, 23, 24, 25, 300, 2047, 2048, 2049, 9000] {
            let sent: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let mut stream = FirstRead::new(Arrived {
                bytes: sent.clone(),
                reads: 0,
            });
            let mut start = [0; PREFACE_BYTES];
            let read = stream.read(&mut start).await.unwrap();
            assert_eq!(read, length.min(PREFACE_BYTES));
            let mut rest = vec![0; 8192];
            let mut came = start[..read].to_vec();
            loop {
                let is_short = length <= FIRST_BYTES;
                assert!(!is_short || came.len() == length || stream.stream.reads == 1);
                match stream.read(&mut rest).await.unwrap() {
                    0 => break,
                    read => came.extend_from_slice(&rest[..read]),
                }
            }
            assert_eq!(came, sent);
        }
    }
}
