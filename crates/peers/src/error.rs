//! What can be wrong with a node's identity.

use std::path::PathBuf;

use thiserror::Error;

/// What is wrong with a certificate, a key, or the folder that they are kept in. No message holds a key.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// A file that cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Text or bytes that are not what they should be.
    #[error("{what}: {why}")]
    Malformed {
        /// What was read.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Certificate and authority do not belong together.
    #[error("the certificate of node {node} is of another cluster than the authority beside it")]
    OtherCluster {
        /// Whom the certificate names.
        node: u64,
    },
    /// A certificate could not be made.
    #[error("making a certificate: {0}")]
    Making(#[from] rcgen::Error),
    /// What rustls says.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

impl IdentityError {
    pub(crate) fn malformed(what: &'static str, why: impl std::fmt::Display) -> Self {
        let why = why.to_string();
        IdentityError::Malformed { what, why }
    }
}
