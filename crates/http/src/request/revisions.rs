//! Lists of revisions in bodies and parameters.

use document::Rev;
use serde_json::Value;

use crate::errors::ApiError;

/// A JSON list of revisions.
pub fn parse_revs(value: &Value) -> Result<Vec<Rev>, ApiError> {
    parse_revs_or(value, "Invalid list of revisions")
}

/// A JSON list of revisions; `reason` is the error of a value that is not a list.
pub fn parse_revs_or(value: &Value, reason: &'static str) -> Result<Vec<Rev>, ApiError> {
    let Value::Array(revs) = value else {
        return Err(ApiError::bad_request(reason));
    };
    revs.iter()
        .map(|r| match r {
            Value::String(r) => Ok(Rev::parse(r)?),
            _ => Err(document::RevError.into()),
        })
        .collect()
}
