//! Requests below `/{db}/_partition/{p}/`: those to the database itself, with the partition as a parameter.

use crate::errors::ApiError;
use crate::request::Request;
use node::Access;

const PARAM: &str = "partition";

/// Makes of the request one to the database.
///
/// # Errors
/// 400 when the database has no partitions, when the partition's name is invalid, or when the query
/// names another one.
pub fn enter(req: &mut Request, access: &Access, name: &str) -> Result<(), ApiError> {
    require_partitioned(access)?;
    database::check_partition(name)?;
    if req.query.get(PARAM).is_some_and(|given| given != name) {
        return Err(ApiError::bad_request(
            "Conflicting value for `partition` in query string",
        ));
    }
    req.query.0.retain(|(param, _)| param != PARAM);
    req.query.0.push((PARAM.to_owned(), name.to_owned()));
    req.segments.drain(1..3);
    Ok(())
}

pub fn require_partitioned(access: &Access) -> Result<(), ApiError> {
    match access.db.is_partitioned() {
        true => Ok(()),
        false => Err(ApiError::bad_request("database is not partitioned")),
    }
}
