//! Authenticates at another server: anonymously, with name and password, or with a session obtained
//! for these.

use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{COOKIE, HeaderMap, HeaderValue, SET_COOKIE};
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use tokio::time::Instant;
use url::Url;

use crate::db::outbound::{Outbound, TOKEN};
use crate::endpoint::Remote;

/// Maximum time of a login: checking passwords is slow.
const LOGIN_TIME_MAX: Duration = Duration::from_secs(30);

/// Age at which a session of unknown lifetime is renewed; CouchDB's last ten minutes.
const SESSION_TIME: Duration = Duration::from_secs(275);

/// Longest cookie that is kept, in bytes; those of CouchDB have about a hundred.
const COOKIE_BYTES_MAX: usize = 8 << 10;

pub struct Auth {
    credentials: Option<Credentials>,
    session: Mutex<Option<Session>>,
    /// The URL for logins; `None` without sessions.
    login: Option<Url>,
}

struct Session {
    cookie: HeaderValue,
    /// When to renew: a server may treat an expired session as anonymous, and refuse documents.
    until: Instant,
}

impl Session {
    /// Returns the session in the cookie of a response.
    fn of(headers: &HeaderMap) -> Option<Session> {
        let cookies = headers.get_all(SET_COOKIE).iter();
        let cookie = cookies.filter_map(|c| c.to_str().ok()).find(|c| {
            let value = c.strip_prefix("AuthSession=");
            let value = value.filter(|_| c.len() <= COOKIE_BYTES_MAX);
            value.is_some_and(|v| !v.is_empty() && !v.starts_with(';'))
        })?;
        let mut parts = cookie.split(';').map(str::trim);
        let mut value = HeaderValue::from_str(parts.next()?).ok()?;
        value.set_sensitive(true);
        let age = parts.find_map(|part| {
            let (name, seconds) = part.split_once('=')?;
            let is = name.eq_ignore_ascii_case("max-age");
            is.then(|| seconds.parse().ok()).flatten()
        });
        let age = age.map_or(SESSION_TIME, |s: u64| Duration::from_secs(s) / 2);
        Some(Session {
            cookie: value,
            until: Instant::now() + age.min(SESSION_TIME),
        })
    }
}

struct Credentials {
    user: String,
    password: String,
}

impl Auth {
    /// With `sessions`, logs in; if that fails the password is sent with every request.
    pub async fn open(ways: &Outbound, remote: &Remote, sessions: bool) -> Auth {
        let credentials = remote.credentials().map(|(user, password)| Credentials {
            user: user.to_owned(),
            password: password.to_owned(),
        });
        let speaks = |name: &str| {
            remote
                .headers
                .iter()
                .any(|(n, _)| n.eq_ignore_ascii_case(name))
        };
        // Where failures must look alike, nothing may be probed beforehand.
        let sessions = sessions && !ways.hides_failures();
        let wanted =
            sessions && credentials.is_some() && !speaks("authorization") && !speaks("cookie");
        let auth = Auth {
            credentials,
            session: Mutex::default(),
            login: remote.url.join("/_session").ok().filter(|_| wanted),
        };
        auth.renew(ways).await;
        auth
    }

    pub fn has_session(&self) -> bool {
        self.session.lock().is_some()
    }

    /// Logs in again shortly before the session expires.
    pub async fn keep(&self, ways: &Outbound) {
        let due = self
            .session
            .lock()
            .as_ref()
            .is_some_and(|s| Instant::now() >= s.until);
        if due {
            self.renew(ways).await;
        }
    }

    /// Any server may set a new session with any response.
    pub fn note(&self, headers: &HeaderMap) {
        if !headers.contains_key(SET_COOKIE) || !self.has_session() {
            return;
        }
        if let Some(session) = Session::of(headers) {
            *self.session.lock() = Some(session);
        }
    }

    /// Logs in again.
    pub async fn renew(&self, ways: &Outbound) {
        let session = self.log_in(ways).await;
        *self.session.lock() = session;
    }

    async fn log_in(&self, ways: &Outbound) -> Option<Session> {
        let (login, who) = (self.login.as_ref()?, self.credentials.as_ref()?);
        let body = json!({"name": who.user, "password": who.password}).to_string();
        let way = ways.to(login).await.ok()?;
        let mut request = way
            .request(Method::POST, login.clone(), false)
            .header("content-type", "application/json")
            .timeout(LOGIN_TIME_MAX)
            .body(body);
        if let Some(token) = &way.token {
            request = request.header(TOKEN, token.clone());
        }
        let response = request.send().await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        Session::of(response.headers())
    }

    pub fn sign(&self, request: RequestBuilder) -> RequestBuilder {
        if let Some(session) = &*self.session.lock() {
            return request.header(COOKIE, session.cookie.clone());
        }
        match &self.credentials {
            // The client marks it as sensitive.
            Some(who) => request.basic_auth(&who.user, Some(&who.password)),
            None => request,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(cookie: &str) -> Option<(String, Duration)> {
        let mut headers = HeaderMap::new();
        headers.append(SET_COOKIE, HeaderValue::from_static("other=1"));
        headers.append(SET_COOKIE, HeaderValue::from_str(cookie).unwrap());
        let now = Instant::now();
        let session = Session::of(&headers)?;
        let cookie = session.cookie.to_str().unwrap().to_owned();
        Some((cookie, session.until.saturating_duration_since(now)))
    }

    #[test]
    fn a_session_is_renewed_at_half_its_time() {
        let (cookie, time) =
            session("AuthSession=abc; Version=1; Path=/; Max-Age=60; HttpOnly").unwrap();
        assert_eq!(cookie, "AuthSession=abc");
        assert_eq!(time.as_secs_f64().round(), 30.0);
        let (_, time) = session("AuthSession=abc; Path=/").unwrap();
        assert_eq!(time.as_secs_f64().round(), 275.0);
        assert_eq!(session("AuthSession=; Path=/"), None);
        let of = |bytes| session(&format!("AuthSession={}", "a".repeat(bytes)));
        assert!(of(8000).is_some() && of(COOKIE_BYTES_MAX).is_none());
    }
}
