//! A setting that a sweep changes: when a change takes effect, and how it is undone.

use std::rc::Rc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;

use crate::client::Connection;
use crate::error::BenchError;
use crate::system::System;
use crate::target::Target;

/// Settee's table of its settings.
const TABLE: &str = "/_node/_local/_settee/settings";

/// When a change of a setting takes effect; the later ones are worse for a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// Immediately, or for new databases.
    Immediate,
    /// The server has no table of its settings.
    Unknown,
    /// When the server starts, or it is set in files only.
    AtStart,
}

/// A row of the table.
#[derive(Deserialize)]
struct Row {
    section: String,
    key: String,
    restart: bool,
    /// It cannot be changed over HTTP.
    #[serde(default)]
    file_only: bool,
}

/// When a change of a setting takes effect on all nodes.
///
/// # Errors
/// [`BenchError::Options`] for a setting that a node does not have: a sweep of it would change
/// nothing.
pub(crate) async fn effect(
    systems: &[System],
    section: &str,
    key: &str,
) -> Result<Effect, BenchError> {
    let mut effect = Effect::Immediate;
    for node in systems.iter().flat_map(|system| &system.nodes) {
        let (status, body) = call(node, "GET", TABLE, None).await?;
        let table = serde_json::from_slice::<Vec<Row>>(&body).ok();
        effect = effect.max(match table.filter(|_| status == 200) {
            None => Effect::Unknown,
            Some(table) => of_table(&table, section, key).ok_or_else(|| {
                let label = &node.label;
                BenchError::Options(format!(
                    "--sweep {section}/{key}: {label} has no such setting; GET {TABLE} lists those that it has"
                ))
            })?,
        });
    }
    Ok(effect)
}

fn of_table(table: &[Row], section: &str, key: &str) -> Option<Effect> {
    let mut rows = table.iter();
    let row = rows.find(|row| row.section == section && row.key == key)?;
    Some(match row.restart || row.file_only {
        true => Effect::AtStart,
        false => Effect::Immediate,
    })
}

/// A setting's value before a sweep changed it.
pub(crate) struct PriorSetting {
    node: Rc<Target>,
    section: String,
    key: String,
    before: Option<String>,
}

impl PriorSetting {
    /// Reads the value of a node's setting, to restore it later.
    pub(crate) async fn remember(
        node: &Rc<Target>,
        section: &str,
        key: &str,
    ) -> Result<Self, BenchError> {
        Ok(Self {
            before: setting(node, section, key).await?,
            node: Rc::clone(node),
            section: section.to_owned(),
            key: key.to_owned(),
        })
    }

    /// Sets the value, until the server restarts.
    ///
    /// # Errors
    /// Also [`BenchError::Options`] when the server then has another value.
    pub(crate) async fn set(&self, value: &str) -> Result<(), BenchError> {
        let (node, section, key) = (&self.node, &self.section, &self.key);
        set(node, section, key, Some(value)).await?;
        match setting(node, section, key).await? {
            Some(now) if now == value => Ok(()),
            now => Err(BenchError::Options(format!(
                "{section}/{key} was set to {value:?} on {}, which has {now:?} now",
                node.label
            ))),
        }
    }

    /// Restores the former value.
    ///
    /// # Errors
    /// [`BenchError::NotPutBack`], which explains how to do it by hand.
    pub(crate) async fn put_back(&self) -> Result<(), BenchError> {
        let before = self.before.as_deref();
        let result = async {
            set(&self.node, &self.section, &self.key, before).await?;
            setting(&self.node, &self.section, &self.key).await
        };
        let reason = match result.await {
            Ok(now) if now.as_deref() == before => return Ok(()),
            Ok(now) => format!("it is {now:?} now"),
            Err(error) => error.to_string(),
        };
        Err(BenchError::NotPutBack {
            setting: format!("{}/{}", self.section, self.key),
            node: self.node.label.clone(),
            before: before.map_or_else(|| "not set".to_owned(), |value| format!("{value:?}")),
            reason,
        })
    }
}

/// Characters that are not encoded in paths.
const IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-').remove(b'.');

fn path(section: &str, key: &str) -> String {
    let encoded = |text| utf8_percent_encode(text, IN_PATHS);
    format!(
        "/_node/_local/_config/{}/{}",
        encoded(section),
        encoded(key)
    )
}

/// A setting of a node; `None` when it has no value.
async fn setting(node: &Target, section: &str, key: &str) -> Result<Option<String>, BenchError> {
    let path = path(section, key);
    let (status, body) = call(node, "GET", &path, None).await?;
    match status {
        404 => Ok(None),
        200 => match serde_json::from_slice(&body) {
            Ok(Value::String(value)) => Ok(Some(value)),
            _ => Err(refused("GET", &path, status, &body)),
        },
        _ => Err(refused("GET", &path, status, &body)),
    }
}

async fn set(
    node: &Target,
    section: &str,
    key: &str,
    value: Option<&str>,
) -> Result<(), BenchError> {
    let path = path(section, key);
    let (method, body) = match value {
        Some(value) => ("PUT", Some(Value::from(value).to_string())),
        None => ("DELETE", None),
    };
    let body = body.as_ref().map(String::as_bytes);
    match call(node, method, &path, body).await? {
        (200, _) => Ok(()),
        // There is nothing to delete.
        (404, _) if value.is_none() => Ok(()),
        (status, body) => Err(refused(method, &path, status, &body)),
    }
}

/// Changes apply to the running server only: after a restart it has the values of its files.
async fn call(
    node: &Target,
    method: &str,
    path: &str,
    body: Option<&[u8]>,
) -> Result<(u16, Vec<u8>), BenchError> {
    let mut connection = Connection::open(node).await?;
    let mut request = Vec::new();
    node.write_request(
        &mut request,
        method,
        path,
        "X-Couch-Persist: false\r\n",
        body,
    );
    let mut reply = Vec::new();
    let exchanged = connection.exchange(&request, &mut reply).await;
    let status = exchanged.map_err(|source| BenchError::Exchange {
        what: format!("{method} {path}"),
        source,
    })?;
    if status != 200 {
        reply = connection.refusal().into_bytes();
    }
    Ok((status, reply))
}

fn refused(method: &str, path: &str, status: u16, body: &[u8]) -> BenchError {
    BenchError::Refused {
        what: format!("{method} {path}"),
        status,
        body: String::from_utf8_lossy(body).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_settings_are_encoded_in_paths() {
        assert_eq!(
            path("a b", "c/d_e.f"),
            "/_node/_local/_config/a%20b/c%2Fd_e.f"
        );
    }

    #[test]
    fn the_table_says_when_a_setting_takes_effect() {
        let table = r#"[
            {"section": "log", "key": "level", "restart": false, "help": "x"},
            {"section": "chttpd", "key": "backlog", "restart": true},
            {"section": "query_servers", "key": "python", "restart": false, "file_only": true}
        ]"#;
        let table: Vec<Row> = serde_json::from_str(table).unwrap();
        let of = |section, key| of_table(&table, section, key);
        assert_eq!(of("log", "level"), Some(Effect::Immediate));
        assert_eq!(of("chttpd", "backlog"), Some(Effect::AtStart));
        assert_eq!(of("query_servers", "python"), Some(Effect::AtStart));
        assert_eq!(of("log", "lewel"), None);
    }
}
