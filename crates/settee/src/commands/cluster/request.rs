//! Requests to a node.

use reqwest::Method;
use serde_json::Value;

use super::super::server::Server;
use crate::Failure;

/// Returns the name or number of a node: the given one, or the number of the one at the URL.
pub async fn node_at(url: &str, node: Option<&String>) -> Result<String, Failure> {
    if let Some(node) = node {
        return Ok(node.clone());
    }
    let status = ask(url, Method::GET, "/_settee/cluster", None).await?;
    Ok(status["node"].as_str().unwrap_or_default().to_owned())
}

/// Sends a request with the credentials of the URL, and returns the response.
pub async fn ask(
    url: &str,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Result<Value, Failure> {
    let server = Server::new(url, reqwest::Client::builder())?;
    let mut request = server.request(method, path);
    if let Some(body) = body {
        request = request.json(&body);
    }
    server.json(request, "an admin").await
}
