//! Forwards clients' requests to other nodes.

use std::time::Duration;

use bytes::Bytes;
use cluster::NodeId;
use http::header::{HOST, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, Method, StatusCode};
use peers::{Call, CallError, Reply};
use tokio::time::Instant;

use crate::counters::{FORWARD_FAILURES, FORWARDED_REQUESTS, GATHERED_REQUESTS};
use crate::forward_room::holding;
use crate::handler::NOT_STARTED;
use crate::members::Members;

/// Time limit of a forwarded client request, until its response starts, if any node may execute it.
const PASSED_TIME_MAX: Duration = Duration::from_secs(30);
/// Time limit if only some nodes can: the first query of a view may build a large index. Such a
/// node must be live meanwhile.
const HOLDER_TIME_MAX: Duration = Duration::from_hours(24);
/// Interval of checks whether it is.
const LIVE_CHECKED_EVERY: Duration = Duration::from_secs(1);
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

impl ForwardedClientRequest<'_> {
    /// Returns the call with which this node answers the request itself. `None` for an invalid
    /// method.
    pub(crate) fn to_own_call(&self) -> Option<Call> {
        let mut headers = self.headers.clone();
        mark(&mut headers);
        Some(Call {
            method: self.method.parse().ok()?,
            path: self.target.to_owned(),
            headers,
            body: self.body.clone().into(),
        })
    }
}

/// Marks a forwarded request: between nodes the header of the host has another value.
fn mark(headers: &mut HeaderMap) {
    let host = headers.remove(HOST);
    let host = host.unwrap_or(HeaderValue::from_static("localhost"));
    headers.insert(crate::CLIENT, host);
}

/// Forwards a request to another node: one of these, preferably the first, or any that answers now.
/// `None` when none does. A request that a failed node may have executed is sent to another one only
/// if it is `repeatable`.
pub async fn pass_on(
    members: &Members,
    to: Option<Vec<NodeId>>,
    request: ForwardedClientRequest<'_>,
    repeatable: bool,
) -> Option<(StatusCode, HeaderMap, peers::Body)> {
    let method: Method = request.method.parse().ok()?;
    let mut headers = request.headers;
    mark(&mut headers);
    let count = match headers.contains_key(crate::GATHERED) {
        true => &GATHERED_REQUESTS,
        false => &FORWARDED_REQUESTS,
    };
    let peers = members.peers()?;
    let is_any = to.is_none();
    let mut left = to.unwrap_or_else(|| members.live_others());
    while !left.is_empty() {
        let node = match is_any {
            true => members.ready(&left).await?,
            false => members.ready_in_order(&left).await?,
        };
        left.retain(|other| *other != node);
        let Some(place) = members.forward_room.enter(node) else {
            FORWARD_FAILURES.count();
            continue;
        };
        let call = Call {
            method: method.clone(),
            path: request.target.to_owned(),
            headers: headers.clone(),
            body: request.body.clone().into(),
        };
        count.count();
        let called = match is_any {
            true => peers.call(node, call, PASSED_TIME_MAX).await,
            false => {
                let called = peers.call(node, call, HOLDER_TIME_MAX);
                while_live(node, called, || members.is_live(node)).await
            }
        };
        match called {
            // Another node may be able to.
            Ok(reply) if is_refused(&reply, repeatable) => FORWARD_FAILURES.count(),
            Ok(reply) => return Some((reply.status, reply.headers, holding(place, reply.body))),
            Err(e) => {
                FORWARD_FAILURES.count();
                tracing::debug!(error = %e, "a client's request was not forwarded");
                if !repeatable && !is_not_started(&e) {
                    return None;
                }
            }
        }
    }
    None
}

/// Waits for the response of a node as long as the node is live.
async fn while_live<T>(
    node: NodeId,
    called: impl Future<Output = Result<T, CallError>>,
    is_live: impl Fn() -> bool,
) -> Result<T, CallError> {
    let began = Instant::now();
    tokio::pin!(called);
    loop {
        let check = tokio::time::sleep(LIVE_CHECKED_EVERY);
        tokio::select! {
            biased;
            done = &mut called => return done,
            () = check => {}
        }
        if !is_live() {
            let after = began.elapsed();
            return Err(CallError::TimedOut { node, after });
        }
    }
}

/// Returns whether another node may execute a request that has this reply.
fn is_refused(reply: &Reply, repeatable: bool) -> bool {
    let is_harmless = || repeatable || reply.headers.contains_key(NOT_STARTED);
    reply.status == StatusCode::SERVICE_UNAVAILABLE && is_harmless()
}

/// Returns whether a request that failed was certainly not executed.
fn is_not_started(e: &CallError) -> bool {
    match e {
        CallError::Unreachable { .. } => true,
        // The node is starting, or has no room for it.
        CallError::Refused { refusal, .. } => refusal.status == StatusCode::SERVICE_UNAVAILABLE,
        CallError::TimedOut { .. } | CallError::Reset { .. } => false,
    }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use peers::{Body, Refusal};

    use super::*;

    /// An index that is built for minutes, or a process that was stopped.
    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_its_node_while_that_is_live() {
        let long = || async {
            tokio::time::sleep(20 * PASSED_TIME_MAX).await;
            Ok::<_, CallError>("built")
        };
        assert_eq!(while_live(2, long(), || true).await.ok(), Some("built"));
        let checks = AtomicUsize::new(0);
        let is_live = || checks.fetch_add(1, Relaxed) < 3;
        let stopped = while_live(2, long(), is_live).await;
        assert!(matches!(stopped, Err(CallError::TimedOut { node: 2, .. })));
        assert_eq!(checks.load(Relaxed), 4);
    }

    #[test]
    fn a_write_is_sent_again_only_if_it_was_not_started() {
        let mut reply = Reply::ok(Body::empty());
        assert!(!is_refused(&reply, true));
        reply.status = StatusCode::SERVICE_UNAVAILABLE;
        assert!(is_refused(&reply, true));
        // The node may have tried it.
        assert!(!is_refused(&reply, false));
        reply
            .headers
            .insert(NOT_STARTED, HeaderValue::from_static("1"));
        assert!(is_refused(&reply, false));

        let refused = |status| CallError::Refused {
            node: 1,
            refusal: Refusal::new(status, "x"),
        };
        let why = || "x".to_owned();
        assert!(is_not_started(&CallError::Unreachable {
            node: 1,
            why: why()
        }));
        assert!(is_not_started(&refused(StatusCode::SERVICE_UNAVAILABLE)));
        assert!(!is_not_started(&refused(StatusCode::BAD_GATEWAY)));
        assert!(!is_not_started(&CallError::Reset {
            node: 1,
            why: why()
        }));
    }
}
