//! Session cookies, as CouchDB makes them.
//!
//! The cookie is base64url without padding of `name:time:mac`: `time` is when it was issued, in
//! seconds since 1970 in hex; `mac` is the raw HMAC of `name:time` with `[chttpd_auth] secret`
//! followed by the salt of the user's password hash as key.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use config::ConfigError;
use config::settings::{ChttpdAuth, SameSite};
use subtle::ConstantTimeEq;

use crate::account::Login;
use crate::error::AuthError;
use crate::password::Hash;

const COOKIE: &str = "AuthSession";

/// A session that is in force.
#[derive(Debug, Clone)]
pub struct Session {
    /// The user and the login.
    pub login: Login,
    /// Whether more than a tenth of the lifetime has passed, so that the response should carry a
    /// new cookie.
    pub needs_refresh: bool,
}

/// The scope of a session cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CookieScope<'a> {
    /// Whether the client uses HTTPS.
    pub https: bool,
    /// Below this path, which a proxy put it under; empty for none. Two servers of one host have a
    /// cookie each.
    pub prefix: &'a str,
}

/// The settings that cookies depend on.
#[derive(Clone)]
pub(crate) struct SessionSettings {
    pub(crate) secret: String,
    /// Secrets that were replaced, the newest first.
    earlier: Vec<EarlierSecret>,
    timeout_secs: u64,
    /// The first signs; each may verify. Never empty.
    pub(crate) algorithms: Vec<Hash>,
    persistent: bool,
    same_site: SameSite,
    domain: Option<String>,
}

/// A secret that was replaced: sessions that it signed stay in force until they time out.
#[derive(Clone)]
struct EarlierSecret {
    secret: String,
    /// No session that it signed lasts longer, in seconds since 1970.
    end_secs: u64,
}

/// Number of old secrets that are remembered. More changes of the secret within one timeout end the
/// oldest sessions.
const EARLIER_SECRETS_MAX: usize = 16;

fn same_site_attribute(same_site: SameSite) -> &'static str {
    match same_site {
        SameSite::Omit => "",
        SameSite::None => "; SameSite=None",
        SameSite::Lax => "; SameSite=Lax",
        SameSite::Strict => "; SameSite=Strict",
    }
}

/// The content of a cookie, not verified yet.
pub(crate) struct Claim {
    pub(crate) name: String,
    message: Vec<u8>,
    mac: Vec<u8>,
    issued_secs: u64,
}

/// Result of verifying a claim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Refused,
    Valid { needs_refresh: bool },
}

impl SessionSettings {
    /// # Errors
    /// [`ConfigError::Missing`] when there is no secret.
    pub(crate) fn of(settings: &ChttpdAuth) -> Result<SessionSettings, ConfigError> {
        let names = settings.hash_algorithms.iter();
        let mut algorithms: Vec<Hash> = names.filter_map(|name| Hash::from_name(name)).collect();
        if algorithms.is_empty() {
            algorithms = vec![Hash::Sha256, Hash::Sha1];
        }
        Ok(SessionSettings {
            secret: settings.secret.clone().ok_or(ConfigError::Missing {
                section: "chttpd_auth",
                key: "secret",
            })?,
            earlier: vec![],
            timeout_secs: settings.timeout.as_secs(),
            algorithms,
            persistent: settings.allow_persistent_cookies,
            same_site: settings.same_site,
            domain: settings.cookie_domain.clone(),
        })
    }

    /// Keeps the sessions in force that were signed under the settings before these.
    pub(crate) fn follow(&mut self, before: &SessionSettings, now_secs: u64) {
        let mut earlier = before.earlier.clone();
        if before.secret != self.secret {
            earlier.insert(
                0,
                EarlierSecret {
                    secret: before.secret.clone(),
                    end_secs: now_secs.saturating_add(before.timeout_secs),
                },
            );
        }
        earlier.retain(|earlier| earlier.end_secs > now_secs && earlier.secret != self.secret);
        earlier.truncate(EARLIER_SECRETS_MAX);
        self.earlier = earlier;
    }

    /// The value of a new cookie.
    pub(crate) fn issue(&self, name: &str, salt: &str, now_secs: u64) -> String {
        let mut cookie = format!("{name}:{now_secs:X}").into_bytes();
        let mac = self.algorithms[0].hmac(&key(&self.secret, salt), &cookie);
        cookie.push(b':');
        cookie.extend(mac);
        BASE64_URL_SAFE_NO_PAD.encode(cookie)
    }

    /// Returns whether a claim has not expired, true or not.
    pub(crate) fn is_in_time(&self, claim: &Claim, now_secs: u64) -> bool {
        now_secs < claim.issued_secs.saturating_add(self.timeout_secs)
    }

    /// Returns whether a claim is true, given the salt of its user.
    pub(crate) fn judge(&self, claim: &Claim, salt: &str, now_secs: u64) -> Verdict {
        let end_secs = claim.issued_secs.saturating_add(self.timeout_secs);
        let earlier = self.earlier.iter().filter(|e| e.end_secs > now_secs);
        let secrets = std::iter::once(&self.secret).chain(earlier.map(|e| &e.secret));
        let signed = secrets.fold(false, |signed, secret| {
            signed | self.is_signed_by(claim, &key(secret, salt))
        });
        if !signed || now_secs >= end_secs {
            return Verdict::Refused;
        }
        let left_secs = end_secs - now_secs;
        Verdict::Valid {
            needs_refresh: u128::from(left_secs) * 10 < u128::from(self.timeout_secs) * 9,
        }
    }

    fn is_signed_by(&self, claim: &Claim, key: &[u8]) -> bool {
        let fitting = self
            .algorithms
            .iter()
            .filter(|hash| hash.size() == claim.mac.len());
        fitting.fold(false, |signed, hash| {
            signed | bool::from(hash.hmac(key, &claim.message).ct_eq(&claim.mac))
        })
    }

    /// The `Set-Cookie` header that gives the browser this value.
    pub(crate) fn set_cookie(&self, value: &str, now: SystemTime, by: CookieScope<'_>) -> String {
        let life = Duration::from_secs(self.timeout_secs);
        let lasting = self.persistent.then(|| {
            // A timeout beyond the end of time is as good as the longest that a date can say.
            let end = now
                .checked_add(life)
                .filter(|end| *end < date_max())
                .unwrap_or_else(date_max);
            format!(
                "; Expires={}; Max-Age={}",
                httpdate::fmt_http_date(end),
                life.as_secs()
            )
        });
        self.header(value, &lasting.unwrap_or_default(), by)
    }

    /// Returns the `Set-Cookie` header that makes the browser forget its cookie.
    pub(crate) fn clear_cookie(&self, by: CookieScope<'_>) -> String {
        let past = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH);
        self.header("", &format!("; Expires={past}; Max-Age=0"), by)
    }

    fn header(&self, value: &str, lasting: &str, by: CookieScope<'_>) -> String {
        // Browsers reject `None` without it; a proxy then serves HTTPS, whether or not it sends the
        // header for that.
        let secure = match by.https || self.same_site == SameSite::None {
            true => "; Secure",
            false => "",
        };
        let domain = self.domain.as_ref();
        let domain = domain
            .map(|domain| format!("; Domain={domain}"))
            .unwrap_or_default();
        let same_site = same_site_attribute(self.same_site);
        let path = match by.prefix {
            "" => "/",
            prefix => prefix,
        };
        format!(
            "{COOKIE}={value}; Version=1{lasting}{secure}{domain}; Path={path}; HttpOnly{same_site}"
        )
    }
}

impl Claim {
    /// Reads the value of a cookie.
    pub(crate) fn parse(value: &str) -> Result<Claim, AuthError> {
        let bytes = BASE64_URL_SAFE_NO_PAD
            .decode(value.trim_end_matches('='))
            .map_err(|_| AuthError::MalformedCookie)?;
        let mut parts = bytes.splitn(3, |byte| *byte == b':');
        let (Some(name), Some(time), Some(mac)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(AuthError::MalformedCookie);
        };
        Ok(Claim {
            // A name that is not UTF-8 belongs to no user; its signature is checked like any other.
            name: String::from_utf8_lossy(name).into_owned(),
            message: bytes[..name.len() + 1 + time.len()].to_vec(),
            mac: mac.to_vec(),
            // A malformed time counts as expired.
            issued_secs: hex_secs(time).unwrap_or(0),
        })
    }
}

fn hex_secs(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text)
        .ok()
        .filter(|text| text.bytes().all(|c| c.is_ascii_hexdigit()))?;
    u64::from_str_radix(text, 16).ok()
}

fn key(secret: &str, salt: &str) -> Vec<u8> {
    [secret.as_bytes(), salt.as_bytes()].concat()
}

/// The end of the year 9999, the last that an HTTP date can say.
fn date_max() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HTTP: CookieScope<'_> = CookieScope {
        https: false,
        prefix: "",
    };
    const HTTPS: CookieScope<'_> = CookieScope {
        https: true,
        ..HTTP
    };

    fn settings() -> SessionSettings {
        SessionSettings {
            secret: "92de07df7e7a3fe14808cef90a7cc0d91".to_owned(),
            earlier: vec![],
            timeout_secs: 600,
            algorithms: vec![Hash::Sha256, Hash::Sha1],
            persistent: true,
            same_site: SameSite::Lax,
            domain: None,
        }
    }

    fn judge(settings: &SessionSettings, cookie: &str, salt: &str, now_secs: u64) -> Verdict {
        Claim::parse(cookie).map_or(Verdict::Refused, |claim| {
            settings.judge(&claim, salt, now_secs)
        })
    }

    const FRESH: Verdict = Verdict::Valid {
        needs_refresh: false,
    };

    #[test]
    fn a_cookie_lives_as_long_as_the_timeout_and_asks_for_refresh_after_a_tenth_of_it() {
        let settings = settings();
        let cookie = settings.issue("admin", "salt", 1000);
        assert_eq!(judge(&settings, &cookie, "salt", 1000), FRESH);
        assert_eq!(judge(&settings, &cookie, "salt", 1060), FRESH);
        assert_eq!(
            judge(&settings, &cookie, "salt", 1061),
            Verdict::Valid {
                needs_refresh: true
            }
        );
        assert_eq!(
            judge(&settings, &cookie, "salt", 1599),
            Verdict::Valid {
                needs_refresh: true
            }
        );
        assert_eq!(judge(&settings, &cookie, "salt", 1600), Verdict::Refused);
    }

    #[test]
    fn another_salt_secret_or_algorithm_refuses() {
        let cookie = settings().issue("admin", "salt", 1000);
        assert_eq!(judge(&settings(), &cookie, "other", 1000), Verdict::Refused);
        let other = SessionSettings {
            secret: "x".to_owned(),
            ..settings()
        };
        assert_eq!(judge(&other, &cookie, "salt", 1000), Verdict::Refused);
        let other = SessionSettings {
            algorithms: vec![Hash::Sha512],
            ..settings()
        };
        assert_eq!(judge(&other, &cookie, "salt", 1000), Verdict::Refused);
    }

    #[test]
    fn sessions_outlive_new_secrets_until_they_time_out() {
        let first = settings();
        let cookie = first.issue("admin", "salt", 1000);
        let replaced = |before: &SessionSettings, secret: &str, now_secs| {
            let mut new = SessionSettings {
                secret: secret.to_owned(),
                ..settings()
            };
            new.follow(before, now_secs);
            new
        };
        let second = replaced(&first, "second", 1100);
        let third = replaced(&second, "third", 1200);
        // Another setting was changed.
        let third = replaced(&third, "third", 1300);
        assert_eq!(third.earlier.len(), 2);
        for settings in [&second, &third] {
            assert_ne!(judge(settings, &cookie, "salt", 1500), Verdict::Refused);
            assert_eq!(judge(settings, &cookie, "salt", 1600), Verdict::Refused);
            assert_eq!(judge(settings, &cookie, "other", 1500), Verdict::Refused);
        }
        assert_ne!(
            judge(&third, &second.issue("admin", "salt", 1150), "salt", 1200),
            Verdict::Refused
        );
        let forged = SessionSettings {
            secret: "never".to_owned(),
            ..settings()
        };
        assert_eq!(
            judge(&third, &forged.issue("admin", "salt", 1250), "salt", 1300),
            Verdict::Refused
        );
        // Cookies signed with the first secret are not valid any more, whatever time they contain.
        let late = first.issue("admin", "salt", 1690);
        assert_eq!(judge(&third, &late, "salt", 1701), Verdict::Refused);
        assert!(
            replaced(&third, "fourth", 1800)
                .earlier
                .iter()
                .all(|e| e.secret != "second")
        );
        let back = replaced(&second, &first.secret, 1200);
        assert_eq!(
            judge(&back, &cookie, "salt", 1500),
            judge(&first, &cookie, "salt", 1500)
        );
        let mut often = settings();
        for n in 0..100 {
            often = replaced(&often, &n.to_string(), 1000);
        }
        assert_eq!(often.earlier.len(), EARLIER_SECRETS_MAX);
    }

    #[test]
    fn a_cookie_of_any_listed_algorithm_is_accepted() {
        let old = SessionSettings {
            algorithms: vec![Hash::Sha1],
            ..settings()
        };
        assert_eq!(
            judge(&settings(), &old.issue("admin", "salt", 1000), "salt", 1000),
            FRESH
        );
    }

    #[test]
    fn the_format_is_couchdbs() {
        let bytes = BASE64_URL_SAFE_NO_PAD
            .decode(settings().issue("admin", "salt", 0x5E_0BE1))
            .expect("base64");
        assert!(bytes.starts_with(b"admin:5E0BE1:"));
        assert_eq!(bytes.len(), "admin:5E0BE1:".len() + 32);
    }

    #[test]
    fn what_has_not_three_parts_is_malformed() {
        for value in ["garbage", "YWRtaW46NUU", "!", "", "a", "é"] {
            assert!(
                matches!(Claim::parse(value), Err(AuthError::MalformedCookie)),
                "{value}"
            );
        }
    }

    #[test]
    fn a_server_below_a_path_has_its_cookie_there() {
        let below = CookieScope {
            prefix: "/db",
            ..HTTPS
        };
        let now = SystemTime::UNIX_EPOCH;
        let headers = [
            settings().set_cookie("v", now, below),
            settings().clear_cookie(below),
        ];
        assert!(
            headers.iter().all(|h| h.contains("; Path=/db; HttpOnly")),
            "{headers:?}"
        );
    }

    #[test]
    fn attributes_follow_the_settings() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let header = settings().set_cookie("v", now, HTTP);
        let expected = "AuthSession=v; Version=1; Expires=Sun, 06 Nov 1994 08:59:37 GMT; Max-Age=600; Path=/; HttpOnly; SameSite=Lax";
        assert_eq!(header, expected);
        let other = SessionSettings {
            persistent: false,
            same_site: SameSite::Strict,
            domain: Some("example.com".to_owned()),
            ..settings()
        };
        let expected = "AuthSession=v; Version=1; Secure; Domain=example.com; Path=/; HttpOnly; SameSite=Strict";
        assert_eq!(other.set_cookie("v", now, HTTPS), expected);
        let anywhere = SessionSettings {
            same_site: SameSite::None,
            ..settings()
        };
        let header = anywhere.set_cookie("v", now, HTTP);
        assert!(
            header.contains("; Secure;") && header.ends_with("; SameSite=None"),
            "{header}"
        );
        let unsaid = SessionSettings {
            same_site: SameSite::Omit,
            ..settings()
        };
        assert!(unsaid.set_cookie("v", now, HTTP).ends_with("; HttpOnly"));
        assert!(
            other
                .clear_cookie(HTTP)
                .starts_with("AuthSession=; Version=1; Expires=Thu, 01 Jan 1970")
        );
        let forever = SessionSettings {
            timeout_secs: u64::MAX,
            ..settings()
        };
        assert!(forever.set_cookie("v", now, HTTP).contains("9999"));
        assert_eq!(
            judge(&forever, &forever.issue("a", "s", 1), "s", u64::MAX - 1),
            Verdict::Valid {
                needs_refresh: true
            }
        );
    }

    proptest! {
        #[test]
        fn a_cookie_with_any_byte_changed_is_refused(at in 0usize..100, to in any::<u8>(), now in 1000u64..1600) {
            let cookie = settings().issue("admin", "salt", 1000).into_bytes();
            let mut forged = cookie.clone();
            let at = at % forged.len();
            forged[at] = to;
            prop_assume!(forged != cookie);
            let forged = String::from_utf8_lossy(&forged).into_owned();
            // Padding is redundant: a cookie whose last character became "=" is shorter, and
            // refused too.
            prop_assert_eq!(judge(&settings(), &forged, "salt", now), Verdict::Refused);
        }

        #[test]
        fn no_cookie_panics(value in "[A-Za-z0-9_=-]{0,80}|\\PC{0,40}", now: u64) {
            prop_assert_eq!(judge(&settings(), &value, "salt", now), Verdict::Refused);
        }

        #[test]
        fn any_three_parts_are_judged_without_panic(parts in prop::collection::vec(any::<u8>(), 0..60), now: u64) {
            prop_assert_eq!(judge(&settings(), &BASE64_URL_SAFE_NO_PAD.encode(parts), "salt", now), Verdict::Refused);
        }
    }
}
