//! `settee healthcheck`: whether a server serves. An image without a shell or curl has this program alone.

use std::time::Duration;

use command_line::not_couchdb;
use reqwest::Method;
use serde_json::Value;

use super::server::Server;
use crate::Failure;
use crate::cli::HealthcheckOptions;

/// Requests `/_up`, which a server in maintenance mode answers with 404.
pub fn run(options: &HealthcheckOptions) -> Result<(), Failure> {
    let client = reqwest::Client::builder()
        .timeout(Duration::from_secs(options.timeout))
        .tls_danger_accept_invalid_certs(options.insecure)
        // Requests go to the server directly, whatever proxy the environment names.
        .no_proxy();
    let server = Server::new(&options.url, client)?;
    super::runtime()?.block_on(async {
        let response = server.send(server.request(Method::GET, "/_up")).await?;
        let status = response.status().as_u16();
        let body = response.json::<Value>().await.ok();
        let url = server.url();
        match (status, body) {
            (200, Some(_)) => Ok(()),
            (status, None) => Err(Failure::new(not_couchdb(url, status))),
            (401, Some(body)) if server.has_login() => Err(server.refusal(401, &body, "a user")),
            (401, _) => Err(Failure::new(format!(
                "{url}: it answers users only: give NAME:PASSWORD in the URL or in SETTEE_CREDENTIALS, or set \
                 [chttpd] require_valid_user_except_for_up instead of require_valid_user"
            ))),
            (404, _) => Err(Failure::new(format!("{url}: it is in maintenance mode"))),
            (status, _) => Err(Failure::new(format!("{url}: status {status}"))),
        }
    })
}
