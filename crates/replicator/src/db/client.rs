//! HTTP clients. Jobs that connect to a server in the same way share a client, and so its
//! connections.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Certificate, Client, Identity};
use url::{Origin, Url};

use super::address_filter::{AddressFilter, FilteredResolver};
use super::budget::{Budget, IdleSockets};
use super::connect_to::{FixedResolver, Target};
use crate::endpoint::{Proxy, Remote};
use crate::error::Error;
use crate::settings::Settings;

/// Maximum idle time of a connection.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
/// Clients kept for reuse after their last job has ended.
const CLIENTS_KEPT: usize = 8;

/// The properties that distinguish clients.
#[derive(Clone, PartialEq)]
struct Kind {
    /// The server. Each pool serves one server, so that the number of its sockets is known.
    origin: Origin,
    proxy: Option<Proxy>,
    timeout: Duration,
    /// For requests whose body, or whose response, may take longer than the read timeout.
    uploads: bool,
    verify: bool,
    trusted: Option<String>,
    identity: Option<(String, String)>,
    filter: AddressFilter,
    target: Option<Target>,
}

/// A client for one server.
pub struct PooledClient {
    pub client: Client,
    // Dropped last: the client closes the idle sockets.
    _idle: IdleSockets,
}

/// The cache of clients.
#[derive(Default)]
pub struct Clients {
    table: Mutex<Table>,
    budget: OnceLock<Arc<Budget>>,
}

#[derive(Default)]
struct Table {
    all: Vec<(Kind, Weak<PooledClient>)>,
    recent: VecDeque<Arc<PooledClient>>,
}

impl Clients {
    /// Returns the socket budget of all replications, sized by the settings of the first call;
    /// later changes of the setting have no effect.
    pub fn budget(&self, settings: &Settings) -> &Arc<Budget> {
        self.budget
            .get_or_init(|| Budget::new(settings.sockets_max, settings.selection_bytes_max))
    }

    /// Returns the client for an endpoint's requests to a URL; with `uploads`, one that waits for
    /// the response as long as the request takes. It connects to hosts that are IP addresses
    /// whatever `filter` is.
    ///
    /// # Errors
    /// [`Error::Request`] when a certificate cannot be read.
    pub fn get(
        self: &Arc<Self>,
        (remote, url): (&Remote, &Url),
        timeout: Duration,
        uploads: bool,
        settings: &Settings,
        filter: &AddressFilter,
    ) -> Result<Arc<PooledClient>, Error> {
        let kind = Kind {
            origin: url.origin(),
            proxy: remote.proxy.clone(),
            timeout,
            uploads,
            verify: settings.verify_ssl_certificates,
            trusted: settings.ssl_trusted_certificates_file.clone(),
            identity: settings.cert_file.clone().zip(settings.key_file.clone()),
            filter: filter.clone(),
            target: match remote.proxy {
                Some(_) => None,
                None => settings.connect_to.target(url).cloned(),
            },
        };
        let budget = self.budget(settings);
        let mut table = self.table.lock();
        let found = table.all.iter().find(|(k, _)| *k == kind);
        if let Some(pooled) = found.and_then(|(_, pooled)| pooled.upgrade()) {
            return Ok(pooled);
        }
        while table.recent.len() >= CLIENTS_KEPT || budget.is_idle_short() {
            if table.recent.pop_front().is_none() {
                break;
            }
        }
        table.all.retain(|(_, pooled)| pooled.strong_count() > 0);
        let idle = budget.grant_idle(uploads);
        let pooled = Arc::new(PooledClient {
            client: build(&kind, idle.sockets)?,
            _idle: idle,
        });
        table.all.push((kind, Arc::downgrade(&pooled)));
        table.recent.push_back(pooled.clone());
        Ok(pooled)
    }
}

fn build(kind: &Kind, idle_max: usize) -> Result<Client, Error> {
    // The first installation wins; all are equal.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!(
            "CouchDB-Replicator/3.5.2 (Settee/",
            env!("CARGO_PKG_VERSION"),
            ")"
        ))
        .redirect(reqwest::redirect::Policy::none())
        .http1_only()
        .no_proxy()
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(60))
        .pool_idle_timeout(IDLE_TIME_MAX)
        .pool_max_idle_per_host(idle_max)
        .connect_timeout(kind.timeout)
        // A server that stops reading is considered dead.
        .tcp_user_timeout(kind.timeout);
    if !kind.uploads {
        builder = builder.read_timeout(kind.timeout);
    }
    if let Some(target) = kind.target.clone() {
        let filter = kind.filter.clone();
        builder = builder.dns_resolver(FixedResolver { target, filter });
    } else if kind.filter != AddressFilter::Anywhere {
        builder = builder.dns_resolver(FilteredResolver(kind.filter.clone()));
    }
    if let Some(proxy) = &kind.proxy {
        let mut url = proxy.0.clone();
        if url.scheme() == "socks5" {
            // Makes the proxy resolve names.
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
