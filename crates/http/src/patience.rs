//! A connection whose first bytes come in time. Until they tell HTTP/1 from HTTP/2 nobody else looks at a clock: hyper's limit
//! begins with a request, HTTP/2's pings with a connection that both sides have opened.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// What HTTP/2 begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub struct Patience<S> {
    stream: S,
    /// `None` once the first bytes are here.
    deadline: Option<Pin<Box<Sleep>>>,
    /// How many bytes of the preface came.
    preface: usize,
}

impl<S> Patience<S> {
    pub fn new(stream: S, time_max: Duration) -> Self {
        Patience {
            stream,
            deadline: Some(Box::pin(sleep(time_max))),
            preface: 0,
        }
    }

    fn look_at(&mut self, bytes: &[u8]) {
        let expected = &PREFACE[self.preface..];
        let n = bytes.len().min(expected.len());
        self.preface += n;
        // All of it, or something else; or the end, which is for others to notice.
        if bytes[..n] != expected[..n] || self.preface == PREFACE.len() || bytes.is_empty() {
            self.deadline = None;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patience<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let start = buf.filled().len();
        let read = Pin::new(&mut me.stream).poll_read(cx, buf);
        let Some(deadline) = &mut me.deadline else {
            return read;
        };
        match read {
            Poll::Pending => match deadline.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                Poll::Pending => Poll::Pending,
            },
            Poll::Ready(Ok(())) => {
                me.look_at(&buf.filled()[start..]);
                Poll::Ready(Ok(()))
            }
            failed => failed,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patience<S> {
    crate::wrapper::write_through!();

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
