//! The interface to the server that runs the replicator.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::db::LocalDb;
use crate::error::Error;
use crate::kept::KeptRequests;
use crate::options::{Selection, User};
use crate::placement::Placement;
use crate::settings::Settings;
use crate::shared_reads::BoxFuture;

/// The server, as the replicator sees it.
pub trait Environment: Send + Sync {
    /// Returns the current settings of `[replicator]`.
    fn settings(&self) -> Settings;

    /// Returns the server's id (`[couchdb] uuid`).
    fn uuid(&self) -> String;

    /// Returns whether the user of this name is a server admin.
    fn is_admin(&self, name: &str) -> bool;

    /// Returns the addresses on which this server listens.
    fn listening(&self) -> Vec<SocketAddr> {
        vec![]
    }

    /// Returns the token by which the server recognises its own requests for replications of this
    /// owner. It is sent to no other server.
    fn token(&self, owner: &str) -> Option<String> {
        let _ = owner;
        None
    }

    /// Returns which jobs of documents this server runs if it is a node of a cluster, whose nodes
    /// all have its databases; `None` if it runs all.
    fn placement(&self) -> Option<Arc<dyn Placement>> {
        None
    }

    /// Returns the continuous replications of requests if this server is a node of a cluster, which
    /// keeps them; `None` if they end with the server.
    fn kept(&self) -> Option<Arc<dyn KeptRequests>> {
        None
    }

    /// Returns a user with the current roles; `None` for a user without an account.
    ///
    /// # Errors
    /// [`Error::Database`].
    fn account(&self, name: &str) -> Result<Option<User>, Error> {
        let _ = name;
        Ok(None)
    }

    /// Returns the node's name.
    fn node(&self) -> String;

    /// Opens a database with the rights of `user`, and with the filter that `selection` names if
    /// the database is the source.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Unauthorized`], [`Error::NoAccess`], [`Error::FilterFetch`].
    fn open<'a>(
        &'a self,
        db: &'a str,
        user: &'a User,
        selection: Option<&'a Selection>,
    ) -> BoxFuture<'a, Result<LocalDb, Error>>;

    /// Creates a database unless it exists.
    ///
    /// # Errors
    /// [`Error::Unauthorized`], [`Error::NoAccess`], [`Error::Database`].
    fn create<'a>(
        &'a self,
        db: &'a str,
        user: &'a User,
        params: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<(), Error>>;
}
