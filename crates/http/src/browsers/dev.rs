//! Which requests does a server of `settee serve --dev` answer? It needs no login, so nothing may reach it but programs of this
//! machine, and the pages of the origins that its developer names (`--dev-origin`).
//!
//! - **Rebinding:** a page whose name was made to lead to 127.0.0.1 names itself in `Host`. Only loopback names are answered.
//! - **Pages of other origins:** browsers send `Origin` with every request that is not a plain GET, with every request of a
//!   script that needs permission first, and with every WebSocket. Any origin counts as foreign that is not the server's
//!   own or a listed one, also `null` (files, sandboxed frames, redirects) and another port of this machine: a forwarded port
//!   or a container there serves pages of others.
//! - **Pictures, scripts, frames and links** have no `Origin`. `Sec-Fetch-Site`, which no page can set, names the kind of
//!   the site that sends them; older browsers at least send `Referer`. Links may lead to the web interface only.
//! - **Proxies** that publish the server name their client in headers: one that is elsewhere is refused.

use std::net::IpAddr;

use hyper::header::{HOST, HeaderMap, HeaderName, ORIGIN, REFERER};
use hyper::http::request::Parts;
use hyper::{Method, Uri};

use crate::errors::ApiError;
use crate::request::host::{is_authority, is_loopback, name_of};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The rules of a server without logins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dev {
    origins: Vec<Allowed>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Allowed {
    origin: Origin,
    is_any_port: bool,
}

/// The origin of a page: scheme, host in lower case, and port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    is_secured: bool,
    host: String,
    port: u16,
}

/// A request as far as the rules read it.
#[derive(Clone, Copy)]
pub struct DevRequest<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    /// The address of the connection's other end.
    peer: IpAddr,
    /// Whether the connection has TLS.
    is_secured: bool,
}

impl<'a> DevRequest<'a> {
    /// Returns a request's parts, for [`Dev::check`].
    pub fn of(parts: &'a Parts, peer: IpAddr, is_secured: bool) -> Self {
        DevRequest {
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            peer,
            is_secured,
        }
    }

    /// Returns the part of a request without its body, for [`Dev::check`].
    pub fn of_request<B>(req: &'a hyper::Request<B>, peer: IpAddr) -> Self {
        DevRequest {
            method: req.method(),
            uri: req.uri(),
            headers: req.headers(),
            peer,
            is_secured: false,
        }
    }

    /// Returns all hosts that the request is for: of the target or `:authority`, and of `Host`.
    fn hosts(self) -> impl Iterator<Item = &'a [u8]> {
        let target = self.uri.authority().map(|host| host.as_str().as_bytes());
        let named = self.headers.get_all(HOST).into_iter();
        target.into_iter().chain(named.map(|host| host.as_bytes()))
    }

    fn text(self, name: &HeaderName) -> Option<&'a str> {
        self.headers.get(name).map(|v| v.to_str().unwrap_or("?"))
    }

    /// Returns the origin of the server's own pages, as the client names the server.
    fn own_origin(self) -> Option<Origin> {
        let scheme = if self.is_secured { "https" } else { "http" };
        let host = std::str::from_utf8(self.hosts().next()?).ok()?;
        Origin::parse(&format!("{scheme}://{host}"))
    }

    /// Returns whether a link to the web interface is followed: in a window of its own, not in a frame.
    fn is_visit(self) -> bool {
        let path = self.uri.path();
        let is = |name: &HeaderName, value| self.text(name).is_none_or(|v| v == value);
        self.method == Method::GET
            && (matches!(path, "/" | "/_utils") || path.starts_with("/_utils/"))
            && is(&FETCH_MODE, "navigate")
            && is(&FETCH_DEST, "document")
    }
}

impl Origin {
    /// Parses the text of an origin as browsers send it; `None` for `null` and anything else.
    fn parse(text: &str) -> Option<Origin> {
        let (scheme, authority) = text.split_once("://")?;
        let is_secured = match scheme {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        if !is_authority(authority) {
            return None;
        }
        let name = name_of(authority);
        let default = if is_secured { 443 } else { 80 };
        let port = authority
            .rsplit_once(':')
            .map(|(_, port)| port)
            .filter(|port| !port.ends_with(']'));
        let port = port.filter(|port| !port.is_empty());
        Some(Origin {
            is_secured,
            host: name.to_ascii_lowercase(),
            port: port.map_or(Some(default), |port| port.parse().ok())?,
        })
    }

    /// Parses the origin of a page's address.
    fn of_page(url: &str) -> Option<Origin> {
        let authority_at = url.find("://")? + 3;
        let rest = &url[authority_at..];
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        Origin::parse(&url[..authority_at + end])
    }
}

impl Dev {
    /// Parses the origins of a developer's own pages, such as `http://localhost:5173`. The port `*` stands for all ports.
    ///
    /// # Errors
    /// The text that is not an origin of this machine.
    pub fn new(origins: &[String]) -> Result<Dev, String> {
        let parse = |text: &String| {
            let (one, is_any_port) = match text.strip_suffix(":*") {
                Some(start) => (start, true),
                None => (text.as_str(), false),
            };
            Origin::parse(one)
                .filter(|origin| is_loopback(&origin.host))
                .map(|origin| Allowed {
                    origin,
                    is_any_port,
                })
                .ok_or_else(|| text.clone())
        };
        let origins = origins.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Dev { origins })
    }

    /// Returns whether pages of this origin may use the server, by `--dev-origin`.
    pub fn allows(&self, origin: &[u8]) -> bool {
        let origin = std::str::from_utf8(origin).ok().and_then(Origin::parse);
        origin.is_some_and(|origin| self.lists(&origin))
    }

    fn lists(&self, page: &Origin) -> bool {
        self.origins.iter().any(|allowed| {
            let Origin {
                is_secured,
                host,
                port,
            } = &allowed.origin;
            *is_secured == page.is_secured
                && *host == page.host
                && (allowed.is_any_port || *port == page.port)
        })
    }

    /// Refuses a request that a page of another origin may have sent, or another machine.
    ///
    /// # Errors
    /// 403, with the reason and what a developer can do about it.
    pub fn check(&self, req: DevRequest<'_>) -> Result<(), ApiError> {
        check_machine(req)?;
        let own = req.own_origin();
        let mut pages = req.headers.get_all(ORIGIN).into_iter().peekable();
        if pages.peek().is_none() {
            return self.check_fetch(req, own.as_ref());
        }
        for page in pages {
            let parsed = page.to_str().ok().and_then(Origin::parse);
            let is_own = parsed.is_some() && parsed == own;
            // The browser itself says whether a page is the server's own.
            let is_own = is_own && is_same_origin(req.text(&FETCH_SITE)).unwrap_or(true);
            if !is_own && !parsed.is_some_and(|page| self.lists(&page)) {
                return Err(foreign_page(&String::from_utf8_lossy(page.as_bytes())));
            }
        }
        Ok(())
    }

    /// Checks a request without an origin.
    fn check_fetch(&self, req: DevRequest<'_>, own: Option<&Origin>) -> Result<(), ApiError> {
        let referer = req.text(&REFERER);
        let page = referer.and_then(Origin::of_page);
        let is_listed = page.as_ref().is_some_and(|page| self.lists(page));
        let is_fine = match is_same_origin(req.text(&FETCH_SITE)) {
            Some(is_same) => is_same,
            // No browser, or an older one.
            None => referer.is_none() || page.is_some() && page.as_ref() == own,
        };
        match is_fine || is_listed || req.is_visit() {
            true => Ok(()),
            false => Err(foreign_page(referer.unwrap_or("another site"))),
        }
    }
}

/// Returns whether the server's own page, or the user, sends a request according to `Sec-Fetch-Site`; `None` without it.
fn is_same_origin(fetch_site: Option<&str>) -> Option<bool> {
    fetch_site.map(|site| matches!(site, "same-origin" | "none"))
}

/// Refuses requests for other hosts than this machine, and from other machines.
fn check_machine(req: DevRequest<'_>) -> Result<(), ApiError> {
    if !req.peer.to_canonical().is_loopback() {
        return Err(refusal("the request comes from another machine"));
    }
    let is_ours = |host: &[u8]| {
        std::str::from_utf8(host).is_ok_and(|host| is_authority(host) && is_loopback(name_of(host)))
    };
    if let Some(host) = req.hosts().find(|host| !is_ours(host)) {
        let host = shortened(&String::from_utf8_lossy(host));
        return Err(refusal(&format!(
            "the request is for the host {host}, and only localhost, 127.0.0.1 and [::1] are answered for"
        )));
    }
    let forwarded = req.headers.get_all(FORWARDED_FOR).into_iter();
    let is_near = |address: &str| {
        address
            .trim()
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback())
    };
    for value in forwarded {
        let is_known = value
            .to_str()
            .is_ok_and(|list| list.split(',').all(is_near));
        if !is_known {
            return Err(refusal("a proxy forwards the request of another machine"));
        }
    }
    Ok(())
}

fn foreign_page(page: &str) -> ApiError {
    let page = shortened(page);
    refusal(&format!(
        "a page of {page} sent the request. If it is your own page on this machine: settee serve --dev --dev-origin {}",
        match Origin::of_page(&page).is_some_and(|origin| is_loopback(&origin.host)) {
            true => page.as_str(),
            false => "http://localhost:PORT",
        }
    ))
}

/// A client's text is echoed up to this length.
const TEXT_BYTES_MAX: usize = 100;

fn shortened(text: &str) -> String {
    text.chars().take(TEXT_BYTES_MAX).collect()
}

fn refusal(why: &str) -> ApiError {
    ApiError::forbidden(format!(
        "This server runs with --dev, without logins: {why}."
    ))
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn dev(origins: &[&str]) -> Result<Dev, String> {
        let origins: Vec<String> = origins.iter().map(|o| (*o).to_owned()).collect();
        Dev::new(&origins)
    }

    /// Returns whether a request is answered: method, target, and headers.
    fn answers(dev: &Dev, method: &str, target: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = hyper::Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let request = request.body(()).unwrap();
        dev.check(DevRequest::of_request(&request, LOCAL)).is_ok()
    }

    #[test]
    fn programs_are_answered_by_any_loopback_name_and_port() {
        let dev = dev(&[]).unwrap();
        for host in [
            "localhost",
            "LOCALHOST:1",
            "localhost.:5984",
            "127.0.0.1:5984",
            "127.3.2.1",
            "[::1]:5984",
        ] {
            assert!(answers(&dev, "POST", "/db", &[("host", host)]), "{host}");
            assert!(answers(&dev, "GET", &format!("http://{host}/"), &[]));
        }
        assert!(answers(&dev, "GET", "/", &[]), "no host: not a browser");
    }

    #[test]
    fn a_rebound_name_is_refused_wherever_it_is_named() {
        let dev = dev(&["http://localhost:*"]).unwrap();
        for host in [
            "evil.example",
            "evil.example:5984",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "0.0.0.0:5984",
            "192.168.1.2:5984",
            "[::ffff:127.0.0.1]",
            "[::]",
            "localhost@evil.example",
            "2130706433",
        ] {
            assert!(!answers(&dev, "GET", "/", &[("host", host)]), "{host}");
        }
        let (local, evil) = (("host", "localhost"), ("host", "evil.example"));
        assert!(!answers(&dev, "GET", "http://evil.example/", &[local]));
        assert!(!answers(&dev, "GET", "http://localhost/", &[evil]));
        assert!(!answers(&dev, "GET", "/", &[local, evil]));
    }

    #[test]
    fn origins_other_than_its_own_and_the_listed_are_foreign() {
        let host = ("host", "localhost:5984");
        let (none, some) = (dev(&[]).unwrap(), dev(&["http://localhost:5173"]).unwrap());
        let any_port = dev(&["http://127.0.0.1:*"]).unwrap();
        for (origin, by_default, by_one, by_any_port) in [
            ("http://localhost:5984", true, true, true),
            ("http://LOCALHOST:5984", true, true, true),
            ("http://localhost:5173", false, true, false),
            ("http://127.0.0.1:5173", false, false, true),
            ("https://127.0.0.1:5173", false, false, false),
            ("http://127.0.0.1", false, false, true),
            ("http://localhost", false, false, false),
            ("https://localhost:5984", false, false, false),
            ("http://evil.example", false, false, false),
            ("http://evil.example:5984", false, false, false),
            ("http://localhost:5173.evil.example", false, false, false),
            ("null", false, false, false),
            ("", false, false, false),
            ("file://", false, false, false),
            ("chrome-extension://abc", false, false, false),
            ("h\u{e4}", false, false, false),
        ] {
            for (dev, is_answered) in [
                (&none, by_default),
                (&some, by_one),
                (&any_port, by_any_port),
            ] {
                for method in ["GET", "POST", "OPTIONS", "PUT", "HEAD"] {
                    let headers = [host, ("origin", origin)];
                    let found = answers(dev, method, "/db", &headers);
                    assert_eq!(found, is_answered, "{method} from {origin}, {dev:?}");
                }
            }
        }
        let both = [
            host,
            ("origin", "http://localhost:5984"),
            ("origin", "null"),
        ];
        assert!(!answers(&none, "POST", "/db", &both));
        let no_host = [("origin", "http://localhost:5984")];
        assert!(!answers(&none, "POST", "/db", &no_host));
    }

    #[test]
    fn what_has_no_origin_is_judged_by_the_browsers_word_then_by_the_referer() {
        let host = ("host", "localhost:5984");
        let dev = dev(&["http://localhost:5173"]).unwrap();
        let site = |site, more: &[(&'static str, &'static str)]| {
            [&[host, ("sec-fetch-site", site)], more].concat()
        };
        let is = |method, path, headers: &[(&str, &str)]| answers(&dev, method, path, headers);
        for known in ["none", "same-origin"] {
            assert!(is("GET", "/db", &site(known, &[])));
        }
        for foreign in ["cross-site", "same-site", "", "Same-Origin"] {
            assert!(!is("GET", "/db", &site(foreign, &[])), "{foreign}");
            let own = [("origin", "http://localhost:5984")];
            assert!(!is("POST", "/db", &site(foreign, &own)), "{foreign}");
            let app = [("referer", "http://localhost:5173/")];
            assert!(is("GET", "/db/doc/a.png", &site(foreign, &app)));
            let evil = [("referer", "http://evil.example/")];
            assert!(!is("GET", "/db/doc/a.png", &site(foreign, &evil)));
        }
        let referer = |url| [host, ("referer", url)];
        for known in ["http://localhost:5984/_utils/", "http://localhost:5173/a?b"] {
            assert!(is("GET", "/db", &referer(known)), "{known}");
        }
        for foreign in ["http://evil.example/http://localhost:5984/", "x", ""] {
            assert!(!is("GET", "/db", &referer(foreign)), "{foreign}");
        }
    }

    #[test]
    fn links_lead_to_the_web_interface_and_nowhere_else() {
        let dev = dev(&[]).unwrap();
        let visit = |method, path, dest| {
            let headers = [
                ("host", "localhost:5984"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", dest),
            ];
            answers(&dev, method, path, &headers)
        };
        for path in ["/", "/_utils", "/_utils/", "/_utils/index.html"] {
            assert!(visit("GET", path, "document"), "{path}");
        }
        assert!(!visit("GET", "/_utils/", "iframe"));
        assert!(!visit("POST", "/", "document"));
        for path in ["/db", "/_all_dbs", "/_utilsx", "/db/_design/d/_update/u"] {
            assert!(!visit("GET", path, "document"), "{path}");
        }
    }

    #[test]
    fn other_machines_are_refused() {
        let dev = dev(&[]).unwrap();
        let request = hyper::Request::builder().uri("/").body(()).unwrap();
        for (peer, is_answered) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.0.0.2", false),
            ("::ffff:10.0.0.2", false),
        ] {
            let peer = peer.parse().unwrap();
            let checked = dev.check(DevRequest::of_request(&request, peer));
            assert_eq!(checked.is_ok(), is_answered, "{peer}");
        }
        let by_proxy = |of| answers(&dev, "GET", "/", &[("x-forwarded-for", of)]);
        assert!(by_proxy("127.0.0.1, ::1"));
        for of in ["10.0.0.2", "127.0.0.1, 10.0.0.2", "unknown", ""] {
            assert!(!by_proxy(of), "{of}");
        }
    }

    #[test]
    fn only_origins_of_this_machine_can_be_listed() {
        for wrong in [
            "*",
            "null",
            "localhost:5173",
            "http://localhost:5173/",
            "http://*",
            "http://app.example",
            "http://localhost:x",
            "ws://localhost",
        ] {
            assert_eq!(dev(&[wrong]), Err(wrong.to_owned()));
        }
        assert!(dev(&["https://[::1]:8443", "http://127.0.0.1"]).is_ok());
    }

    #[test]
    fn a_refusal_names_the_option_that_admits_a_page_of_this_machine() {
        let reason = |page| foreign_page(page).reason;
        assert!(reason("http://localhost:3000").contains("--dev-origin http://localhost:3000"));
        assert!(reason("http://evil.example").contains("--dev-origin http://localhost:PORT"));
    }
}
