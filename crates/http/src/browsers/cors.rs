//! Cross-origin requests (`[cors]`, `[chttpd] enable_cors`): whether a browser lets a page of
//! another origin send requests, and read their responses. The rules are those of CouchDB's
//! `chttpd_cors`.

use std::sync::Arc;

use config::Settings;
use hyper::HeaderMap;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, CACHE_CONTROL, CONTENT_LANGUAGE,
    EXPIRES, HeaderName, HeaderValue, LAST_MODIFIED, ORIGIN, PRAGMA, VARY,
};

use crate::browsers::dev::Dev;
use crate::reply::Reply;
use crate::request::Request;

/// Request headers that a page may set by default, without `[cors] headers`.
const HEADERS: [&str; 19] = [
    "accept",
    "accept-language",
    "authorization",
    "content-length",
    "content-range",
    "content-type",
    "destination",
    "expires",
    "if-match",
    "last-modified",
    "origin",
    "pragma",
    "x-couch-full-commit",
    "x-couch-id",
    "x-couch-persist",
    "x-couchdb-vhost-path",
    "x-couchdb-www-authenticate",
    "x-http-method-override",
    "x-requested-with",
];

/// Methods that a page may use by default, without `[cors] methods`.
const METHODS: [&str; 9] = [
    "CONNECT", "COPY", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "TRACE",
];

/// Response headers that a page may read by default, without `[cors] exposed_headers`, besides
/// those that are always readable.
const EXPOSED: [&str; 6] = [
    "accept-ranges",
    "etag",
    "server",
    "x-couch-request-id",
    "x-couch-update-newrev",
    "x-couchdb-body-time",
];

/// Response headers that any page may read. They are named among the exposed ones when an answer has them, as CouchDB does;
/// `content-type` always is.
const SIMPLE: [HeaderName; 5] = [
    CACHE_CONTROL,
    CONTENT_LANGUAGE,
    EXPIRES,
    LAST_MODIFIED,
    PRAGMA,
];

/// The rules in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// With scheme, and port unless it is the scheme's; `*` for all.
    origins: Vec<String>,
    /// The rules of a server without logins: they name the origins then.
    dev: Option<Arc<Dev>>,
    credentials: bool,
    methods: Vec<String>,
    /// In lower case.
    headers: Vec<String>,
    /// Joined by `, `.
    exposed: String,
    max_age_s: u64,
}

impl Cors {
    /// The rules, when cross-origin requests are answered at all.
    pub fn of(settings: &Settings) -> Option<Cors> {
        settings
            .chttpd
            .enable_cors
            .then(|| Cors::read(&settings.cors))
    }

    fn read(cors: &config::settings::Cors) -> Cors {
        let or = |set: &Option<Vec<String>>, default: &[&str]| {
            set.clone()
                .unwrap_or_else(|| default.iter().map(|s| (*s).to_owned()).collect())
        };
        let lower = |list: Vec<String>| -> Vec<String> {
            list.iter().map(|s| s.to_ascii_lowercase()).collect()
        };
        Cors {
            origins: cors.origins.clone().unwrap_or_default(),
            dev: None,
            credentials: cors.credentials,
            methods: or(&cors.methods, &METHODS),
            headers: lower(or(&cors.headers, &HEADERS)),
            exposed: lower(or(&cors.exposed_headers, &EXPOSED)).join(", "),
            max_age_s: cors.max_age,
        }
    }

    /// Returns the rules of a server without logins. Pages may send and read what CouchDB's default allows. Credentials are allowed,
    /// because PouchDB sends its requests with them, and browsers otherwise keep the response from it.
    pub fn of_dev(dev: Arc<Dev>) -> Cors {
        Cors {
            credentials: true,
            dev: Some(dev),
            ..Cors::read(&Settings::default().cors)
        }
    }

    /// Every web page may send requests with its visitor's cookies and passwords. CouchDB allows
    /// that too, and PouchDB's set-up guides require it.
    pub fn trusts_all_with_credentials(&self) -> bool {
        self.credentials && self.origins.iter().any(|o| o == "*")
    }

    /// Whether the asking page may use its reader's session.
    pub fn shares_session(&self, req: &Request) -> bool {
        self.credentials && self.allowed(req).is_some()
    }

    /// Whether any page of another origin may use its reader's session.
    pub fn shares_sessions(&self) -> bool {
        self.credentials
    }

    /// Whether the asking page may ask at all.
    pub fn knows_page(&self, req: &Request) -> bool {
        self.allowed(req).is_some()
    }

    /// The asking page's origin, when it is allowed. Origins compare by bytes, as browsers send them in one form.
    fn allowed<'a>(&self, req: &'a Request) -> Option<&'a HeaderValue> {
        let origin = req.headers.get(ORIGIN)?;
        if let Some(dev) = &self.dev {
            return dev.allows(origin.as_bytes()).then_some(origin);
        }
        self.origins
            .iter()
            .any(|o| o == "*" || o.as_bytes() == origin.as_bytes())
            .then_some(origin)
    }

    /// The response to a browser's preflight request. `None` for other requests, and when the
    /// request would not be allowed: it is then treated as any other with the method OPTIONS, which
    /// no route has.
    pub fn preflight(&self, req: &Request) -> Option<Reply> {
        if req.method != "OPTIONS" {
            return None;
        }
        let origin = self.allowed(req)?.clone();
        let method = req.header(&ACCESS_CONTROL_REQUEST_METHOD)?;
        if !self.methods.iter().any(|m| m == method) {
            return None;
        }
        let wanted = req.header(&ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or("");
        let allowed = |name: &String| self.headers.contains(&name.to_ascii_lowercase());
        if !list(wanted).iter().all(allowed) {
            return None;
        }
        let mut reply = Reply::empty(204)
            .header(ACCESS_CONTROL_MAX_AGE, &self.max_age_s.to_string())
            .header(ACCESS_CONTROL_ALLOW_METHODS, &self.methods.join(", "))
            .header(ACCESS_CONTROL_ALLOW_HEADERS, wanted);
        self.allow(origin, |name, value| reply.headers.push((name, value)));
        Some(reply)
    }

    /// Adds the headers to a response that let the page read it.
    pub fn finish(&self, req: &Request, headers: &mut HeaderMap) {
        // Caches must not give one page what another was allowed.
        headers.append(VARY, HeaderValue::from_static("Origin"));
        if headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
            return;
        }
        let Some(origin) = self.allowed(req) else {
            return;
        };
        let mut exposed = String::from("content-type");
        let simple = SIMPLE
            .iter()
            .filter(|name| headers.contains_key(*name))
            .map(HeaderName::as_str);
        for name in simple.chain(
            [self.exposed.as_str()]
                .into_iter()
                .filter(|e| !e.is_empty()),
        ) {
            exposed.push_str(", ");
            exposed.push_str(name);
        }
        self.allow(origin.clone(), |name, value| {
            headers.insert(name, value);
        });
        // A configured name that cannot be in a header exposes nothing.
        if let Ok(exposed) = HeaderValue::from_str(&exposed) {
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
    }

    fn allow(&self, origin: HeaderValue, mut put: impl FnMut(HeaderName, HeaderValue)) {
        put(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if self.credentials {
            put(
                ACCESS_CONTROL_ALLOW_CREDENTIALS,
                HeaderValue::from_static("true"),
            );
        }
    }
}

/// Names separated by commas.
fn list(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}
