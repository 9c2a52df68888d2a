//! The interface to the server that runs the replicator.

use std::net::SocketAddr;
use std::pin::Pin;

use serde_json::{Map, Value};

use crate::db::LocalDb;
use crate::error::Error;
use crate::options::{Selection, User};
use crate::settings::Settings;

/// A boxed future.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

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

    /// Returns the node's name.
    fn node(&self) -> String;

    /// Opens a database with the rights of `user`, and with the filter that `selection` names if
    /// the database is the source.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Unauthorized`], [`Error::NoAccess`], [`Error::FilterFetch`].
    fn open(&self, db: &str, user: &User, selection: Option<&Selection>) -> Result<LocalDb, Error>;

    /// Creates a database unless it exists.
    ///
    /// # Errors
    /// [`Error::Unauthorized`], [`Error::NoAccess`], [`Error::Database`].
    fn create<'a>(
        &'a self,
        db: &'a str,
        user: &'a User,
        params: &'a Map<String, Value>,
    ) -> Pending<'a, Result<(), Error>>;
}
