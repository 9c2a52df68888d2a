//! Whether short requests arrive; long ones give way to them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH};

/// A longer body is long.
pub const SHORT_BODY_BYTES_MAX: usize = 64 << 10;

/// Time after a short request in which long ones give way.
const MOMENT: Duration = Duration::from_millis(50);

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

/// Returns whether a short request came since the last call, or a moment before it: if not, a long
/// one may stay on the thread that serves requests.
pub fn others_came() -> bool {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    /// When a new short request was seen last, in milliseconds.
    static SEEN_AT: AtomicU64 = AtomicU64::new(0);
    let seen = short_requests_seen();
    let now = BEGAN.get_or_init(Instant::now).elapsed() + MOMENT;
    let now = now.as_millis() as u64;
    if seen != SEEN.swap(seen, Ordering::Relaxed) {
        SEEN_AT.store(now, Ordering::Relaxed);
        return true;
    }
    // Several long ones may have come between two short ones.
    now.saturating_sub(SEEN_AT.load(Ordering::Relaxed)) < MOMENT.as_millis() as u64
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
