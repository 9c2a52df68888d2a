//! The interface to a cluster that keeps the continuous replications of `_replicate`: whichever node
//! runs one of them, another one continues it.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::db::json_limits::{DOC_VALUES_MAX, parse};
use crate::error::Error;
use crate::options::{Replication, RolesOf, User};
use crate::settings::Settings;
use crate::shared_reads::BoxFuture;

/// A continuous replication that a request started.
#[derive(Clone, PartialEq)]
pub struct KeptRequest {
    /// The user who requested it, with the roles of the request, or none if they are to be looked up.
    pub user: User,
    /// Whose roles it has.
    pub roles: RolesOf,
    /// The request as JSON text, with credentials.
    pub request: Arc<str>,
}

impl KeptRequest {
    /// Parses the request.
    ///
    /// # Errors
    /// Errors of [`Replication::parse`].
    pub(crate) fn replication(&self, settings: &Settings) -> Result<Replication, Error> {
        let body = parse_text(&self.request)?;
        let parsed = Replication::parse(&body, self.user.clone(), None, settings)?;
        Ok(Replication {
            kept: Some(self.roles),
            ..parsed
        })
    }

    /// Checks that a user started it, or is an admin.
    ///
    /// # Errors
    /// [`Error::NotAdmin`].
    pub(crate) fn authorize(&self, user: &User) -> Result<(), Error> {
        match user.is_admin() || user.name.is_some() && user.name == self.user.name {
            true => Ok(()),
            false => Err(Error::NotAdmin),
        }
    }
}

/// Parses the text of a request.
///
/// # Errors
/// [`Error::BadRequest`]: it has too many values, or is nested too deeply.
pub(crate) fn parse_text(request: &str) -> Result<Map<String, Value>, Error> {
    let parsed = parse(request.as_bytes(), DOC_VALUES_MAX);
    parsed.map_err(|reason| Error::BadRequest(format!("a continuous replication: {reason}")))
}

/// The continuous replications of `_replicate` of a cluster, by the ids of their jobs.
pub trait KeptRequests: Send + Sync {
    /// Waits until all acknowledged ones are known here.
    ///
    /// # Errors
    /// [`Error::Database`] if this node cannot know them.
    fn fresh(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// Returns all of them.
    fn all(&self) -> Vec<(String, KeptRequest)>;

    /// Returns the one with this id.
    fn get(&self, id: &str) -> Option<KeptRequest>;

    /// Keeps a request of a user, who may replace the one with its id: other nodes know it.
    ///
    /// # Errors
    /// [`Error::NotAdmin`], [`Error::TooLong`], [`Error::Database`].
    fn keep<'a>(
        &'a self,
        id: &'a str,
        user: &'a User,
        request: Arc<str>,
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Ends one: other nodes know it. Returns false if it does not exist.
    ///
    /// # Errors
    /// [`Error::Database`].
    fn end<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, Error>>;

    /// Notifies of all changes of [`KeptRequests::all`], and of others.
    fn changes(&self) -> watch::Receiver<u64>;
}
