//! Settings of the source that have a meaning here.

use std::collections::BTreeMap;

use config::Values;
use config::settings::{Setting, find};
use serde_json::Value;

use crate::Error;
use crate::server::Server;

/// Settings of the machine or of the process, which are another's here.
const OF_THE_MACHINE: [(&str, &str); 22] = [
    ("couchdb", "database_dir"),
    ("couchdb", "view_index_dir"),
    ("couchdb", "uuid"),
    ("couchdb", "single_node"),
    ("cluster", "n"),
    ("chttpd", "port"),
    ("chttpd", "bind_address"),
    ("chttpd", "backlog"),
    ("chttpd", "server_options"),
    ("chttpd", "socket_options"),
    ("log", "writer"),
    ("log", "file"),
    ("ssl", "enable"),
    ("ssl", "port"),
    ("ssl", "cert_file"),
    ("ssl", "key_file"),
    ("ssl", "cacert_file"),
    ("ssl", "password"),
    ("replicator", "cert_file"),
    ("replicator", "key_file"),
    ("replicator", "password"),
    ("replicator", "ssl_trusted_certificates_file"),
];

/// Sections whose keys are names of the user's.
const OPEN_SECTIONS: [&str; 3] = ["admins", "jwt_keys", "feature_flags"];
/// Sections of programs on the source's machine.
const PROGRAMS: [&str; 2] = ["query_servers", "native_query_servers"];

/// A setting to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChange {
    pub section: String,
    pub key: String,
    pub value: String,
}

/// Decisions about the source's settings.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub taken: Vec<SettingChange>,
    /// `section/key` of settings without a meaning here.
    pub unknown: Vec<String>,
    /// `section/key` of settings that another key replaces here, or that name programs of the
    /// source's machine.
    pub by_hand: Vec<String>,
}

/// Compares the settings of both servers.
pub fn plan(source: &Values, target: &Values) -> Plan {
    let mut plan = Plan::default();
    for (section, values) in source {
        for (key, value) in values {
            let named = format!("{section}/{key}");
            match place(section, key) {
                Place::Here(section, setting) => {
                    let default = setting.and_then(|s| s.default);
                    let now = target.get(section).and_then(|keys| keys.get(key));
                    let same = now.map(String::as_str).or(default) == Some(value);
                    // For an admin that both have, the target keeps its password.
                    let kept = section == "admins" && now.is_some();
                    let refused = setting.is_some_and(|s| !s.accepts(value));
                    if refused {
                        plan.by_hand.push(named);
                    } else if !same && !kept {
                        plan.taken.push(SettingChange {
                            section: section.to_owned(),
                            key: key.clone(),
                            value: value.clone(),
                        });
                    }
                }
                Place::ByHand => plan.by_hand.push(named),
                Place::Nowhere => plan.unknown.push(named),
            }
        }
    }
    plan
}

enum Place<'a> {
    Here(&'a str, Option<&'static Setting>),
    ByHand,
    Nowhere,
}

fn place<'a>(section: &'a str, key: &str) -> Place<'a> {
    if PROGRAMS.contains(&section) {
        return Place::ByHand;
    }
    if OPEN_SECTIONS.contains(&section) {
        return Place::Here(section, find(section, key));
    }
    // Old versions have some settings in sections of other names.
    let setting = find(section, key);
    let section = setting.map_or(section, |setting| setting.section);
    if OF_THE_MACHINE.contains(&(section, key)) {
        return Place::ByHand;
    }
    match setting {
        Some(setting) => Place::Here(section, Some(setting)),
        None => Place::Nowhere,
    }
}

/// Reads all settings of a server; `None` when it denies them to this user.
///
/// # Errors
/// The server's error, or that it is unreachable.
pub async fn read(server: &Server) -> Result<Option<Values>, Error> {
    // CouchDB 1 has one configuration for its one node.
    for path in [&["_node", "_local", "_config"][..], &["_config"]] {
        match server.get(path, &[]).await {
            Ok(all) => return Ok(Some(values(&all))),
            Err(e) if e.is_status(404) || e.is_status(400) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

fn values(all: &Value) -> Values {
    let text = |v: &Value| v.as_str().map(str::to_owned);
    let section = |v: &Value| -> BTreeMap<String, String> {
        let keys = v.as_object().into_iter().flatten();
        keys.filter_map(|(key, v)| Some((key.clone(), text(v)?)))
            .collect()
    };
    let sections = all.as_object().into_iter().flatten();
    sections
        .map(|(name, v)| (name.clone(), section(v)))
        .collect()
}

/// Writes a setting at the target.
///
/// # Errors
/// The server's error, or that it is unreachable.
pub async fn make(target: &Server, setting: &SettingChange) -> Result<(), Error> {
    let path = ["_node", "_local", "_config", &setting.section, &setting.key];
    let value = Value::from(setting.value.as_str());
    target.put(&path, &[], &value).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values_of(settings: &[(&str, &str, &str)]) -> Values {
        let mut values = Values::new();
        for (section, key, value) in settings {
            let section = values.entry((*section).to_owned()).or_default();
            section.insert((*key).to_owned(), (*value).to_owned());
        }
        values
    }

    fn taken(source: &[(&str, &str, &str)], target: &[(&str, &str, &str)]) -> Vec<String> {
        let plan = plan(&values_of(source), &values_of(target));
        let shown = |t: &SettingChange| format!("{}/{}={}", t.section, t.key, t.value);
        plan.taken.iter().map(shown).collect()
    }

    #[test]
    fn what_differs_from_here_is_taken() {
        let source = [
            ("couchdb", "max_document_size", "1000"),
            ("cors", "max_age", "600"),
            ("cors", "origins", "*"),
        ];
        assert_eq!(
            taken(&source, &[]),
            ["cors/origins=*", "couchdb/max_document_size=1000"]
        );
        assert_eq!(taken(&source[1..], &[("cors", "origins", "*")]), [""; 0]);
    }

    #[test]
    fn settings_of_old_sections_move() {
        assert_eq!(
            taken(
                &[
                    ("httpd", "enable_cors", "true"),
                    ("couch_httpd_auth", "timeout", "60")
                ],
                &[]
            ),
            ["chttpd_auth/timeout=60", "chttpd/enable_cors=true"]
        );
    }

    #[test]
    fn admins_come_with_their_hashes_unless_they_are_here() {
        let source = [
            ("admins", "anna", "-pbkdf2-x"),
            ("admins", "bob", "-pbkdf2-y"),
        ];
        assert_eq!(
            taken(&source, &[("admins", "bob", "-pbkdf2-z")]),
            ["admins/anna=-pbkdf2-x"]
        );
    }

    #[test]
    fn what_is_the_machines_stays() {
        let source = values_of(&[
            ("chttpd", "port", "5999"),
            ("couchdb", "uuid", "x"),
            ("query_servers", "python", "/usr/bin/couchpy"),
            ("smoosh", "db_channels", "x"),
            ("couchdb", "max_document_size", "much"),
        ]);
        let plan = plan(&source, &Values::new());
        assert_eq!(plan.taken, []);
        assert_eq!(plan.unknown, ["smoosh/db_channels"]);
        assert_eq!(
            plan.by_hand,
            [
                "chttpd/port",
                "couchdb/max_document_size",
                "couchdb/uuid",
                "query_servers/python"
            ]
        );
    }
}
