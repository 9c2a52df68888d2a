//! The source or target of a replication, as described in its document: a database on this server,
//! or one behind HTTP.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use url::Url;

use crate::error::Error;
use crate::settings::Settings;

/// A text that is never displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("****")
    }
}

/// A source or a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A database on this server, by name.
    Local(String),
    /// A database behind HTTP.
    Remote(Box<Remote>),
}

/// A database behind HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Without credentials; the path ends with a slash.
    pub url: Url,
    /// The URL's text as given, without credentials: replication ids are derived from it.
    pub given: String,
    pub user: Option<String>,
    pub password: Option<Secret>,
    /// Sorted by name; the values may be credentials.
    pub headers: Vec<(String, Secret)>,
    pub proxy: Option<Proxy>,
}

/// A proxy's URL, which may contain credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy(pub Url);

impl Proxy {
    /// Returns the URL without credentials.
    pub fn shown(&self) -> String {
        without_credentials(&self.0)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl Endpoint {
    /// Parses `source` or `target`: a URL, a name, or an object with one of these as `url`, and
    /// with `headers` and `auth`.
    ///
    /// # Errors
    /// [`Error::MissingEndpoint`], [`Error::InvalidEndpoint`].
    pub fn parse(
        value: Option<&Value>,
        proxy: Option<&str>,
        settings: &Settings,
    ) -> Result<Endpoint, Error> {
        match value {
            None | Some(Value::Null) => Err(Error::MissingEndpoint),
            Some(Value::String(text)) => Endpoint::at(text, &Map::new(), proxy, settings),
            Some(Value::Object(members)) => match members.get("url") {
                Some(Value::String(text)) => Endpoint::at(text, members, proxy, settings),
                _ => Err(invalid("endpoint")),
            },
            Some(_) => Err(invalid("endpoint")),
        }
    }

    /// Parses an address. A database on this server is used with the rights of the requesting
    /// client: as in CouchDB, other members have no effect.
    fn at(
        text: &str,
        members: &Map<String, Value>,
        proxy: Option<&str>,
        settings: &Settings,
    ) -> Result<Endpoint, Error> {
        // Database names contain no colon.
        if text.contains("://") || Url::parse(text).is_ok() {
            return Remote::parse(text, members, proxy, settings).map(Endpoint::remote);
        }
        match text.is_empty() {
            true => Err(invalid("endpoint")),
            false => Ok(Endpoint::Local(text.to_owned())),
        }
    }

    fn remote(remote: Remote) -> Endpoint {
        Endpoint::Remote(Box::new(remote))
    }

    /// Returns the address without credentials.
    pub fn shown(&self) -> &str {
        match self {
            Endpoint::Local(name) => name,
            Endpoint::Remote(remote) => remote.url.as_str(),
        }
    }

    /// Memory of the description, and of the copies that its connections have, about, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let Endpoint::Remote(remote) = self else {
            return self.shown().len() as u64;
        };
        let headers = remote.headers.iter();
        let headers: usize = headers
            .map(|(name, value)| name.len() + value.0.len())
            .sum();
        let secrets = remote.password.as_ref().map(|password| &password.0);
        let credentials = remote.user.iter().chain(secrets);
        let credentials: usize = credentials.map(String::len).sum();
        let proxy = remote
            .proxy
            .as_ref()
            .map_or(0, |proxy| proxy.0.as_str().len());
        let urls = remote.url.as_str().len() + remote.given.len() + proxy;
        2 * (urls + headers + credentials) as u64
    }

    /// Returns the proxy's address without credentials.
    pub fn shown_proxy(&self) -> Option<String> {
        match self {
            Endpoint::Local(_) => None,
            Endpoint::Remote(remote) => remote.proxy.as_ref().map(Proxy::shown),
        }
    }
}

pub(crate) fn invalid(what: &str) -> Error {
    Error::InvalidEndpoint(format!("{what} has an invalid url"))
}

impl Remote {
    fn parse(
        text: &str,
        members: &Map<String, Value>,
        proxy: Option<&str>,
        settings: &Settings,
    ) -> Result<Remote, Error> {
        let mut given = text.trim().to_owned();
        if !given.contains('?') && !given.ends_with('/') {
            given.push('/');
        }
        let mut url = Url::parse(&given).map_err(|_| invalid("endpoint"))?;
        let allowed = &settings.valid_endpoint_protocols;
        if !allowed.iter().any(|scheme| scheme == url.scheme()) || url.host_str().is_none() {
            return Err(invalid("endpoint"));
        }
        let (mut user, mut password) = (None, None);
        if !url.username().is_empty() {
            user = Some(decoded(url.username()));
            password = Some(Secret(decoded(url.password().unwrap_or_default())));
        }
        // Neither fails for a URL with a host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        given = without_user_info(&given);
        let mut headers = vec![];
        for (name, value) in object(members, "headers")? {
            let value = value
                .as_str()
                .ok_or_else(|| Error::InvalidEndpoint("headers must be strings".into()))?;
            match name
                .eq_ignore_ascii_case("authorization")
                .then(|| basic(value))
                .flatten()
            {
                Some((name, secret)) if user.is_none() => {
                    user = Some(name);
                    password = Some(Secret(secret));
                }
                Some(_) => {}
                None => headers.push((name.clone(), Secret(value.to_owned()))),
            }
        }
        headers.sort_by(|a, b| a.0.cmp(&b.0));
        headers.dedup_by(|a, b| a.0 == b.0);
        // `auth` overrides the URL, as in CouchDB.
        if let Some(Value::Object(basic)) = object(members, "auth")?.get("basic") {
            let text = |name| basic.get(name).and_then(Value::as_str).map(str::to_owned);
            if let (Some(name), Some(secret)) = (text("username"), text("password")) {
                user = Some(name);
                password = Some(Secret(secret));
            }
        }
        Ok(Remote {
            url,
            given,
            user,
            password,
            headers,
            proxy: proxy.map(|p| parse_proxy(p, settings)).transpose()?,
        })
    }

    /// Returns name and password, if both are known.
    pub fn credentials(&self) -> Option<(&str, &str)> {
        Some((self.user.as_deref()?, self.password.as_ref()?.0.as_str()))
    }
}

fn object<'a>(
    members: &'a Map<String, Value>,
    name: &str,
) -> Result<&'a Map<String, Value>, Error> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    match members.get(name) {
        None | Some(Value::Null) => Ok(&NONE),
        Some(Value::Object(members)) => Ok(members),
        Some(_) => Err(Error::InvalidEndpoint(format!("{name} must be an object"))),
    }
}

fn parse_proxy(text: &str, settings: &Settings) -> Result<Proxy, Error> {
    let url = Url::parse(text).map_err(|_| invalid("proxy"))?;
    let allowed = &settings.valid_proxy_protocols;
    if !allowed.iter().any(|scheme| scheme == url.scheme()) || url.host_str().is_none() {
        return Err(invalid("proxy"));
    }
    Ok(Proxy(url))
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Parses name and password of a Basic `Authorization` header.
fn basic(value: &str) -> Option<(String, String)> {
    let (scheme, encoded) = value.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// Removes `user:password@` from the text of a URL and leaves the rest unchanged. Credentials are
/// whatever [`Url::parse`] takes for them, which accepts odd spellings; a text that is not a URL
/// loses everything that could be credentials.
///
/// ```
/// use replicator::without_user_info;
/// assert_eq!(without_user_info("http://u:p@host:5984/db"), "http://host:5984/db");
/// assert_eq!(without_user_info("http:///u:p@host/db"), "http:///host/db");
/// assert_eq!(without_user_info("http://host/a@b"), "http://host/a@b");
/// ```
pub fn without_user_info(text: &str) -> String {
    let Ok(url) = Url::parse(text) else {
        return cut(text, |rest| rest.rfind('@'));
    };
    // `user:password@host`, where the user is parsed as a scheme.
    if url.cannot_be_a_base() {
        return cut(text, |rest| rest.rfind('@'));
    }
    if url.username().is_empty() && url.password().is_none() {
        return text.to_owned();
    }
    let shown = cut(text, |rest| {
        let authority = rest.split(['/', '\\', '?', '#']).next();
        authority.unwrap_or_default().rfind('@')
    });
    let hidden = without_credentials(&url);
    match Url::parse(&shown) {
        Ok(url) if url.as_str() == hidden => shown,
        _ => hidden,
    }
}

/// Removes the text between the scheme with its slashes and the `@` that `find` returns.
fn cut(text: &str, find: impl FnOnce(&str) -> Option<usize>) -> String {
    let Some((scheme, rest)) = text.split_once(':') else {
        return text.to_owned();
    };
    let path = rest.trim_start_matches(['/', '\\']);
    let slashes = &rest[..rest.len() - path.len()];
    match find(path) {
        Some(at) => format!("{scheme}:{slashes}{}", &path[at + 1..]),
        None => text.to_owned(),
    }
}

fn without_credentials(url: &Url) -> String {
    let mut shown = url.clone();
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn remote(value: Value) -> Remote {
        match Endpoint::parse(Some(&value), None, &Settings::default()).unwrap() {
            Endpoint::Remote(remote) => *remote,
            Endpoint::Local(name) => panic!("{name}"),
        }
    }

    #[test]
    fn credentials_come_from_url_header_or_auth_and_are_never_shown() {
        let of_url = remote(json!("http://us%40er:p%3Ass@host:5984/db"));
        let of_header = remote(
            json!({"url": "http://host:5984/db", "headers": {"authorization": "Basic dXNAZXI6cDpzcw=="}}),
        );
        let of_auth = remote(
            json!({"url": "http://host:5984/db", "auth": {"basic": {"username": "us@er", "password": "p:ss"}}}),
        );
        for remote in [of_url, of_header, of_auth] {
            assert_eq!(remote.credentials(), Some(("us@er", "p:ss")));
            assert_eq!(remote.url.as_str(), "http://host:5984/db/");
            assert_eq!(remote.headers, []);
            assert!(!format!("{remote:?}").contains("p:ss"));
        }
    }

    #[test]
    fn credentials_are_hidden_however_the_url_is_spelt() {
        for (text, shown) in [
            ("http:///u:s3cret@host/db", "http:///host/db"),
            ("http:u:s3cret@host/db", "http:host/db"),
            ("http:/u:s3cret@host/db", "http:/host/db"),
            ("http:\\\\u:s3cret@host/db", "http:\\\\host/db"),
            ("HTTP://u:s3cret@host/db?x@y", "HTTP://host/db?x@y"),
            ("http://u:a@s3cret@host/db", "http://host/db"),
            (" ht\ntp://u:s3cret@host/db", " ht\ntp://host/db"),
            ("socks5://u:s3cret@host:1080", "socks5://host:1080"),
            ("http://u:p/s3cret@host/db", "http://host/db"),
            ("http://u:s3cret@ho st/db", "http://ho st/db"),
            ("http://s3cret@/db", "http:///db"),
            ("http://host/a@b", "http://host/a@b"),
            ("admin:s3cret@host:5984/db", "admin:host:5984/db"),
            ("db", "db"),
        ] {
            assert_eq!(without_user_info(text), shown, "{text}");
            let settings = Settings::default();
            for value in [json!(text), json!({"url": text})] {
                match Endpoint::parse(Some(&value), Some(text), &settings) {
                    Ok(endpoint) => {
                        let told = format!(
                            "{endpoint:?} {} {:?}",
                            endpoint.shown(),
                            endpoint.shown_proxy()
                        );
                        assert!(!told.replace("given: \"", "").contains("s3cret"), "{told}");
                    }
                    Err(e) => assert!(!e.text().contains("s3cret"), "{e}"),
                }
            }
        }
    }

    #[test]
    fn other_headers_are_kept_in_order_and_hidden() {
        let remote = remote(
            json!({"url": "https://host/db/", "headers": {"X-B": "2", "Authorization": "Bearer abc"}}),
        );
        let names: Vec<&str> = remote.headers.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["Authorization", "X-B"]);
        assert!(!format!("{remote:?}").contains("abc"));
    }

    #[test]
    fn what_is_no_database_is_refused() {
        let settings = Settings::default();
        let parse = |v: Value| Endpoint::parse(Some(&v), None, &settings);
        assert!(matches!(
            parse(json!("ftp://x/y")),
            Err(Error::InvalidEndpoint(_))
        ));
        assert!(matches!(parse(json!({})), Err(Error::InvalidEndpoint(_))));
        assert!(matches!(
            parse(json!("http://")),
            Err(Error::InvalidEndpoint(_))
        ));
        assert!(matches!(parse(json!(7)), Err(Error::InvalidEndpoint(_))));
        assert!(matches!(
            Endpoint::parse(None, None, &settings),
            Err(Error::MissingEndpoint)
        ));
        assert_eq!(parse(json!("db")).unwrap(), Endpoint::Local("db".into()));
    }

    #[test]
    fn a_proxy_is_shown_without_its_password() {
        let value = json!("http://host/db");
        let endpoint = Endpoint::parse(
            Some(&value),
            Some("http://u:p@proxy:8080"),
            &Settings::default(),
        );
        assert_eq!(
            endpoint.unwrap().shown_proxy().as_deref(),
            Some("http://proxy:8080/")
        );
    }
}
