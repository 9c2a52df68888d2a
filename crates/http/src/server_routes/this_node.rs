//! `/_node/{node}/…`: configuration, statistics, versions of this node.

use config::Config;
use config::settings::{is_file_only, is_file_only_section};
use metrics::{MemoryPart, process};
use serde_json::{Map, Value, json};

use crate::app::{App, COUCHDB_VERSION};
use crate::clustered;
use crate::errors::ApiError;
use crate::metric_catalogue::{self, machine};
use crate::reply::Reply;
use crate::request::Request;
use routes::NodeRoute;

type Answer = Result<Reply, ApiError>;

/// Sections whose values are secrets to logs, not to admins.
const ADMINS: &str = "admins";

/// Answers a request about this node, by its name or as `_local`, or about another node of the cluster.
pub async fn route(app: &App, req: &mut Request, name: Option<String>, part: NodeRoute) -> Answer {
    match name {
        Some(name) if name == "_local" || name == app.node.name => here(app, req, part).await,
        None => Err(ApiError::bad_request("Incomplete path to _node request")),
        Some(other) => match app.node.member() {
            Some(member) => clustered::by_name(member, req, &other).await,
            None => Err(ApiError::new(
                404,
                "not_found",
                format!("no such node: {other}"),
            )),
        },
    }
}

async fn here(app: &App, req: &mut Request, part: NodeRoute) -> Answer {
    match part {
        NodeRoute::Name => Ok(Reply::json(200, &json!({"name": app.node.name}))),
        NodeRoute::Config => Ok(Reply::json(200, &config(&app.node.config))),
        NodeRoute::ConfigReload => {
            req.require_json()?;
            let config = app.node.config.clone();
            off_thread(move || config.reload()).await??;
            Ok(Reply::ok())
        }
        NodeRoute::ConfigSection(section) => {
            let values = app.node.config.section(&section);
            Ok(Reply::json(200, &section_json(&section, values)))
        }
        NodeRoute::ConfigValue(section, key) => config_value(app, req, &section, &key).await,
        NodeRoute::Stats(path) => stats(app, &path),
        NodeRoute::System => {
            let told = app.shared()?;
            Ok(Reply::json(200, &off_thread(move || system(&told)).await?))
        }
        NodeRoute::Versions => Ok(Reply::json(200, &versions())),
        NodeRoute::Prometheus => {
            let told = app.shared()?;
            let text = off_thread(move || metric_catalogue::prometheus(&told)).await?;
            Ok(Reply::text(200, "text/plain; version=2.0", text))
        }
        NodeRoute::Smoosh => {
            let tasks = app.node.databases.tasks();
            let compactions = tasks.iter().filter(|t| t.kind == "database_compaction");
            let active = compactions.count();
            Ok(Reply::json(
                200,
                &json!({"channels": {"compaction": {"active": active, "starting": 0, "waiting": {"size": 0}}}}),
            ))
        }
        NodeRoute::Settings => Ok(Reply::json(200, &settings(&app.node.config))),
        NodeRoute::Restart => {
            // No page of another site can send JSON without a preflight.
            req.require_json()?;
            app.ask_to_restart();
            Ok(Reply::ok())
        }
        NodeRoute::Unknown(part) => Err(database::Error::IllegalName(part).into()),
    }
}

/// Lets admins pass, and users with the role `_metrics`.
pub fn require_metrics(req: &Request) -> Result<(), ApiError> {
    if req.user.is_admin() || req.user.roles.iter().any(|role| role == "_metrics") {
        return Ok(());
    }
    Err(ApiError::unauthorized(
        "You are not a server admin or read-only metrics user",
    ))
}

fn stats(app: &App, path: &[String]) -> Answer {
    let tree = metrics::tree(&metric_catalogue::stats(app, &app.stats.counts()));
    let mut at = &tree;
    for name in path {
        at = at.get(name).ok_or_else(ApiError::missing)?;
    }
    Ok(Reply::json(200, at))
}

fn system(app: &App) -> Value {
    let engine = app.node.databases.stats();
    json!({
        "uptime": app.node.started.elapsed().as_secs(),
        "memory": {
            "resident": process::resident_bytes(),
            "allocated": app.allocated_bytes(),
            "memtables": engine.memtable_bytes,
            "block_cache": engine.block_cache_bytes,
            "limit": app.node.memory.limit,
            "limit_said_by": app.node.memory.said_by.name(),
            "budgets": machine::memory_parts(app).iter().map(MemoryPart::to_member).collect::<Map<_, _>>(),
        },
        "keyspace_bytes": app.node.databases.file_bytes().iter().map(|(k, n)| ((*k).to_owned(), (*n).into())).collect::<Map<_, _>>(),
        "process_count": std::fs::read_dir("/proc/self/task").map_or(0, |d| d.count()),
        "open_connections": app.stats.connections(),
        "open_feeds": app.open_feeds(),
        "databases": app.node.databases.count(),
        "open_databases": app.node.databases.open_memory().databases,
        "open_indexes": app.node.databases.open_memory().indexes,
        "databases_to_index": app.node.databases.waiting_for_indexing(),
        "message_queues": machine::queues(app).into_iter().map(|(name, n)| (name.to_owned(), n.into())).collect::<Map<_, _>>(),
        "internal_replication_jobs": 0,
        "distribution": {},
    })
}

fn versions() -> Value {
    json!({
        "couchdb": COUCHDB_VERSION,
        "settee": env!("CARGO_PKG_VERSION"),
        "collation_driver": {"name": "icu4x", "library_version": "2", "collator_version": "2", "collation_algorithm_version": "16"},
        "javascript_engine": {"name": "quickjs"},
    })
}

/// The table of settings, with values that differ from the default. An empty text means that a
/// secret is set.
fn settings(config: &Config) -> Value {
    let all = config::settings::SECTIONS.iter().flat_map(|section| {
        let set = move |key: &str| {
            let older = || config.get(section.older?, key);
            config.get(section.name, key).or_else(older)
        };
        section.settings.iter().map(move |setting| {
            let is_secret = setting.is_secret();
            // `default.ini` sets some of them, to their defaults.
            let value = set(setting.key).filter(|value| Some(value.as_str()) != setting.default);
            let mut told = json!({
                "section": setting.section,
                "key": setting.key,
                "value": value.map(|value| if is_secret { String::new() } else { value }),
                "default": setting.default,
                "help": setting.doc,
                "restart": setting.at_start,
                "kind": setting.shape.name(),
                "choices": setting.choices(),
            });
            if is_secret {
                told["secret"] = true.into();
            }
            if is_file_only(setting.section, setting.key) {
                told["file_only"] = true.into();
            }
            told
        })
    });
    all.collect()
}

fn config(config: &Config) -> Value {
    let sections = config.all().into_iter();
    let all = sections.map(|(name, values)| {
        let values = section_json(&name, values);
        (name, values)
    });
    all.collect::<Map<_, _>>().into()
}

fn section_json(section: &str, values: std::collections::BTreeMap<String, String>) -> Value {
    values
        .into_iter()
        .map(|(k, v)| {
            let v = shown(section, &k, v);
            (k, Value::from(v))
        })
        .collect::<Map<_, _>>()
        .into()
}

/// A value as admins see it.
fn shown(section: &str, key: &str, value: String) -> String {
    if config::settings::is_masked(section, key) {
        return "********".to_owned();
    }
    value
}

fn unknown_value() -> ApiError {
    ApiError::new(404, "not_found", "unknown_config_value")
}

/// Refuses to change settings that name files, commands or hosts of the machine.
fn require_changeable(section: &str, key: &str) -> Result<(), ApiError> {
    if is_file_only_section(section) {
        return Err(ApiError::forbidden(
            "Config section blacklisted for modification over HTTP API.",
        ));
    }
    if is_file_only(section, key) {
        return Err(ApiError::forbidden(format!(
            "[{section}] {key} cannot be changed over HTTP: set it in local.ini, the environment or the command line of the server."
        )));
    }
    Ok(())
}

async fn config_value(app: &App, req: &mut Request, section: &str, key: &str) -> Answer {
    let persist = req.named_header("x-couch-persist") != Some("false")
        && req.query.get("persist") != Some("false");
    if matches!(req.method.as_str(), "PUT" | "DELETE") {
        require_changeable(section, key)?;
    }
    match req.method.as_str() {
        "PUT" => {
            let value = match req.json().await? {
                Value::String(s) => s,
                _ => return Err(ApiError::bad_request("a JSON string expected")),
            };
            let old = set(app, section, key, value, persist).await?;
            if let Some(unknown) = config::unknown(section, key) {
                tracing::warn!("a setting over HTTP: {unknown}");
            }
            share(app, section, key).await?;
            let old = old.map(|old| shown(section, key, old));
            Ok(Reply::json(200, &old.unwrap_or_default().into()))
        }
        "DELETE" => {
            let (config, section, key) =
                (app.node.config.clone(), section.to_owned(), key.to_owned());
            let (of, name) = (section.clone(), key.clone());
            let old = off_thread(move || config.delete(&section, &key, persist)).await??;
            share(app, &of, &name).await?;
            old.map(|v| Reply::json(200, &shown(&of, &name, v).into()))
                .ok_or_else(unknown_value)
        }
        _ => {
            let value = app
                .node
                .config
                .get(section, key)
                .ok_or_else(unknown_value)?;
            Ok(Reply::json(200, &shown(section, key, value).into()))
        }
    }
}

/// Copies a setting to all nodes of a cluster, if it must be the same on all.
async fn share(app: &App, section: &str, key: &str) -> Result<(), ApiError> {
    let Some(member) = app.node.member().filter(|_| node::is_shared(section, key)) else {
        return Ok(());
    };
    let value = app.node.config.get(section, key);
    let done = member.set(section, key, value).await;
    done.map_err(|e| ApiError::busy(e.to_string()))
}

async fn set(
    app: &App,
    section: &str,
    key: &str,
    value: String,
    persist: bool,
) -> Result<Option<String>, ApiError> {
    let old = app.node.config.get(section, key);
    let (section, key) = (section.to_owned(), key.to_owned());
    if section == ADMINS {
        // Hashing a password is slow work.
        let auth = app.node.auth.clone();
        off_thread(move || auth.set_admin(&key, &value, persist)).await??;
        return Ok(old);
    }
    let config = app.node.config.clone();
    Ok(off_thread(move || config.set(&section, &key, &value, persist)).await??)
}

/// Runs work that uses files or hashes passwords on another thread than those that serve requests.
pub async fn off_thread<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(f)
        .await
        .map_err(ApiError::worker_failed)
}
