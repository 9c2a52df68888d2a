//! What goes wrong with a member of a cluster.

use std::path::PathBuf;

/// Why a node is none, or cannot do something.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory is a member's already.
    #[error(
        "{0} is there already: this data directory belongs to a cluster. Another one needs another --data"
    )]
    AlreadyMember(PathBuf),
    /// What is kept of the cluster cannot be read or written.
    #[error("{0}")]
    Membership(String),
    /// There are no random numbers.
    #[error("no random numbers: {0}")]
    Random(String),
    /// The store is not the one that the node had.
    #[error(
        "{0} is not the store that this node had: it was lost, or restored from a backup. A node must not vote with another one. Have the node leave (`settee cluster leave URL --node NAME` at another one), and join again with an empty --data"
    )]
    OtherStore(PathBuf),
    /// There are databases that the cluster does not know.
    #[error(
        "this server made databases before it was in a cluster ({0}): a node begins with an empty --data. Have the node begin with another --data, and replicate them to the cluster"
    )]
    OwnDatabases(String),
    /// Certificates.
    #[error(transparent)]
    Identity(#[from] peers::IdentityError),
    /// The token.
    #[error(transparent)]
    Token(#[from] peers::TokenError),
    /// Joining.
    #[error(transparent)]
    Join(#[from] peers::JoinError),
    /// The log.
    #[error(transparent)]
    Log(#[from] kafka_log::OpenError),
    /// The store.
    #[error("{0}")]
    Store(#[from] cluster::slot::StoreError),
    /// Too few other nodes answer, or the log does not: why.
    #[error("{0}")]
    NotNow(String),
    /// The log is gone, or another one's.
    #[error("{0}")]
    NoLog(String),
}
