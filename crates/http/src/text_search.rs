//! Routes of `_search`, which this version does not have: it has Nouveau. They check what can be checked, and say that it is not there.

use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use node::Access;
use node::require_server_admin;

type Answer = Result<Reply, ApiError>;

/// `_search_analyze`.
pub fn search_analyze(req: &Request) -> Answer {
    require_server_admin(&req.user)?;
    Err(ApiError::search_not_available())
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

/// `_search` and `_search_info` of a design document.
pub fn design_part(access: &Access, id: &str) -> Answer {
    access.db.design(id)?;
    Err(ApiError::search_not_available())
}
