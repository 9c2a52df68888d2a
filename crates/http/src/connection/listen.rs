//! Listening: connections are accepted until the server stops, and running requests finish.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use metrics::Socket;
use socket2::{SockRef, TcpKeepalive};
use telemetry::{State, within};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::app::App;
use crate::connection::AFTER_FAILED_ACCEPT;
use crate::connection::arrival::{Arriving, note_accepted, watch_event_loop};
use crate::connection::client::{Client, Spoken};
use crate::connection::metrics_port::serve_metrics;
use crate::connection::places::Place;
use crate::connection::protocol::serve_connection;
use crate::connection::tls::Tls;
use crate::reply::ahead::Ahead;

/// Most tasks that accept connections.
const ACCEPTORS_MAX: usize = 4;
/// How long requests under way may take when the server stops.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);
/// TCP probes a connection that was silent for 120 s,
const KEEPALIVE_AFTER: Duration = Duration::from_secs(120);
/// and again every 30 s, until it is given up: a client without power or network does not close its
/// connection.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(30);

/// Where connections come in.
pub struct Listeners {
    /// Connections without TLS.
    pub http: TcpListener,
    /// Connections with TLS, and its configuration.
    pub https: Option<(TcpListener, Arc<Tls>)>,
    /// The port on which Prometheus reads metrics without a login.
    pub metrics: Option<TcpListener>,
    /// Connections of `http` and `https` that are open at a time: others make room, or wait.
    pub connections_max: Option<usize>,
}

/// Sets the options that each connection inherits from the socket at which it comes in: to set them
/// on the connection takes four system calls. A connection is made from the moment on in which the
/// socket listens, long before it is accepted, so they are set before that.
///
/// # Errors
/// The kernel's.
pub fn set_connection_options(socket: &impl AsFd) -> std::io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_EVERY);
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&keepalive)
}

impl From<TcpListener> for Listeners {
    fn from(http: TcpListener) -> Self {
        Listeners {
            http,
            https: None,
            metrics: None,
            connections_max: None,
        }
    }
}

impl Listeners {
    fn addresses(&self) -> Vec<SocketAddr> {
        let https = self.https.as_ref().map(|(https, _)| https);
        [Some(&self.http), https]
            .into_iter()
            .flatten()
            .filter_map(|listener| listener.local_addr().ok())
            .collect()
    }

    /// The sockets once more, to ask the kernel about them.
    fn sockets(&self) -> Vec<Socket> {
        let https = self.https.as_ref().map(|(https, _)| (https, true));
        let socket = |(listener, is_secured): (&TcpListener, bool)| {
            Some(Socket {
                address: listener.local_addr().ok()?,
                is_secured,
                descriptor: listener.as_fd().try_clone_to_owned().ok()?,
            })
        };
        let all = [Some((&self.http, false)), https].into_iter().flatten();
        all.filter_map(socket).collect()
    }

    /// The next connection, and its TLS configuration.
    async fn accept(&self) -> std::io::Result<(TcpStream, SocketAddr, Option<&Arc<Tls>>)> {
        let Some((https, tls)) = &self.https else {
            return self.http.accept().await.map(|(s, peer)| (s, peer, None));
        };
        tokio::select! {
            a = self.http.accept() => a.map(|(s, peer)| (s, peer, None)),
            a = https.accept() => a.map(|(s, peer)| (s, peer, Some(tls))),
        }
    }
}

/// Serves until `stop` resolves, then finishes running requests.
pub async fn serve(listeners: impl Into<Listeners>, app: Arc<App>, stop: impl Future<Output = ()>) {
    let mut listeners = listeners.into();
    let companions = start_companions(listeners.metrics.take(), &app);
    let graceful = Arc::new(GracefulShutdown::new());
    app.node.set_listening(listeners.addresses());
    app.stats.listen_at(listeners.sockets());
    app.node.replicator.start();
    if let Some(max) = listeners.connections_max {
        app.places.set_max(max);
    }
    // Tasks, as this future may run on a thread that serves nothing: each connection would be
    // handed from thread to thread, and wake two of them.
    let listeners = Arc::new(listeners);
    let mut accepting = JoinSet::new();
    for _ in 0..acceptors() {
        accepting.spawn(accept_all(listeners.clone(), app.clone(), graceful.clone()));
    }
    drop(listeners);
    tokio::select! {
        () = stop => {}
        Some(ended) = accepting.join_next() => end_with(ended),
    }
    app.stats.listen_at(vec![]);
    // The listening sockets are closed then.
    accepting.shutdown().await;
    companions.iter().for_each(AbortHandle::abort);
    // Before the feeds: jobs of this server may read them, and should see their own end.
    app.node.replicator.stop().await;
    app.stop_feeds();
    // The tasks had the only other references.
    let Some(graceful) = Arc::into_inner(graceful) else {
        return;
    };
    if tokio::time::timeout(STOP_TIME_MAX, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("some requests did not finish in time");
    }
}

/// Returns how many tasks accept connections: while one of them serves what it accepted, others
/// accept on other threads. Each connection wakes all that wait, so there are few.
fn acceptors() -> usize {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    threads.clamp(1, ACCEPTORS_MAX)
}

/// Ends this task as one that never returns has ended.
fn end_with(ended: Result<Infallible, JoinError>) -> ! {
    let Err(failed) = ended;
    match failed.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(cancelled) => std::panic::resume_unwind(Box::new(cancelled)),
    }
}

/// Accepts connections, and serves each in a separate task.
async fn accept_all(
    listeners: Arc<Listeners>,
    app: Arc<App>,
    graceful: Arc<GracefulShutdown>,
) -> Infallible {
    loop {
        let accepting = async {
            let accepted = within!(State::Accept, listeners.accept()).0?;
            note_accepted(&accepted.0);
            // Others wait in the kernel's queue meanwhile.
            let place = app.places.take(accepted.1.ip()).await;
            Ok::<_, std::io::Error>((accepted, place))
        };
        match accepting.await {
            Ok(((stream, peer, tls), place)) => {
                let watcher = graceful.watcher();
                accept(stream, peer, tls.cloned(), &app, (watcher, place));
            }
            Err(e) => {
                // Out of file descriptors, mostly: wait for some to come back.
                tracing::warn!(error = %e, "accepting a connection failed");
                app.places.make_room();
                tokio::time::sleep(AFTER_FAILED_ACCEPT).await;
            }
        }
    }
}

/// Starts the tasks that run while connections are accepted.
fn start_companions(metrics: Option<TcpListener>, app: &Arc<App>) -> Vec<AbortHandle> {
    let auth = app.node.auth.clone();
    let mut started = vec![
        tokio::spawn(async move { auth.keep_users().await }).abort_handle(),
        tokio::spawn(watch_event_loop()).abort_handle(),
    ];
    started
        .extend(metrics.map(|port| tokio::spawn(serve_metrics(port, app.clone())).abort_handle()));
    started
}

/// Serves a connection in a separate task.
fn accept(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Arc<Tls>>,
    app: &Arc<App>,
    (watcher, place): (Watcher, Place),
) {
    let (app, ticket) = (app.clone(), place.ticket());
    tokio::spawn(place.serve(async move {
        let _open = app.stats.connect();
        let stream = Arriving::new(stream, ticket.seat.clone());
        let client = Client {
            peer,
            spoken: Spoken::Unknown,
            place: ticket,
            ahead: Ahead::default(),
        };
        match tls {
            None => serve_connection(stream, client, &app, watcher).await,
            // Boxed: the state of a connection without TLS is smaller.
            Some(tls) => Box::pin(serve_secured(stream, &tls, client, &app, watcher)).await,
        }
    }));
}

/// Serves a connection with TLS.
async fn serve_secured(
    stream: Arriving,
    tls: &Tls,
    client: Client,
    app: &Arc<App>,
    watcher: Watcher,
) {
    let Some(stream) = within!(State::Accept, tls.accept(stream)).0 else {
        return;
    };
    let spoken = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => Spoken::Http2,
        _ => Spoken::Http1,
    };
    let client = Client { spoken, ..client };
    serve_connection(stream, client, app, watcher).await;
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;

    use super::*;

    #[tokio::test]
    async fn connections_inherit_the_options_of_their_listener() {
        for has_options in [false, true] {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            if has_options {
                set_connection_options(&socket).unwrap();
            }
            let listeners = Listeners::from(socket.listen(8).unwrap());
            let address = listeners.http.local_addr().unwrap();
            let _client = std::net::TcpStream::connect(address).unwrap();
            let (stream, ..) = listeners.accept().await.unwrap();
            let socket = SockRef::from(&stream);
            let options = [socket.tcp_nodelay(), socket.keepalive()].map(Result::unwrap);
            assert_eq!(options, [has_options; 2]);
        }
    }
}
