//! HTTP clients: jobs that connect alike share one, and with it its connections.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Certificate, Client, Identity};

use super::reach::{Guarded, Reach};
use crate::endpoint::{Proxy, Remote};
use crate::error::Error;
use crate::settings::Settings;

/// How long an idle connection is kept.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
/// Connections to a server that are kept while nobody uses them.
const IDLE_CONNECTIONS_MAX: usize = 32;
/// Distinct clients kept: proxies and timeouts differ rarely.
const CLIENTS_MAX: usize = 32;

/// What distinguishes clients.
#[derive(Clone, PartialEq)]
struct Kind {
    proxy: Option<Proxy>,
    timeout: Duration,
    /// For requests whose body, or the wait for the answer, may take longer than any silence.
    uploads: bool,
    verify: bool,
    trusted: Option<String>,
    identity: Option<(String, String)>,
    reach: Reach,
}

/// The clients in use.
#[derive(Default)]
pub struct Clients(Mutex<Vec<(Kind, Client)>>);

impl Clients {
    /// The client for an endpoint; with `uploads`, one that waits for an answer as long as the request takes. Hosts that are
    /// addresses it connects to whatever `reach` says.
    ///
    /// # Errors
    /// [`Error::Request`] when a certificate cannot be read.
    pub fn get(
        self: &Arc<Self>,
        remote: &Remote,
        timeout: Duration,
        uploads: bool,
        settings: &Settings,
        reach: &Reach,
    ) -> Result<Client, Error> {
        let kind = Kind {
            proxy: remote.proxy.clone(),
            timeout,
            uploads,
            verify: settings.verify_ssl_certificates,
            trusted: settings.ssl_trusted_certificates_file.clone(),
            identity: settings.cert_file.clone().zip(settings.key_file.clone()),
            reach: reach.clone(),
        };
        let mut clients = self.0.lock();
        if let Some((_, client)) = clients.iter().find(|(k, _)| *k == kind) {
            return Ok(client.clone());
        }
        let client = build(&kind)?;
        if clients.len() >= CLIENTS_MAX {
            clients.remove(0);
        }
        clients.push((kind, client.clone()));
        Ok(client)
    }
}

fn build(kind: &Kind) -> Result<Client, Error> {
    // Whoever installed one first wins; both are the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!(
            "CouchDB-Replicator/3.5.0 (Settee/",
            env!("CARGO_PKG_VERSION"),
            ")"
        ))
        .redirect(reqwest::redirect::Policy::none())
        .http1_only()
        .no_proxy()
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(60))
        .pool_idle_timeout(IDLE_TIME_MAX)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .connect_timeout(kind.timeout)
        // A peer that takes no bytes any more is gone.
        .tcp_user_timeout(kind.timeout);
    if !kind.uploads {
        builder = builder.read_timeout(kind.timeout);
    }
    if kind.reach != Reach::Anywhere {
        builder = builder.dns_resolver(Guarded(kind.reach.clone()));
    }
    if let Some(proxy) = &kind.proxy {
        let mut url = proxy.0.clone();
        if url.scheme() == "socks5" {
            // The proxy looks names up.
            let by_name = url.as_str().replacen("socks5:", "socks5h:", 1);
            url = by_name.parse().map_err(|_| failed("proxy"))?;
        }
        builder = builder.proxy(reqwest::Proxy::all(url).map_err(|_| failed("proxy"))?);
    }
    if !kind.verify {
        builder = builder.tls_danger_accept_invalid_certs(true);
    } else if let Some(path) = &kind.trusted {
        let authorities = Certificate::from_pem_bundle(&read(path)?)
            .map_err(|_| failed("ssl_trusted_certificates_file"))?;
        builder = builder.tls_certs_only(authorities);
    }
    if let Some((cert, key)) = &kind.identity {
        let mut pem = read(cert)?;
        pem.push(b'\n');
        pem.extend(read(key)?);
        builder = builder.identity(Identity::from_pem(&pem).map_err(|_| failed("cert_file"))?);
    }
    builder.build().map_err(|e| Error::Request(e.to_string()))
}

fn failed(what: &str) -> Error {
    Error::Request(format!("[replicator] {what} cannot be used"))
}

fn read(path: &str) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|e| Error::Request(format!("[replicator] {path}: {e}")))
}
