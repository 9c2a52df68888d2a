//! Tests of requests between nodes.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use cluster::record::{RecordVersion, RecordVersions};
use http::StatusCode;
use peers::{Authority, Call, Handler as _, Identity, Refusal, Reply};

use super::nodes::{Nodes, SLOTS};
use crate::copy::CopySender;
use crate::handler::{CLIENT, Clients, NodeHandler};
use crate::join::Issuer;
use crate::log_table::LogTables;
use crate::members::Members;

/// Answers clients' requests with their path.
struct Echo;

impl Clients for Echo {
    fn answer(&self, call: Call) -> Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send>> {
        Box::pin(async move { Ok(Reply::ok(Bytes::from(call.path))) })
    }
}

/// A client may send any path: none of them is a call between nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clients_request_is_no_call_between_nodes() {
    let nodes = Nodes::three().await;
    nodes.create(1, "a", 2).await;
    let node = nodes.node(1);
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create([1; 16], SystemTime::now()).unwrap();
    let identity = Identity::create(dir.path(), authority, 1, SystemTime::now()).unwrap();
    let versions = RecordVersions::new(RecordVersion::LATEST);
    let stamp = nodes.cluster.stamp(cluster::CONTROL, &versions).unwrap();
    let members = Arc::new(Members::new(1, stamp, node.catalogue.clone()));
    let logs = Arc::new(LogTables::none(&node.catalogue));
    let of_cluster = nodes.cluster.clone();
    let issuer = Issuer::new(of_cluster, identity, node.catalogue.clone(), logs.clone());
    let clients = OnceLock::<Arc<dyn Clients>>::new();
    clients.get_or_init(|| Arc::new(Echo));
    let answering = NodeHandler {
        replicas: node.replicas.clone(),
        members,
        jobs: crate::Jobs::new(1, node.catalogue.clone()),
        issuer: Arc::new(issuer),
        doubles: Default::default(),
        sender: CopySender::new(&node.databases, &node.catalogue, SLOTS),
        contents: node.contents.clone(),
        logs,
        clients: Arc::new(clients),
    };
    for path in [
        "/copy?slot=65535&catalogue=0",
        "/propose?slot=65535&ms=100",
        "/append?slot=0&ms=100",
        "/versions",
        "/log-report",
        "/bench?bytes=5",
        "/content/fetch?shard=0",
        "/other",
    ] {
        let mut of_client = Call::new(path, Bytes::new());
        let host = http::HeaderValue::from_static("localhost");
        of_client.headers.insert(CLIENT, host);
        let reply = answering.call(2, of_client).await.unwrap();
        assert_eq!(reply.body.read(1 << 20).await.unwrap(), path);
        let of_node = answering.call(2, Call::new(path, Bytes::new())).await;
        let answers = ["/copy", "/bench", "/versions", "/log-report"];
        match answers.iter().any(|call| path.starts_with(call)) {
            true => assert!(of_node.is_ok()),
            false => assert!(of_node.is_err_and(|e| e.status != StatusCode::OK)),
        }
    }
}
