//! Errors of a node's identity.

use std::path::PathBuf;

use thiserror::Error;

/// An error of a certificate, a key, or their folder. No message contains a key.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// A file that cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Invalid text or bytes.
    #[error("{what}: {why}")]
    Malformed {
        /// The thing that was read.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// Certificate and authority do not belong together.
    #[error("the certificate of node {node} is of another cluster than the authority next to it")]
    OtherCluster {
        /// The node that the certificate names.
        node: u64,
    },
    /// A certificate could not be created.
    #[error("making a certificate: {0}")]
    Making(#[from] rcgen::Error),
    /// The error of rustls.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

impl IdentityError {
    pub(crate) fn malformed(what: &'static str, why: impl std::fmt::Display) -> Self {
        let why = why.to_string();
        IdentityError::Malformed { what, why }
    }
}
