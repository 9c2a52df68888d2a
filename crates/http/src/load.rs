//! Whether short requests arrive; long ones give way to them.

use std::sync::atomic::{AtomicU64, Ordering};

use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH};

/// A longer body is long.
pub const SHORT_BODY_BYTES_MAX: usize = 64 << 10;

/// Counts requests that had no long body and got no long answer.
static SHORT: AtomicU64 = AtomicU64::new(0);

/// Counts a short request.
pub fn note_short_request() {
    SHORT.fetch_add(1, Ordering::Relaxed);
}

/// Returns a number that differs when requests came meanwhile that should not wait for long ones.
pub fn short_requests_seen() -> u64 {
    SHORT.load(Ordering::Relaxed)
}

/// Returns whether a short request came since the last call: if not, a long one may stay on the thread that serves requests.
pub fn others_came() -> bool {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let seen = short_requests_seen();
    seen != SEEN.swap(seen, Ordering::Relaxed)
}

/// Returns whether a request has no long body.
pub fn has_short_body(headers: &HeaderMap, has_body: bool) -> bool {
    let length = headers.get(CONTENT_LENGTH).and_then(|n| n.to_str().ok());
    let length: Option<usize> = length.and_then(|n| n.parse().ok());
    // A body that is compressed, or comes without a length, may be long.
    let is_short = length.is_some_and(|length| length <= SHORT_BODY_BYTES_MAX)
        && !headers.contains_key(CONTENT_ENCODING);
    !has_body || is_short
}
