//! Messages without answers.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use peers::{Body, Call, CallError, Options, Server};

use crate::support::{Cluster, LONG, Node, READERS, impatient, options, until};

fn number(n: u64) -> Bytes {
    Bytes::copy_from_slice(&n.to_le_bytes())
}

#[tokio::test]
async fn messages_arrive_in_order() {
    let cluster = Cluster::new();
    let (one, mut two) = (cluster.node(1).await, cluster.node(2).await);
    one.knows(&two);
    for n in 0..10_000 {
        one.peers.send(2, number(n));
    }
    for n in 0..10_000 {
        assert_eq!(two.message().await, (1, number(n)));
    }
    assert_eq!(one.peers.dropped(2), 0);
}

#[tokio::test]
async fn messages_may_be_empty_or_large() {
    let cluster = Cluster::new();
    let (one, mut two) = (cluster.node(1).await, cluster.node(2).await);
    one.knows(&two);
    let large = Bytes::from(vec![3; peers::MESSAGE_BYTES_MAX]);
    for message in [Bytes::new(), large, Bytes::new()] {
        one.peers.send(2, message.clone());
        assert_eq!(two.message().await, (1, message));
    }
}

#[tokio::test]
async fn connections_come_back_after_the_server_does() {
    let cluster = Cluster::new();
    let (one, mut two) = (cluster.node(1).await, cluster.node(2).await);
    one.knows(&two);
    one.peers.send(2, number(1));
    two.message().await;
    let address = two.server.address();
    let spare = Server::bind("127.0.0.1:0", &two.peers, two.handler.clone());
    drop(std::mem::replace(&mut two.server, spare.await.unwrap()));
    until("the connection is noticed to be gone", || {
        !one.peers.is_connected(2)
    })
    .await;
    let failure = one.failure(2).await;
    assert!(failure.contains("cannot be reached"), "{failure}");
    two.server = Server::bind(address, &two.peers, two.handler.clone())
        .await
        .unwrap();
    until("a message arrives", || {
        one.peers.send(2, number(2));
        two.messages.try_recv().is_ok()
    })
    .await;
    until("calls work", || one.peers.is_connected(2)).await;
}

#[tokio::test]
async fn a_node_that_comes_is_connected_to_without_a_pause() {
    let cluster = Cluster::new();
    let patient = Options {
        retry_min: 10 * LONG,
        retry_max: 10 * LONG,
        ..options()
    };
    let (one, mut two) = (cluster.node_with(1, patient).await, cluster.node(2).await);
    let address = two.server.address();
    let spare = Server::bind("127.0.0.1:0", &two.peers, two.handler.clone());
    drop(std::mem::replace(&mut two.server, spare.await.unwrap()));
    one.peers.set(2, vec![address.to_string()]);
    let failure = one.failure(2).await;
    assert!(failure.contains("cannot be reached"), "{failure}");
    two.server = Server::bind(address, &two.peers, two.handler.clone())
        .await
        .unwrap();
    two.knows(&one);
    until("calls work", || one.peers.is_connected(2)).await;
    one.peers.send(2, number(1));
    assert_eq!(two.message().await, (1, number(1)));
}

#[tokio::test]
async fn a_peer_that_takes_no_messages_bounds_what_waits_and_holds_up_nobody() {
    let cluster = Cluster::new();
    let (folder, identity) = cluster.identity(1);
    let bounded = Options {
        queue_bytes_max: 1 << 20,
        ..impatient()
    };
    let one = Node::start(folder, identity, bounded).await;
    let (mut two, mut three) = (cluster.node(2).await, cluster.node(3).await);
    one.knows(&two);
    one.knows(&three);
    one.peers.send(2, number(0));
    two.message().await;
    let closed = two.handler.reading.acquire_many(READERS as u32).await;
    let large = Bytes::from(vec![0; 100_000]);
    until("messages are dropped", || {
        one.peers.send(2, large.clone());
        one.peers.dropped(2) > 300
    })
    .await;
    one.peers.send(3, number(1));
    assert_eq!(three.message().await, (1, number(1)));
    // It is silent to messages, not dead.
    let call = Call::new("/echo", Body::empty());
    assert!(one.peers.call(2, call, LONG).await.is_ok());
    tokio::time::sleep(2 * impatient().silence_max).await;
    drop(closed);
    one.peers.send(2, number(2));
    let mut large_ones = 0;
    while two.message().await.1 != number(2) {
        large_ones += 1;
    }
    // The queue, the windows of the stream, and the buffers below.
    assert!(large_ones < 60, "{large_ones}");
}

#[tokio::test]
async fn bulk_messages_have_a_connection_of_their_own_and_are_refused_without_one() {
    let cluster = Cluster::new();
    let (folder, identity) = cluster.identity(1);
    let with_bulk = Options {
        has_bulk: true,
        ..options()
    };
    let one = Node::start(folder, identity, with_bulk).await;
    let mut two = cluster.node(2).await;
    assert!(!one.peers.send_bulk(2, number(0)));
    one.knows(&two);
    until("calls work", || one.peers.is_connected(2)).await;
    // The other messages are not read.
    let handler = two.handler.clone();
    let closed = handler.reading.acquire_many(READERS as u32).await;
    one.peers.send(2, number(1));
    for n in 2..1_000 {
        assert!(one.peers.send_bulk(2, number(n)));
    }
    for n in 2..1_000 {
        assert_eq!(two.message().await, (1, number(n)));
    }
    drop(closed);
    assert_eq!(two.message().await, (1, number(1)));
    two.knows(&one);
    assert!(!two.peers.send_bulk(1, number(0)));
}

/// Accepts connections and sends nothing, like a stopped process.
async fn silent() -> (tokio::net::TcpListener, String) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

#[tokio::test]
async fn a_peer_that_never_answers_holds_up_no_caller() {
    let one = Cluster::new().node(1).await;
    let (_listener, address) = silent().await;
    one.peers.set(2, vec![address]);
    let failure = one.failure(2).await;
    assert!(failure.contains("did not answer within"), "{failure}");
}

/// After an interruption, one side's attempts may have gone nowhere while the other's succeed.
#[tokio::test]
async fn an_attempt_begins_anew_when_the_peer_connects() {
    let cluster = Cluster::new();
    let patient = Options {
        connect_time_max: 10 * LONG,
        ..options()
    };
    let one = cluster.node_with(1, patient).await;
    let two = cluster.node(2).await;
    let (listener, address) = silent().await;
    one.peers.set(2, vec![address]);
    // Nothing answers the first attempts: of messages, and of calls.
    let swallowed = [
        listener.accept().await.unwrap(),
        listener.accept().await.unwrap(),
    ];
    let to = two.address();
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut far = tokio::net::TcpStream::connect(&to).await.unwrap();
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    two.knows(&one);
    until("connected", || one.peers.is_connected(2)).await;
    drop(swallowed);
}

/// Relays bytes between a client and a server until it is stopped, without closing anything.
async fn relay(to: String) -> (String, tokio::sync::watch::Sender<bool>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let (to, mut stopped) = (to.clone(), stopped.clone());
            tokio::spawn(async move {
                let mut far = tokio::net::TcpStream::connect(to).await.unwrap();
                let until_stopped = async { stopped.wait_for(|stopped| *stopped).await.is_ok() };
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    true = until_stopped => std::future::pending::<()>().await,
                }
            });
        }
    });
    (address, stop)
}

#[tokio::test]
async fn a_peer_that_falls_silent_is_disconnected() {
    let cluster = Cluster::new();
    let (one, two) = (
        cluster.node_with(1, impatient()).await,
        cluster.node_with(2, impatient()).await,
    );
    let (address, stop) = relay(two.address()).await;
    one.peers.set(2, vec![address]);
    until("connected", || one.peers.is_connected(2)).await;
    let waiting = one.peers.clone();
    let call = tokio::spawn(async move {
        let call = Call::new("/wait", Body::empty());
        waiting.call(2, call, LONG).await
    });
    until("the call is under way", || {
        two.handler
            .under_way
            .load(std::sync::atomic::Ordering::SeqCst)
            == 1
    })
    .await;
    let started = Instant::now();
    stop.send_replace(true);
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(&error, CallError::Reset { .. }), "{error}");
    assert!(started.elapsed() < options().silence_max);
    // The server notices as well, and drops the call.
    until("the call is dropped", || {
        two.handler
            .under_way
            .load(std::sync::atomic::Ordering::SeqCst)
            == 0
    })
    .await;
    let heard = one.peers.last_heard(2).unwrap();
    assert!(heard.elapsed() >= impatient().silence_max / 2);
}

#[tokio::test]
async fn a_removed_peer_gets_nothing_more() {
    let cluster = Cluster::new();
    let (one, mut two) = (cluster.node(1).await, cluster.node(2).await);
    one.knows(&two);
    one.peers.send(2, number(1));
    two.message().await;
    one.peers.remove(2);
    one.peers.send(2, number(2));
    let failure = one.failure(2).await;
    assert!(failure.contains("is not a peer"), "{failure}");
    assert!(two.messages.try_recv().is_err());
    assert_eq!(Arc::strong_count(&one.handler), 2);
}
