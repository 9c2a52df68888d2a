//! Rights of operations on behalf of a client that it did not request explicitly: requests that
//! rewrites produced, documents that update functions made, databases that lists and replications
//! open.
//!
//! Users' functions and replicated design documents decide what these are, with the rights of the
//! user who happens to call them. So none of them reaches beyond its database, and none has rights
//! that require an explicit request of an admin. All these operations get their rights here, and
//! nowhere else.

use std::sync::Arc;

use auth::{Auth, UserCtx};
use database::{Caller, Database, DesignDoc};

use crate::access::{Access, caller};
use crate::design::design_doc;
use crate::error::{Error, Result};

/// A request that a rewrite led elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewrittenRequest {
    /// The database whose design document has the rewrite.
    pub db: String,
    /// `[chttpd] secure_rewrites`: whether it stays in its database.
    pub secure: bool,
    /// A function gave it another method, other headers or another body than the client's.
    pub changed: bool,
}

impl RewrittenRequest {
    /// Refuses a request to where a rewrite may not lead. `db` is the first segment of the path, when it is UTF-8. Where the route
    /// is read-only for rewrites, only the client itself may change something.
    ///
    /// # Errors
    /// [`Error::InsecureRewrite`] and [`Error::ForbiddenRewrite`].
    pub fn check(
        &self,
        auth: &Auth,
        method: &str,
        db: Option<&str>,
        is_read_only: bool,
    ) -> Result<()> {
        if db != Some(&self.db) {
            return match (self.secure, self.changed) {
                (true, _) => Err(Error::InsecureRewrite("too many ../.. segments")),
                (false, true) => Err(Error::InsecureRewrite(
                    "outside its database a rewrite may not change method, headers or body",
                )),
                (false, false) => Ok(()),
            };
        }
        let reads = matches!(method, "GET" | "HEAD");
        let is_servers = is_read_only && !reads;
        let is_ruled = is_under_rules(auth, &self.db);
        if is_servers || self.changed && is_ruled && !reads {
            return Err(Error::ForbiddenRewrite);
        }
        Ok(())
    }

    /// Takes away rights that only the client's own words may use.
    pub fn bound(&self, access: Access) -> Access {
        Access {
            is_admin: access.is_admin && !self.changed,
            ..access
        }
    }
}

/// The reason of a replication with a database whose documents its owner sees by their access sets.
const REPLICATION_NOT_COVERED: &str = "a database with access by document can be replicated on this server only by its admins: use its URL, with the user's credentials";

/// Whether writes to a database have effects beyond it: on users' accounts, or on replications.
fn is_under_rules(auth: &Auth, db: &str) -> bool {
    replicator::is_replicator_db(db) || auth.is_users_database(db)
}

/// The rights with which an update function reads its document and writes another one: in databases
/// of users and of replications not as a server admin, or the function's author would have an
/// admin's rights.
pub fn updater(auth: &Auth, access: &Access, user: &UserCtx) -> (Access, Caller) {
    let mut updater = caller(user);
    updater.requester = access.db.requester().clone();
    if is_under_rules(auth, access.db.name()) {
        updater.roles.retain(|role| role != "_admin");
    }
    let db = access
        .db
        .seen_by(|| updater.clone())
        .for_requester(updater.requester.clone());
    let access = Access {
        // With the access sets that count for the user.
        db: match access.db.is_limited() {
            true => db,
            false => db.as_admin(),
        },
        is_admin: access.is_admin,
        is_alone: access.is_alone,
    };
    (access, updater)
}

/// The design document whose view a list shows: one of the same database.
///
/// # Errors
/// As [`design_doc`].
pub async fn design_doc_of_list(access: &Access, name: &str) -> Result<Arc<DesignDoc>> {
    design_doc(access, &format!("_design/{name}")).await
}

/// A database of this server that a replication names, as its owner may use it.
///
/// # Errors
/// As [`Access::open_for_listing`]; a database with access is only for its admins.
pub fn open_for_replication(auth: &Auth, db: Arc<Database>, owner: &UserCtx) -> Result<Access> {
    let access = Access::open_for_listing(auth, db, owner)?;
    match access.db.is_limited() {
        false => Ok(access),
        true => Err(database::Error::Forbidden(REPLICATION_NOT_COVERED).into()),
    }
}
