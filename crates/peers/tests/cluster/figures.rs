//! Measures the speed. Prints; asserts nothing: `cargo test -p peers --test cluster -- --ignored
//! --nocapture figures`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use peers::{Body, Call};

use crate::support::{Cluster, LONG, Node};

const ROUNDS: u64 = 5_000;

/// Calls without content: during a copy they share its socket, which messages do not.
async fn calls(peers: &Arc<peers::Peers>, what: &str) {
    let mut times = Histogram::<u64>::new(3).unwrap();
    for _ in 0..ROUNDS / 5 {
        let started = Instant::now();
        let call = Call::new("/missing", Body::empty());
        peers.call(2, call, LONG).await.unwrap();
        times.record(started.elapsed().as_micros() as u64).unwrap();
    }
    let at = |q| times.value_at_quantile(q);
    println!("{what}: a call p50 {} µs, p99 {} µs", at(0.5), at(0.99));
}

async fn ping_pong(one: &mut Node, two: &mut Node, what: &str) {
    let mut times = Histogram::<u64>::new(3).unwrap();
    let message = Bytes::from(vec![0; 100]);
    for round in 0..ROUNDS {
        let started = Instant::now();
        one.peers.send(2, message.clone());
        let (_, got) = two.message().await;
        two.peers.send(1, got);
        one.message().await;
        if round > ROUNDS / 10 {
            let micros = started.elapsed().as_micros();
            times.record(micros as u64).unwrap();
        }
    }
    let at = |q| times.value_at_quantile(q);
    println!(
        "{what}: ping-pong of 100 bytes p50 {} µs, p99 {} µs, max {} µs",
        at(0.5),
        at(0.99),
        times.max()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn figures_of_messages_and_bodies() {
    let cluster = Cluster::new();
    let (mut one, mut two) = (cluster.node(1).await, cluster.node(2).await);
    one.knows(&two);
    two.knows(&one);
    ping_pong(&mut one, &mut two, "alone").await;
    calls(&one.peers, "alone").await;

    let count = 500_000_u64;
    let started = Instant::now();
    let sender = one.peers.clone();
    tokio::spawn(async move {
        let message = Bytes::from(vec![0; 100]);
        for n in 0..count {
            sender.send(2, message.clone());
            if n % 512 == 0 {
                tokio::time::sleep(Duration::from_micros(1)).await;
            }
        }
    });
    let mut got = 0;
    while got + one.peers.dropped(2) < count {
        two.message().await;
        got += 1;
    }
    println!(
        "{:.0} messages of 100 bytes a second, {} dropped",
        got as f64 / started.elapsed().as_secs_f64(),
        one.peers.dropped(2)
    );

    let started = Instant::now();
    let mut reply = one
        .peers
        .call(2, Call::new("/bytes/8192", Body::empty()), LONG)
        .await
        .unwrap();
    let mut bytes = 0;
    while let Some(piece) = reply.body.next().await {
        bytes += piece.unwrap().len();
    }
    let rate = bytes as f64 / started.elapsed().as_secs_f64() / 1e6;
    println!("a body of {} MB at {rate:.0} MB/s", bytes / 1_000_000);

    let peers = one.peers.clone();
    let copying = tokio::spawn(async move { copy(&peers).await });
    ping_pong(&mut one, &mut two, "beside a copy").await;
    calls(&one.peers, "beside a copy").await;
    copying.abort();
}

/// Reads large bodies, one after another.
async fn copy(peers: &Arc<peers::Peers>) {
    loop {
        let call = Call::new("/bytes/8192", Body::empty());
        let mut reply = peers.call(2, call, LONG).await.unwrap();
        while let Some(piece) = reply.body.next().await {
            piece.unwrap();
        }
    }
}
