//! New nodes.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use peers::{FACTS_BYTES_MAX, JoinError, Token, TokenError, join};

use crate::support::{Cluster, Node, options};

const HOUR: Duration = Duration::from_secs(3600);

fn token(cluster: &Cluster, node: &Node) -> Token {
    let now = SystemTime::now();
    let addresses = vec!["127.0.0.1:1".into(), node.address()];
    let (token, record) = Token::issue(&cluster.authority(), addresses, now, HOUR).unwrap();
    node.handler.tokens.lock().add(record, now);
    token.to_string().parse().unwrap()
}

#[tokio::test]
async fn a_token_lets_one_node_in_once() {
    let cluster = Cluster::new();
    let node = cluster.node(1).await;
    let token = token(&cluster, &node);
    let facts = Bytes::from_static(b"me");
    let now = SystemTime::now();
    let answer = join(&token, facts.clone(), now).await.unwrap();
    assert_eq!(answer, "welcome me");
    let started = Instant::now();
    let error = join(&token, facts, now).await.unwrap_err();
    assert!(
        matches!(&error, JoinError::Refused(r) if r.text.contains("used already")),
        "{error}"
    );
    assert!(started.elapsed() >= options().refused_join_pause);
}

#[tokio::test]
async fn a_token_that_has_expired_is_refused_before_anybody_is_asked() {
    let cluster = Cluster::new();
    let node = cluster.node(1).await;
    let token = token(&cluster, &node);
    let late = SystemTime::now() + 2 * HOUR;
    let error = join(&token, Bytes::new(), late).await.unwrap_err();
    assert!(matches!(error, JoinError::Token(TokenError::Expired)));
}

#[tokio::test]
async fn a_token_of_another_cluster_does_not_reach_its_handler() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let node = cluster.node(1).await;
    let token = token(&other, &node);
    let error = join(&token, Bytes::new(), SystemTime::now()).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("another cluster"), "{error}");
    assert_eq!(node.handler.tokens.lock().list().len(), 1);
}

#[tokio::test]
async fn a_node_says_no_more_than_it_may() {
    let cluster = Cluster::new();
    let node = cluster.node(1).await;
    let token = token(&cluster, &node);
    let now = SystemTime::now();
    let facts = Bytes::from(vec![0; FACTS_BYTES_MAX + 1]);
    assert!(matches!(
        join(&token, facts, now).await,
        Err(JoinError::TooLong)
    ));
    let facts = Bytes::from(vec![0; FACTS_BYTES_MAX]);
    assert!(join(&token, facts, now).await.is_ok());
}
