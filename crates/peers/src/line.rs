//! One connection's bytes: when something was heard, what broke it, and how it is cut.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::tls::explain;

/// A time before all others.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// When something was heard last; 0 is never.
#[derive(Debug, Default)]
pub(crate) struct LastHeard(AtomicU64);

impl LastHeard {
    fn now(&self) {
        let since = START.elapsed().as_nanos() as u64;
        self.0.fetch_max(since.max(1), Ordering::Relaxed);
    }

    pub fn last(&self) -> Option<Instant> {
        let nanos = self.0.load(Ordering::Relaxed);
        (nanos > 0).then(|| *START + Duration::from_nanos(nanos))
    }
}

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Line {
    who: String,
    /// On this connection,
    heard: LastHeard,
    /// and on all with that node, once it is known to be that node.
    of_node: OnceLock<Arc<LastHeard>>,
    failure: Mutex<Option<String>>,
    is_cut: AtomicBool,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl Line {
    /// Returns a connection with `who` that was heard just now.
    pub fn new(who: String) -> Arc<Line> {
        let line = Arc::new(Line {
            who,
            heard: LastHeard::default(),
            of_node: OnceLock::new(),
            failure: Mutex::new(None),
            is_cut: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            writer: AtomicWaker::new(),
        });
        line.hear();
        line
    }

    fn hear(&self) {
        self.heard.now();
        if let Some(of_node) = self.of_node.get() {
            of_node.now();
        }
    }

    /// Assigns the connection to a node.
    pub fn is_of(&self, node: Arc<LastHeard>) {
        node.now();
        // A connection stays with its node.
        let _ = self.of_node.set(node);
    }

    pub fn last_heard(&self) -> Option<Instant> {
        self.heard.last()
    }

    /// Resolves when nothing was received for this time.
    pub async fn silent(&self, max: Duration) {
        loop {
            let since = self.heard.last().map_or(max, |at| at.elapsed());
            match max.checked_sub(since) {
                None | Some(Duration::ZERO) => return,
                Some(left) => tokio::time::sleep(left).await,
            }
        }
    }

    /// Closes the connection immediately, whatever holds it.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        self.reader.wake();
        self.writer.wake();
    }

    /// Returns the error of the socket or TLS when it broke.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    fn noted<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(e) = &result {
            let mut failure = self.failure.lock();
            failure.get_or_insert_with(|| explain(e, &self.who));
        }
        result
    }

    fn check(&self, waker: &AtomicWaker, cx: &Context<'_>) -> io::Result<()> {
        waker.register(cx.waker());
        match self.is_cut.load(Ordering::Acquire) {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }
}

/// A socket whose line is kept up to date.
#[derive(Debug)]
pub(crate) struct WatchedSocket<S> {
    stream: S,
    line: Arc<Line>,
}

impl<S> WatchedSocket<S> {
    pub fn new(stream: S, line: Arc<Line>) -> Self {
        WatchedSocket { stream, line }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedSocket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.line.check(&this.line.reader, cx)?;
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut this.stream).poll_read(cx, buf));
        if read.is_ok() && buf.filled().len() > before {
            this.line.hear();
        }
        Poll::Ready(this.line.noted(read))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedSocket<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.line.check(&this.line.writer, cx)?;
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, buf));
        Poll::Ready(this.line.noted(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.line.check(&this.line.writer, cx)?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.line.check(&this.line.writer, cx)?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.line.check(&this.line.writer, cx)?;
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, bufs));
        Poll::Ready(this.line.noted(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
