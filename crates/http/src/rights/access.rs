//! Who may do what in a database.

use std::sync::Arc;

use auth::{Security, UserCtx};
use database::{Database, DatabaseAs};

use crate::app::{App, require_server_admin};
use crate::document_routes::documents::caller;
use crate::errors::ApiError;

/// A database as the asking user sees it, and what the user is in it.
pub struct Access {
    pub db: DatabaseAs,
    pub is_admin: bool,
}

impl Access {
    /// Refuses users who are not members.
    pub fn open(db: Arc<Database>, user: &UserCtx) -> Result<Access, ApiError> {
        if user.is_admin() {
            return Ok(Access {
                db: db.seen_by(|| caller(user)),
                is_admin: true,
            });
        }
        let security = Security::parse(&db.security())
            .map_err(|e| ApiError::new(500, "internal_server_error", e.to_string()))?;
        if !security.is_member(user) {
            return Err(match user.name {
                None => ApiError::unauthorized("You are not authorized to access this db."),
                Some(_) => ApiError::forbidden("You are not allowed to access this db."),
            });
        }
        let is_admin = security.is_db_admin(user);
        Ok(Access {
            db: db.seen_by(|| caller(user)),
            is_admin,
        })
    }

    /// The same for somebody who wants to know all documents: who is in a database of users, and what is replicated, is for
    /// the server's admins.
    pub fn open_for_listing(
        app: &App,
        db: Arc<Database>,
        user: &UserCtx,
    ) -> Result<Access, ApiError> {
        let name = db.name();
        if replicator::is_replicator_db(name) || app.auth.is_users_database(name) {
            require_server_admin(user)?;
        }
        Access::open(db, user)
    }

    /// For maintenance: refuses users who are not admins of the database.
    pub fn require_admin(&self) -> Result<(), ApiError> {
        if self.is_admin {
            return Ok(());
        }
        Err(ApiError::unauthorized("You are not a server or db admin."))
    }

    /// For design documents and properties.
    pub fn require_design_admin(&self, user: &UserCtx) -> Result<(), ApiError> {
        if self.is_admin {
            return Ok(());
        }
        let reason = "You are not a db or server admin.";
        Err(match user.name {
            None => ApiError::unauthorized(reason),
            Some(_) => ApiError::forbidden(reason),
        })
    }
}
