//! Requests to a node.

use reqwest::Method;
use serde_json::Value;

use super::super::take_credentials;
use crate::Failure;
use crate::cli::with_credentials;

/// Sends a request with the credentials of the URL, and returns the response.
pub async fn ask(
    url: &str,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Result<Value, Failure> {
    let url = with_credentials(url);
    let mut url = reqwest::Url::parse(&url).map_err(|e| Failure::usage(format!("{url}: {e}")))?;
    let (name, password) = take_credentials(&mut url);
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    url.set_path(path);
    url.set_query(Some(query).filter(|query| !query.is_empty()));
    let mut request = reqwest::Client::new()
        .request(method, url.clone())
        .basic_auth(name, password);
    if let Some(body) = body {
        request = request.json(&body);
    }
    let response = request.send().await;
    let response = response.map_err(|e| Failure::new(format!("{url}: {e}")))?;
    let status = response.status();
    let body: Value = response.json().await.unwrap_or_default();
    match status.is_success() {
        true => Ok(body),
        false => {
            let reason = body["reason"].as_str().unwrap_or("no reason was given");
            Err(Failure::new(format!(
                "the server refused ({status}): {reason}"
            )))
        }
    }
}
