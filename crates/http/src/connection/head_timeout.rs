//! A connection whose requests' heads come in time. From the first byte of a head to its end there
//! is a limit, however the bytes trickle in; so is there for a connection that was opened and sends
//! nothing, and from the end of one request to the next. That limit must be long, since connections
//! of pools are idle for minutes in between. HTTP/2 only pings periodically.
//!
//! hyper could limit the time between requests too. But it makes a timer for each request, and here
//! there is one for the connection, which is checked against its last request when it fires.
//!
//! A long head takes a place among all of them: a connection keeps its read buffer until it is
//! closed.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fair_queue::{Place, Queue};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::connection::lenient::Lenient;
use crate::connection::seat::Seat;
use crate::shares::address_share;

/// The preface of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest head, and the most of a body that one read returns, in bytes: an idle connection
/// keeps a buffer of this size.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// A longer head takes a place, and its connection is closed after the answer, in bytes.
pub const LONG_HEAD_BYTES: usize = 16 << 10;

/// The places of long heads, of which each client has a share.
pub struct LongHeads {
    /// The places of all connections.
    pub places: Arc<Queue>,
    /// The client's address. Its share takes two allocations: few connections need it.
    pub peer: IpAddr,
}

pub(crate) struct HeadTimeout<S> {
    stream: Lenient<S>,
    spoken: Spoken,
    head_time_max: Duration,
    silence_max: Duration,
    seat: Arc<Seat>,
    /// Fires when the client may have been silent for too long between two requests.
    idle: Option<Pin<Box<Sleep>>>,
    /// The number of the current head: the clock restarts with each.
    begun: Option<u64>,
    deadline: Option<Instant>,
    /// Created when a deadline must be awaited, which is rare.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Bytes of the head under way.
    head_bytes: usize,
    long_heads: LongHeads,
    /// The place of a long head, until the connection ends.
    place: Option<Place>,
}

/// The protocol, as far as the first bytes show it.
enum Spoken {
    /// A prefix of HTTP/2's preface of this length came, and nothing else.
    Unknown(usize),
    Http1,
    Http2(Frames),
}

impl<S> HeadTimeout<S> {
    /// A connection may be silent for `silence_max`.
    pub fn new(
        stream: Lenient<S>,
        seat: Arc<Seat>,
        (head_time_max, silence_max): (Duration, Duration),
        long_heads: LongHeads,
    ) -> Self {
        HeadTimeout {
            stream,
            spoken: Spoken::Unknown(0),
            head_time_max: head_time_max.min(silence_max),
            silence_max,
            seat,
            idle: None,
            begun: None,
            deadline: Instant::now().checked_add(silence_max),
            sleep: None,
            head_bytes: 0,
            long_heads,
            place: None,
        }
    }

    /// Takes a place for a head that has become long.
    ///
    /// # Errors
    /// Never.
    fn take_place(&mut self) -> io::Result<()> {
        if self.head_bytes > LONG_HEAD_BYTES && self.place.is_none() {
            let LongHeads { places, peer } = &self.long_heads;
            let place = places.try_place(&address_share(*peer));
            self.place = Some(place.ok_or(io::ErrorKind::QuotaExceeded)?);
        }
        Ok(())
    }

    fn look_at(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            // The end is for others to notice.
            self.deadline = None;
            return;
        }
        match &mut self.spoken {
            Spoken::Http1 => {}
            Spoken::Http2(frames) => frames.scan(bytes),
            Spoken::Unknown(came) => {
                let expected = &PREFACE[*came..];
                let n = bytes.len().min(expected.len());
                *came += n;
                if bytes[..n] != expected[..n] {
                    self.spoken = Spoken::Http1;
                } else if *came == PREFACE.len() {
                    let mut frames = Frames::default();
                    frames.scan(&bytes[n..]);
                    self.spoken = Spoken::Http2(frames);
                }
            }
        }
        let begun = match &self.spoken {
            Spoken::Unknown(_) => Some(0),
            Spoken::Http1 => self.stream.head_under_way(),
            Spoken::Http2(frames) => frames.head_under_way(),
        };
        if begun != self.begun || begun.is_none() {
            self.head_bytes = 0;
            self.begun = begun;
            self.deadline = begun.and_then(|_| Instant::now().checked_add(self.head_time_max));
            self.sleep = None;
        }
        if begun.is_some() {
            self.head_bytes += bytes.len();
        }
    }

    /// Ready when the time is over.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else {
            return self.poll_idle(cx);
        };
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        sleep.as_mut().poll(cx)
    }
}

impl<S> HeadTimeout<S> {
    /// Ready when the client has sent nothing for too long since its last request ended.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_between = matches!(self.spoken, Spoken::Http1) && !self.seat.is_busy();
        // A connection for one request needs no timer.
        if !is_between && self.idle.is_none() {
            return Poll::Pending;
        }
        let silence_max = self.silence_max;
        let idle = self
            .idle
            .get_or_insert_with(|| Box::pin(sleep(silence_max)));
        loop {
            ready!(idle.as_mut().poll(cx));
            // There may have been requests since it was set.
            let left = silence_max.saturating_sub(self.seat.idle_time());
            if left.is_zero() {
                return Poll::Ready(());
            }
            idle.as_mut().reset(Instant::now() + left);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadTimeout<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let start = buf.filled().len();
        match Pin::new(&mut me.stream).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => {
                me.look_at(&buf.filled()[start..]);
                Poll::Ready(me.take_place())
            }
            // Bytes that have arrived count, however late they are read.
            Poll::Pending => {
                ready!(me.poll_deadline(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            failed => failed,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadTimeout<S> {
    crate::connection::wrapper::write_through!();

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The frames of HTTP/2, parsed as far as needed to find the end of a head: it is in a HEADERS
/// frame and the CONTINUATION frames after it. Frames without content of a body are treated as
/// heads: there is no reason to send half of one.
#[derive(Default)]
struct Frames {
    /// The beginning of a frame: length, type, flags, stream.
    start: [u8; Frames::START_BYTES],
    start_len: usize,
    payload_left: usize,
    is_data: bool,
    /// A head began whose end was not announced yet.
    in_head: bool,
    /// Number of heads, or other frames, that were started.
    count: u64,
}

impl Frames {
    const START_BYTES: usize = 9;
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const CONTINUATION: u8 = 9;
    const END_HEADERS: u8 = 4;

    fn scan(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let n = self.payload_left.min(bytes.len());
                self.payload_left -= n;
                bytes = &bytes[n..];
                continue;
            }
            if self.start_len == 0 && !self.in_head {
                self.count += 1;
            }
            let n = (Self::START_BYTES - self.start_len).min(bytes.len());
            self.start[self.start_len..][..n].copy_from_slice(&bytes[..n]);
            self.start_len += n;
            bytes = &bytes[n..];
            if self.start_len == Self::START_BYTES {
                self.begin();
            }
        }
    }

    fn begin(&mut self) {
        let [a, b, c, kind, flags, ..] = self.start;
        self.start_len = 0;
        self.payload_left = u32::from_be_bytes([0, a, b, c]) as usize;
        self.is_data = kind == Self::DATA;
        if matches!(kind, Self::HEADERS | Self::CONTINUATION) {
            self.in_head = flags & Self::END_HEADERS == 0;
        }
    }

    fn head_under_way(&self) -> Option<u64> {
        let in_frame = self.start_len > 0 || self.payload_left > 0 && !self.is_data;
        (in_frame || self.in_head).then_some(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let len = (payload.len() as u32).to_be_bytes();
        let mut frame = vec![len[1], len[2], len[3], kind, flags, 0, 0, 0, 1];
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn a_head_of_http_2_ends_with_its_last_frame() {
        let mut frames = Frames::default();
        let settings = frame(4, 0, &[0; 6]);
        frames.scan(&settings);
        assert_eq!(frames.head_under_way(), None);
        let headers = frame(Frames::HEADERS, 1, &[0; 100]);
        for byte in &headers {
            frames.scan(&[*byte]);
            assert_eq!(frames.head_under_way(), Some(2));
        }
        for _ in 0..10 {
            frames.scan(&frame(Frames::CONTINUATION, 0, b""));
            assert_eq!(frames.head_under_way(), Some(2), "the clock goes on");
        }
        frames.scan(&frame(Frames::CONTINUATION, Frames::END_HEADERS, b"x"));
        assert_eq!(frames.head_under_way(), None);
        let data = frame(Frames::DATA, 0, &[0; 1000]);
        frames.scan(&data[..500]);
        assert_eq!(frames.head_under_way(), None, "a body takes its time");
        frames.scan(&[&data[500..], &settings[..3]].concat());
        assert_eq!(frames.head_under_way(), Some(4));
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let input = [
            frame(4, 0, &[7; 12]),
            frame(Frames::HEADERS, Frames::END_HEADERS, &[1; 30]),
            frame(Frames::DATA, 0, &[4; 70_000]),
            frame(Frames::HEADERS, 0, &[]),
            frame(Frames::CONTINUATION, Frames::END_HEADERS, &[9; 5]),
        ]
        .concat();
        for cut in (0..input.len()).step_by(13) {
            let mut frames = Frames::default();
            frames.scan(&input[..cut]);
            frames.scan(&input[cut..]);
            assert_eq!((frames.head_under_way(), frames.count), (None, 4), "{cut}");
        }
    }
}
