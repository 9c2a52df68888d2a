//! A connection that is closed in two steps: first the end of the response is sent, then further
//! input of the client is read and discarded for a while. Closing with unread input makes TCP reset
//! the connection, and the client lose an answer such as "your header is too large" that was on its
//! way.
//!
//! A connection whose client has sent everything is closed in one step: after its end was read, or
//! after a request without a body that announced to be the last. Otherwise each connection for one
//! request would need a timer, and be woken once more.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::connection::seat::Seat;

/// How long, and how many bytes, a closing connection is read for.
const LINGER_TIME_MAX: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 16 << 20;

pub(crate) struct Lingering<S> {
    stream: S,
    seat: Arc<Seat>,
    /// The client has closed its side.
    is_at_end: bool,
    closing: Option<Closing>,
}

struct Closing {
    deadline: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl<S> Lingering<S> {
    pub fn new(stream: S, seat: Arc<Seat>) -> Self {
        Lingering {
            stream,
            seat,
            is_at_end: false,
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
        let (filled, has_room) = (buf.filled().len(), buf.remaining() > 0);
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.is_at_end = has_room && buf.filled().len() == filled;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    crate::connection::wrapper::write_through!();

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if me.closing.is_none() {
            ready!(Pin::new(&mut me.stream).poll_shutdown(cx))?;
            if me.is_at_end || me.seat.has_last_request() {
                return Poll::Ready(Ok(()));
            }
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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use telemetry::Tick;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;
    use crate::connection::arrival::Arriving;

    /// Returns a connection with its client, which waits for less than the time of this test.
    async fn connected(is_last: bool) -> (Lingering<Arriving>, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let seat = Arc::new(Seat::new(0, false, Tick::now()));
        if is_last {
            seat.note_last_request();
        }
        let stream = Arriving::new(stream, seat.clone());
        (Lingering::new(stream, seat), client)
    }

    fn closes(stream: &mut Lingering<Arriving>) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        Pin::new(stream).poll_shutdown(&mut cx).is_ready()
    }

    #[tokio::test]
    async fn a_connection_waits_for_the_rest_of_its_input_unless_there_is_none() {
        for is_last in [false, true] {
            let (mut stream, mut client) = connected(is_last).await;
            stream.write_all(b"answer").await.unwrap();
            assert_eq!(closes(&mut stream), is_last);
            if !is_last {
                client.write_all(b"rest").unwrap();
            }
            drop(stream);
            let mut answer = vec![];
            if is_last {
                client.read_to_end(&mut answer).unwrap();
                assert_eq!(answer, b"answer");
            }
        }
    }

    #[tokio::test]
    async fn a_connection_whose_client_has_closed_it_waits_for_nothing() {
        let (mut stream, client) = connected(false).await;
        drop(client);
        let mut space = [0; 8];
        let mut buf = ReadBuf::new(&mut space);
        std::future::poll_fn(|cx| Pin::new(&mut stream).poll_read(cx, &mut buf))
            .await
            .unwrap();
        assert!(buf.filled().is_empty() && closes(&mut stream));
    }
}
