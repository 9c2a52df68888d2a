//! The system databases, and `/_cluster_setup` for the one node that there is: CouchDB's set-up wizard and scripts made
//! for it find the states and answers that they know.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::settings::kind::{Address, Kind as _};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use crate::request::body::BodyClass;
use node::require_server_admin;

type Answer = Result<Reply, ApiError>;

/// Databases that a single node has from its first start on.
pub const SYSTEM_DATABASES: [&str; 3] = ["_users", "_replicator", "_global_changes"];
/// Those that CouchDB 3.5's set-up asks for when the client names none.
const SETUP_DATABASES: [&str; 2] = ["_users", "_replicator"];
/// Shards of `_global_changes`: with one, `_db_updates` has the order in which things happened.
const GLOBAL_CHANGES_Q: u32 = 1;

/// Creates those of the databases that do not exist.
///
/// # Errors
/// A name that cannot be one, and what the store says.
pub async fn create_missing(app: &App, names: &[&str]) -> Result<(), ApiError> {
    for name in names {
        let q = (*name == database::GLOBAL_CHANGES).then_some(GLOBAL_CHANGES_Q);
        let options = app.settings().new_database(q, false);
        match app.databases.create(name, options).await {
            Ok(_) | Err(database::Error::DatabaseExists) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// At start: the system databases, unless `[couchdb] single_node` is off.
///
/// # Errors
/// As [`create_missing`], in words.
pub async fn create_system_databases(app: &App) -> Result<(), String> {
    if !app.settings().couchdb.single_node {
        return Ok(());
    }
    let done = create_missing(app, &SYSTEM_DATABASES).await;
    done.map_err(|e| format!("system databases: {}", e.reason))
}

pub async fn route(app: &App, req: &mut Request) -> Answer {
    require_server_admin(&req.user)?;
    match req.method.as_str() {
        "GET" | "HEAD" => state(app, req),
        "POST" => act(app, req).await,
        _ => Err(ApiError::method_not_allowed("GET,POST")),
    }
}

fn state(app: &App, req: &Request) -> Answer {
    let asked = req.query.json("ensure_dbs_exist")?;
    let names = match &asked {
        None => SETUP_DATABASES.to_vec(),
        Some(list) => names(list)?,
    };
    let exist = all_exist(app, &names);
    let settings = app.settings();
    let single = settings.couchdb.single_node;
    let state = if single || settings.cluster.n == 1 {
        match single || app.auth.has_admins() && exist {
            true => "single_node_enabled",
            false => "single_node_disabled",
        }
    } else if !is_cluster_enabled(app) {
        "cluster_disabled"
    } else if exist {
        "cluster_finished"
    } else {
        "cluster_enabled"
    };
    Ok(Reply::json(200, &json!({"state": state})))
}

fn all_exist(app: &App, names: &[&str]) -> bool {
    names.iter().all(|name| app.databases.get(name).is_ok())
}

/// CouchDB takes a server for part of a cluster when others can reach it and somebody administers it.
fn is_cluster_enabled(app: &App) -> bool {
    !is_local(app.settings().chttpd.bind_address) && app.auth.has_admins()
}

/// Of 127.0.0.0/8 only the address that everybody uses counts, as in CouchDB.
fn is_local(address: IpAddr) -> bool {
    address == Ipv4Addr::LOCALHOST || address == Ipv6Addr::LOCALHOST
}

fn names(list: &Value) -> Result<Vec<&str>, ApiError> {
    list.as_array()
        .and_then(|list| list.iter().map(Value::as_str).collect())
        .ok_or_else(|| ApiError::bad_request("`ensure_dbs_exist` must be a list of database names"))
}

async fn act(app: &App, req: &mut Request) -> Answer {
    req.require_json()?;
    let body = match req.json(BodyClass::Small).await {
        Err(e) if e.status == 413 => return Err(e),
        body => body,
    };
    let Ok(Value::Object(setup)) = body else {
        return Err(ApiError::bad_request("Missing JSON body'"));
    };
    let action = setup.get("action").and_then(Value::as_str);
    match action.unwrap_or("missing") {
        "enable_single_node" => {
            require_admin(app, &setup)?;
            set_up_node(app, &setup).await?;
            create_missing(app, &asked_databases(&setup)?).await?;
        }
        "finish_cluster" => {
            let wanted = asked_databases(&setup)?;
            if all_exist(app, &wanted) {
                return Err(ApiError::bad_request("Cluster is already finished"));
            }
            create_missing(app, &wanted).await?;
        }
        "enable_cluster" => enable_cluster(app, &setup).await?,
        "add_node" if !is_cluster_enabled(app) => {
            return Err(ApiError::bad_request("Cluster is not enabled."));
        }
        "add_node" | "remove_node" | "receive_cookie" => {
            return Err(ApiError::not_implemented("clusters of several nodes"));
        }
        // The stray quote is CouchDB's.
        _ => return Err(ApiError::bad_request("Invalid Action'")),
    }
    Ok(Reply::json(201, &json!({"ok": true})))
}

fn asked_databases(setup: &Map<String, Value>) -> Result<Vec<&str>, ApiError> {
    match setup.get("ensure_dbs_exist") {
        None => Ok(SETUP_DATABASES.to_vec()),
        Some(list) => names(list),
    }
}

async fn enable_cluster(app: &App, setup: &Map<String, Value>) -> Result<(), ApiError> {
    if setup.contains_key("remote_node") {
        return Err(ApiError::not_implemented("clusters of several nodes"));
    }
    if is_cluster_enabled(app) {
        return Err(ApiError::bad_request("Cluster is already enabled"));
    }
    require_admin(app, setup)?;
    let new = setup.get("bind_address").and_then(Value::as_str);
    let address = match new {
        Some(new) => Address::parse(new),
        None => Some(app.settings().chttpd.bind_address),
    };
    if address.is_some_and(is_local) {
        return Err(ApiError::bad_request(
            "Cluster setup requires a remote bind_address (not 127.0.0.1 nor ::1)",
        ));
    }
    match setup.get("node_count") {
        None => {
            return Err(ApiError::bad_request(
                "Cluster setup requires node_count to be configured",
            ));
        }
        Some(count) if count.as_u64() == Some(1) || count.as_str() == Some("1") => {}
        Some(_) => return Err(ApiError::not_implemented("clusters of several nodes")),
    }
    set_up_node(app, setup).await
}

fn require_admin(app: &App, setup: &Map<String, Value>) -> Result<(), ApiError> {
    if app.auth.has_admins() || setup.contains_key("username") {
        return Ok(());
    }
    Err(ApiError::bad_request(
        "Cluster setup requires admin account to be configured",
    ))
}

/// Keeps what the client said of this node. Address and port count from the next start on; an address that was not
/// named stays, so that nobody opens a server to the network without saying so.
async fn set_up_node(app: &App, setup: &Map<String, Value>) -> Result<(), ApiError> {
    let text = |name: &str| setup.get(name).and_then(Value::as_str);
    let port = match setup.get("port") {
        None | Some(Value::Null) => None,
        Some(Value::String(s)) => Some(s.clone()),
        Some(Value::Number(n)) => Some(n.to_string()),
        Some(_) => return Err(ApiError::bad_request("`port` must be a port number")),
    };
    if let Some(port) = &port {
        port.parse::<u16>()
            .map_err(|_| ApiError::bad_request("`port` must be a port number"))?;
    }
    let address = text("bind_address").map(str::to_owned);
    if let Some(address) = &address
        && address != "any"
        && address.parse::<std::net::IpAddr>().is_err()
    {
        return Err(ApiError::bad_request(format!(
            "Setup requires a valid IP bind_address. {address:?} is invalid."
        )));
    }
    let admin = text("username")
        .zip(text("password_hash").or(text("password")))
        .map(|(name, password)| (name.to_owned(), password.to_owned()));
    let (config, auth) = (app.config.clone(), app.auth.clone());
    let keep = move || -> Result<(), ApiError> {
        if let Some((name, password)) = admin {
            auth.set_admin(&name, &password, true)?;
        }
        for (key, value) in [("bind_address", address), ("port", port)] {
            if let Some(value) = value {
                config.set("chttpd", key, &value, true)?;
            }
        }
        Ok(())
    };
    tokio::task::spawn_blocking(keep)
        .await
        .map_err(|e| ApiError::new(500, "internal_server_error", e.to_string()))?
}
