//! `/_settee/cluster`: the cluster that this server is a member of.

use std::time::Duration;

use cluster::NodeId;
use member::Member;
use node::require_server_admin;
use serde_json::{Value, json};

use crate::app::App;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use crate::request::body::BodyClass;
use crate::router::require_method;

type Answer = Result<Reply, ApiError>;

/// How long a token works when it is not said, in seconds.
const TOKEN_SECONDS: u64 = 3600;
/// And at most.
const TOKEN_SECONDS_MAX: u64 = 7 * 24 * 3600;

pub async fn route(app: &App, req: &mut Request) -> Answer {
    require_server_admin(&req.user)?;
    let Some(member) = app.node.member() else {
        return Err(ApiError::new(
            404,
            "not_found",
            "this server is not a member of a cluster",
        ));
    };
    match (req.segment(2), req.segment(3)) {
        (None, _) => {
            require_method(req, "GET")?;
            Ok(Reply::json(200, &status(member)))
        }
        (Some("tokens"), None) => tokens(member, req).await,
        (Some("nodes"), Some(node)) => {
            let node = node.to_owned();
            remove(member, req, &node).await
        }
        (Some("reseed"), None) => {
            require_method(req, "POST")?;
            let done = member.reseed().await;
            done.map_err(|e| ApiError::busy(e.to_string()))?;
            Ok(Reply::json(202, &json!({"ok": true})))
        }
        _ => Err(ApiError::missing()),
    }
}

fn status(member: &Member) -> Value {
    json!({
        "node": format!("{:x}", member.node()),
        "name": member.name(),
        "nodes": member.nodes(),
        "slots": member.slots(),
    })
}

async fn tokens(member: &Member, req: &mut Request) -> Answer {
    require_method(req, "POST")?;
    req.require_json()?;
    let body = req.json_object(BodyClass::Small).await?;
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

async fn remove(member: &Member, req: &Request, node: &str) -> Answer {
    require_method(req, "DELETE")?;
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
