//! Routes whose work comes with later issues. They check what can be checked, answer what is true of a server without
//! that feature, and otherwise say clearly that it is not there.

use serde_json::json;

use crate::access::Access;
use crate::app::{App, require_server_admin};
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use crate::router::require_method;

/// Longest body read from somebody who did not log in, in bytes.
const ANONYMOUS_BYTES_MAX: u64 = 64 << 10;

type Answer = Result<Reply, ApiError>;

pub async fn server(app: &App, req: &mut Request, name: &str) -> Answer {
    match name {
        "_utils" => Err(ApiError::missing()),
        "_replicate" => {
            let bytes = match req.user.name {
                Some(_) => req.request_bytes(app).await?,
                None => {
                    req.bytes("max_http_request_size", ANONYMOUS_BYTES_MAX)
                        .await?
                }
            };
            if bytes.is_empty() {
                return Err(ApiError::bad_request("Missing request body"));
            }
            Err(ApiError::not_implemented("replications"))
        }
        "_scheduler" => scheduler(req),
        "_reshard" => reshard(req),
        "_search_analyze" => Err(ApiError::search_not_available()),
        "_nouveau_analyze" => {
            require_method(req, "POST")?;
            Err(ApiError::not_implemented("full text indexes"))
        }
        _ => {
            require_server_admin(&req.user)?;
            Err(ApiError::not_implemented("cluster set-ups"))
        }
    }
}

fn scheduler(req: &Request) -> Answer {
    require_server_admin(&req.user)?;
    let part = req.segment(1);
    match (part, req.segment(2), req.segment(3)) {
        (Some("jobs" | "docs"), None, _) => {
            require_method(req, "GET,HEAD")?;
            let list = if part == Some("jobs") { "jobs" } else { "docs" };
            Ok(Reply::json(
                200,
                &json!({"total_rows": 0, "offset": 0, list: []}),
            ))
        }
        (Some("docs"), Some("_replicator"), None) => Ok(Reply::json(
            200,
            &json!({"total_rows": 0, "offset": 0, "docs": []}),
        )),
        (Some("docs"), Some(db), Some(_)) if db.ends_with("_replicator") => {
            Err(ApiError::missing())
        }
        (Some("jobs"), Some(_), _) => Err(ApiError::missing()),
        (Some("docs"), ..) => Err(ApiError::bad_request("Invalid path")),
        _ => Ok(Reply::json(404, &json!({"error": "not found"}))),
    }
}

fn reshard(req: &Request) -> Answer {
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

/// What may follow the name of a design document; anything else is an attachment's name.
pub const DESIGN_PARTS: [&str; 6] = [
    "_view",
    "_info",
    "_search",
    "_search_info",
    "_nouveau",
    "_nouveau_info",
];

/// Parts of a design document that index texts.
pub fn text_index(access: &Access, id: &str, part: &str) -> Answer {
    access.db.design(id)?;
    Err(match part {
        "_search" | "_search_info" => ApiError::search_not_available(),
        _ => ApiError::not_implemented("full text indexes"),
    })
}
