//! The system databases, and the set-up of the one node that there is: CouchDB's set-up wizard and scripts made for it find
//! the states and answers that they know.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::settings::kind::{Address, Kind as _};
use serde_json::{Map, Value};

use crate::error::{Error, Result, bad};
use crate::node::Node;
use crate::settings::new_database;

/// Databases that a server, or a cluster, has from its first start on.
pub const SYSTEM_DATABASES: [&str; 3] = ["_users", "_replicator", "_global_changes"];
/// The databases that CouchDB 3.5's set-up creates when the client names none.
const SETUP_DATABASES: [&str; 2] = ["_users", "_replicator"];
/// Shards of `_global_changes`: with one, `_db_updates` has the order in which things happened.
const GLOBAL_CHANGES_Q: u32 = 1;

/// Creates those of the databases that do not exist.
///
/// # Errors
/// An invalid name, and errors of the store.
pub async fn create_missing(node: &Node, names: &[&str]) -> Result<()> {
    for name in names {
        let q = (*name == database::GLOBAL_CHANGES).then_some(GLOBAL_CHANGES_Q);
        let options = new_database(&node.settings(), q, false);
        match node.databases.create(name, options).await {
            Ok(_) | Err(database::Error::DatabaseExists) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// At start: the system databases, unless `[couchdb] single_node` is off.
///
/// # Errors
/// As [`create_missing`].
pub async fn create_system_databases(node: &Node) -> Result<()> {
    if !node.settings().couchdb.single_node {
        return Ok(());
    }
    create_missing(node, &SYSTEM_DATABASES).await
}

/// The state of the set-up in CouchDB's words; `wanted` are the databases that belong to it, by
/// default those of CouchDB.
///
/// # Errors
/// [`Error::BadRequest`] when `wanted` is not a list of names.
pub fn state(node: &Node, wanted: Option<&Value>) -> Result<&'static str> {
    let names = match wanted {
        None => SETUP_DATABASES.to_vec(),
        Some(list) => names(list)?,
    };
    let exist = all_exist(node, &names);
    if node.member().is_some() {
        return Ok(match exist {
            true => "cluster_finished",
            false => "cluster_enabled",
        });
    }
    let settings = node.settings();
    let single = settings.couchdb.single_node;
    Ok(if single || settings.cluster.n == 1 {
        match single || node.auth.has_admins() && exist {
            true => "single_node_enabled",
            false => "single_node_disabled",
        }
    } else if !is_cluster_enabled(node) {
        "cluster_disabled"
    } else if exist {
        "cluster_finished"
    } else {
        "cluster_enabled"
    })
}

/// Executes a POST of the wizard.
///
/// # Errors
/// [`Error::BadRequest`] in CouchDB's words, [`Error::NoCluster`], and errors of configuration,
/// users and databases.
pub async fn act(node: &Node, setup: &Map<String, Value>) -> Result<()> {
    let action = setup.get("action").and_then(Value::as_str);
    if node.member().is_some() {
        return act_in_cluster(node, setup, action).await;
    }
    match action.unwrap_or("missing") {
        "enable_single_node" => {
            require_admin(node, setup)?;
            set_up_node(node, setup).await?;
            create_missing(node, &asked_databases(setup)?).await
        }
        "finish_cluster" => {
            let wanted = asked_databases(setup)?;
            if all_exist(node, &wanted) {
                return Err(bad("Cluster is already finished"));
            }
            create_missing(node, &wanted).await
        }
        "enable_cluster" => enable_cluster(node, setup).await,
        "add_node" if !is_cluster_enabled(node) => Err(bad("Cluster is not enabled.")),
        "add_node" | "remove_node" | "receive_cookie" => Err(Error::NoCluster),
        // The stray quote is CouchDB's.
        _ => Err(bad("Invalid Action'")),
    }
}

/// Answers requests of the wizard in a cluster: `settee cluster` adds and removes nodes, so that
/// its earlier steps are done.
async fn act_in_cluster(
    node: &Node,
    setup: &Map<String, Value>,
    action: Option<&str>,
) -> Result<()> {
    match action.unwrap_or("missing") {
        "finish_cluster" => {
            let wanted = asked_databases(setup)?;
            if all_exist(node, &wanted) {
                return Err(bad("Cluster is already finished"));
            }
            create_missing(node, &wanted).await
        }
        "enable_cluster" => Err(bad("Cluster is already enabled")),
        "enable_single_node" => Err(bad("This node is a member of a cluster.")),
        "add_node" | "remove_node" | "receive_cookie" => Err(Error::ByCommand),
        // The stray quote is CouchDB's.
        _ => Err(bad("Invalid Action'")),
    }
}

fn all_exist(node: &Node, names: &[&str]) -> bool {
    names.iter().all(|name| node.databases.get(name).is_ok())
}

/// CouchDB regards a server as enabled for a cluster when others can reach it and it has an admin.
fn is_cluster_enabled(node: &Node) -> bool {
    !is_local(node.settings().chttpd.bind_address) && node.auth.has_admins()
}

/// Of 127.0.0.0/8 only the address 127.0.0.1 counts as local, as in CouchDB.
fn is_local(address: IpAddr) -> bool {
    address == Ipv4Addr::LOCALHOST || address == Ipv6Addr::LOCALHOST
}

fn names(list: &Value) -> Result<Vec<&str>> {
    list.as_array()
        .and_then(|list| list.iter().map(Value::as_str).collect())
        .ok_or_else(|| bad("`ensure_dbs_exist` must be a list of database names"))
}

fn asked_databases(setup: &Map<String, Value>) -> Result<Vec<&str>> {
    match setup.get("ensure_dbs_exist") {
        None => Ok(SETUP_DATABASES.to_vec()),
        Some(list) => names(list),
    }
}

async fn enable_cluster(node: &Node, setup: &Map<String, Value>) -> Result<()> {
    if setup.contains_key("remote_node") {
        return Err(Error::NoCluster);
    }
    if is_cluster_enabled(node) {
        return Err(bad("Cluster is already enabled"));
    }
    require_admin(node, setup)?;
    let new = setup.get("bind_address").and_then(Value::as_str);
    let address = match new {
        Some(new) => Address::parse(new),
        None => Some(node.settings().chttpd.bind_address),
    };
    if address.is_some_and(is_local) {
        return Err(bad(
            "Cluster setup requires a remote bind_address (not 127.0.0.1 nor ::1)",
        ));
    }
    match setup.get("node_count") {
        None => {
            return Err(bad("Cluster setup requires node_count to be configured"));
        }
        Some(count) if count.as_u64() == Some(1) || count.as_str() == Some("1") => {}
        Some(_) => return Err(Error::NoCluster),
    }
    set_up_node(node, setup).await
}

fn require_admin(node: &Node, setup: &Map<String, Value>) -> Result<()> {
    if node.auth.has_admins() || setup.contains_key("username") {
        return Ok(());
    }
    Err(bad("Cluster setup requires admin account to be configured"))
}

/// Stores the client's settings of this node. Address and port apply from the next start on; an
/// address that was not named stays, so that a server is never opened to the network by accident.
async fn set_up_node(node: &Node, setup: &Map<String, Value>) -> Result<()> {
    let text = |name: &str| setup.get(name).and_then(Value::as_str);
    let port = match setup.get("port") {
        None | Some(Value::Null) => None,
        Some(Value::String(s)) => Some(s.clone()),
        Some(Value::Number(n)) => Some(n.to_string()),
        Some(_) => return Err(bad("`port` must be a port number")),
    };
    if let Some(port) = &port {
        port.parse::<u16>()
            .map_err(|_| bad("`port` must be a port number"))?;
    }
    let address = text("bind_address").map(str::to_owned);
    if let Some(address) = &address
        && address != "any"
        && address.parse::<std::net::IpAddr>().is_err()
    {
        return Err(Error::BadRequest(format!(
            "Setup requires a valid IP bind_address. {address:?} is invalid."
        )));
    }
    let admin = text("username")
        .zip(text("password_hash").or(text("password")))
        .map(|(name, password)| (name.to_owned(), password.to_owned()));
    let (config, auth) = (node.config.clone(), node.auth.clone());
    let keep = move || -> Result<()> {
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
        .map_err(|_| Error::WorkerFailed)?
}
