//! One connection: HTTP/1 or HTTP/2, with its time-outs and buffers, and one request after another.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::header::CONNECTION;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::Watcher;
use telemetry::{State, within};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::app::App;
use crate::connection::client::{Client, Spoken};
use crate::connection::first_read::FirstRead;
use crate::connection::head_timeout::{HEAD_BYTES_MAX, HeadTimeout, LongHeads};
use crate::connection::lenient::Lenient;
use crate::connection::linger::Lingering;
use crate::connection::places::Held;
use crate::connection::repoll::Repoll;
use crate::connection::spelling::{Bodiless, Spelling};
use crate::exchange::answer::answer;

/// Clients of HTTP/2 that answer no ping are gone.
const PING_EVERY: Duration = Duration::from_secs(60);
/// Bytes of one body that a client may send before they are read, in HTTP/2.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;

/// A connection, as its requests see it: each takes one reference, which no other connection counts.
struct Connection {
    app: Arc<App>,
    client: Client,
    bodiless: Arc<Bodiless>,
}

impl Connection {
    /// Answers a request.
    async fn answer(
        self: Arc<Self>,
        req: hyper::Request<Incoming>,
    ) -> Result<hyper::Response<Held>, Infallible> {
        let is_http1 = req.version() < hyper::Version::HTTP_2;
        let is_to_head = req.method() == hyper::Method::HEAD;
        let seat = &self.client.place.seat;
        let busy = seat.begin();
        if is_http1 && is_last_request(&req) {
            seat.note_last_request();
        }
        let (answer, _) = within!(State::Answer, answer(&self.app, req, &self.client));
        if is_http1 {
            self.bodiless.note(is_to_head);
        }
        Ok(answer.map(|body| Held { body, _busy: busy }))
    }
}

/// Returns what serves a connection of this protocol.
fn builder(spoken: Spoken) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder = match spoken {
        Spoken::Unknown => builder,
        Spoken::Http1 => builder.http1_only(),
        Spoken::Http2 => builder.http2_only(),
    };
    builder
        .http2()
        .timer(TokioTimer::new())
        // A body that waits for memory, unread, leaves the connection's window to others.
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(16 * STREAM_WINDOW_BYTES)
        .max_send_buf_size(HEAD_BYTES_MAX)
        .keep_alive_interval(PING_EVERY);
    builder
        .http1()
        .timer(TokioTimer::new())
        .max_buf_size(HEAD_BYTES_MAX)
        // Not `pipeline_flush`: it buffers a streamed answer whole, whatever the client takes.
        // `HeadTimeout` has its own.
        .header_read_timeout(None::<Duration>);
    builder
}

/// Serves a connection until it is closed, or its last request has ended after the server was
/// stopped.
pub(super) async fn serve_connection<S>(stream: S, client: Client, app: &Arc<App>, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (spoken, seat) = (client.spoken, client.place.seat.clone());
    let long_heads = LongHeads {
        places: app.bodies.long_heads(),
        peer: client.peer.ip(),
    };
    let bodiless = Arc::new(Bodiless::default());
    let silence_max = app.silence_max();
    let header_timeout = app.settings().chttpd.header_timeout;
    let connection = Arc::new(Connection {
        app: app.clone(),
        client,
        bodiless: bodiless.clone(),
    });
    let service = service_fn(move |req| connection.clone().answer(req));
    let stream = Lenient::new(Lingering::new(stream, seat.clone()));
    let stream = HeadTimeout::new(stream, seat, (header_timeout, silence_max), long_heads);
    let stream = Spelling::new(FirstRead::new(stream), bodiless);
    let connection = builder(spoken)
        .serve_connection(TokioIo::new(stream), service)
        .into_owned();
    if let Err(e) = Repoll::new(watcher.watch(connection)).await {
        tracing::debug!(error = %e, "connection ended");
    }
}

/// Returns whether the client of an HTTP/1 request sends nothing after its head: it has no body, and
/// the client requests that the connection is closed.
fn is_last_request(req: &hyper::Request<Incoming>) -> bool {
    let closes =
        |value: &hyper::header::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"close");
    req.body().is_end_stream() && req.headers().get(CONNECTION).is_some_and(closes)
}
