//! `settee healthcheck`: whether a server serves. An image without a shell or curl has this program alone.

use std::time::Duration;

use crate::Failure;
use crate::cli::{HealthcheckOptions, with_credentials};

/// Requests `/_up`, which a server in maintenance mode answers with 404.
pub fn run(options: &HealthcheckOptions) -> Result<(), Failure> {
    // reqwest takes the process's provider. Set already is fine too.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let parsed = reqwest::Url::parse(&with_credentials(&options.url));
    let mut url = parsed.map_err(|e| Failure::usage(format!("no URL: {e}")))?;
    let (name, password) = super::take_credentials(&mut url);
    url.set_path("/_up");
    super::runtime()?.block_on(async {
        let client = reqwest::Client::builder()
            .timeout(Duration::from_secs(options.timeout))
            .tls_danger_accept_invalid_certs(options.insecure)
            // Requests go to the server directly, whatever proxy the environment names.
            .no_proxy()
            .build();
        let mut request = client.map_err(Failure::new)?.get(url.clone());
        if !name.is_empty() {
            request = request.basic_auth(&name, password.as_ref());
        }
        let response = request.send().await;
        let response = response.map_err(|e| Failure::new(format!("{url}: {}", innermost(&e))))?;
        match response.status().as_u16() {
            200 => Ok(()),
            401 => Err(Failure::new(format!(
                "{url}: it answers users only: give NAME:PASSWORD in the URL or in SETTEE_CREDENTIALS, or set \
                 [chttpd] require_valid_user_except_for_up instead of require_valid_user"
            ))),
            404 => Err(Failure::new(format!("{url}: it is in maintenance mode"))),
            status => Err(Failure::new(format!("{url}: status {status}"))),
        }
    })
}

/// The message of the innermost error: the ones around it repeat the URL.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
