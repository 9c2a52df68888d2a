//! `/_reshard`: jobs that split shards do not exist, and cannot be created.

use routes::ReshardRoute;
use serde_json::json;

use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;

type Answer = Result<Reply, ApiError>;

/// The state of splitting shards, in CouchDB's format, and a refusal of new jobs.
pub fn route(req: &Request, route: ReshardRoute) -> Answer {
    if !matches!(req.method.as_str(), "GET" | "HEAD") {
        return Err(ApiError::not_implemented("shard splits"));
    }
    match route {
        ReshardRoute::Summary => Ok(Reply::json(
            200,
            &json!({"state": "running", "state_reason": null, "completed": 0, "failed": 0, "running": 0, "stopped": 0, "total": 0}),
        )),
        ReshardRoute::State => Ok(Reply::json(
            200,
            &json!({"state": "running", "reason": null}),
        )),
        ReshardRoute::Jobs => Ok(Reply::json(
            200,
            &json!({"total_rows": 0, "offset": 0, "jobs": []}),
        )),
        ReshardRoute::Job => Err(ApiError::missing()),
        ReshardRoute::Unknown => Err(ApiError::not_implemented("shard splits")),
    }
}
