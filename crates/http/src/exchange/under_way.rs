//! A request that is being answered, and its id.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use metrics::End;
use telemetry::Tick;

use crate::accounting::completion::{Numbers, RequestFacts};
use crate::accounting::slow;
use crate::app::App;
use crate::reply::Timing;
use crate::request::Request;

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-couch-request-id");
/// Longest request id that is taken from a client, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 36;

/// A request that is being answered. If its client goes away, the rest is dropped, and this reports
/// it.
pub(super) struct UnderWay<'a> {
    pub app: &'a App,
    pub req: Request,
    pub id: HeaderValue,
    pub received: Tick,
    /// A HEAD request over HTTP/2, where hyper would send the body of its response.
    pub is_http2_head: bool,
    pub is_answered: bool,
}

impl UnderWay<'_> {
    /// The log record of it when its answer has ended.
    pub fn facts(&self, status: u16, timing: Timing, head_us: u64) -> RequestFacts<'_> {
        let req = &self.req;
        RequestFacts {
            id: &self.id,
            peer: req.peer,
            user: req.user.name.as_deref(),
            method: &req.method,
            path: req.requested_path.as_deref().unwrap_or(&req.path),
            segments: &req.segments,
            numbers: Numbers {
                route: req.class(),
                is_of_database: req.is_of_database,
                status,
                timing,
                head_us,
                bytes_received: req.body_bytes,
                document_reads: req.document_reads,
                bulk_docs: req.bulk_docs,
                slow_us: slow::bound_us(req.settings.log.slow_time),
                traced: req.traced,
            },
            detail: req.detail.as_ref(),
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            let us = self.received.elapsed_us();
            let (status, end) = match std::thread::panicking() {
                true => (500, End::Cut),
                false => (0, End::Aborted),
            };
            let facts = self.facts(status, Timing::default(), us);
            facts.report(&self.app.stats, end, 0, us);
        }
    }
}

/// The id that the client gives its request, if it is one for logs.
pub(super) fn clients_request_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(REQUEST_ID)?;
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let short = (1..=REQUEST_ID_BYTES_MAX).contains(&id.len());
    (short && id.as_bytes().iter().all(plain)).then(|| id.clone())
}

/// Ten hexadecimal digits that differ from request to request.
pub(super) fn request_id(n: u64) -> HeaderValue {
    // A multiplication by an odd constant permutes the 40-bit numbers: distinct, and not counting up.
    let id = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0xff_ffff_ffff;
    let mut digits = [0; 10];
    for (i, d) in digits.iter_mut().enumerate() {
        *d = b"0123456789abcdef"[(id >> (36 - 4 * i) & 15) as usize];
    }
    HeaderValue::from_bytes(&digits).unwrap_or(HeaderValue::from_static("0"))
}
