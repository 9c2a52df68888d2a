//! Rights of users in a database.

use std::sync::Arc;

use auth::{Auth, Security, UserCtx};
use database::{Caller, Database, DatabaseAs};
use functions::Requester;

use crate::error::{Error, Result};

/// A database as the user sees it, and the user's rights in it.
#[derive(Clone)]
pub struct Access {
    /// The database, by whose rules its reads are.
    pub db: DatabaseAs,
    /// Whether the user is an admin of the database, or of the server.
    pub is_admin: bool,
    /// Whether the server is not one of several.
    pub is_alone: bool,
}

impl Access {
    /// Refuses users who are not members.
    ///
    /// # Errors
    /// [`Error::AnonymousNoMember`], [`Error::NoMember`], and [`Error::Security`].
    pub fn open(db: Arc<Database>, user: &UserCtx) -> Result<Access> {
        let is_alone = !db.has_sequencer();
        if user.is_admin() {
            return Ok(Access {
                is_alone,
                db: db.seen_by(|| caller(user)).for_requester(requester(user)),
                is_admin: true,
            });
        }
        let security = db.parsed_security(Security::parse)?;
        if !security.is_member(user) {
            return Err(match user.name {
                None => Error::AnonymousNoMember,
                Some(_) => Error::NoMember,
            });
        }
        let is_admin = security.is_db_admin(user);
        let db = db.seen_by(|| caller(user)).for_requester(requester(user));
        Ok(Access {
            is_alone,
            db: match is_admin {
                true => db.as_admin(),
                false => db,
            },
            is_admin,
        })
    }

    /// Opens a database for a user who reads all documents: in databases of users and of
    /// replications only server admins may do so.
    ///
    /// # Errors
    /// As [`Access::open`], and [`Error::NoServerAdmin`].
    pub fn open_for_listing(auth: &Auth, db: Arc<Database>, user: &UserCtx) -> Result<Access> {
        let name = db.name();
        if replicator::is_replicator_db(name) || auth.is_users_database(name) {
            require_server_admin(user)?;
        }
        Access::open(db, user)
    }

    /// For maintenance: refuses users who are not admins of the database.
    ///
    /// # Errors
    /// [`Error::NoMaintainer`].
    pub fn require_admin(&self) -> Result<()> {
        match self.is_admin {
            true => Ok(()),
            false => Err(Error::NoMaintainer),
        }
    }

    /// For design documents and properties.
    ///
    /// # Errors
    /// [`Error::AnonymousNoDesigner`] and [`Error::NoDesigner`].
    pub fn require_design_admin(&self, user: &UserCtx) -> Result<()> {
        match (self.is_admin, &user.name) {
            (true, _) => Ok(()),
            (false, None) => Err(Error::AnonymousNoDesigner),
            (false, Some(_)) => Err(Error::NoDesigner),
        }
    }
}

/// The user, as `validate_doc_update` functions see it.
pub fn caller(user: &UserCtx) -> Caller {
    Caller {
        name: user.name.clone(),
        roles: user.roles.clone(),
        requester: requester(user),
    }
}

/// The requester that the work of a user counts to. Users without a name are one requester if their
/// addresses are unknown.
pub fn requester(user: &UserCtx) -> Requester {
    match &user.name {
        _ if user.is_admin() => Requester::Admin,
        Some(name) => Requester::user(name),
        None => Requester::address("unknown"),
    }
}

/// Refuses anonymous users.
///
/// # Errors
/// [`Error::NoLogin`].
pub fn require_login(user: &UserCtx) -> Result<()> {
    match user.name {
        Some(_) => Ok(()),
        None => Err(Error::NoLogin),
    }
}

/// Refuses all users but server admins.
///
/// # Errors
/// [`Error::NoServerAdmin`].
pub fn require_server_admin(user: &UserCtx) -> Result<()> {
    match user.is_admin() {
        true => Ok(()),
        false => Err(Error::NoServerAdmin),
    }
}
