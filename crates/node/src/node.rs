//! The parts of one server, behind its sockets.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use auth::Auth;
use config::Config;
use database::Databases;
use document::{UuidAlgorithm, UuidGenerator};
use member::Member;
use parking_lot::RwLock;
use replicator::Replicator;

use crate::auto_purge::AutoPurge;
use crate::backups::Backups;
use crate::expirer::Expirer;
use crate::memory::MemoryPlan;
use crate::replication::Surroundings;
use crate::settings;

/// One server: its databases, its configuration, its users, its replications.
pub struct Node {
    /// All databases.
    pub databases: Arc<Databases>,
    /// The configuration.
    pub config: Config,
    /// Authentication.
    pub auth: Auth,
    /// It runs once the server does.
    pub replicator: Arc<Replicator>,
    /// The backups that it makes.
    pub backups: Arc<Backups>,
    /// Purges of documents that were deleted long ago.
    pub auto_purge: Arc<AutoPurge>,
    /// Deletions and purges of documents that have expired.
    pub expirer: Arc<Expirer>,
    /// The server's id, of `[couchdb] uuid`.
    pub uuid: String,
    /// Its name among the nodes of a cluster, of `[couchdb] node_name`.
    pub name: String,
    /// How much memory each part may take.
    pub memory: MemoryPlan,
    /// Time of its creation.
    pub started: Instant,
    member: OnceLock<Arc<Member>>,
    uuids: RwLock<Arc<UuidGenerator>>,
    /// Where connections come in.
    listening: RwLock<Vec<SocketAddr>>,
}

impl Node {
    /// Combines the parts. The databases get their settings now, and after every change of them.
    ///
    /// # Errors
    /// Errors of storing a new id in the configuration.
    pub fn new(
        databases: Arc<Databases>,
        config: Config,
        auth: Auth,
        memory: MemoryPlan,
    ) -> Result<Arc<Node>, config::ConfigError> {
        let settings = config.settings();
        let uuid = match settings.couchdb.uuid.clone() {
            Some(uuid) => uuid,
            None => {
                let uuid = UuidGenerator::new(UuidAlgorithm::Random).next();
                config.set("couchdb", "uuid", &uuid, true)?;
                uuid
            }
        };
        settings::tell(&settings, &databases);
        auth.use_databases(&databases);
        let uuids = UuidGenerator::new(settings::uuid_algorithm(&settings));
        let node = Arc::new_cyclic(|me| Node {
            replicator: Replicator::new(databases.clone(), Arc::new(Surroundings(me.clone()))),
            backups: Backups::new(databases.clone(), config.clone(), uuid.clone()),
            auto_purge: AutoPurge::new(me.clone()),
            expirer: {
                let node = me.clone();
                let acts_for = move |database: &str| {
                    node.upgrade()
                        .is_some_and(|node: Arc<Node>| node.acts_for(database))
                };
                Expirer::new(&databases, acts_for)
            },
            databases,
            auth,
            uuid,
            name: settings.couchdb.node_name.clone(),
            memory,
            started: Instant::now(),
            member: OnceLock::new(),
            uuids: RwLock::new(Arc::new(uuids)),
            listening: RwLock::default(),
            config,
        });
        let weak = Arc::downgrade(&node);
        node.config.subscribe(move |_| {
            if let Some(node) = weak.upgrade() {
                node.reread();
            }
        });
        Ok(node)
    }

    fn reread(&self) {
        // Read while the lock is held, so that of two concurrent changes the older does not win.
        let mut uuids = self.uuids.write();
        let settings = self.settings();
        settings::tell(&settings, &self.databases);
        *uuids = Arc::new(UuidGenerator::new(settings::uuid_algorithm(&settings)));
        self.backups.reread();
        self.auto_purge.reread(&settings.couch_auto_purge_plugin);
    }

    /// Returns the current settings.
    pub fn settings(&self) -> Arc<config::Settings> {
        self.config.settings()
    }

    /// An id for a document without one.
    pub fn new_uuid(&self) -> String {
        self.uuids.read().next()
    }

    /// It is a member of a cluster. Said once, before anything is served.
    pub fn be_member(&self, member: Arc<Member>) {
        // A second time changes nothing.
        let _ = self.member.set(member);
    }

    /// Its membership in a cluster; `None` when it is alone.
    pub fn member(&self) -> Option<&Arc<Member>> {
        self.member.get()
    }

    /// Whether this node has the tasks for some databases that one node of a cluster performs.
    pub(crate) fn acts_for_some(&self) -> bool {
        let acts = |member: &Arc<Member>| member.gateway().lacks_slots() || member.is_first();
        self.member().is_none_or(acts)
    }

    /// Whether this node has the tasks for a database that one node of a cluster performs.
    pub(crate) fn acts_for(&self, database: &str) -> bool {
        self.member().is_none_or(|member| member.acts_for(database))
    }

    /// Sets the addresses of the listening sockets.
    pub fn set_listening(&self, addresses: Vec<SocketAddr>) {
        *self.listening.write() = addresses;
    }

    /// Where connections come in.
    pub fn listening(&self) -> Vec<SocketAddr> {
        self.listening.read().clone()
    }
}
