//! Admission of nodes, and the errors of others.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use peers::{Call, Event, Identity, Options};

use crate::support::{Cluster, DAY, LONG, Node, options, until};

#[tokio::test]
async fn nodes_of_one_cluster_talk() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node(1).await, cluster.node(2).await);
    one.knows(&two);
    let call = Call::new("/echo", Bytes::from_static(b"hello"));
    let reply = one.peers.call(2, call, LONG).await.unwrap();
    assert_eq!(reply.headers["from"], "1");
    assert_eq!(reply.body.read(100).await.unwrap(), "hello");
    assert!(one.peers.last_heard(2).is_some());
    assert!(two.peers.last_heard(1).is_some());
    assert_eq!(two.peers.last_heard(3), None);
}

#[tokio::test]
async fn a_node_of_another_cluster_is_refused_even_with_the_same_cluster_id() {
    let two = Cluster::new().node(2).await;
    for other in [Cluster::new(), Cluster::with_id([9; 16])] {
        let one = other.node(1).await;
        one.knows(&two);
        let failure = one.failure(2).await;
        assert!(
            failure.contains("another cluster") || failure.contains("another node"),
            "{failure}"
        );
        assert_eq!(two.peers.last_heard(1), None);
    }
}

#[tokio::test]
async fn an_expired_certificate_is_refused_by_both_sides_with_what_to_do() {
    let cluster = Cluster::new();
    let long_ago = SystemTime::now() - 100 * DAY;
    let (folder, identity) = cluster.identity_of(1, long_ago);
    let expired = Node::start(folder, identity, options()).await;
    let two = cluster.node(2).await;
    expired.knows(&two);
    let failure = expired.failure(2).await;
    assert!(
        failure.contains("certificate of this node has expired")
            && failure.contains("restart settee here"),
        "{failure}"
    );
    two.knows(&expired);
    let failure = two.failure(1).await;
    assert!(
        failure.contains("has expired: restart settee there"),
        "{failure}"
    );
}

#[tokio::test]
async fn another_node_at_an_address_is_noticed() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node(1).await, cluster.node(2).await);
    one.peers.set(3, vec![two.address()]);
    let failure = one.failure(3).await;
    assert!(
        failure.contains("another node answers at the address of node 3"),
        "{failure}"
    );
}

#[tokio::test]
async fn a_renewed_certificate_is_taken_while_running() {
    let cluster = Cluster::new();
    let long_ago = SystemTime::now() - 100 * DAY;
    let (folder, identity) = cluster.identity_of(1, long_ago);
    let one = Node::start(folder, identity, options()).await;
    let two = cluster.node(2).await;
    one.knows(&two);
    two.knows(&one);
    one.failure(2).await;
    two.failure(1).await;
    assert!(one.identity.renew_if_due(SystemTime::now()).unwrap());
    until("both are connected", || {
        one.peers.is_connected(2) && two.peers.is_connected(1)
    })
    .await;
}

#[tokio::test]
async fn another_protocol_is_told_on_both_sides() {
    let cluster = Cluster::new();
    let (folder, identity) = cluster.identity(1);
    let newer = Options {
        protocol: 2,
        ..options()
    };
    let one = Node::start(folder, identity, newer).await;
    let mut two = cluster.node(2).await;
    one.knows(&two);
    let failure = one.failure(2).await;
    assert!(
        failure.contains(
            "speaks version 1 of the peers' protocol, this node version 2: update node 2"
        ),
        "{failure}"
    );
    let Event::OtherProtocol { node, theirs, text } = two.event().await else {
        panic!("another event");
    };
    assert_eq!((node, theirs), (1, 2));
    assert!(text.ends_with("update this node"), "{text}");
}

#[tokio::test]
async fn two_processes_with_one_identity_are_noticed() {
    let cluster = Cluster::new();
    let first = cluster.node(1).await;
    let mut two = cluster.node(2).await;
    first.knows(&two);
    until("the first is connected", || first.peers.is_connected(2)).await;
    // They are distinguished within a second after they connect: a process that was suspended then
    // connects again.
    for _ in 0..6 {
        let copy = Identity::open(first.folder.path()).unwrap();
        let copy = Node::start(tempfile::tempdir().unwrap(), copy, options()).await;
        copy.knows(&two);
        let event = tokio::time::timeout(Duration::from_secs(5), two.event()).await;
        if let Ok(event) = event {
            return assert_eq!(event, Event::DuplicateNode { node: 1 });
        }
    }
    panic!("it is not noticed");
}

#[tokio::test]
async fn a_copy_of_this_node_is_noticed() {
    let cluster = Cluster::new();
    let mut one = cluster.node(1).await;
    let copy = Identity::open(one.folder.path()).unwrap();
    let copy = Node::start(tempfile::tempdir().unwrap(), copy, options()).await;
    copy.knows(&one);
    assert_eq!(one.event().await, Event::DuplicateNode { node: 1 });
}

#[tokio::test]
async fn a_node_that_starts_again_is_no_duplicate() {
    let cluster = Cluster::new();
    let mut two = cluster.node(2).await;
    let Node {
        folder,
        peers,
        server,
        ..
    } = cluster.node(1).await;
    peers.set(2, vec![two.address()]);
    until("connected", || peers.is_connected(2)).await;
    drop((peers, server));
    let identity = Identity::open(folder.path()).unwrap();
    let again = Node::start(folder, identity, options()).await;
    again.knows(&two);
    until("connected again", || again.peers.is_connected(2)).await;
    // Longer than it takes to notice a duplicate.
    let watching = tokio::time::timeout(Duration::from_millis(1200), two.events.recv());
    assert!(watching.await.is_err());
}
