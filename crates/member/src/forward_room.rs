//! Room for clients' requests that this node forwards to others.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::NodeId;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use peers::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of clients' requests that this node has forwarded to another one and that have not
/// ended, such as feeds. A connection between nodes has 1,024 streams: the nodes' own calls need some.
const FORWARDS_MAX: usize = 768;

/// Room for forwarded requests, by the node that they are forwarded to.
#[derive(Default)]
pub(crate) struct ForwardRoom(Mutex<BTreeMap<NodeId, Arc<Semaphore>>>);

impl ForwardRoom {
    /// Returns a place for a request to a node, which it needs until its response has ended; `None`
    /// if there are too many.
    pub fn enter(&self, node: NodeId) -> Option<OwnedSemaphorePermit> {
        let new = || Arc::new(Semaphore::new(FORWARDS_MAX));
        let room = self.0.lock().entry(node).or_insert_with(new).clone();
        room.try_acquire_owned().ok()
    }
}

/// Returns a body that holds a place until its end.
pub(crate) fn holding(place: OwnedSemaphorePermit, body: Body) -> Body {
    Body::stream(body.inspect(move |_| {
        let _place = &place;
    }))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Feeds do not end, and nodes must still be able to call each other.
    #[tokio::test]
    async fn requests_to_a_node_have_a_limit_until_their_responses_end() {
        let room = ForwardRoom::default();
        let mut bodies: Vec<Body> = std::iter::from_fn(|| room.enter(2))
            .map(|place| holding(place, Body::from(Bytes::from_static(b"piece"))))
            .collect();
        assert_eq!(bodies.len(), FORWARDS_MAX);
        assert!(room.enter(2).is_none() && room.enter(3).is_some());
        let body = bodies.pop().unwrap();
        assert_eq!(body.read(10).await.unwrap(), "piece");
        let place = room.enter(2);
        assert!(place.is_some() && room.enter(2).is_none());
        bodies.pop();
        assert!(room.enter(2).is_some());
    }
}
