//! The time before the head of a request is read, which no time of a request covers: a connection
//! waits to be accepted, bytes lie in the socket, the event loop is late.
//!
//! The kernel knows when it received the last bytes of a connection. It is queried for a sample of
//! connections and requests, at most 100 times a second on each thread: on a quiet server for all.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread::LocalKey;
use std::time::Duration;

use telemetry::{Tick, Times};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use crate::connection::seat::Seat;

/// Least time between two samples of one kind on a thread: each is a system call.
const SAMPLE_EVERY_US: u64 = 10_000;
/// Interval of the timer whose lateness is recorded.
const TIMER_EVERY: Duration = Duration::from_millis(100);

/// How long connections waited to be accepted, since they were established or sent data.
static ACCEPT_WAIT: Times = Times::new();
/// How long the first bytes of requests lay in the socket. If they came in several parts, that of
/// the last one: so it is the least that the client waited.
static SOCKET_WAIT: Times = Times::new();
/// How late a timer of the event loop fired.
static EVENT_LOOP_LAG: Times = Times::new();

/// One of the waits before a request is read.
pub struct ArrivalWait {
    /// Its name in `/_settee/top`.
    pub name: &'static str,
    /// Its name in Prometheus' format.
    pub metric: &'static str,
    /// Its description.
    pub help: &'static str,
    /// The times so far.
    pub times: &'static Times,
}

/// The waits before a request is read, in their order.
pub static ARRIVAL_WAITS: [ArrivalWait; 3] = [
    ArrivalWait {
        name: "accept",
        metric: "settee_accept_wait_seconds",
        help: "time that connections, or their first bytes, waited until the connection was accepted; a sample",
        times: &ACCEPT_WAIT,
    },
    ArrivalWait {
        name: "socket",
        metric: "settee_socket_wait_seconds",
        help: "time that requests lay in the socket until they were read; a sample",
        times: &SOCKET_WAIT,
    },
    ArrivalWait {
        name: "event_loop",
        metric: "settee_event_loop_lag_seconds",
        help: "how late a timer of the threads that serve fires, ten times a second",
        times: &EVENT_LOOP_LAG,
    },
];

/// When a thread took its last sample.
type LastSample = LocalKey<Cell<Option<Tick>>>;

thread_local! {
    static ACCEPT_SAMPLED: Cell<Option<Tick>> = const { Cell::new(None) };
    static SOCKET_SAMPLED: Cell<Option<Tick>> = const { Cell::new(None) };
}

/// Returns whether it is time for a sample on this thread, which then counts as taken. Reads no
/// clock.
fn is_due(last: &'static LastSample) -> bool {
    let now = telemetry::entered_at();
    let is_due = last
        .get()
        .is_none_or(|at| now.us_since(at) >= SAMPLE_EVERY_US);
    if is_due {
        last.set(Some(now));
    }
    is_due
}

/// Records how long a connection that was just accepted had to wait, if it is time for a sample.
pub fn note_accepted(stream: &TcpStream) {
    if is_due(&ACCEPT_SAMPLED) {
        note_wait(stream, &ACCEPT_WAIT);
    }
}

/// Records and returns the milliseconds since a connection received its last data.
fn note_wait(stream: &TcpStream, times: &Times) -> Option<u32> {
    let ms = telemetry::ms_since_data(stream.as_fd())?;
    times.record(Duration::from_millis(ms.into()));
    Some(ms)
}

/// Records how late a timer of this runtime fires, until it is dropped.
pub async fn watch_event_loop() {
    loop {
        let due = Instant::now() + TIMER_EVERY;
        sleep_until(due).await;
        EVENT_LOOP_LAG.record(due.elapsed());
    }
}

/// A connection whose first read after a write, or at all, counts as the beginning of a request.
pub(crate) struct Arriving {
    stream: TcpStream,
    seat: Arc<Seat>,
    awaits_request: bool,
}

impl Arriving {
    pub fn new(stream: TcpStream, seat: Arc<Seat>) -> Arriving {
        Arriving {
            stream,
            seat,
            awaits_request: true,
        }
    }
}

impl AsyncRead for Arriving {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let filled = buf.filled().len();
        ready!(Pin::new(&mut me.stream).poll_read(cx, buf))?;
        if me.awaits_request && buf.filled().len() > filled {
            me.awaits_request = false;
            if is_due(&SOCKET_SAMPLED)
                && let Some(ms) = note_wait(&me.stream, &SOCKET_WAIT)
            {
                me.seat.note_socket_wait(ms);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Arriving {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.awaits_request = true;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.awaits_request = true;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Input that is read from now on is discarded.
        self.awaits_request = false;
        if self.seat.has_last_request() {
            // It is closed next, which ends the stream as well: that saves a system call.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// How long a request lies in the socket, and the least that the kernel's coarse clock makes of
    /// it.
    const LIES: Duration = Duration::from_millis(100);
    const TOLD_MS_MIN: u32 = 80;

    /// Lets this thread note the time, as a change of its state does.
    fn pass_time() {
        drop(telemetry::enter(telemetry::State::Network));
    }

    /// Each request of a connection lies in its socket before it is read. The thread stands still
    /// meanwhile, as one that serves does.
    #[tokio::test]
    async fn the_wait_of_each_request_is_noted_and_that_of_a_body_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.write_all(b"first").unwrap();
        std::thread::sleep(LIES);
        let (stream, _) = listener.accept().await.unwrap();
        let seat = Arc::new(Seat::new(0, false, Tick::now()));
        let mut arriving = Arriving::new(stream, seat.clone());
        let mut bytes = [0; 5];
        pass_time();
        arriving.read_exact(&mut bytes).await.unwrap();
        assert!(seat.take_socket_wait() >= TOLD_MS_MIN);
        assert_eq!(seat.take_socket_wait(), 0, "it is of one request");

        client.write_all(b"body!").unwrap();
        std::thread::sleep(LIES);
        pass_time();
        arriving.read_exact(&mut bytes).await.unwrap();
        assert_eq!(seat.take_socket_wait(), 0);

        arriving.write_all(b"answer").await.unwrap();
        client.read_exact(&mut [0; 6]).unwrap();
        client.write_all(b"after").unwrap();
        std::thread::sleep(LIES);
        pass_time();
        arriving.read_exact(&mut bytes).await.unwrap();
        assert!(seat.take_socket_wait() >= TOLD_MS_MIN);

        arriving.write_all(b"answer").await.unwrap();
        arriving.shutdown().await.unwrap();
        client.write_all(b"rest!").unwrap();
        std::thread::sleep(LIES);
        pass_time();
        arriving.read_exact(&mut bytes).await.unwrap();
        assert_eq!(seat.take_socket_wait(), 0, "it is discarded");
    }

    #[test]
    fn samples_of_a_thread_keep_their_distance() {
        for _ in 0..2 {
            std::thread::sleep(2 * Duration::from_micros(SAMPLE_EVERY_US));
            pass_time();
            assert!(is_due(&ACCEPT_SAMPLED));
            assert!(!is_due(&ACCEPT_SAMPLED), "no time has passed");
            assert!(is_due(&SOCKET_SAMPLED), "each kind has its own");
        }
    }

    #[tokio::test]
    async fn a_thread_that_stands_still_makes_the_event_loop_late() {
        let longest = || EVENT_LOOP_LAG.snapshot().max();
        let watching = tokio::spawn(watch_event_loop());
        // It begins, and its timer is due while the thread stands still.
        tokio::task::yield_now().await;
        std::thread::sleep(TIMER_EVERY + LIES);
        while longest() < u64::from(TOLD_MS_MIN) * 1000 {
            assert!(!watching.is_finished());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        watching.abort();
    }
}
