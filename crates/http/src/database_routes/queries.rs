//! `queries` of a POST: several listings, or several queries of a view, in one request.

use serde_json::{Map, Value};

use crate::errors::ApiError;
use crate::load::SHORT_BODY_BYTES_MAX;
use crate::request::Request;

/// Most queries of a request. CouchDB has no limit; each query is kept until its turn comes.
const QUERIES_MAX: usize = 10_000;
/// More queries are made by threads that give way.
const MADE_HERE_MAX: usize = 16;
/// After as many bytes of queries were made, memory for them is taken before more are made.
const PORTION_BYTES: usize = 1 << 20;

/// Reads the `queries` of a POST body with any content type.
///
/// # Errors
/// 400 without a list of objects, or with too many of them.
pub async fn posted(req: &mut Request) -> Result<Vec<Map<String, Value>>, ApiError> {
    let mut body = req.json_object().await?;
    let queries = match body.remove("queries") {
        None => {
            return Err(ApiError::bad_request(
                "POST body must include `queries` parameter.",
            ));
        }
        Some(Value::Array(queries)) => queries,
        Some(_) => return Err(ApiError::bad_request("`queries` member must be an array.")),
    };
    if queries.len() > QUERIES_MAX {
        req.free(queries);
        return Err(ApiError::bad_request(format!(
            "`queries` must have at most {QUERIES_MAX} elements: send several requests"
        )));
    }
    let object = |query| match query {
        Value::Object(query) => Ok(query),
        _ => Err(ApiError::bad_request("a query must be a JSON object")),
    };
    queries.into_iter().map(object).collect()
}

/// Combines each posted query with the parameters of the URL, and keeps memory for the results until the response ends:
/// together they can be many times as long as the request. `make` returns a query and its memory in bytes.
///
/// # Errors
/// Those of `make`, and those of [`Request::keep`].
pub async fn make_all<Q: Send + 'static>(
    req: &mut Request,
    posted: Vec<Map<String, Value>>,
    make: impl FnMut(&Map<String, Value>) -> Result<(Q, usize), ApiError> + Send + 'static,
) -> Result<Vec<Q>, ApiError> {
    let is_long = posted.len() > MADE_HERE_MAX || req.body_bytes > SHORT_BODY_BYTES_MAX as u64;
    let mut making = Making {
        made: Vec::with_capacity(posted.len()),
        left: posted.into_iter(),
        make,
    };
    let mut bytes_all = 0;
    while !making.left.as_slice().is_empty() {
        let bytes = match is_long {
            true => {
                let next = move || (making.make_portion(), making);
                let bytes;
                (bytes, making) = req.answers.apart(next).await?;
                bytes?
            }
            false => making.make_portion()?,
        };
        bytes_all += bytes as u64;
        req.answers.check_most(bytes_all)?;
        req.keep(bytes).await?;
    }
    Ok(making.made)
}

struct Making<Q, F> {
    made: Vec<Q>,
    left: std::vec::IntoIter<Map<String, Value>>,
    make: F,
}

impl<Q, F: FnMut(&Map<String, Value>) -> Result<(Q, usize), ApiError>> Making<Q, F> {
    /// Makes the next queries; returns their memory in bytes.
    fn make_portion(&mut self) -> Result<usize, ApiError> {
        let mut bytes = 0;
        while bytes < PORTION_BYTES
            && let Some(posted) = self.left.next()
        {
            let (query, of_query) = (self.make)(&posted)?;
            self.made.push(query);
            bytes += of_query;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_made_in_portions_of_bounded_memory() {
        let posted: Vec<_> = (0..1000).map(|_| Map::new()).collect();
        let mut making = Making {
            made: vec![],
            left: posted.into_iter(),
            make: |_: &Map<String, Value>| Ok::<_, ApiError>((vec![0_u8; 60_000], 60_000)),
        };
        let mut portions = 0;
        while !making.left.as_slice().is_empty() {
            let before = making.made.len();
            let bytes = making.make_portion().expect("nothing fails");
            assert_eq!(bytes, (making.made.len() - before) * 60_000);
            assert!(bytes < PORTION_BYTES + 60_000, "{bytes}");
            portions += 1;
        }
        assert_eq!(making.made.len(), 1000);
        assert!(portions > 50, "{portions}");
    }
}
