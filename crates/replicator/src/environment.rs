//! What the replicator needs of the server around it.

use std::net::SocketAddr;
use std::pin::Pin;

use serde_json::{Map, Value};

use crate::db::LocalDb;
use crate::error::Error;
use crate::options::{Selection, User};
use crate::settings::Settings;

/// A future that a trait object answers.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The server, as the replicator sees it.
pub trait Environment: Send + Sync {
    /// `[replicator]`, as it is now.
    fn settings(&self) -> Settings;

    /// The server's id (`[couchdb] uuid`).
    fn uuid(&self) -> String;

    /// Whether somebody of this name is a server administrator.
    fn is_admin(&self, name: &str) -> bool;

    /// Where this server listens.
    fn listening(&self) -> Vec<SocketAddr> {
        vec![]
    }

    /// What the server recognises its own requests by, those of a replication that somebody of this name wants. It is sent to
    /// nobody else.
    fn token(&self, owner: &str) -> Option<String> {
        let _ = owner;
        None
    }

    /// The node's name.
    fn node(&self) -> String;

    /// A database as `user` may use it, with the filter that `selection` asks for if the database is the source.
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
