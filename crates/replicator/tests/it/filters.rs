//! Replication documents with a filter function, whose source becomes unavailable and returns.
// The other test module uses the rest.
#[allow(dead_code)]
use crate::support;

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use support::{Node, until, write};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A database behind HTTP without changes; this holds its design document.
#[derive(Clone)]
struct Source {
    filter: Arc<Mutex<Option<&'static str>>>,
    looks: Arc<Mutex<usize>>,
}

impl Source {
    async fn serve(self, listener: TcpListener) {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(self.clone().answer(connection));
        }
    }

    async fn answer(self, mut connection: TcpStream) {
        let mut head = vec![];
        while !head.ends_with(b"\r\n\r\n") {
            match connection.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let path = head.split(' ').nth(1).unwrap_or_default();
        if path.contains("/_changes") {
            let open = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n";
            let _ = connection.write_all(open).await;
            // Never sends a change.
            return std::future::pending().await;
        }
        let (status, body) = match path {
            "/db/" => (
                200,
                json!({"update_seq": "0-x", "doc_count": 0, "doc_del_count": 0}),
            ),
            "/db/_design/d" => {
                *self.looks.lock() += 1;
                match *self.filter.lock() {
                    Some(code) => (200, json!({"_id": "_design/d", "filters": {"f": code}})),
                    None => (404, json!({"error": "not_found", "reason": "missing"})),
                }
            }
            _ => (404, json!({"error": "not_found", "reason": "missing"})),
        };
        let body = body.to_string();
        let answer = format!(
            "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let _ = connection.write_all(answer.as_bytes()).await;
    }
}

#[tokio::test]
async fn a_running_job_outlives_a_failed_look_at_its_filter() {
    let source = Source {
        filter: Arc::new(Mutex::new(Some("one"))),
        looks: Arc::default(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/db", listener.local_addr().unwrap());
    tokio::spawn(source.clone().serve(listener));
    let node = Node::new();
    let docs = node.create("_replicator").await;
    // Written without the rules, which would add the writer.
    let doc = json!({
        "_id": "r", "source": url, "target": url, "continuous": true, "filter": "d/f", "owner": "admin"
    });
    write(&docs, &[&doc.to_string()]).await;
    let known = || node.replicator.doc("_replicator", "r").unwrap().unwrap();
    until("it runs", || known()["state"] == "running").await;
    let first = known()["id"].clone();

    *source.filter.lock() = None;
    for _ in 0..3 {
        let looks = *source.looks.lock();
        until("it is looked at", || *source.looks.lock() > looks).await;
    }
    assert_eq!(
        (&known()["id"], node.replicator.job_counts().total()),
        (&first, 1)
    );
    assert_ne!(known()["state"], "error");

    *source.filter.lock() = Some("two");
    until("another filter is another job", || known()["id"] != first).await;
    until("in place of the old one", || {
        node.replicator.job_counts().total() == 1
    })
    .await;
}
