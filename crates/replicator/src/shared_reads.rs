//! Reads of databases that other servers of a cluster write to as well.

use std::pin::Pin;

use crate::error::Error;

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The reads of a database that other servers of a cluster write to as well.
pub trait SharedReads: Send + Sync {
    /// Waits until this server has applied all acknowledged writes of the database.
    ///
    /// # Errors
    /// [`Error::Database`] if this server cannot: it may be cut off from the others.
    fn current(&self) -> BoxFuture<'_, Result<Settle, Error>>;
}

/// Waits until all reads since [`SharedReads::current`] are final; an error if they may be
/// lost.
pub type Settle = Box<dyn Fn() -> BoxFuture<'static, Result<(), Error>> + Send + Sync>;

/// Waits until reads of a shared database are final.
///
/// # Errors
/// They may be lost.
pub(crate) async fn settled(settle: Option<&Settle>) -> Result<(), Error> {
    match settle {
        Some(settle) => settle().await,
        None => Ok(()),
    }
}
