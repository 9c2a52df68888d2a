//! Selects the HTTP client for a request, by its origin and by the owner of the replication.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{HOST, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder};
use url::{Origin, Url};

use super::address_filter::{AddressFilter, AllowedAddresses, own_listeners};
use super::client::{Clients, PooledClient};
use super::connect_to::Target;
use crate::counters::CONNECT_TO_APPLIED;
use crate::endpoint::Remote;
use crate::error::Error;
use crate::settings::Settings;

/// Identifies the replication that a request belongs to, for this server itself.
pub const TOKEN: HeaderName = HeaderName::from_static("x-settee-replication");

/// The rights of a replication's owner.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// The owner of the replication.
    pub user: String,
    /// Where it may connect to; `None` for server admins, who may connect anywhere.
    pub allowed: Option<AllowedAddresses>,
    /// The addresses on which this server listens.
    pub listening: Vec<SocketAddr>,
    /// Identifies the server's own requests.
    pub token: Option<HeaderValue>,
}

/// The clients for one origin.
#[derive(Clone)]
pub struct Route {
    client: Arc<PooledClient>,
    uploader: Arc<PooledClient>,
    /// The server that the clients connect to, by `[replicator] connect_to`.
    target: Option<Target>,
    /// Sent only to this server itself: no other may learn it.
    pub token: Option<HeaderValue>,
    /// Whether it leads to another server on behalf of a user who is not a server admin.
    pub is_guarded: bool,
}

impl Route {
    /// Returns a request to a URL; with `uploads`, of a client that waits for the response as long
    /// as the request takes.
    pub fn request(&self, method: Method, url: Url, uploads: bool) -> RequestBuilder {
        let client = match uploads {
            true => &self.uploader.client,
            false => &self.client.client,
        };
        let Some(target) = &self.target else {
            return client.request(method, url);
        };
        CONNECT_TO_APPLIED.count();
        let (url, host) = target.request_to(&url);
        let request = client.request(method, url);
        match host {
            Some(host) => request.header(HOST, host),
            None => request,
        }
    }
}

pub struct Outbound {
    clients: Arc<Clients>,
    remote: Remote,
    timeout: Duration,
    settings: Settings,
    rights: Rights,
    known: Mutex<Vec<(Origin, Route)>>,
    /// Whether a database has answered: later failures are the database's and reveal nothing about
    /// open ports.
    has_answered: AtomicBool,
}

/// Maximum number of origins that redirects lead to.
const ROUTES_MAX: usize = 16;

impl Outbound {
    pub fn new(
        remote: &Remote,
        timeout: Duration,
        settings: &Settings,
        clients: &Arc<Clients>,
        rights: Rights,
    ) -> Outbound {
        Outbound {
            clients: clients.clone(),
            remote: remote.clone(),
            timeout,
            settings: settings.clone(),
            rights,
            known: Mutex::default(),
            has_answered: AtomicBool::new(false),
        }
    }

    /// Returns the route to a URL.
    ///
    /// # Errors
    /// [`Error::Forbidden`] when it may not connect there, [`Error::Request`] when certificates
    /// cannot be read.
    pub async fn to(&self, url: &Url) -> Result<Route, Error> {
        let origin = url.origin();
        let known = self
            .known
            .lock()
            .iter()
            .find(|(o, _)| *o == origin)
            .cloned();
        if let Some((_, route)) = known {
            return Ok(route);
        }
        let route = self.open(url).await?;
        let mut known = self.known.lock();
        known.truncate(ROUTES_MAX - 1);
        known.push((origin, route.clone()));
        Ok(route)
    }

    async fn open(&self, url: &Url) -> Result<Route, Error> {
        let target = match self.remote.proxy {
            Some(_) => None,
            None => self.settings.connect_to.target(url).cloned(),
        };
        let there = target.as_ref().and_then(|target| target.in_place_of(url));
        let there = there.as_ref().unwrap_or(url);
        let own = match self.remote.proxy {
            // A proxy counts as another server, whatever its destination.
            Some(_) => None,
            None => own_listeners(there, &self.rights.listening).await,
        };
        let own = own.map(AddressFilter::Own).filter(|_| {
            let allowed = self.rights.allowed.as_ref();
            allowed.is_none_or(|allowed| allowed.own)
        });
        let is_own = own.is_some();
        let filter = own.unwrap_or_else(|| match &self.rights.allowed {
            None => AddressFilter::Anywhere,
            Some(allowed) => AddressFilter::Only(allowed.clone()),
        });
        let is_guarded = matches!(filter, AddressFilter::Only(_));
        let proxy = self.remote.proxy.as_ref().map(|proxy| &proxy.0);
        for url in [Some(there), proxy].into_iter().flatten() {
            if is_guarded && !filter.permits_host(url) {
                let host = url.host_str().unwrap_or_default();
                return Err(Error::Forbidden(format!(
                    "only server admins may replicate with {host} (see [replicator] allowed_addresses)"
                )));
            }
        }
        let client = |uploads| {
            let (timeout, settings) = (self.timeout, &self.settings);
            self.clients
                .get((&self.remote, url), timeout, uploads, settings, &filter)
        };
        Ok(Route {
            client: client(false)?,
            uploader: client(true)?,
            target,
            token: self.rights.token.clone().filter(|_| is_own),
            is_guarded,
        })
    }

    /// Returns whether all failures must look alike, in text and in timing, so that users who are
    /// not server admins cannot scan ports.
    pub fn hides_failures(&self) -> bool {
        if self.rights.allowed.is_none() || self.has_answered.load(Ordering::Relaxed) {
            return false;
        }
        let origin = self.remote.url.origin();
        let known = self.known.lock();
        let route = known.iter().find(|(o, _)| *o == origin);
        route.is_none_or(|(_, route)| route.is_guarded)
    }

    /// Returns the user that its sockets are charged to; `None` for server admins.
    pub fn user(&self) -> Option<&str> {
        (!self.is_admins()).then_some(&self.rights.user)
    }

    /// Records that a database has answered.
    pub fn note_answer(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
    }

    /// Returns whether the owner is a server admin.
    pub fn is_admins(&self) -> bool {
        self.rights.allowed.is_none()
    }
}
