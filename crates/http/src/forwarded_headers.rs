//! The headers of clients' requests that this node forwards.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use crate::request::Request;

/// The headers of a client's request for another node, where its body may be another one.
pub fn headers_for_others(req: &Request) -> HeaderMap {
    let mut headers = req.headers.clone();
    for name in [
        // Of the body as it came.
        hyper::header::CONTENT_ENCODING,
        hyper::header::CONTENT_LENGTH,
        hyper::header::TRANSFER_ENCODING,
        // The other node counts failed log-ins by the address of the client, as this one knows it.
        HeaderName::from_static("x-forwarded-for"),
        HeaderName::from_static(member::CLIENT_ADDRESS),
        HeaderName::from_static(member::GATHERED),
    ] {
        headers.remove(name);
    }
    let address = req.peer.map(|peer| HeaderValue::try_from(peer.to_string()));
    if let Some(Ok(address)) = address {
        headers.insert(member::CLIENT_ADDRESS, address);
    }
    headers
}
