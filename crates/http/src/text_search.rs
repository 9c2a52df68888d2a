//! Routes of text indexes, which this version does not have. They check what can be checked, and say that it is not there.

use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use crate::router::require_method;
use node::Access;
use node::require_server_admin;

type Answer = Result<Reply, ApiError>;

/// `_search_analyze`.
pub fn search_analyze(req: &Request) -> Answer {
    require_server_admin(&req.user)?;
    Err(ApiError::search_not_available())
}

/// `_nouveau_analyze`.
pub fn nouveau_analyze(req: &Request) -> Answer {
    require_server_admin(&req.user)?;
    require_method(req, "POST")?;
    Err(ApiError::not_implemented("full text indexes"))
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
pub fn design_part(access: &Access, id: &str, part: &str) -> Answer {
    access.db.design(id)?;
    Err(match part {
        "_search" | "_search_info" => ApiError::search_not_available(),
        _ => ApiError::not_implemented("full text indexes"),
    })
}
