//! Whether the reader of a feed may still read: a feed can outlast the permission of its user by days.

use std::sync::Arc;

use auth::UserCtx;
use database::Database;
use document::Principals;
use node::{Access, Node};

use crate::app::App;
use crate::request::Request;

/// The permission to read a database, as of the last check.
pub struct Permission {
    node: Arc<Node>,
    db: Arc<Database>,
    user: Arc<UserCtx>,
    /// Whether the user has a document, or is an admin of the configuration. Others, with a token
    /// or through a proxy, have the roles that these name.
    has_account: bool,
    /// Whose access sets count, in a database with access. A feed is of these principals.
    principals: Option<Principals>,
    security: Arc<str>,
    /// Updates of the users' database.
    users_seq: u64,
    /// The version of the settings of logins.
    auth_version: u64,
}

/// Whether the user of a request has a document, or is an admin of the configuration.
fn has_account(req: &Request) -> bool {
    matches!(req.authenticated, Some("cookie" | "default"))
}

impl Permission {
    /// Returns the permission of a request's user, which was checked when the request came. In a
    /// database with access it is checked again at first: the roles may have changed while the
    /// client sent the body, for as long as it liked.
    pub fn of(app: &App, req: &Request, access: &Access) -> Permission {
        let has_account = has_account(req);
        // No account is older than its first update.
        let is_noted = has_account && !access.db.is_limited();
        Permission {
            users_seq: if is_noted { users_seq(&app.node) } else { 0 },
            auth_version: app.node.auth.version(),
            node: app.node.clone(),
            principals: access.db.principals().cloned(),
            security: access.db.security(),
            db: Arc::clone(&access.db),
            user: req.user.clone(),
            has_account,
        }
    }

    /// Returns whether the user may still read. Nothing is looked up unless something changed.
    pub fn holds(&mut self) -> bool {
        let security = self.db.security();
        let is_same = Arc::ptr_eq(&security, &self.security) || security == self.security;
        let users_seq = if self.has_account {
            users_seq(&self.node)
        } else {
            0
        };
        let auth_version = self.node.auth.version();
        if is_same && users_seq == self.users_seq && auth_version == self.auth_version {
            return true;
        }
        (self.security, self.users_seq) = (security, users_seq);
        self.auth_version = auth_version;
        if let (true, Some(name)) = (self.has_account, &self.user.name) {
            // An account that cannot be read now is checked again at the next change of an account.
            match self.node.auth.current_user(name) {
                Ok(Some(user)) => self.user = user,
                Ok(None) => return false,
                Err(_) => {}
            }
        }
        let access = Access::open_for_listing(&self.node.auth, self.db.clone(), &self.user);
        access.is_ok_and(|access| access.db.principals() == self.principals.as_ref())
    }
}

/// The permission of a server admin, as of the last check.
pub struct AdminPermission {
    node: Arc<Node>,
    /// The name of an admin of the configuration. Others have the roles that a token or a proxy names.
    name: Option<String>,
    auth_version: u64,
}

impl AdminPermission {
    /// Returns the permission of a request's user, who is a server admin.
    pub fn of(app: &App, req: &Request) -> AdminPermission {
        AdminPermission {
            node: app.node.clone(),
            name: req.user.name.clone().filter(|_| has_account(req)),
            auth_version: app.node.auth.version(),
        }
    }

    /// Returns whether the user is still a server admin. Nothing is looked up unless settings changed.
    pub fn holds(&mut self) -> bool {
        let auth = &self.node.auth;
        let before = std::mem::replace(&mut self.auth_version, auth.version());
        let is_admin = |name: &String| auth.is_admin(name);
        before == self.auth_version || self.name.as_ref().is_none_or(is_admin)
    }
}

fn users_seq(node: &Node) -> u64 {
    let name = &node.settings().chttpd_auth.authentication_db;
    let seq = |db: Arc<Database>| db.all_shards().iter().map(|s| s.meta().update_seq).sum();
    node.databases.get(name).map_or(0, seq)
}
