//! Connections of other nodes: who they are, what they send, what they ask.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fair_queue::{Limits, Queue, Share};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certificate::node_of;
use crate::connection::Connection;
use crate::line::{Line, WatchedSocket};
use crate::options::{CONNECTION_WINDOW_BYTES, RESETS_MAX, STREAM_WINDOW_BYTES, STREAMS_MAX};
use crate::registry::SharedState;
use crate::tls::explain;
use crate::{Call, IdentityError, JoinRequest, NodeId, Peers, Refusal, Reply, tls};

/// Connections that are not secured yet, and those of one address.
const HANDSHAKES_MAX: usize = 256;
const HANDSHAKES_OF_ADDRESS_MAX: usize = 32;
/// Maximum number of nodes that join at a time, not counting those that have not sent their request
/// yet; clients whose token is not known have as many places of their own.
const JOINS_MAX: usize = 4;
/// Connections without a certificate, and those of one address.
const JOINERS_MAX: usize = 64;
const JOINERS_OF_ADDRESS_MAX: usize = 8;
/// Time limit of a join, after its request has arrived.
const JOIN_TIME_MAX: Duration = Duration::from_secs(60);
/// Connections that are not secured, or have no certificate: one address has at most half as many
/// as are free.
const SHARE_PERCENT: usize = 50;
/// How long a refused connection stays open, so that the other side reads the reason.
const LINGER: Duration = Duration::from_secs(1);

/// The same refusal is not logged more often.
const REFUSED_EVERY: Duration = Duration::from_secs(60);

/// This node's handler of messages and calls.
pub trait Handler: Send + Sync + 'static {
    /// Returns whether a node is admitted: one that left the cluster still has its certificate.
    /// Called often.
    fn admits(&self, _node: NodeId) -> bool {
        true
    }

    /// Receives a message. The next one of that node waits until this is done, and so, in the end,
    /// does the node.
    fn message(&self, from: NodeId, message: Bytes) -> impl Future<Output = ()> + Send;

    /// Receives a bulk message; see [`Handler::message`].
    fn bulk_message(&self, _from: NodeId, _message: Bytes) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Receives a call. It is dropped when the caller gives up.
    fn call(&self, from: NodeId, call: Call)
    -> impl Future<Output = Result<Reply, Refusal>> + Send;

    /// Returns whether the token of a node that requests to join is known here, and valid. It does not
    /// wait for later state.
    fn knows_token(&self, _request: &JoinRequest) -> bool {
        true
    }

    /// Handles a node that requests to join: its token must be redeemed, once. The response is only
    /// for the new node. Refusals are slowed down.
    fn join(&self, request: JoinRequest) -> impl Future<Output = Result<Bytes, Refusal>> + Send;

    /// Something that an administrator should know.
    fn event(&self, _event: Event) {}
}

/// An event for an administrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Two processes are alive that are the same node: its data directory was copied. One of them
    /// must stop.
    DuplicateNode {
        /// Which.
        node: NodeId,
    },
    /// A node speaks another version of the protocol.
    OtherProtocol {
        /// Which.
        node: NodeId,
        /// The other side's version.
        theirs: u32,
        /// For people.
        text: String,
    },
}

/// Takes connections of other nodes until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    _accepting: JoinSet<()>,
}

impl Server {
    /// Listens. Connections here also count as signs of life for `peers`.
    ///
    /// # Errors
    /// [`IdentityError::File`] with the address, when it cannot listen.
    pub async fn bind<H: Handler>(
        address: impl ToSocketAddrs + std::fmt::Debug,
        peers: &Peers,
        handler: Arc<H>,
    ) -> Result<Server, IdentityError> {
        let named = format!("{address:?}");
        let failed = |source| IdentityError::File {
            path: named.into(),
            source,
        };
        let listening = async {
            let listener = TcpListener::bind(address).await?;
            Ok((listener.local_addr()?, listener))
        };
        let (address, listener) = listening.await.map_err(failed)?;
        let shared = peers.shared.clone();
        let weak: Weak<H> = Arc::downgrade(&handler);
        shared.report_to(Arc::new(move |event| {
            if let Some(handler) = weak.upgrade() {
                handler.event(event);
            }
        }));
        let acceptor = TlsAcceptor::from(tls::server(&shared.identity)?);
        let serving = Arc::new(ServerState {
            shared,
            handler,
            acceptor,
            handshakes: shared_by_addresses(HANDSHAKES_MAX, HANDSHAKES_OF_ADDRESS_MAX),
            joiners: shared_by_addresses(JOINERS_MAX, JOINERS_OF_ADDRESS_MAX),
            joins: Semaphore::new(JOINS_MAX),
            unknown_joins: Semaphore::new(JOINS_MAX),
            last_refused: Mutex::default(),
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, serving));
        Ok(Server {
            address,
            _accepting: accepting,
        })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// State shared by all connections.
pub(crate) struct ServerState<H> {
    pub shared: Arc<SharedState>,
    pub handler: Arc<H>,
    acceptor: TlsAcceptor,
    handshakes: Arc<Queue>,
    joiners: Arc<Queue>,
    /// For nodes whose token is known.
    pub joins: Semaphore,
    /// For others: the token may have been issued by another node just now.
    pub unknown_joins: Semaphore,
    last_refused: Mutex<Option<(String, Instant)>>,
}

/// Places that addresses share.
fn shared_by_addresses(places: usize, of_address: usize) -> Arc<Queue> {
    Queue::new(Limits {
        of_user: of_address,
        user_percent: Some(SHARE_PERCENT),
        ..Limits::new(places)
    })
}

/// The owner of a connection's share: of IPv6 a network, since one host can have many addresses of
/// it.
fn sharer(address: IpAddr) -> Share {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string().into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}").into()
        }
    }
}

async fn accept<H: Handler>(listener: TcpListener, serving: Arc<ServerState<H>>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, peer)) => {
                // An address with too many connections loses this one; others are still accepted.
                let Some(place) = serving.handshakes.try_place(&sharer(peer.ip())) else {
                    let ip = peer.ip();
                    serving.refused(format!("too many are being secured, of {ip} or in all"));
                    continue;
                };
                let serving = serving.clone();
                connections.spawn(async move {
                    let secured = serving.secure(stream, peer).await;
                    drop(place);
                    match secured {
                        Ok((stream, from)) => serving.serve(stream, from, peer).await,
                        Err(why) => serving.refused(why),
                    }
                });
            }
            Err(e) => {
                // Usually out of file descriptors: wait for some to become available.
                tracing::warn!(error = %e, "accepting a connection failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

impl<H: Handler> ServerState<H> {
    /// Notes why a connection was refused. Nodes try again and again: once a minute is enough.
    pub fn refused(&self, why: String) {
        let mut last = self.last_refused.lock();
        let is_new =
            |(before, at): &(String, Instant)| *before != why || at.elapsed() > REFUSED_EVERY;
        if last.as_ref().is_none_or(is_new) {
            tracing::warn!("a connection of the cluster was refused: {why}");
            *last = Some((why, Instant::now()));
        }
    }

    /// Returns the number of the node; `None` without a certificate.
    async fn secure(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Result<(TlsStream<TcpStream>, Option<NodeId>), String> {
        let who = format!("the node at {}", peer.ip());
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let handshake = self.acceptor.accept(stream).into_fallible();
        let time_max = self.shared.options.connect_time_max;
        let stream = match tokio::time::timeout(time_max, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err((e, stream))) => {
                linger(stream).await;
                return Err(explain(&e, &who));
            }
            Err(_) => return Err(format!("TLS with {who} took too long")),
        };
        let Some(certificate) = stream
            .get_ref()
            .1
            .peer_certificates()
            .and_then(<[_]>::first)
        else {
            return Ok((stream, None));
        };
        let (cluster, node) = node_of(certificate).map_err(|e| format!("{who}: {e}"))?;
        match cluster == self.shared.identity.cluster() {
            true => Ok((stream, Some(node))),
            false => Err(format!("{who} is of another cluster")),
        }
    }

    async fn serve(
        self: Arc<Self>,
        stream: TlsStream<TcpStream>,
        from: Option<NodeId>,
        peer: SocketAddr,
    ) {
        let options = self.shared.options.clone();
        let joiner = match from {
            Some(_) => None,
            None => Some(self.joiners.try_place(&sharer(peer.ip()))),
        };
        if matches!(joiner, Some(None)) {
            return self.refused(format!(
                "too many without a certificate, one of {}",
                peer.ip()
            ));
        }
        let who = match from {
            Some(node) => format!("node {node} at {peer}"),
            None => format!("the node at {peer}"),
        };
        let line = Line::new(who);
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(options.ping_every)
            .keep_alive_timeout(options.silence_max)
            .max_pending_accept_reset_streams(RESETS_MAX)
            .max_local_error_reset_streams(RESETS_MAX);
        match from {
            Some(node) => {
                line.is_of(self.shared.known(node).heard.clone());
                builder
                    .max_concurrent_streams(STREAMS_MAX)
                    .initial_stream_window_size(STREAM_WINDOW_BYTES)
                    .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            }
            None => builder.max_concurrent_streams(1),
        };
        let connection = Connection::new(self.clone(), from, line.clone());
        let joining = connection.clone();
        let service = service_fn(move |request| {
            let connection = connection.clone();
            async move { Ok::<_, Infallible>(connection.answer(request).await) }
        });
        let stream = TokioIo::new(WatchedSocket::new(stream, line.clone()));
        let is_over = async {
            match from {
                Some(_) => std::future::pending().await,
                None => joining_time(&joining, options.connect_time_max).await,
            }
        };
        tokio::select! {
            ended = builder.serve_connection(stream, service) => {
                tracing::debug!(?ended, failure = ?line.failure(), "a connection of the cluster ended");
            }
            () = line.silent(options.silence_max) => {
                tracing::warn!(node = from, "a node fell silent: its connection is cut");
            }
            () = is_over => {}
        }
    }
}

/// Waits for the time limit of a connection without a certificate: until its request is due, then
/// until that is answered.
async fn joining_time<H: Handler>(connection: &Connection<H>, request_due: Duration) {
    tokio::time::sleep(request_due).await;
    if connection.has_asked_to_join() {
        tokio::time::sleep(JOIN_TIME_MAX).await;
    }
}

/// Waits for the other side to close: bytes that were not read would take the alert away with them.
async fn linger(mut stream: TcpStream) {
    let lingering = async {
        // Whatever fails, the connection ends.
        let _ = stream.shutdown().await;
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await.is_ok_and(|n| n > 0) {}
    };
    let _ = tokio::time::timeout(LINGER, lingering).await;
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use http::{Method, StatusCode};

    use super::*;
    use crate::connection::JOIN_BYTES_MAX;
    use crate::link::{RawConnection, request};
    use crate::{Authority, Body, Identity, Options};

    /// Never admits a node, and answers only joins whose token begins with 2. Tokens that begin with 1
    /// are not known.
    struct Closed;

    impl Handler for Closed {
        async fn message(&self, _: NodeId, _: Bytes) {}

        async fn call(&self, _: NodeId, _: Call) -> Result<Reply, Refusal> {
            Ok(Reply::ok(Body::empty()))
        }

        fn knows_token(&self, request: &JoinRequest) -> bool {
            request.id[0] != 1
        }

        async fn join(&self, request: JoinRequest) -> Result<Bytes, Refusal> {
            match request.id[0] {
                2 => Ok(Bytes::new()),
                _ => std::future::pending().await,
            }
        }
    }

    async fn serve(folder: &std::path::Path) -> (Server, [u8; 32]) {
        let now = SystemTime::now();
        let authority = Authority::create([5; 16], now).unwrap();
        let fingerprint = authority.fingerprint();
        let identity = Identity::create(folder, authority, 1, now).unwrap();
        let peers = Peers::new(identity).unwrap();
        let server = Server::bind("127.0.0.1:0", &peers, Arc::new(Closed)).await;
        (server.unwrap(), fingerprint)
    }

    async fn open(server: &Server, fingerprint: [u8; 32]) -> RawConnection {
        let (tls, line) = (tls::joiner(fingerprint).unwrap(), Line::new("x".into()));
        let address = server.address().to_string();
        let options = Options::default();
        RawConnection::open(&address, "x", "x.settee.internal", tls, &options, line)
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn without_a_certificate_nothing_works_but_joining() {
        let folder = tempfile::tempdir().unwrap();
        let (server, fingerprint) = serve(folder.path()).await;
        let mut raw = open(&server, fingerprint).await;
        for path in ["/hello", "/messages", "/call/echo", "/call/join", "/"] {
            let request = request(Method::POST, path, Body::empty());
            let response = raw.sender.send_request(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::FORBIDDEN, "{path}");
        }
        for bytes in [10, JOIN_BYTES_MAX + 1] {
            let body = Body::from(Bytes::from(vec![0; bytes]));
            let request = request(Method::POST, "/join", body);
            let response = raw.sender.send_request(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{bytes}");
        }
    }

    #[tokio::test]
    async fn few_nodes_join_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let (server, fingerprint) = serve(folder.path()).await;
        let mut joining = JoinSet::new();
        for _ in 0..=JOINS_MAX {
            let mut raw = open(&server, fingerprint).await;
            joining.spawn(async move {
                let body = Body::from(Bytes::from(vec![0; 100]));
                let request = request(Method::POST, "/join", body);
                raw.sender.send_request(request).await.unwrap().status()
            });
        }
        // The others wait for the handler.
        let first = joining.join_next().await.unwrap().unwrap();
        assert_eq!(first, StatusCode::TOO_MANY_REQUESTS);
    }

    #[tokio::test]
    async fn clients_without_a_known_token_take_no_places_of_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let (server, fingerprint) = serve(folder.path()).await;
        let join = |token| {
            let body = Body::from(Bytes::from(vec![token; 100]));
            request(Method::POST, "/join", body)
        };
        let mut strangers = JoinSet::new();
        for _ in 0..=JOINS_MAX {
            let mut raw = open(&server, fingerprint).await;
            let request = join(1);
            strangers
                .spawn(async move { raw.sender.send_request(request).await.unwrap().status() });
        }
        // All their places are taken.
        let first = strangers.join_next().await.unwrap().unwrap();
        assert_eq!(first, StatusCode::TOO_MANY_REQUESTS);
        let mut raw = open(&server, fingerprint).await;
        let response = raw.sender.send_request(join(2)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }

    /// Sends a request to join of which the server waits for the body.
    fn endless() -> Body {
        Body::stream(futures_util::stream::pending())
    }

    #[tokio::test]
    async fn clients_that_send_nothing_hold_up_no_join() {
        let folder = tempfile::tempdir().unwrap();
        let (server, fingerprint) = serve(folder.path()).await;
        let mut silent = vec![];
        let mut unfinished = JoinSet::new();
        for _ in 0..JOINS_MAX {
            silent.push(TcpStream::connect(server.address()).await.unwrap());
            let mut raw = open(&server, fingerprint).await;
            unfinished.spawn(async move {
                raw.sender
                    .send_request(request(Method::POST, "/join", endless()))
                    .await
                    .map(|answer| answer.status())
            });
        }
        let mut raw = open(&server, fingerprint).await;
        let bad = request(Method::POST, "/join", Body::from(Bytes::from(vec![0; 10])));
        let response = raw.sender.send_request(bad).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        // None is kept for as long as a join may take.
        let ended = tokio::time::timeout(JOIN_TIME_MAX, unfinished.join_all());
        assert!(ended.await.unwrap().iter().all(Result::is_err));
    }

    #[test]
    fn an_address_leaves_places_to_others() {
        let places = shared_by_addresses(HANDSHAKES_MAX, HANDSHAKES_OF_ADDRESS_MAX);
        let address = |n: u8| sharer(IpAddr::from([10, 0, 0, n]));
        let held: Vec<_> = (0..8)
            .map(|n| {
                let one = std::iter::from_fn(|| places.try_place(&address(n)));
                one.collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(held[0].len(), HANDSHAKES_OF_ADDRESS_MAX);
        assert!(places.try_place(&address(21)).is_some());
        let network = |text: &str| sharer(text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), address(1));
    }
}
