//! `X-Frame-Options`: whether answers may be shown inside other pages (`[chttpd] enable_xframe_options`,
//! `[x_frame_options]`), by CouchDB's rules.

use config::Settings;
use hyper::HeaderMap;
use hyper::header::{HeaderValue, X_FRAME_OPTIONS};

use crate::request::Request;

#[derive(Clone, Debug)]
pub enum FrameOptions {
    SameOrigin,
    /// Requests to these hosts, as `https://example.com`, may be framed; `*` alone for all.
    Hosts(Vec<String>),
}

impl FrameOptions {
    /// The rule, when the header is sent at all.
    pub fn of(settings: &Settings) -> Option<FrameOptions> {
        let options = &settings.x_frame_options;
        settings
            .chttpd
            .enable_xframe_options
            .then(|| match options.same_origin {
                true => FrameOptions::SameOrigin,
                false => FrameOptions::Hosts(options.hosts.clone().unwrap_or_default()),
            })
    }

    pub fn finish(&self, req: &Request, headers: &mut HeaderMap) {
        let value = match self {
            FrameOptions::SameOrigin => Some(HeaderValue::from_static("SAMEORIGIN")),
            FrameOptions::Hosts(hosts) => {
                let asked = req.base_url();
                (hosts.contains(&asked) || hosts.as_slice() == ["*"])
                    .then(|| HeaderValue::from_str(&format!("ALLOW-FROM {asked}")).ok())
                    .flatten()
            }
        };
        headers.insert(
            X_FRAME_OPTIONS,
            value.unwrap_or(HeaderValue::from_static("DENY")),
        );
    }
}
