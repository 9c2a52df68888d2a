//! `/_reshard`: there are no jobs that split shards, and none can be made.

use serde_json::json;

use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use node::require_server_admin;

type Answer = Result<Reply, ApiError>;

/// The state of splitting shards, as CouchDB tells it, and a refusal of new jobs.
pub fn route(req: &Request) -> Answer {
    require_server_admin(&req.user)?;
    match (req.segment(1), req.segment(2), req.method.as_str()) {
        (None, _, "GET" | "HEAD") => Ok(Reply::json(
            200,
            &json!({"state": "running", "state_reason": null, "completed": 0, "failed": 0, "running": 0, "stopped": 0, "total": 0}),
        )),
        (Some("state"), None, "GET" | "HEAD") => Ok(Reply::json(
            200,
            &json!({"state": "running", "reason": null}),
        )),
        (Some("jobs"), None, "GET" | "HEAD") => Ok(Reply::json(
            200,
            &json!({"total_rows": 0, "offset": 0, "jobs": []}),
        )),
        (Some("jobs"), Some(_), "GET" | "HEAD") => Err(ApiError::missing()),
        _ => Err(ApiError::not_implemented("shard splits")),
    }
}
