//! Permissions of routes.

/// The users who may use a route. Rights that depend on the document, such as the rules of
/// `_users`, are checked where it is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// All clients.
    Anyone,
    /// All clients, or server admins only: `[chttpd] admin_only_all_dbs`.
    AllDbs,
    /// Users who have logged in.
    User,
    /// Server admins, and users with the role `_metrics`.
    Metrics,
    /// Server admins.
    ServerAdmin,
    /// Members of the database.
    Member,
    /// Members of the database; of `_users` and `_replicator`, where the rules hide documents, server admins.
    Listing,
    /// Admins of the database; of `_users` and `_replicator`, server admins. Others get CouchDB's "You are not a db or server admin."
    ListingAdmin,
    /// Admins of the database. Others get CouchDB's "You are not a server or db admin."
    DatabaseAdmin,
    /// Admins of the database. Others get CouchDB's "You are not a db or server admin."
    DesignAdmin,
}

impl Who {
    /// Returns the name that the manual's API page uses.
    pub fn name(self) -> &'static str {
        match self {
            Who::Anyone => "anybody",
            Who::User => "user",
            Who::Member | Who::Listing => "member",
            Who::DatabaseAdmin | Who::DesignAdmin | Who::ListingAdmin => "db-admin",
            Who::AllDbs | Who::Metrics | Who::ServerAdmin => "admin",
        }
    }
}
