//! Suggestions for unknown settings.
//!
//! CouchDB takes any name, since plugins and applications keep values of their own in its configuration. So nothing is refused.

use std::fmt;

use crate::settings::{SECTIONS, find};

/// A section or key that means nothing here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownSetting {
    /// The section: its name, and the known one nearest to it.
    Section(String, Option<&'static str>),
    /// The key: its section and name, and the known setting nearest to it.
    Key(String, String, Option<(&'static str, &'static str)>),
}

impl fmt::Display for UnknownSetting {
    /// Escapes names: they come from files and clients.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnknownSetting::Section(name, nearest) => {
                write!(f, "there is no section [{}]", name.escape_debug())?;
                if let Some(nearest) = nearest {
                    write!(f, "; did you mean [{nearest}]?")?;
                }
            }
            UnknownSetting::Key(section, key, nearest) => {
                let (section, key) = (section.escape_debug(), key.escape_debug());
                write!(f, "[{section}] {key} has no effect")?;
                if let Some((section, key)) = nearest {
                    write!(f, "; did you mean [{section}] {key}?")?;
                }
            }
        }
        Ok(())
    }
}

/// Returns which part of a name is unknown; `None` for a setting, and in a section with keys of the user's choice.
pub fn unknown(section: &str, key: &str) -> Option<UnknownSetting> {
    if find(section, key).is_some() || is_open(section) {
        return None;
    }
    let names = SECTIONS
        .iter()
        .flat_map(|about| [Some(about.name), about.older]);
    let names: Vec<&str> = names.flatten().collect();
    Some(match names.contains(&section) {
        true => UnknownSetting::Key(
            section.to_owned(),
            key.to_owned(),
            nearest_key(section, key),
        ),
        false => UnknownSetting::Section(section.to_owned(), nearest(section, names.into_iter())),
    })
}

/// Whether keys are names of the user's. In CouchDB `GET /` shows whatever `[vendor]` has.
fn is_open(section: &str) -> bool {
    let mut open = SECTIONS.iter().filter(|about| about.is_open);
    section == "vendor" || open.any(|about| about.name == section)
}

/// The nearest key of the section, or else the same key of another one.
fn nearest_key(section: &str, key: &str) -> Option<(&'static str, &'static str)> {
    let settings = || SECTIONS.iter().flat_map(|about| about.settings);
    let here =
        settings().filter(|s| find(section, s.key).is_some_and(|found| found.section == s.section));
    let near = nearest(key, here.map(|s| s.key));
    if let Some(near) = near {
        return find(section, near).map(|found| (found.section, found.key));
    }
    let mut elsewhere = settings().filter(|s| s.key.eq_ignore_ascii_case(key));
    elsewhere.next().map(|found| (found.section, found.key))
}

/// A longer name is not compared: it is not a typing error.
const NAME_CHARS_MAX: usize = 64;

/// The known name that is nearest to another, if one is near.
pub(crate) fn nearest<T: AsRef<str>>(name: &str, known: impl Iterator<Item = T>) -> Option<T> {
    if name.chars().count() > NAME_CHARS_MAX {
        return None;
    }
    let name = name.to_lowercase();
    // In a name of four letters one may be wrong, or two exchanged.
    let edits_max = (name.chars().count() / 3).clamp(1, 3);
    let distance = |known: &str| strsim::osa_distance(&name, &known.to_lowercase());
    let near = known.map(|known| (distance(known.as_ref()), known));
    let near = near.filter(|(edits, _)| *edits <= edits_max);
    near.min_by_key(|(edits, _)| *edits).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(section: &str, key: &str) -> Option<String> {
        unknown(section, key).map(|unknown| unknown.to_string())
    }

    #[test]
    fn the_nearest_name_is_named() {
        for (section, key, expected) in [
            (
                "chttpd",
                "prot",
                "[chttpd] prot has no effect; did you mean [chttpd] port?",
            ),
            (
                "chttpd",
                "Port",
                "[chttpd] Port has no effect; did you mean [chttpd] port?",
            ),
            (
                "chttpd",
                "www_authenticate",
                "[chttpd] www_authenticate has no effect; did you mean [chttpd] WWW-Authenticate?",
            ),
            (
                "httpd",
                "alow_jsonp",
                "[httpd] alow_jsonp has no effect; did you mean [chttpd] allow_jsonp?",
            ),
            (
                "httpd",
                "port",
                "[httpd] port has no effect; did you mean [chttpd] port?",
            ),
            (
                "couchdb",
                "max_http_request_size",
                "[couchdb] max_http_request_size has no effect; did you mean [chttpd] max_http_request_size?",
            ),
            (
                "couchdb",
                "file_compression",
                "[couchdb] file_compression has no effect",
            ),
            (
                "htpd",
                "port",
                "there is no section [htpd]; did you mean [httpd]?",
            ),
            (
                "admin",
                "anna",
                "there is no section [admin]; did you mean [admins]?",
            ),
            ("smoosh", "persist", "there is no section [smoosh]"),
            ("a\nb", "x", "there is no section [a\\nb]"),
        ] {
            assert_eq!(said(section, key).as_deref(), Some(expected));
        }
        let long = "x".repeat(10_000);
        assert!(said(&long, &long).is_some() && said("chttpd", &long).is_some());
    }

    #[test]
    fn settings_and_names_of_the_user_are_known() {
        for (section, key) in [
            ("chttpd", "port"),
            ("couch_httpd_auth", "timeout"),
            ("admins", "anna"),
            ("jwt_keys", "hmac:_default"),
            ("feature_flags", "partitioned||x"),
            ("query_servers", "python"),
            ("kafka", "linger.ms"),
            ("vendor", "motto"),
        ] {
            assert_eq!(said(section, key), None, "[{section}] {key}");
        }
    }
}
