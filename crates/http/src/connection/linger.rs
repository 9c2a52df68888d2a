//! A connection that is closed in two steps: first the end of the response is sent, then further
//! input of the client is read and discarded for a while. Closing with unread input makes TCP reset
//! the connection, and the client lose an answer such as "your header is too large" that was on its
//! way.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long, and how many bytes, a closing connection is read for.
const LINGER_TIME_MAX: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 16 << 20;

pub struct Lingering<S> {
    stream: S,
    closing: Option<Closing>,
}

struct Closing {
    deadline: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl<S> Lingering<S> {
    pub fn new(stream: S) -> Self {
        Lingering {
            stream,
            closing: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    crate::connection::wrapper::write_through!();

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if me.closing.is_none() {
            ready!(Pin::new(&mut me.stream).poll_shutdown(cx))?;
        }
        let closing = me.closing.get_or_insert_with(|| Closing {
            deadline: Box::pin(sleep(LINGER_TIME_MAX)),
            bytes_left: LINGER_BYTES_MAX,
        });
        loop {
            if closing.deadline.as_mut().poll(cx).is_ready() || closing.bytes_left == 0 {
                return Poll::Ready(Ok(()));
            }
            let mut space = [0; 16 << 10];
            let mut buf = ReadBuf::new(&mut space);
            match ready!(Pin::new(&mut me.stream).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => {
                    closing.bytes_left = closing.bytes_left.saturating_sub(buf.filled().len());
                }
                // The client closed too, or is gone.
                Ok(()) | Err(_) => return Poll::Ready(Ok(())),
            }
        }
    }
}
