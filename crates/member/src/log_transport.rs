//! Sends messages of the log in the nodes.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use cluster::NodeId;
use peers::Peers;

/// Sends messages of the log as bulk messages: those that too many others wait for are refused, not
/// dropped, because later ones build on them.
#[derive(Default)]
pub(crate) struct LogTransport {
    peers: OnceLock<Arc<Peers>>,
}

impl LogTransport {
    /// Sets the connections to the nodes, once.
    pub fn reach_by(&self, peers: Arc<Peers>) {
        // A second call has no effect.
        let _ = self.peers.set(peers);
    }
}

impl raft_log::Transport for LogTransport {
    fn send(&self, to: NodeId, bundle: Bytes) -> bool {
        let peers = self.peers.get();
        peers.is_some_and(|peers| peers.send_bulk(to, bundle))
    }
}
