//! Proxy authentication: a proxy has authenticated the user and passes the name in headers.

use std::sync::Arc;

use config::settings::ChttpdAuth;
use subtle::ConstantTimeEq;

use crate::password::{Hash, to_hex};
use crate::user::UserCtx;

/// The settings of `[chttpd_auth]` about proxies.
pub(crate) struct ProxySettings {
    name: String,
    roles: String,
    token: String,
    /// The secret, and the hashes that tokens may use; `None` when headers are trusted without a
    /// token.
    pub(crate) secret: Option<(String, Vec<Hash>)>,
}

impl ProxySettings {
    /// The secret and the hashes are those of sessions.
    pub(crate) fn of(settings: &ChttpdAuth, secret: &str, algorithms: &[Hash]) -> ProxySettings {
        let checked = settings.proxy_use_secret;
        ProxySettings {
            name: settings.x_auth_username.clone(),
            roles: settings.x_auth_roles.clone(),
            token: settings.x_auth_token.clone(),
            secret: checked.then(|| (secret.to_owned(), algorithms.to_vec())),
        }
    }

    /// Returns the user in the headers; `None` without such headers, or when the token is wrong.
    pub(crate) fn user<'a>(
        &self,
        header: impl Fn(&str) -> Option<&'a str>,
    ) -> Option<Arc<UserCtx>> {
        let name = header(&self.name).filter(|name| !name.is_empty())?;
        if let Some((secret, algorithms)) = &self.secret {
            let token = header(&self.token).unwrap_or_default();
            let mut right = false;
            for hash in algorithms {
                let expected = to_hex(&hash.hmac(secret.as_bytes(), name.as_bytes()));
                right |= bool::from(expected.as_bytes().ct_eq(token.as_bytes()));
            }
            if !right {
                return None;
            }
        }
        let roles = header(&self.roles).unwrap_or_default();
        Some(Arc::new(UserCtx {
            name: Some(name.to_owned()),
            roles: split(roles),
        }))
    }
}

/// Returns the parts of a list with commas, without white space around them and without empty ones.
pub(crate) fn split(list: &str) -> Vec<String> {
    list.split(',')
        .map(|part| part.trim().to_owned())
        .filter(|part| !part.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(secret: Option<&str>) -> ProxySettings {
        ProxySettings {
            name: "X-Name".to_owned(),
            roles: "X-Roles".to_owned(),
            token: "X-Token".to_owned(),
            secret: secret.map(|secret| (secret.to_owned(), vec![Hash::Sha256, Hash::Sha1])),
        }
    }

    fn user(settings: &ProxySettings, headers: &[(&str, &str)]) -> Option<(String, Vec<String>)> {
        let found = settings.user(|name| headers.iter().find(|h| h.0 == name).map(|h| h.1));
        found.map(|user| (user.name.clone().unwrap_or_default(), user.roles.clone()))
    }

    #[test]
    fn without_a_secret_the_headers_are_believed() {
        let some = user(
            &settings(None),
            &[("X-Name", "joe"), ("X-Roles", "a, b,,c ")],
        );
        let roles = ["a", "b", "c"].map(str::to_owned).to_vec();
        assert_eq!(some, Some(("joe".to_owned(), roles)));
        assert_eq!(user(&settings(None), &[("X-Roles", "a")]), None);
        assert_eq!(user(&settings(None), &[("X-Name", "")]), None);
    }

    #[test]
    fn with_a_secret_the_token_must_be_its_hmac() {
        let settings = settings(Some("s3cret"));
        let sha1 = to_hex(&Hash::Sha1.hmac(b"s3cret", b"joe"));
        let sha256 = to_hex(&Hash::Sha256.hmac(b"s3cret", b"joe"));
        for token in [&sha1, &sha256] {
            assert!(user(&settings, &[("X-Name", "joe"), ("X-Token", token)]).is_some());
            assert!(user(&settings, &[("X-Name", "jo"), ("X-Token", token)]).is_none());
        }
        for token in ["", "x", &sha256[1..], &sha256.to_uppercase()] {
            assert!(user(&settings, &[("X-Name", "joe"), ("X-Token", token)]).is_none());
        }
        assert!(user(&settings, &[("X-Name", "joe")]).is_none());
    }
}
