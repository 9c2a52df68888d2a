//! `/_settee/cluster`: the cluster that this server is a member of.

use std::sync::Arc;
use std::time::Duration;

use cluster::NodeId;
use member::Member;
use member::control::entry::EntryOutcome;
use member::control::placement_entry::PlacementChange;
use serde_json::{Value, json};

use crate::app::App;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;

type Answer = Result<Reply, ApiError>;

/// How long a token works when it is not said, in seconds.
const TOKEN_SECONDS: u64 = 3600;
/// Longest validity of a token.
const TOKEN_SECONDS_MAX: u64 = 7 * 24 * 3600;

/// Time of each part of a measurement of the network when it is not said, and its limits, in seconds.
const BENCH_SECONDS: f64 = 1.0;
const BENCH_SECONDS_MIN: f64 = 0.1;
const BENCH_SECONDS_MAX: f64 = 10.0;

fn member_of(app: &App) -> Result<&Arc<Member>, ApiError> {
    let missing = || ApiError::new(404, "not_found", "this server is not a member of a cluster");
    app.node.member().ok_or_else(missing)
}

/// `/_settee/cluster`
pub fn status(app: &App) -> Answer {
    let member = member_of(app)?;
    Ok(Reply::json(200, &status_of(member)))
}

/// `/_settee/cluster/reseed`
pub async fn reseed(app: &App, req: &Request) -> Answer {
    let member = member_of(app)?;
    let unknown = || ApiError::bad_request("`slot` is the number of a slot, or control");
    let slot = match req.query.get("slot") {
        None => None,
        Some(name) => Some(member.slot_named(name).ok_or_else(unknown)?),
    };
    let done = member.reseed(slot).await;
    done.map_err(|e| ApiError::busy(e.to_string()))?;
    Ok(Reply::json(202, &json!({"ok": true})))
}

/// `/_settee/cluster/bench-network`
pub async fn bench_network(app: &App, req: &mut Request) -> Answer {
    let member = member_of(app)?;
    req.require_json()?;
    let body = req.json_object().await?;
    let seconds = match body.get("seconds") {
        None => BENCH_SECONDS,
        Some(seconds) => seconds
            .as_f64()
            .filter(|seconds| (BENCH_SECONDS_MIN..=BENCH_SECONDS_MAX).contains(seconds))
            .ok_or_else(|| {
                ApiError::bad_request(format!(
                    "`seconds` is from {BENCH_SECONDS_MIN} to {BENCH_SECONDS_MAX}"
                ))
            })?,
    };
    let nodes = member.bench_network(Duration::from_secs_f64(seconds)).await;
    let nodes = nodes.map_err(|e| ApiError::busy(e.to_string()))?;
    let told = json!({"node": member.name(), "seconds": seconds, "nodes": nodes});
    Ok(Reply::json(200, &told))
}

fn status_of(member: &Member) -> Value {
    json!({
        "node": format!("{:x}", member.node()),
        "name": member.name(),
        "record_version": member.record_versions(),
        "log": member.log(),
        "copies": member.gateway().slot_copies(),
        "placement": member.gateway().slot_nodes(),
        "nodes": member.nodes(),
        "slots": member.slots(),
    })
}

/// `/_settee/cluster/tokens`
pub async fn tokens(app: &App, req: &mut Request) -> Answer {
    let member = member_of(app)?;
    req.require_json()?;
    let body = req.json_object().await?;
    let seconds = match body.get("seconds") {
        None => TOKEN_SECONDS,
        Some(seconds) => seconds
            .as_u64()
            .filter(|seconds| (1..=TOKEN_SECONDS_MAX).contains(seconds))
            .ok_or_else(|| {
                ApiError::bad_request(format!("`seconds` is from 1 to {TOKEN_SECONDS_MAX}"))
            })?,
    };
    let token = member.token(Duration::from_secs(seconds)).await;
    let token = token.map_err(|e| ApiError::busy(e.to_string()))?;
    Ok(Reply::json(201, &json!({"token": token})))
}

/// `/_settee/cluster/nodes/{node}`
pub async fn node(app: &App, req: &mut Request, node: &str) -> Answer {
    let member = member_of(app)?;
    let named = member.nodes().into_iter().find(|n| n.name == node);
    let hex = named.map_or(node.to_owned(), |n| n.node);
    let number = NodeId::from_str_radix(&hex, 16).map_err(|_| unknown_node(node))?;
    let done = match req.method.as_str() {
        "PUT" => drain(member, req, number).await?,
        _ => remove(member, number).await?,
    };
    match done {
        true => Ok(Reply::ok()),
        false => Err(unknown_node(node)),
    }
}

fn unknown_node(node: &str) -> ApiError {
    ApiError::new(404, "not_found", format!("there is no member {node}"))
}

/// Removes a node permanently. Returns whether there was one.
async fn remove(member: &Member, node: NodeId) -> Result<bool, ApiError> {
    let removed = member.remove(node).await;
    removed.map_err(|e| ApiError::busy(e.to_string()))
}

/// Moves the slots of a node to others, or ends that. Returns whether there is one.
async fn drain(member: &Member, req: &mut Request, node: NodeId) -> Result<bool, ApiError> {
    req.require_json()?;
    let body = req.json_object().await?;
    let draining = body.get("draining").and_then(Value::as_bool);
    let change = match draining {
        Some(true) => PlacementChange::Drain { node },
        Some(false) => PlacementChange::Undrain { node },
        None => return Err(ApiError::bad_request("`draining` must be true or false")),
    };
    let refusal = "too few nodes would remain for the copies of each slot; while every node has every slot, set a number of copies first (`settee cluster place --copies`)";
    change_placement(member, change, refusal).await
}

/// `/_settee/cluster/place`
pub async fn place(app: &App, req: &mut Request) -> Answer {
    let member = member_of(app)?;
    req.require_json()?;
    let body = req.json_object().await?;
    let copies = match body.get("copies") {
        None => member.gateway().slot_copies(),
        Some(Value::Null) => None,
        Some(copies) => Some(number_of_copies(copies)?),
    };
    let is_dry = match body.get("dry_run") {
        None => false,
        Some(dry_run) => dry_run
            .as_bool()
            .ok_or_else(|| ApiError::bad_request("`dry_run` must be true or false"))?,
    };
    let plan = member.gateway().plan(copies);
    if !is_dry {
        let refusal = "there are fewer nodes than copies, without those that are being drained; all nodes can have every slot only when none is being drained (`settee cluster undrain`)";
        change_placement(member, PlacementChange::Copies { copies }, refusal).await?;
    }
    Ok(Reply::json(200, &json!(plan)))
}

fn number_of_copies(copies: &Value) -> Result<u32, ApiError> {
    let number = copies.as_u64().and_then(|n| u32::try_from(n).ok());
    let number = number.filter(|n| *n > 0);
    number.ok_or_else(|| {
        ApiError::bad_request("`copies` must be a number from 1, or null for all nodes")
    })
}

/// Changes the placement of slots; `refusal` is the reason if the cluster does not accept that.
/// Returns whether the node that the change names exists.
async fn change_placement(
    member: &Member,
    change: PlacementChange,
    refusal: &'static str,
) -> Result<bool, ApiError> {
    let done = member.gateway().change_placement(change).await;
    match done.map_err(|e| ApiError::busy(e.to_string()))? {
        EntryOutcome::Done | EntryOutcome::Exists => Ok(true),
        EntryOutcome::Missing => Ok(false),
        EntryOutcome::Refused => Err(ApiError::new(409, "conflict", refusal)),
    }
}
