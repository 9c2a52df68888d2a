//! Requests with answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Method, StatusCode};
use peers::{Body, BodyError, Call, CallError};

use crate::support::{Cluster, LONG, Node, READERS, until};

async fn two_nodes() -> (Node, Node) {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node(1).await, cluster.node(2).await);
    one.knows(&two);
    (one, two)
}

#[tokio::test]
async fn a_clients_request_is_passed_on_with_its_headers_and_status() {
    let (one, _two) = two_nodes().await;
    let mut headers = HeaderMap::new();
    headers.insert("x-couch-request-id", "abc".parse().unwrap());
    headers.insert("connection", "close".parse().unwrap());
    // A reply is no refusal because of its headers.
    headers.insert("peers-refused", "1".parse().unwrap());
    let call = Call {
        method: Method::PUT,
        path: "/echo?a=%2F".into(),
        headers,
        body: Bytes::from_static(b"{}").into(),
    };
    let reply = one.peers.call(2, call, LONG).await.unwrap();
    assert_eq!(reply.headers["x-couch-request-id"], "abc");
    assert!(!reply.headers.contains_key("peers-refused"));
    assert_eq!(reply.body.read(2).await.unwrap(), "{}");
    let call = Call::new("/missing", Body::empty());
    let reply = one.peers.call(2, call, LONG).await.unwrap();
    assert_eq!(reply.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_refusal_and_a_late_answer_are_told_apart() {
    let (one, two) = two_nodes().await;
    let call = Call::new("/refuse", Body::empty());
    let error = one.peers.call(2, call, LONG).await.unwrap_err();
    let CallError::Refused { node: 2, refusal } = error else {
        panic!("{error}");
    };
    assert_eq!(
        (refusal.status, &*refusal.text),
        (StatusCode::CONFLICT, "not now")
    );
    let call = Call::new("/wait", Body::empty());
    let short = Duration::from_millis(300);
    let error = one.peers.call(2, call, short).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { node: 2, .. }));
    until("the call is dropped there", || {
        two.handler.under_way.load(Ordering::SeqCst) == 0
    })
    .await;
    let call = Call::new("no path", Body::empty());
    assert!(one.peers.call(2, call, LONG).await.is_err());
}

#[tokio::test]
async fn a_huge_body_flows_both_ways() {
    let (one, _two) = two_nodes().await;
    let call = Call::new("/bytes/1600", Body::empty());
    let reply = one.peers.call(2, call, LONG).await.unwrap();
    // The bytes are sent back, and counted there.
    let call = Call::new("/count", reply.body);
    let reply = one.peers.call(2, call, LONG).await.unwrap();
    let total = reply.body.read(100).await.unwrap();
    assert_eq!(total, (1600 * (64 << 10)).to_string());
}

/// An endless body, and the number of its pieces taken.
fn endless() -> (Body, Arc<AtomicUsize>) {
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = taken.clone();
    let piece = Bytes::from(vec![1; 64 << 10]);
    let pieces = stream::repeat_with(move || {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok::<_, BodyError>(piece.clone())
    });
    (Body::stream(pieces), taken)
}

#[tokio::test]
async fn who_reads_slowly_slows_down_who_sends_and_nobody_else() {
    let (one, two) = two_nodes().await;
    let closed = two.handler.reading.acquire_many(READERS as u32).await;
    let mut calls = tokio::task::JoinSet::new();
    let mut counters = vec![];
    for _ in 0..20 {
        let (body, taken) = endless();
        counters.push(taken);
        let peers = one.peers.clone();
        calls.spawn(async move { peers.call(2, Call::new("/count", body), LONG).await });
    }
    let taken = || counters.iter().map(|c| c.load(Ordering::SeqCst)).sum();
    let mut before: usize = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = taken();
        if now > 0 && now == before {
            break;
        }
        before = now;
    }
    // A window each, and what is being sent.
    assert!(before <= 20 * 16, "{before}");
    let call = Call::new("/echo", Bytes::from_static(b"still here"));
    let reply = one.peers.call(2, call, LONG).await.unwrap();
    assert_eq!(reply.body.read(100).await.unwrap(), "still here");
    calls.abort_all();
    drop(closed);
}

#[tokio::test]
async fn a_cancelled_upload_breaks_off_at_the_other_side() {
    let (one, two) = two_nodes().await;
    let (body, taken) = endless();
    let peers = one.peers.clone();
    let call = tokio::spawn(async move { peers.call(2, Call::new("/count", body), LONG).await });
    until("some has arrived", || {
        two.handler.pulled.load(Ordering::SeqCst) > 1 << 20
    })
    .await;
    call.abort();
    until("its source is dropped", || Arc::strong_count(&taken) == 1).await;
    until("it broke off there", || {
        two.handler.under_way.load(Ordering::SeqCst) >= 1000
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_is_dropped_is_no_longer_produced() {
    let (one, _two) = two_nodes().await;
    let (body, taken) = endless();
    let mut reply = one
        .peers
        .call(2, Call::new("/echo", body), LONG)
        .await
        .unwrap();
    assert!(reply.body.next().await.unwrap().is_ok());
    drop(reply);
    until("its source is dropped", || Arc::strong_count(&taken) == 1).await;
    // The connection is still usable.
    let call = Call::new("/echo", Bytes::from_static(b"x"));
    let reply = one.peers.call(2, call, LONG).await.unwrap();
    assert_eq!(reply.body.read(1).await.unwrap(), "x");
}

#[tokio::test]
async fn a_source_that_fails_breaks_the_stream_at_the_other_side() {
    let (one, two) = two_nodes().await;
    let pieces = vec![
        Ok(Bytes::from_static(b"a")),
        Err(BodyError::Source("disk".into())),
    ];
    let call = Call::new("/count", Body::stream(stream::iter(pieces)));
    assert!(one.peers.call(2, call, LONG).await.is_err());
    until("it was seen there", || {
        let (calls, pulled) = (&two.handler.under_way, &two.handler.pulled);
        calls.load(Ordering::SeqCst) >= 1000 || pulled.load(Ordering::SeqCst) <= 1
    })
    .await;
}
