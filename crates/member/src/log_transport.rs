//! Sends messages of the log in the nodes.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cluster::{CONTROL, NodeId, SlotNumber};
use peers::Peers;

/// The number of a slot that does not exist. It marks messages of the log among those of replicas, which
/// begin with the number of their slot.
pub(crate) const LOG_MESSAGES: SlotNumber = CONTROL - 1;

/// A node that was not heard for this time gets no urgent messages.
const SILENT_TIME: Duration = Duration::from_secs(5);

/// Sends messages of the log as bulk messages: those that too many others wait for are refused, not
/// dropped, because later ones build on them. Urgent ones go with the messages of replicas.
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

    fn send_urgent(&self, to: NodeId, bundle: Bytes) {
        let Some(peers) = self.peers.get() else {
            return;
        };
        let heard = peers.last_heard(to);
        if heard.is_none_or(|at| at.elapsed() > SILENT_TIME) {
            // Those that wait for a node are of no use when it is back.
            return;
        }
        let marker = LOG_MESSAGES.to_be_bytes();
        let mut message = BytesMut::with_capacity(marker.len() + bundle.len());
        message.extend_from_slice(&marker);
        message.extend_from_slice(&bundle);
        peers.send(to, message.freeze());
    }
}
