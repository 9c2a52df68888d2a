//! Responses that were built as a whole and count as memory until they are written.

use bytes::Bytes;

use crate::reply::{Body, Reply};
use crate::request::Request;

/// Shorter responses are logged when their head is made: the rest is then mostly in the socket's
/// buffer.
pub(super) const WATCHED_FROM_BYTES: usize = 64 << 10;
/// A longer response over HTTP/2 is counted as memory: a connection has hundreds at a time.
const COUNTED_FROM_BYTES_HTTP2: usize = 4 << 10;

/// Returns the body of a response that counts as memory: a long one that was built for it.
pub(super) fn long_body(req: &Request, reply: &Reply, version: hyper::Version) -> Option<Bytes> {
    let counted_from = match version < hyper::Version::HTTP_2 {
        true => WATCHED_FROM_BYTES,
        false => COUNTED_FROM_BYTES_HTTP2,
    };
    match &reply.body {
        Body::Full(whole) if whole.len() > counted_from && req.method != "HEAD" => {
            Some(whole.clone())
        }
        _ => None,
    }
}

/// A response that was built as a whole, counted until it is written to the connection. A read waits
/// while there is no memory for its response, and is refused if none is free in time; successful writes,
/// and requests of operators, are always answered.
pub(super) async fn counted(req: &mut Request, mut reply: Reply, whole: Bytes) -> Reply {
    let class = req.class();
    let is_of_operator = req.user.is_admin() && !req.is_of_database;
    let held = match is_of_operator
        || is_always_sent(reply.status, class.writes(&req.method), whole.len())
    {
        true => req.answers.count(whole.len() as u64),
        false => match req.answers.settle(whole.len()).await {
            Ok(held) => held,
            Err(e) => return e.into(),
        },
    };
    reply.body = Body::Full(held.with(whole));
    reply
}

/// Whether a response is sent whether there is memory for it or not: that of a write that was applied,
/// and the server's own errors. A function chooses its status, but a long response is never the server's error.
fn is_always_sent(status: u16, writes: bool, length: usize) -> bool {
    match status < 300 {
        true => writes,
        false => length <= WATCHED_FROM_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_errors_and_applied_writes_are_sent_without_room() {
        let (short, long) = (WATCHED_FROM_BYTES, WATCHED_FROM_BYTES + 1);
        // A function chose these statuses.
        for status in [300, 404, 500, 999] {
            for writes in [false, true] {
                assert!(!is_always_sent(status, writes, long), "{status}");
                assert!(is_always_sent(status, writes, short), "{status}");
            }
        }
        for length in [short, long] {
            assert!(is_always_sent(201, true, length));
            assert!(!is_always_sent(200, false, length));
        }
    }
}
