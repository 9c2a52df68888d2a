//! `/_settee/cluster`: the cluster that this server is a member of.

use std::sync::Arc;
use std::time::Duration;

use cluster::NodeId;
use member::Member;
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
pub async fn remove(app: &App, node: &str) -> Answer {
    let member = member_of(app)?;
    let named = member.nodes().into_iter().find(|n| n.name == node);
    let node = named.map_or(node.to_owned(), |n| n.node);
    let unknown = || ApiError::new(404, "not_found", format!("there is no member {node}"));
    let number = NodeId::from_str_radix(&node, 16).map_err(|_| unknown())?;
    let removed = member.remove(number).await;
    match removed.map_err(|e| ApiError::busy(e.to_string()))? {
        true => Ok(Reply::ok()),
        false => Err(unknown()),
    }
}
