//! Requests to a node.

use reqwest::Method;
use serde_json::Value;

use super::super::server::Server;
use crate::Failure;

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
