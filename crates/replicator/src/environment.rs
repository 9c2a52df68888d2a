//! What the replicator needs of the server around it.

use std::pin::Pin;

use serde_json::{Map, Value};

use crate::error::Error;
use crate::options::{Selection, User};
use crate::peer::LocalPeer;
use crate::settings::Settings;

/// A future that a trait object answers.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The server, as the replicator sees it.
pub trait Environment: Send + Sync {
    /// `[replicator]`, as it is now.
    fn settings(&self) -> Settings;

    /// The server's id (`[couchdb] uuid`).
    fn uuid(&self) -> String;

    /// The node's name.
    fn node(&self) -> &'static str;

    /// A database as `user` may use it, with the filter that `selection` asks for if the database is the source.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Unauthorized`], [`Error::FilterFetch`].
    fn open(
        &self,
        db: &str,
        user: &User,
        selection: Option<&Selection>,
    ) -> Result<LocalPeer, Error>;

    /// Creates a database unless it exists.
    ///
    /// # Errors
    /// [`Error::Unauthorized`], [`Error::Database`].
    fn create<'a>(
        &'a self,
        db: &'a str,
        user: &'a User,
        params: &'a Map<String, Value>,
    ) -> Pending<'a, Result<(), Error>>;
}
