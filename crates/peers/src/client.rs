//! Connections to the other nodes: messages and calls to them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, header};
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::call::{PendingCall, Read, UntilDropped};
use crate::channel::Channel;
use crate::hello::REFUSED;
use crate::link::{Lane, State, keep, refusal_text, request};
use crate::queue::Queue;
use crate::registry::SharedState;
use crate::traffic::Traffic;
use crate::{
    Body, Call, CallError, Identity, IdentityError, NodeId, Options, Refusal, Reply, node_name,
};

/// The other nodes as this one reaches them. Each has a connection for messages, one for calls, and one
/// for bulk messages if [`Options::has_bulk`] is set.
pub struct Peers {
    pub(crate) shared: Arc<SharedState>,
    peers: RwLock<HashMap<NodeId, Peer>>,
}

/// A node. Its connections end when this is dropped.
struct Peer {
    addresses: Vec<String>,
    queues: Queues,
    calls: watch::Receiver<State>,
    _lanes: JoinSet<()>,
}

/// Messages that wait to be sent to a node.
#[derive(Clone)]
struct Queues {
    messages: Arc<Queue>,
    /// `None` without such a connection.
    bulk: Option<Arc<Queue>>,
}

impl Queues {
    fn new(options: &Options) -> Queues {
        let bulk = || Queue::new(Channel::Bulk, options);
        Queues {
            messages: Queue::new(Channel::Messages, options),
            bulk: options.has_bulk.then(bulk),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Queue>> {
        std::iter::once(&self.messages).chain(&self.bulk)
    }
}

impl Peer {
    fn new(
        shared: &Arc<SharedState>,
        node: NodeId,
        addresses: Vec<String>,
        queues: Queues,
    ) -> Peer {
        let (state, calls) = watch::channel(State::Trying);
        let mut lanes = JoinSet::new();
        let messages = queues.all().cloned().map(Lane::Messages);
        for lane in messages.chain([Lane::Calls(state)]) {
            lanes.spawn(keep(shared.clone(), node, addresses.clone(), lane));
        }
        Peer {
            addresses,
            queues,
            calls,
            _lanes: lanes,
        }
    }
}

impl Peers {
    /// No peers yet.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn new(identity: Arc<Identity>) -> Result<Arc<Peers>, IdentityError> {
        Peers::with(identity, Options::default())
    }

    /// No peers yet, with other times and limits than the usual ones.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn with(identity: Arc<Identity>, options: Options) -> Result<Arc<Peers>, IdentityError> {
        Ok(Arc::new(Peers {
            shared: SharedState::new(identity, options)?,
            peers: RwLock::default(),
        }))
    }

    /// Returns this node's identity.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.shared.identity
    }

    /// Connects to a node, now and whenever the connection breaks. Addresses are `host:port`; the
    /// first that works is taken. Other addresses than before make new connections; what waits to
    /// be sent is kept. Called within a runtime of tokio.
    pub fn set(&self, node: NodeId, addresses: Vec<String>) {
        let mut peers = self.peers.write();
        let before = peers.get(&node);
        if before.is_some_and(|peer| peer.addresses == addresses) {
            return;
        }
        let queues = before.map(|peer| peer.queues.clone());
        let queues = queues.unwrap_or_else(|| Queues::new(&self.shared.options));
        let peer = Peer::new(&self.shared, node, addresses, queues);
        peers.insert(node, peer);
    }

    /// Ends the connections to a node, and forgets what waits for it.
    pub fn remove(&self, node: NodeId) {
        self.peers.write().remove(&node);
    }

    /// Returns the nodes that were set.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.peers.read().keys().copied().collect()
    }

    /// Sends a message of at most [`crate::MESSAGE_BYTES_MAX`] bytes, without an answer. Never
    /// waits. It may be lost: when too many wait for the node, when a connection breaks, when there
    /// is no such node. Messages over one connection arrive in order, and none arrives twice.
    pub fn send(&self, node: NodeId, message: Bytes) {
        if let Some(peer) = self.peers.read().get(&node) {
            peer.queues.messages.push(message);
        }
    }

    /// Sends a bulk message of at most [`crate::MESSAGE_BYTES_MAX`] bytes, without an answer. Never
    /// waits. Returns whether it was accepted: it is not when too many wait for the node, when the node
    /// is silent, or when there is no such node. Those that were accepted arrive in order, and none
    /// twice; the last ones before a connection breaks may be lost.
    pub fn send_bulk(&self, node: NodeId, message: Bytes) -> bool {
        let silence_max = self.shared.options.silence_max;
        if self
            .last_heard(node)
            .is_none_or(|at| at.elapsed() > silence_max)
        {
            // They would wait for a node that may need none of them when it is back.
            return false;
        }
        let peers = self.peers.read();
        let queue = peers.get(&node).and_then(|peer| peer.queues.bulk.as_ref());
        queue.is_some_and(|queue| queue.push(message))
    }

    /// Returns the number of messages to a node that were dropped because too many waited.
    pub fn dropped(&self, node: NodeId) -> u64 {
        let peers = self.peers.read();
        peers
            .get(&node)
            .map_or(0, |peer| peer.queues.messages.dropped())
    }

    /// Returns the figures of all messages to and from a node.
    pub fn traffic(&self, node: NodeId) -> Traffic {
        let sent = self
            .peers
            .read()
            .get(&node)
            .map(|peer| Traffic::sum(peer.queues.all().map(|queue| queue.traffic())));
        let known = self.shared.known(node);
        Traffic {
            received: known.received.load(Relaxed),
            received_bytes: known.received_bytes.load(Relaxed),
            ..sent.unwrap_or_default()
        }
    }

    /// Returns when a node was last heard from, on any connection, including those that it made. A
    /// connected node is heard from at least as often as it is pinged ([`Options::ping_every`]).
    pub fn last_heard(&self, node: NodeId) -> Option<Instant> {
        self.shared.last_heard(node)
    }

    /// Returns whether there is a connection for calls now.
    pub fn is_connected(&self, node: NodeId) -> bool {
        let peers = self.peers.read();
        let state = peers.get(&node).map(|peer| peer.calls.borrow());
        state.is_some_and(|state| matches!(*state, State::Up(..)))
    }

    /// Calls a node. The deadline is for the response's head; its body has no time limit, and
    /// breaks when the node falls silent. Dropping this, or the response's body before its end,
    /// cancels the call at the other side. A node that could not be reached at the last attempt is
    /// an immediate error; the first attempt is waited for.
    ///
    /// # Errors
    /// [`CallError`]; the handler's responses, whatever their status, are not errors.
    pub async fn call(
        &self,
        node: NodeId,
        call: Call,
        deadline: Duration,
    ) -> Result<Reply, CallError> {
        let calls = self.peers.read().get(&node).map(|peer| peer.calls.clone());
        let why = || {
            format!(
                "{} is not a peer",
                node_name(&self.identity().cluster(), node)
            )
        };
        let calls = calls.ok_or_else(|| CallError::Unreachable { node, why: why() })?;
        let answer = tokio::time::timeout(deadline, attempt(calls, node, call)).await;
        answer.unwrap_or(Err(CallError::TimedOut {
            node,
            after: deadline,
        }))
    }
}

async fn attempt(
    mut calls: watch::Receiver<State>,
    node: NodeId,
    call: Call,
) -> Result<Reply, CallError> {
    let unreachable = |why: String| CallError::Unreachable { node, why };
    let settled = calls.wait_for(|state| !matches!(state, State::Trying));
    let state = match settled.await {
        Ok(state) => state.clone(),
        Err(_) => return Err(unreachable("it was removed".into())),
    };
    let (mut sender, line) = match state {
        State::Up(sender, line) => (sender, line),
        State::Down(why) => return Err(unreachable(why)),
        State::Trying => return Err(unreachable("it was removed".into())),
    };
    let because = |e: &hyper::Error| line.failure().unwrap_or_else(|| whole(e));
    sender.ready().await.map_err(|e| unreachable(because(&e)))?;
    let (body, waiting) = UntilDropped::wrap(call.body);
    if !call.path.starts_with('/') {
        return Err(unreachable(format!("{:?} is not a path", call.path)));
    }
    let path = format!("/call{}", call.path);
    if path.parse::<http::uri::PathAndQuery>().is_err() {
        return Err(unreachable(format!("{:?} is not a path", call.path)));
    }
    let mut request = request(call.method, &path, body);
    *request.headers_mut() = without_connection(call.headers);
    let response =
        sender
            .try_send_request(request)
            .await
            .map_err(|mut e| match e.take_message() {
                Some(_) => unreachable(because(e.error())),
                None => CallError::Reset {
                    node,
                    why: because(e.error()),
                },
            })?;
    if response.headers().contains_key(REFUSED) {
        let status = response.status();
        let refusal = Refusal::new(status, refusal_text(response).await);
        return Err(CallError::Refused { node, refusal });
    }
    Ok(reply(response, waiting))
}

fn reply(response: http::Response<hyper::body::Incoming>, waiting: PendingCall) -> Reply {
    let (head, body) = response.into_parts();
    Reply {
        status: head.status,
        headers: head.headers,
        body: Body::of(Read::new(Body::of(body), waiting)),
    }
}

/// Formats an error with its causes.
fn whole(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(e) = source {
        text = format!("{text}: {e}");
        source = e.source();
    }
    text
}

/// Without the headers of a connection, which HTTP/2 does not have.
pub(crate) fn without_connection(mut headers: HeaderMap) -> HeaderMap {
    for name in [
        header::CONNECTION,
        header::HOST,
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::HeaderName::from_static("keep-alive"),
        header::HeaderName::from_static("proxy-connection"),
    ] {
        headers.remove(name);
    }
    headers
}
