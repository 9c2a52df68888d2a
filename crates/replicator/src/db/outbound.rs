//! The clients that a peer's requests go out by: which one depends on where they go, and on whose replication it is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::Client;
use reqwest::header::{HeaderName, HeaderValue};
use url::{Origin, Url};

use super::client::{Clients, Pooled};
use super::reach::{Allowed, Reach, own_listeners};
use crate::endpoint::Remote;
use crate::error::Error;
use crate::settings::Settings;

/// Tells this very server whose replication a request belongs to.
pub const TOKEN: HeaderName = HeaderName::from_static("x-settee-replication");

/// What a replication may do because of whose it is.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// The user whose replication it is.
    pub user: String,
    /// Where it may connect to; `None` for those of server admins, which may connect anywhere.
    pub allowed: Option<Allowed>,
    /// Where this very server listens.
    pub listening: Vec<SocketAddr>,
    /// What this very server recognises its own requests by.
    pub token: Option<HeaderValue>,
}

/// The clients for one origin.
#[derive(Clone)]
pub struct Route {
    client: Arc<Pooled>,
    uploader: Arc<Pooled>,
    /// Only when it leads to this very server: nobody else is to learn it.
    pub token: Option<HeaderValue>,
    /// Whether it leads elsewhere, for somebody who is no server admin.
    pub is_guarded: bool,
}

impl Route {
    /// With `uploads`, one that waits for an answer as long as the request takes.
    pub fn client(&self, uploads: bool) -> &Client {
        match uploads {
            true => &self.uploader.client,
            false => &self.client.client,
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
    /// Whether a database has answered: what is told from then on is its, and tells nothing of ports.
    has_answered: AtomicBool,
}

/// Origins that redirects lead to, at most.
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

    /// How requests get to a URL.
    ///
    /// # Errors
    /// [`Error::Forbidden`] when they may not, [`Error::Request`] when certificates cannot be read.
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
        let own = match self.remote.proxy {
            // A proxy is another server, wherever it leads.
            Some(_) => None,
            None => own_listeners(url, &self.rights.listening).await,
        };
        let own = own.map(Reach::Own).filter(|_| {
            let allowed = self.rights.allowed.as_ref();
            allowed.is_none_or(|allowed| allowed.own)
        });
        let is_own = own.is_some();
        let reach = own.unwrap_or_else(|| match &self.rights.allowed {
            None => Reach::Anywhere,
            Some(allowed) => Reach::Only(allowed.clone()),
        });
        let is_guarded = matches!(reach, Reach::Only(_));
        let proxy = self.remote.proxy.as_ref().map(|proxy| &proxy.0);
        for url in [Some(url), proxy].into_iter().flatten() {
            if is_guarded && !reach.permits_host(url) {
                let host = url.host_str().unwrap_or_default();
                return Err(Error::Forbidden(format!(
                    "only server admins may replicate with {host} (see [replicator] allowed_addresses)"
                )));
            }
        }
        let client = |uploads| {
            let (timeout, settings) = (self.timeout, &self.settings);
            self.clients
                .get((&self.remote, url), timeout, uploads, settings, &reach)
        };
        Ok(Route {
            client: client(false)?,
            uploader: client(true)?,
            token: self.rights.token.clone().filter(|_| is_own),
            is_guarded,
        })
    }

    /// Whether failures must look alike, in words and in time, lest somebody who is no server admin looks for open ports.
    pub fn hides_failures(&self) -> bool {
        if self.rights.allowed.is_none() || self.has_answered.load(Ordering::Relaxed) {
            return false;
        }
        let origin = self.remote.url.origin();
        let known = self.known.lock();
        let route = known.iter().find(|(o, _)| *o == origin);
        route.is_none_or(|(_, route)| route.is_guarded)
    }

    /// The user whom its sockets are counted for; `None` for server admins.
    pub fn user(&self) -> Option<&str> {
        (!self.is_admins()).then_some(&self.rights.user)
    }

    /// A database has answered.
    pub fn note_answer(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
    }

    /// Whether it is the replication of a server admin.
    pub fn is_admins(&self) -> bool {
        self.rights.allowed.is_none()
    }
}
