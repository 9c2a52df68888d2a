//! Who a peer says that it is: nobody, a name and a password, or a session that these were exchanged for.

use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{COOKIE, HeaderValue, SET_COOKIE};
use reqwest::{Client, RequestBuilder};
use serde_json::json;
use url::Url;

use crate::endpoint::Remote;

/// How long a login may take: passwords are slow to check.
const LOGIN_TIME_MAX: Duration = Duration::from_secs(30);

pub struct Auth {
    credentials: Option<Credentials>,
    session: Mutex<Option<HeaderValue>>,
    /// Where sessions are made; `None` when none are wanted.
    login: Option<Url>,
}

struct Credentials {
    user: String,
    password: String,
}

impl Auth {
    /// With `sessions`, logs in; where that fails the password is sent with every request.
    pub async fn open(client: &Client, remote: &Remote, sessions: bool) -> Auth {
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
        let wanted =
            sessions && credentials.is_some() && !speaks("authorization") && !speaks("cookie");
        let auth = Auth {
            credentials,
            session: Mutex::default(),
            login: remote.url.join("/_session").ok().filter(|_| wanted),
        };
        auth.renew(client).await;
        auth
    }

    pub fn has_session(&self) -> bool {
        self.session.lock().is_some()
    }

    /// Logs in again.
    pub async fn renew(&self, client: &Client) {
        let session = self.log_in(client).await;
        *self.session.lock() = session;
    }

    async fn log_in(&self, client: &Client) -> Option<HeaderValue> {
        let (login, who) = (self.login.as_ref()?, self.credentials.as_ref()?);
        let body = json!({"name": who.user, "password": who.password}).to_string();
        let request = client
            .post(login.clone())
            .header("content-type", "application/json")
            .timeout(LOGIN_TIME_MAX)
            .body(body);
        let response = request.send().await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        let cookies = response.headers().get_all(SET_COOKIE).iter();
        let cookie = cookies
            .filter_map(|c| c.to_str().ok()?.split(';').next())
            .find(|c| {
                c.strip_prefix("AuthSession=")
                    .is_some_and(|v| !v.is_empty())
            })?;
        let mut cookie = HeaderValue::from_str(cookie).ok()?;
        cookie.set_sensitive(true);
        Some(cookie)
    }

    pub fn sign(&self, request: RequestBuilder) -> RequestBuilder {
        if let Some(cookie) = &*self.session.lock() {
            return request.header(COOKIE, cookie.clone());
        }
        match &self.credentials {
            // Marked as sensitive by the client.
            Some(who) => request.basic_auth(&who.user, Some(&who.password)),
            None => request,
        }
    }
}
