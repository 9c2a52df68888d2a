//! Sections: how one is declared, and how it is read.

use std::collections::BTreeMap;

use super::kind::{Kind, Shape};
use crate::error::ConfigError;
use crate::layers::Values;

/// A setting, as `default.ini` shows it and as values for it are checked.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Section.
    pub section: &'static str,
    /// Key.
    pub key: &'static str,
    /// Value when nothing is configured; `None` if it has no default.
    pub default: Option<&'static str>,
    /// Whether `default.ini` sets it, so that `_node/_local/_config` shows it (others answer 404, as in CouchDB).
    pub active: bool,
    /// Its effect, with the unit of its value.
    pub doc: &'static str,
    /// Whether it is read when the server starts, and a change waits for the next start.
    pub at_start: bool,
    /// The form of its values.
    pub shape: Shape,
    pub(super) choices: fn() -> &'static [&'static str],
    pub(super) accepts: fn(&str) -> bool,
    pub(super) expected: fn() -> String,
}

impl Setting {
    /// Whether the setting may have this value.
    pub fn accepts(&self, value: &str) -> bool {
        (self.accepts)(value)
    }

    /// The values that are allowed, for the message about an invalid value.
    pub fn expected(&self) -> String {
        (self.expected)()
    }

    /// The words that it is one of, if it is one of a few.
    pub fn choices(&self) -> &'static [&'static str] {
        (self.choices)()
    }

    /// Whether others should not see its value.
    pub fn is_secret(&self) -> bool {
        is_secret(self.section, self.key)
    }
}

/// A section, as `default.ini` shows it.
#[derive(Debug, Clone, Copy)]
pub struct SectionInfo {
    /// Its name.
    pub name: &'static str,
    /// The section that CouchDB looks in next when a key is not in this one.
    pub older: Option<&'static str>,
    /// Its subject.
    pub doc: &'static str,
    /// Whether its keys are names of the user's.
    pub is_open: bool,
    /// Its settings. Those of sections whose keys are names of the user's are not among them.
    pub settings: &'static [Setting],
}

/// Keys that CouchDB does not look for in the section's older name, whose meaning there is another: they were never moved.
const NOT_MOVED: [(&str, &str); 7] = [
    ("chttpd", "port"),
    ("chttpd", "bind_address"),
    ("chttpd", "backlog"),
    ("chttpd", "server_options"),
    ("chttpd", "socket_options"),
    ("chttpd", "authentication_handlers"),
    ("chttpd_auth", "authentication_db"),
];

impl SectionInfo {
    /// The older section that a key of this one is also looked for in.
    pub(super) fn older_of(&self, key: &str) -> Option<&'static str> {
        self.older
            .filter(|_| !NOT_MOVED.contains(&(self.name, key)))
    }
}

/// Parts of the names of librdkafka's settings that are passwords or keys.
const KAFKA_SECRETS: [&str; 5] = [
    "key.pem",
    "oauthbearer.config",
    "passphrase",
    "password",
    "secret",
];

/// Whether others should not see the value of this name: a password, a hash to guess one from, or a key.
pub(crate) fn is_secret(section: &str, key: &str) -> bool {
    match section {
        "admins" => true,
        "jwt_keys" => key.starts_with("hmac:"),
        "kafka" => KAFKA_SECRETS.iter().any(|part| key.contains(part)),
        _ => matches!(key, "secret" | "password" | "s3_secret_access_key"),
    }
}

/// Whether the value of this name is never returned over HTTP, not even to admins: it is a
/// credential of another system. CouchDB's own secrets are returned, as in CouchDB.
pub fn is_masked(section: &str, key: &str) -> bool {
    matches!(section, "backup" | "kafka") && is_secret(section, key)
}

/// A section's values, typed.
pub(super) trait Section: Sized {
    const ABOUT: SectionInfo;

    /// Reads all settings of the section.
    ///
    /// # Errors
    /// [`ConfigError::InvalidSetting`].
    fn read(values: &Values) -> Result<Self, ConfigError>;
}

/// Where a section's values are found.
pub(super) struct Source<'a> {
    pub(super) about: &'static SectionInfo,
    pub(super) values: &'a Values,
}

impl Source<'_> {
    /// The value in force: the one set, or the one set in the section's older name, or the default.
    pub(super) fn value<K: Kind>(
        &self,
        key: &str,
        default: Option<&str>,
    ) -> Result<K::Value, ConfigError> {
        let of = |section: &str| self.values.get(section)?.get(key).map(String::as_str);
        let older = || self.about.older_of(key).and_then(of);
        let text = of(self.about.name).or_else(older).or(default);
        text.map_or_else(K::unset, K::parse)
            .ok_or_else(|| ConfigError::InvalidSetting {
                section: self.about.name.to_owned(),
                key: key.to_owned(),
                value: text.unwrap_or_default().to_owned(),
                expected: K::expected(),
            })
    }

    /// All values set, by key.
    pub(super) fn all(&self) -> BTreeMap<String, String> {
        let all = self.values.get(self.about.name);
        all.cloned().unwrap_or_default()
    }
}

pub(super) fn accepts<K: Kind>(text: &str) -> bool {
    K::parse(text).is_some()
}

/// Declares a section: a struct of its values, how they are read, and the text of `default.ini`.
///
/// ```text
/// section! {
///     /// What the section is about.
///     pub struct NAME in "SECTION", older "OLDER NAME" with ALL {
///         /// What the setting does, with its unit.
///         FIELD as "KEY": KIND = "DEFAULT" (active) [start],
///     }
/// }
/// ```
///
/// - The key is the field's name unless `as` gives another.
/// - The kind is one of [`kind`](super::kind), `Option<…>` when there is no default.
/// - `(active)`: `default.ini` sets it, others it only mentions.
/// - `[start]`: it is read when the server starts, and a change applies after the next start. All
///   other settings apply immediately. The suite `documentation` checks where they are read.
/// - `older`: another section, which is read for settings that are missing in this one.
/// - `with ALL`: the keys are names of the user's; the field `ALL` has them with their values.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        pub struct $Section:ident in $name:literal $(, older $older:literal)? $(with $all:ident)? {
            $(
                $(#[doc = $doc:literal])+
                $field:ident $(as $key:literal)?: $kind:ty $(= $default:literal $(($active:ident))?)? $([$start:ident])?,
            )*
        }
    ) => {
        #[doc = concat!("`[", $name, "]`:")]
        $(#[doc = $about])+
        #[derive(Clone, PartialEq)]
        pub struct $Section {
            $(
                $(#[doc = $doc])+
                pub $field: <$kind as $crate::settings::kind::Kind>::Value,
            )*
            $(
                /// All values set, by key.
                pub $all: std::collections::BTreeMap<String, String>,
            )?
        }

        impl $crate::settings::section::Section for $Section {
            const ABOUT: $crate::settings::section::SectionInfo = $crate::settings::section::SectionInfo {
                name: $name,
                older: section!(@option $($older)?),
                doc: concat!($($about),+).trim_ascii(),
                is_open: section!(@is_open $($all)?),
                settings: &[$(
                    $crate::settings::section::Setting {
                        section: $name,
                        key: section!(@key $field $($key)?),
                        default: section!(@option $($default)?),
                        active: section!(@is_there $($($active)?)?),
                        doc: concat!($($doc),+).trim_ascii(),
                        at_start: section!(@is_there $($start)?),
                        shape: <$kind as $crate::settings::kind::Kind>::SHAPE,
                        choices: <$kind as $crate::settings::kind::Kind>::choices,
                        accepts: $crate::settings::section::accepts::<$kind>,
                        expected: <$kind as $crate::settings::kind::Kind>::expected,
                    },
                )*],
            };

            fn read(values: &$crate::Values) -> Result<$Section, $crate::ConfigError> {
                let source = $crate::settings::section::Source { about: &Self::ABOUT, values };
                Ok($Section {
                    $(
                        $field: source.value::<$kind>(
                            section!(@key $field $($key)?),
                            section!(@option $($default)?),
                        )?,
                    )*
                    $($all: source.all(),)?
                })
            }
        }
    };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
    (@option) => { None };
    (@option $value:literal) => { Some($value) };
    (@is_open) => { false };
    (@is_open $all:ident) => { true };
    (@is_there) => { false };
    (@is_there active) => { true };
    (@is_there start) => { true };
}
