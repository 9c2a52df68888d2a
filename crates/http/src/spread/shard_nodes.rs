//! Reads of one shard at the nodes that have it.

use std::sync::Arc;

use bytes::Bytes;
use database::Database;
use hyper::header::{ACCEPT_ENCODING, HeaderMap, IF_NONE_MATCH};
use member::{ForwardedClientRequest, Member};
use serde_json::Value;

use super::part_header;
use crate::errors::ApiError;
use crate::forwarded_headers::headers_for_others;
use crate::request::Request;

/// Maximum size of an error's text, in bytes.
const ERROR_BYTES_MAX: usize = 1 << 20;

/// A client's request that reads all shards of a database.
pub struct ShardNodes {
    member: Arc<Member>,
    /// The database.
    pub db: Arc<Database>,
    method: String,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl ShardNodes {
    /// Creates it for a request whose body was read.
    pub fn new(member: &Arc<Member>, db: Arc<Database>, req: &Request, body: Bytes) -> ShardNodes {
        let mut headers = headers_for_others(req);
        headers.remove(IF_NONE_MATCH);
        headers.remove(ACCEPT_ENCODING);
        headers.remove("last-event-id");
        ShardNodes {
            member: member.clone(),
            db,
            method: req.method.clone(),
            path: req.path.clone(),
            headers,
            body,
        }
    }

    /// Returns the number of shards.
    pub fn count(&self) -> usize {
        self.db.all_shards().len()
    }

    /// Sends the request with other parameters to the first of a shard's nodes that answers.
    ///
    /// # Errors
    /// That of the node, or 503.
    pub async fn ask(&self, shard: usize, query: &str) -> Result<peers::Body, ApiError> {
        let method = self.method.clone();
        let body = self.body.clone();
        self.send(shard, query, &method, body).await
    }

    /// Reads with other parameters at the first of a shard's nodes that answers.
    ///
    /// # Errors
    /// That of the node, or 503.
    pub async fn get(&self, shard: usize, query: &str) -> Result<peers::Body, ApiError> {
        self.send(shard, query, "GET", Bytes::new()).await
    }

    async fn send(
        &self,
        shard: usize,
        query: &str,
        method: &str,
        body: Bytes,
    ) -> Result<peers::Body, ApiError> {
        let gateway = self.member.gateway();
        let slot = gateway.slot_of_shard(&self.db, shard);
        let target = format!("{}?{query}", self.path);
        let mut headers = self.headers.clone();
        headers.extend(part_header(&[slot]));
        let forwarded = ForwardedClientRequest {
            method,
            target: &target,
            headers,
            body,
        };
        let nodes = gateway.nodes_of_slot(&self.db, slot);
        let reply = self.member.ask_nodes(nodes, forwarded, true).await;
        let no_answer = || ApiError::busy("the nodes of a shard do not answer".to_owned());
        let reply = reply.ok_or_else(no_answer)?;
        if reply.status.is_success() {
            return Ok(reply.body);
        }
        let status = reply.status.as_u16();
        let text = reply.body.read(ERROR_BYTES_MAX).await.unwrap_or_default();
        Err(error_of(status, &text))
    }
}

/// Returns the parameters of a query but for some, whose names are in lower case: each with `&`
/// before it.
pub fn other_parameters(query: &str, own: &[&str]) -> String {
    let is_other = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        !pair.is_empty() && !own.contains(&name.to_ascii_lowercase().as_str())
    };
    let others = query.split('&').filter(is_other);
    others.flat_map(|pair| ["&", pair]).collect()
}

/// Returns the error that a node answered with.
fn error_of(status: u16, text: &[u8]) -> ApiError {
    let value: Value = serde_json::from_slice(text).unwrap_or_default();
    let member = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let error = member("error").unwrap_or_else(|| "service_unavailable".to_owned());
    ApiError::new(status, error, member("reason").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_has_its_own_parameters_and_the_others() {
        let query = "since=3-a&include_docs=true&limit=5&Feed=longpoll&&style=all_docs";
        let others = other_parameters(query, &["since", "limit", "feed"]);
        assert_eq!(others, "&include_docs=true&style=all_docs");
        assert_eq!(other_parameters("", &[]), "");
    }

    #[test]
    fn the_error_of_a_node_is_the_error_of_the_request() {
        let e = error_of(404, b"{\"error\":\"not_found\",\"reason\":\"missing\"}\n");
        assert_eq!(
            (e.status, &*e.error, &*e.reason),
            (404, "not_found", "missing")
        );
        assert_eq!(error_of(502, b"<html>").error, "service_unavailable");
    }
}
