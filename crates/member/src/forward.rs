//! Forwards clients' requests to other nodes.

use std::time::Duration;

use bytes::Bytes;
use cluster::NodeId;
use http::header::{HOST, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, Method, StatusCode};
use peers::{Call, CallError, Reply};

use crate::counters::{FORWARD_FAILURES, FORWARDED_REQUESTS, GATHERED_REQUESTS};
use crate::members::Members;

/// Time limit of a forwarded client request.
const PASSED_TIME_MAX: Duration = Duration::from_secs(30);
/// Time limit of a response that is joined with those of other nodes, and its maximum size in bytes.
const GATHERED_TIME_MAX: Duration = Duration::from_secs(5);
const GATHERED_BYTES_MAX: usize = 64 << 20;

/// A client's request for another node.
#[derive(Clone)]
pub struct ForwardedClientRequest<'a> {
    /// Its method.
    pub method: &'a str,
    /// Its path and query.
    pub target: &'a str,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// Forwards a request to another node: one of these, the first one rather, or any. `None` when none
/// answers. A request that a failed node may have executed is sent to another one only if it is
/// `repeatable`.
pub async fn pass_on(
    members: &Members,
    to: Option<Vec<NodeId>>,
    request: ForwardedClientRequest<'_>,
    repeatable: bool,
) -> Option<(StatusCode, HeaderMap, peers::Body)> {
    let method: Method = request.method.parse().ok()?;
    let mut headers = request.headers;
    // Between nodes the header has another value.
    let host = headers.remove(HOST);
    let host = host.unwrap_or(HeaderValue::from_static("localhost"));
    headers.insert(crate::CLIENT, host);
    let count = match headers.contains_key(crate::GATHERED) {
        true => &GATHERED_REQUESTS,
        false => &FORWARDED_REQUESTS,
    };
    let peers = members.peers()?;
    for node in to.unwrap_or_else(|| members.live_others()) {
        let call = Call {
            method: method.clone(),
            path: request.target.to_owned(),
            headers: headers.clone(),
            body: request.body.clone().into(),
        };
        count.count();
        match peers.call(node, call, PASSED_TIME_MAX).await {
            // Another node may be able to.
            Ok(reply) if is_refusal(&reply, repeatable) => FORWARD_FAILURES.count(),
            Ok(reply) => return Some((reply.status, reply.headers, reply.body)),
            Err(e) => {
                FORWARD_FAILURES.count();
                tracing::debug!(error = %e, "a client's request was not forwarded");
                if !repeatable && !matches!(e, CallError::Unreachable { .. }) {
                    return None;
                }
            }
        }
    }
    None
}

/// Returns whether another node may answer the request instead.
fn is_refusal(reply: &Reply, repeatable: bool) -> bool {
    let may_repeat = repeatable || reply.headers.contains_key(crate::NOT_HERE);
    may_repeat && reply.status == StatusCode::SERVICE_UNAVAILABLE
}

/// Sends a request to all other live nodes, and returns the bodies of their responses. Those that
/// refuse, or do not answer in time, are left out.
pub async fn ask_others(members: &Members, mut request: ForwardedClientRequest<'_>) -> Vec<Bytes> {
    request.headers.remove(IF_NONE_MATCH);
    let gathered = HeaderValue::from_static("1");
    request.headers.insert(crate::GATHERED, gathered);
    let ask = |node| {
        let request = request.clone();
        async move {
            let passed = pass_on(members, Some(vec![node]), request, true);
            let (status, _, body) = passed.await?;
            let whole = body.read(GATHERED_BYTES_MAX).await.ok()?;
            status.is_success().then_some(whole)
        }
    };
    let asked = members.live_others().into_iter().map(ask);
    let answers = asked.map(|answer| tokio::time::timeout(GATHERED_TIME_MAX, answer));
    let answers = futures_util::future::join_all(answers).await;
    answers
        .into_iter()
        .filter_map(|a| a.ok().flatten())
        .collect()
}
