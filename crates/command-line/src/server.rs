//! Servers that a command cannot use: what is wrong, and what to do, in one line without passwords.

use std::error::Error;
use std::fmt;

use url::{ParseError, Url};

use crate::{CREDENTIALS, Failure};

/// The form of a server's URL.
const EXAMPLE: &str = "http://NAME:PASSWORD@HOST:PORT";

/// Parses the URL of a server.
///
/// # Errors
/// [`Failure::usage`] with the mistake: no scheme, another scheme, no host, a port that is not one.
pub fn server_url(text: &str) -> Result<Url, Failure> {
    url_of(text).map_err(|mistake| match text {
        "" => Failure::usage(mistake),
        text => Failure::usage(format!("{}: {mistake}", without_user(text))),
    })
}

fn url_of(text: &str) -> Result<Url, String> {
    if !text.contains("://") {
        return Err(match text.starts_with(['.', '/']) || text.is_empty() {
            true => format!("this is not the URL of a server, like {EXAMPLE}"),
            false => "the URL has no scheme: write http:// or https:// before it".to_owned(),
        });
    }
    let url = Url::parse(text).map_err(|error| syntax(text, error))?;
    match url.scheme() {
        _ if url.port() == Some(0) => Err("no server listens on port 0".to_owned()),
        "http" | "https" => Ok(url),
        other => Err(format!(
            "{other}:// is not the scheme of a server: write http:// or https://"
        )),
    }
}

/// Describes a text that is not a URL.
fn syntax(text: &str, error: ParseError) -> String {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let path = rest.find(['/', '?', '#']);
    // What looks like a path may be the rest of a password.
    if path.is_some_and(|at| rest[at..].contains('@')) {
        return "write / ? and # in a name or password as %2F, %3F and %23".to_owned();
    }
    match error {
        ParseError::EmptyHost => format!("the URL has no host: write {EXAMPLE}"),
        ParseError::InvalidPort => "the port is not a number from 1 to 65535".to_owned(),
        error => error.to_string(),
    }
}

/// The text without what may be a name and password: all before the last `@`.
fn without_user(text: &str) -> String {
    let scheme = text
        .split_once("://")
        .filter(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphanumeric()));
    match (scheme, text.rsplit_once('@')) {
        (_, None) => text.to_owned(),
        (None, Some((_, rest))) => rest.to_owned(),
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
    }
}

/// The host and port of a URL.
fn place(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port_or_known_default() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// Describes why a server did not answer. `error` is the error of the client; what went wrong is in its text or in those of its
/// sources, whichever client it is.
///
/// ```
/// let url = url::Url::parse("http://admin:secret@127.0.0.1:5984/db")?;
/// let error = std::io::Error::from_raw_os_error(111);
/// assert_eq!(
///     command_line::connection_failure(&url, &error),
///     "nothing listens on 127.0.0.1:5984 (connection refused): check host and port, or start the server"
/// );
/// # Ok::<(), url::ParseError>(())
/// ```
pub fn connection_failure(url: &Url, error: &(dyn Error + 'static)) -> String {
    let texts = texts(error);
    let other = match has(&texts, &READING) {
        true => None,
        false => other_protocol(url, &texts),
    };
    other.unwrap_or_else(|| loss(url, &texts))
}

/// Describes why a server that answered an earlier request no longer answers. The protocol of the
/// URL is right, since the server answered before.
pub fn connection_loss(url: &Url, error: &(dyn Error + 'static)) -> String {
    loss(url, &texts(error))
}

fn loss(url: &Url, texts: &[String]) -> String {
    let place = place(url);
    let why = texts.last().map_or("", String::as_str);
    if has(texts, &["failed to lookup address", "dns error"]) {
        let host = url.host_str().unwrap_or_default();
        format!("the host {host} is unknown: check its name")
    } else if has(texts, &["Connection refused"]) {
        format!(
            "nothing listens on {place} (connection refused): check host and port, or start the server"
        )
    } else if has(texts, &["timed out", "deadline has elapsed"]) {
        format!("{place} did not answer in time")
    } else if has(texts, &["invalid peer certificate"]) {
        format!("the certificate of {place} is not accepted: {why}")
    } else if has(texts, &CLOSED) {
        let when = match has(texts, &READING) {
            true => "in the middle of",
            false => "without",
        };
        format!("{place} closed the connection {when} a response: check whether it was restarted")
    } else {
        format!("{place}: {why}")
    }
}

/// Describes a server that seems to speak the other protocol.
fn other_protocol(url: &Url, texts: &[String]) -> Option<String> {
    let place = place(url);
    if url.scheme() == "https" {
        let is_other = has(texts, &NOT_TLS) || has(texts, &[CONNECTING]) && has(texts, &CLOSED);
        return is_other.then(|| {
            format!("{place} does not answer in HTTPS: if it serves HTTP, write http://{place}")
        });
    }
    let problem = if has(texts, &NOT_HTTP) {
        "does not answer in HTTP"
    } else if has(texts, &CLOSED) {
        "closed the connection without a response"
    } else {
        return None;
    };
    Some(format!(
        "{place} {problem}: if it serves HTTPS, write https://{place}"
    ))
}

/// Words of rustls and tokio-rustls about a server that speaks something else.
const NOT_TLS: [&str; 3] = ["InvalidContentType", "corrupt message", "handshake eof"];
/// Words of hyper and of the client of `settee bench`.
const NOT_HTTP: [&str; 3] = [
    "invalid HTTP",
    "malformed HTTP",
    "message head is too large",
];
const CLOSED: [&str; 7] = [
    "connection closed before message completed",
    "server closed the connection",
    "peer closed connection",
    "Connection reset",
    "Broken pipe",
    "end of file",
    "unexpected EOF",
];
/// Words of hyper's client about a connection that is not established, TLS included.
const CONNECTING: &str = "client error (Connect)";
/// Words of reqwest about the body of a response.
const READING: [&str; 2] = [
    "error decoding response body",
    "request or response body error",
];

/// Whether one of the texts has one of the words.
fn has(texts: &[String], words: &[&str]) -> bool {
    texts
        .iter()
        .any(|text| words.iter().any(|word| text.contains(word)))
}

/// The texts of an error and of its sources, each on one line; the innermost is the last.
fn texts(error: &(dyn Error + 'static)) -> Vec<String> {
    let mut texts = vec![];
    let mut next = Some(error);
    while let Some(error) = next {
        texts.push(error.to_string().replace(['\r', '\n'], " "));
        next = error.source();
    }
    texts
}

/// A response by which a server refuses a request.
#[derive(Clone, Copy, Debug)]
pub struct RefusedRequest<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The member `reason` of the body; `None` if the body is not one of CouchDB's.
    pub reason: Option<&'a str>,
    /// Whether the request had a name and password.
    pub has_login: bool,
    /// The users who may send the request, like `an admin`.
    pub needs: &'a str,
    /// Where the command reads the name and password.
    pub login_place: LoginPlace,
    /// The header `Location` of a redirect.
    pub location: Option<&'a str>,
}

/// Where a command reads a name and password.
#[derive(Clone, Copy, Debug)]
pub enum LoginPlace {
    /// In the URL, or in the variable [`CREDENTIALS`].
    UrlOrCredentials,
    /// In the URL.
    Url,
    /// In the URL, which the variable of this name may hold.
    UrlInVariable(&'static str),
}

impl fmt::Display for LoginPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoginPlace::UrlOrCredentials => write!(out, "in the URL or in {CREDENTIALS}"),
            LoginPlace::Url => out.write_str("in the URL"),
            LoginPlace::UrlInVariable(name) => write!(out, "in the URL, which {name} may hold"),
        }
    }
}

impl RefusedRequest<'_> {
    /// Describes why the server of the URL refused.
    pub fn description(&self, url: &Url) -> String {
        let (place, status, needs) = (place(url), self.status, self.needs);
        let Some(reason) = self.reason else {
            return match self.redirected_to(url) {
                Some(other) => {
                    format!("{place} redirects to {other} ({status}): write {other} in the URL")
                }
                None => not_couchdb(url, status),
            };
        };
        let reason = reason.replace(['\r', '\n'], " ");
        let login = format!("give NAME:PASSWORD of {needs} {}", self.login_place);
        match status {
            401 if !self.has_login => format!("{place} requires a login (401): {login}"),
            401 if reason.contains("assword") => {
                format!("{place}: the name or password is wrong (401): {login}")
            }
            // The right password is refused, too.
            403 if reason.contains("temporarily locked") => {
                format!(
                    "{place}: {reason} (403): wait five minutes, or as [chttpd_auth_lockout] sets"
                )
            }
            401 | 403 => format!("{place}: {reason} ({status}): {login}"),
            _ => format!("{place}: {reason} ({status})"),
        }
    }

    /// Returns the scheme, host and port of another server to which this one redirects.
    fn redirected_to(&self, url: &Url) -> Option<String> {
        let target = url.join(self.location.filter(|_| is_redirect(self.status))?);
        let target = target.ok()?.origin();
        let is_other = target.is_tuple() && target != url.origin();
        is_other.then(|| target.ascii_serialization())
    }
}

fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Describes a server whose response is not that of a CouchDB.
pub fn not_couchdb(url: &Url, status: u16) -> String {
    let place = place(url);
    match status {
        status if is_redirect(status) => {
            format!("{place} redirects ({status}): write the URL to which it redirects")
        }
        429 | 502..=504 => format!(
            "{place}: a proxy responded for the server ({status}): retry, or check the server behind the proxy"
        ),
        status => format!(
            "{place} is not a CouchDB: its response, with status {status}, is not CouchDB's; check host and port"
        ),
    }
}

/// Describes a server that lacks what only Settee has.
pub fn not_settee(url: &Url) -> String {
    let place = place(url);
    format!("{place} is not a Settee server, or an older version: the command needs one")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn mistakes_in_urls_are_named_without_passwords() {
        for (text, wanted) in [
            ("127.0.0.1:5984", "127.0.0.1:5984: the URL has no scheme"),
            ("localhost:5984", "localhost:5984: the URL has no scheme"),
            (
                "admin:geheim@localhost:5984",
                "localhost:5984: the URL has no scheme",
            ),
            ("admin:geheim", "admin:geheim: the URL has no scheme"),
            ("./data", "./data: this is not the URL"),
            ("", "this is not the URL"),
            ("htp://a:geheim@h:1", "htp://h:1: htp:// is not the scheme"),
            ("ftp://h", "ftp://h: ftp:// is not the scheme"),
            ("http://", "http://: the URL has no host"),
            ("http://h:99999", "http://h:99999: the port is not"),
            ("http://h:x", "http://h:x: the port is not"),
            ("http://h:0", "http://h:0: no server listens on port 0"),
            (
                "http://a:ge/heim@h:1",
                "http://h:1: write / ? and # in a name",
            ),
            (
                "http://a:ge#heim@h:1",
                "http://h:1: write / ? and # in a name",
            ),
            ("http://a:gehe@im@[::1", "http://[::1: "),
        ] {
            let failure = server_url(text).unwrap_err();
            assert_eq!(failure.status, 2, "{text}");
            assert!(
                failure.message.starts_with(wanted),
                "{text}: {}",
                failure.message
            );
            let is_secret = text.contains('@');
            assert!(
                !(is_secret && failure.message.contains("geheim")),
                "{}",
                failure.message
            );
        }
        for text in ["http://h", "https://a:b%2F@h:1/", "HTTP://[::1]:5984/db"] {
            assert!(server_url(text).is_ok(), "{text}");
        }
    }

    /// An error with sources, as clients nest them.
    #[derive(Debug)]
    struct Nested(&'static str, Option<Box<dyn Error + Send + Sync>>);

    impl fmt::Display for Nested {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str(self.0)
        }
    }

    impl Error for Nested {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            let source = self.1.as_ref()?;
            Some(source.as_ref())
        }
    }

    fn nested(innermost: &'static str) -> Nested {
        let inner = io::Error::other(Nested(innermost, None));
        let connect = Nested("client error (Connect)", Some(Box::new(inner)));
        Nested("error sending request", Some(Box::new(connect)))
    }

    #[test]
    fn each_cause_of_silence_has_one_line_with_what_to_do() {
        for (url, innermost, wanted) in [
            (
                "http://h:1",
                "tcp connect error: Connection refused (os error 111)",
                "nothing listens on h:1",
            ),
            (
                "http://h",
                "failed to lookup address information: x",
                "the host h is unknown",
            ),
            (
                "http://h:1",
                "operation timed out",
                "h:1 did not answer in time",
            ),
            (
                "https://h:1",
                "invalid peer certificate: UnknownIssuer",
                "UnknownIssuer",
            ),
            (
                "https://h:1",
                "received corrupt message of type InvalidContentType",
                "write http://h:1",
            ),
            ("https://h:1", "tls handshake eof", "write http://h:1"),
            (
                "https://h:1",
                "Connection reset by peer (os error 104)",
                "write http://h:1",
            ),
            (
                "http://h:1",
                "invalid HTTP version parsed",
                "write https://h:1",
            ),
            (
                "http://h:1",
                "connection closed before message completed",
                "write https://h:1",
            ),
            (
                "http://h:1",
                "malformed HTTP reply: a line",
                "write https://h:1",
            ),
            ("http://h:1", "something\nelse", "h:1: something else"),
        ] {
            let url = Url::parse(url).unwrap();
            let text = connection_failure(&url, &nested(innermost));
            assert!(text.contains(wanted), "{innermost}: {text}");
            assert!(
                !text.contains('\n') && !text.contains("error sending"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_connection_that_breaks_is_no_mistake_in_the_url() {
        let reset = "Connection reset by peer (os error 104)";
        let short = "end of file before message length reached";
        for (outer, innermost, when) in [
            ("error decoding response body", reset, "in the middle of"),
            ("error decoding response body", short, "in the middle of"),
            ("client error (SendRequest)", reset, "without"),
        ] {
            for url in ["http://h:1", "https://h:1"] {
                let inner = Nested(innermost, None);
                let error = Nested(outer, Some(Box::new(inner)));
                let url = Url::parse(url).unwrap();
                let wanted = format!("h:1 closed the connection {when} a response: check whether");
                let text = connection_loss(&url, &error);
                assert!(text.starts_with(&wanted), "{url} {outer}: {text}");
                // Without TLS it may be a first request, which a server of HTTPS closes.
                if url.scheme() == "https" || when == "in the middle of" {
                    assert_eq!(connection_failure(&url, &error), text);
                }
            }
        }
        let url = Url::parse("http://h:1").unwrap();
        let refused = connection_loss(&url, &nested("Connection refused (os error 111)"));
        assert!(refused.starts_with("nothing listens on h:1"), "{refused}");
    }

    #[test]
    fn responses_of_proxies_are_not_taken_for_another_server() {
        let url = Url::parse("http://h/db").unwrap();
        let of = |status, location| {
            let refused = RefusedRequest {
                status,
                reason: None,
                has_login: false,
                needs: "an admin",
                login_place: LoginPlace::Url,
                location,
            };
            refused.description(&url)
        };
        for (status, location, wanted) in [
            (502, None, "h:80: a proxy responded for the server (502)"),
            (503, None, "h:80: a proxy responded for the server (503)"),
            (504, None, "h:80: a proxy responded for the server (504)"),
            (429, None, "h:80: a proxy responded for the server (429)"),
            (
                301,
                Some("https://a:geheim@couch.example/db?x"),
                "h:80 redirects to https://couch.example (301): write https://couch.example",
            ),
            (
                308,
                Some("//h:81/"),
                "h:80 redirects to http://h:81 (308): write http://h:81",
            ),
            (302, Some("/login"), "h:80 redirects (302): write the URL"),
            (302, Some("mailto:x"), "h:80 redirects (302): write the URL"),
            (307, None, "h:80 redirects (307): write the URL"),
            (200, Some("https://x"), "h:80 is not a CouchDB"),
            (404, None, "h:80 is not a CouchDB"),
        ] {
            let text = of(status, location);
            assert!(text.starts_with(wanted), "{status}: {text}");
        }
    }

    #[test]
    fn logins_are_given_where_the_command_reads_them() {
        let url = Url::parse("http://h:1").unwrap();
        for (login_place, wanted) in [
            (
                LoginPlace::UrlOrCredentials,
                "give NAME:PASSWORD of a user in the URL or in SETTEE_CREDENTIALS",
            ),
            (LoginPlace::Url, "give NAME:PASSWORD of a user in the URL"),
            (
                LoginPlace::UrlInVariable("SETTEE_X"),
                "give NAME:PASSWORD of a user in the URL, which SETTEE_X may hold",
            ),
        ] {
            let refused = RefusedRequest {
                status: 401,
                reason: Some("Authentication required."),
                has_login: false,
                needs: "a user",
                login_place,
                location: None,
            };
            let text = refused.description(&url);
            assert!(text.ends_with(wanted), "{text}");
        }
    }

    #[test]
    fn refusals_say_what_is_wrong_with_a_login() {
        let url = Url::parse("http://h:1/_settee/top").unwrap();
        let of = |status, reason, has_login| {
            let needs = "an admin";
            let refused = RefusedRequest {
                status,
                reason,
                has_login,
                needs,
                login_place: LoginPlace::UrlOrCredentials,
                location: None,
            };
            refused.description(&url)
        };
        let wrong = of(401, Some("Name or password is incorrect."), true);
        assert!(
            wrong.starts_with("h:1: the name or password is wrong"),
            "{wrong}"
        );
        let none = of(401, Some("Authentication required."), false);
        assert!(none.starts_with("h:1 requires a login"), "{none}");
        let other = of(403, Some("You are not\na server admin."), true);
        assert!(
            other.starts_with("h:1: You are not a server admin. (403)"),
            "{other}"
        );
        assert!(other.contains("of an admin"), "{other}");
        let reason = "Account is temporarily locked due to multiple authentication failures";
        let locked = of(403, Some(reason), true);
        assert!(
            locked.contains("locked") && locked.contains("wait five") && !locked.contains("give"),
            "{locked}"
        );
        let page = of(404, None, true);
        assert!(page.starts_with("h:1 is not a CouchDB"), "{page}");
    }
}
