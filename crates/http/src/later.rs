//! Routes whose work comes with later issues. They check what can be checked, answer what is true of a server without
//! that feature, and otherwise say clearly that it is not there.

use serde_json::json;

use crate::access::Access;
use crate::app::require_server_admin;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use crate::router::require_method;

type Answer = Result<Reply, ApiError>;

pub fn server(req: &Request, name: &str) -> Answer {
    match name {
        "_reshard" => reshard(req),
        "_search_analyze" => {
            require_server_admin(&req.user)?;
            Err(ApiError::search_not_available())
        }
        _ => {
            require_server_admin(&req.user)?;
            require_method(req, "POST")?;
            Err(ApiError::not_implemented("full text indexes"))
        }
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
