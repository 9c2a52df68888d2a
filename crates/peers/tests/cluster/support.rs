//! Nodes for tests: an identity in a folder, a server, connections to others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use peers::{
    Authority, Body, Call, Event, Handler, Identity, JoinRequest, NodeId, Options, Peers, Refusal,
    Reply, Server, Tokens,
};
use tempfile::TempDir;
use tokio::sync::{Semaphore, mpsc};

pub const CLUSTER: [u8; 16] = [0xc1; 16];
pub const DAY: Duration = Duration::from_secs(86_400);
/// Messages and pieces taken at a time.
pub const READERS: usize = 1_000;
/// Nothing here takes as long.
pub const LONG: Duration = Duration::from_secs(30);

/// A cluster's authority, for many nodes.
pub struct Cluster(String);

impl Cluster {
    pub fn new() -> Cluster {
        Cluster::with_id(CLUSTER)
    }

    pub fn with_id(id: [u8; 16]) -> Cluster {
        let authority = Authority::create(id, SystemTime::now()).unwrap();
        Cluster(authority.to_pem().unwrap())
    }

    pub fn authority(&self) -> Authority {
        Authority::from_pem(&self.0).unwrap()
    }

    pub fn identity(&self, node: NodeId) -> (TempDir, Arc<Identity>) {
        self.identity_of(node, SystemTime::now())
    }

    pub fn identity_of(&self, node: NodeId, now: SystemTime) -> (TempDir, Arc<Identity>) {
        let folder = tempfile::tempdir().unwrap();
        let identity = Identity::create(folder.path(), self.authority(), node, now).unwrap();
        (folder, identity)
    }

    pub async fn node(&self, node: NodeId) -> Node {
        self.node_with(node, options()).await
    }

    pub async fn node_with(&self, node: NodeId, options: Options) -> Node {
        let (folder, identity) = self.identity(node);
        Node::start(folder, identity, options).await
    }
}

pub fn options() -> Options {
    Options {
        silence_max: Duration::from_secs(15),
        ping_every: Duration::from_millis(200),
        connect_time_max: Duration::from_millis(3000),
        retry_min: Duration::from_millis(20),
        retry_max: Duration::from_millis(200),
        refused_join_pause: Duration::from_millis(300),
        ..Options::default()
    }
}

/// Peers that are taken for dead soon.
pub fn impatient() -> Options {
    Options {
        silence_max: Duration::from_millis(2500),
        ..options()
    }
}

pub struct Node {
    pub folder: TempDir,
    pub identity: Arc<Identity>,
    pub peers: Arc<Peers>,
    pub handler: Arc<Recorder>,
    pub server: Server,
    pub messages: mpsc::UnboundedReceiver<(NodeId, Bytes)>,
    pub events: mpsc::UnboundedReceiver<Event>,
}

impl Node {
    pub async fn start(folder: TempDir, identity: Arc<Identity>, options: Options) -> Node {
        let peers = Peers::with(identity.clone(), options).unwrap();
        let (message_to, messages) = mpsc::unbounded_channel();
        let (event_to, events) = mpsc::unbounded_channel();
        let handler = Arc::new(Recorder {
            messages: message_to,
            events: event_to,
            reading: Semaphore::new(READERS),
            under_way: AtomicUsize::new(0),
            tokens: Mutex::default(),
            pulled: AtomicUsize::new(0),
        });
        let server = Server::bind("127.0.0.1:0", &peers, handler.clone())
            .await
            .unwrap();
        Node {
            folder,
            identity,
            peers,
            handler,
            server,
            messages,
            events,
        }
    }

    pub fn id(&self) -> NodeId {
        self.identity.node()
    }

    pub fn address(&self) -> String {
        self.server.address().to_string()
    }

    pub fn knows(&self, other: &Node) {
        self.peers.set(other.id(), vec![other.address()]);
    }

    pub async fn message(&mut self) -> (NodeId, Bytes) {
        let message = tokio::time::timeout(LONG, self.messages.recv()).await;
        message.expect("a message in time").unwrap()
    }

    pub async fn event(&mut self) -> Event {
        let event = tokio::time::timeout(LONG, self.events.recv()).await;
        event.expect("an event in time").unwrap()
    }

    /// Why calls to a node do not work, as soon as that is known.
    pub async fn failure(&self, node: NodeId) -> String {
        let call = Call::new("/echo", Body::empty());
        let error = self.peers.call(node, call, LONG).await;
        error.expect_err("no answer").to_string()
    }
}

/// Keeps what it gets, and answers `/echo`, `/bytes/N`, `/wait`, `/count`, `/refuse`.
pub struct Recorder {
    messages: mpsc::UnboundedSender<(NodeId, Bytes)>,
    events: mpsc::UnboundedSender<Event>,
    /// Closed, no message is taken.
    pub reading: Semaphore,
    /// Calls that wait.
    pub under_way: AtomicUsize,
    pub tokens: Mutex<Tokens>,
    /// Pieces of bodies that were produced.
    pub pulled: AtomicUsize,
}

impl Recorder {
    fn large(pieces: usize) -> Body {
        let piece = Bytes::from(vec![7; 64 << 10]);
        let stream = futures_util::stream::iter((0..pieces).map(move |_| Ok(piece.clone())));
        Body::stream(stream)
    }
}

impl Handler for Recorder {
    async fn message(&self, from: NodeId, message: Bytes) {
        let permit = self.reading.acquire().await.unwrap();
        drop(permit);
        let _ = self.messages.send((from, message));
    }

    async fn bulk_message(&self, from: NodeId, message: Bytes) {
        let _ = self.messages.send((from, message));
    }

    async fn call(&self, from: NodeId, call: Call) -> Result<Reply, Refusal> {
        match call.path.split_once('?').map_or(&*call.path, |p| p.0) {
            "/echo" => {
                let mut reply = Reply::ok(call.body);
                reply.headers = call.headers;
                reply.headers.insert("from", from.into());
                Ok(reply)
            }
            "/count" => {
                let mut body = call.body;
                let mut total = 0;
                while let Some(piece) = body.next().await {
                    let Ok(piece) = piece else {
                        self.under_way.fetch_add(1000, Ordering::SeqCst);
                        return Err(Refusal::new(StatusCode::BAD_REQUEST, "broken"));
                    };
                    total += piece.len();
                    self.pulled.fetch_add(piece.len(), Ordering::SeqCst);
                    let permit = self.reading.acquire().await.unwrap();
                    drop(permit);
                }
                Ok(Reply::ok(Bytes::from(total.to_string())))
            }
            "/wait" => {
                self.under_way.fetch_add(1, Ordering::SeqCst);
                let counted = Waiting(&self.under_way);
                std::future::pending::<()>().await;
                drop(counted);
                unreachable!()
            }
            "/refuse" => Err(Refusal::new(StatusCode::CONFLICT, "not now")),
            "/missing" => {
                let mut reply = Reply::ok(Body::empty());
                reply.status = StatusCode::NOT_FOUND;
                Ok(reply)
            }
            path => {
                let pieces = path.strip_prefix("/bytes/").and_then(|n| n.parse().ok());
                Ok(Reply::ok(Self::large(pieces.unwrap_or(0))))
            }
        }
    }

    async fn join(&self, request: JoinRequest) -> Result<Bytes, Refusal> {
        let taken = {
            let mut tokens = self.tokens.lock();
            tokens.take(&request.id, &request.secret, SystemTime::now())
        };
        match taken {
            Ok(_) => Ok([b"welcome ", &request.facts[..]].concat().into()),
            Err(e) => Err(Refusal::new(StatusCode::FORBIDDEN, e.to_string())),
        }
    }

    fn event(&self, event: Event) {
        let _ = self.events.send(event);
    }
}

/// A call that waits, counted until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits for something to become true.
pub async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let waiting = async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, waiting)
        .await
        .unwrap_or_else(|_| panic!("not in time: {what}"));
}
