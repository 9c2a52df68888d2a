//! The user of a request.

/// The role of server administrators.
pub(crate) const ADMIN_ROLE: &str = "_admin";

/// The only other role of the system: may read statistics.
pub(crate) const METRICS_ROLE: &str = "_metrics";

/// The user of a request: CouchDB's user context.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserCtx {
    /// Name; `None` for an anonymous request.
    pub name: Option<String>,
    /// Roles.
    pub roles: Vec<String>,
}

impl UserCtx {
    /// Returns the anonymous user.
    pub fn anonymous() -> UserCtx {
        UserCtx::default()
    }

    /// Returns the server administrator of this name.
    pub fn admin(name: &str) -> UserCtx {
        UserCtx {
            name: Some(name.to_owned()),
            roles: vec![ADMIN_ROLE.to_owned()],
        }
    }

    /// Returns this user with the role of server administrators.
    pub(crate) fn with_admin_role(&self) -> UserCtx {
        let mut user = self.clone();
        if !user.is_admin() {
            user.roles.push(ADMIN_ROLE.to_owned());
        }
        user
    }

    /// Returns whether this is a server administrator.
    pub fn is_admin(&self) -> bool {
        self.roles.iter().any(|role| role == ADMIN_ROLE)
    }
}
