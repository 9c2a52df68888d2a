//! Errors of a member of a cluster.

use std::path::PathBuf;

use cluster::record::RecordVersion;

/// Maximum number of databases named in an error.
const NAMED_MAX: usize = 5;

/// Lists the first of these names.
pub(crate) fn named(names: &[&str]) -> String {
    let count = names.len();
    let more = if count > NAMED_MAX { ", ..." } else { "" };
    format!("{}{more}", names[..count.min(NAMED_MAX)].join(", "))
}

/// The reason why a node cannot be a member, or cannot do something.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory already belongs to a member.
    #[error(
        "{0} exists already: this data directory belongs to a cluster. Another one needs another --data"
    )]
    AlreadyMember(PathBuf),
    /// The cluster's files cannot be read or written.
    #[error("{0}")]
    Membership(String),
    /// No random numbers are available.
    #[error("no random numbers: {0}")]
    Random(String),
    /// The store is not the one that the node had.
    #[error(
        "{0} is not the store that this node had: it was lost, or restored from a backup. A node must not vote with another one. Have the node leave (`settee cluster leave URL --node NAME` at another one), and join again with an empty --data"
    )]
    OtherStore(PathBuf),
    /// There are databases that the cluster does not know.
    #[error(
        "this server has databases from before it was in a cluster ({0}): a node starts with an empty --data. Start the node with another --data. To make these databases those of a new cluster, remove the folder `cluster` of this --data, and run `settee cluster init --adopt`. If the directory had joined a cluster, have its node leave that (`settee cluster leave URL --node NAME@HOST` at another one)"
    )]
    OwnDatabases(String),
    /// A new node would delete the databases of its directory.
    #[error(
        "{0} has databases ({1}), and a new node starts with an empty --data. Pass another --data, or make these databases those of a new cluster with `settee cluster init --adopt`"
    )]
    HasDatabases(PathBuf, String),
    /// There is no data that a node could start with.
    #[error("{0} has no databases: `settee cluster init` without --adopt makes a new node there")]
    NoStore(PathBuf),
    /// A server runs there.
    #[error("a server is running with {0}, or another command is: stop it first")]
    StoreInUse(PathBuf),
    /// The store is that of a node.
    #[error(
        "the store of {0} is that of a cluster's node: it was copied, or its folder `cluster` is gone. If that cluster is permanently lost, remove the file `cluster-node` of the store, and repeat this"
    )]
    NodesStore(PathBuf),
    /// The directory is not a node's.
    #[error("{0} is not the data directory of a cluster's node")]
    NotMember(PathBuf),
    /// The new cluster has the name of the lost one.
    #[error(
        "the new cluster needs another name than {0}: topics of the lost one may have that name"
    )]
    SameName(String),
    /// A database is too old.
    #[error("{0}")]
    OldDatabase(String),
    /// An error of certificates.
    #[error(transparent)]
    Identity(#[from] peers::IdentityError),
    /// An invalid token.
    #[error(transparent)]
    Token(#[from] peers::TokenError),
    /// This machine does not have the address that a joining node is to listen at.
    #[error(
        "this machine cannot listen at {0} ({1}). If the other nodes reach it at an address that is not its own, pass that as --address, and its own as --listen; later it listens at [cluster] node_address"
    )]
    Listen(String, String),
    /// A node cannot listen at its address.
    #[error(
        "this node's address is {0}, and this machine cannot listen there ({1}). If another program has the port, stop it, or this node runs already. If the other nodes reach this one at an address that is not its own, set [cluster] node_address to its own. If the address was wrong from the beginning and the node has never run, remove the folder `cluster` of its --data, and run `settee cluster init` again with another --address"
    )]
    NodeAddress(String, String),
    /// The cluster's records have a later version than this program reads.
    #[error(
        "the cluster writes records of version {in_force}, and this program reads version {known} and older ones: start a newer Settee on this node. An older one cannot return, since all nodes announced that they read the later version"
    )]
    OldProgram {
        /// The version in force.
        in_force: RecordVersion,
        /// The latest version that this program reads.
        known: RecordVersion,
    },
    /// Joining failed.
    #[error(transparent)]
    Join(#[from] peers::JoinError),
    /// The log could not be opened.
    #[error(transparent)]
    Log(#[from] kafka_log::OpenError),
    /// The log in the nodes could not be started.
    #[error(transparent)]
    OwnLog(#[from] raft_log::StartError),
    /// The disk of the log in the nodes could not be opened.
    #[error(
        "{0}. If it is damaged, remove the folder `cluster/log` of this --data: the other nodes have its records. Never do that on more than one node at a time. A cluster of one or two nodes needs `settee cluster reseed` after it"
    )]
    LogDisk(#[from] raft_log::DiskError),
    /// An error of the store.
    #[error("{0}")]
    Store(#[from] cluster::slot::StoreError),
    /// Too few other nodes respond, or the log does not: the reason.
    #[error("{0}")]
    NotNow(String),
    /// The log is gone, or belongs to another cluster.
    #[error("{0}")]
    NoLog(String),
}
