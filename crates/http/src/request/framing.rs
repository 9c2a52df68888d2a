//! Where the body of a request ends. Programs that read it differently, such as a proxy and this
//! server, would take what one of them has for a body as another request.

use hyper::Version;
use hyper::header::{CONNECTION, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;

use crate::errors::ApiError;

/// Refuses a body that has another coding than chunks, or several. A second coding is also how
/// [`crate::connection::lenient`] marks a request with both lengths, which hyper accepts.
pub fn check(parts: &Parts) -> Result<(), ApiError> {
    let mut codings = parts.headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |value: &HeaderValue| {
        value
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"chunked")
    };
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(only), None) if is_chunked(only) => Ok(()),
        _ => Err(refusal(
            parts,
            "The body must have either a Content-Length or the one Transfer-Encoding chunked.",
        )),
    }
}

/// The answer to a request that others may read differently. Where it ended is not for sure, so over
/// HTTP/1 the connection is closed.
pub fn refusal(parts: &Parts, problem: &'static str) -> ApiError {
    let mut error = ApiError::bad_request(problem);
    if parts.version < Version::HTTP_2 {
        error
            .headers
            .push((CONNECTION, HeaderValue::from_static("close")));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_the_only_coding() {
        let is_accepted = |values: &[&str]| {
            let mut request = hyper::Request::new(());
            for value in values {
                let value = HeaderValue::from_str(value).unwrap();
                request.headers_mut().append(TRANSFER_ENCODING, value);
            }
            check(&request.into_parts().0).is_ok()
        };
        for accepted in [&[][..], &["chunked"], &["Chunked "]] {
            assert!(is_accepted(accepted), "{accepted:?}");
        }
        for refused in [
            &["gzip, chunked"][..],
            &["chunked, chunked"],
            &["chunked", "chunked"],
            &["identity"],
            &["identity, chunked"],
            &["chunked, identity"],
            &["chunked,"],
            &[", chunked"],
            &[""],
            &["xchunked"],
            &["chunked;q=1"],
            &["gzip", "chunked"],
        ] {
            assert!(!is_accepted(refused), "{refused:?}");
        }
    }
}
