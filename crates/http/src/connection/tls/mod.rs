//! HTTPS: the certificate, key and rules of `[ssl]`, and their replacement while the server runs.

mod key;
mod suites;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::Config;
use config::settings::Ssl;
use parking_lot::RwLock;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Errors of `[ssl]`. The messages name the setting to check; none contains a key or a password.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A setting that `[ssl] enable` needs.
    #[error("[ssl] {0} is not set")]
    Unset(&'static str),
    /// A file that cannot be read, or has invalid contents.
    #[error("[ssl] {setting} {path}: {reason}")]
    File {
        /// Its key.
        setting: &'static str,
        /// The file.
        path: String,
        /// The problem with it.
        reason: String,
    },
    /// Key and certificate are of two pairs.
    #[error("[ssl] key_file does not match cert_file: it is the key of another certificate")]
    Mismatch,
    /// A setting with a value that means nothing.
    #[error("[ssl] {setting}: {reason}")]
    Setting {
        /// Its key.
        setting: &'static str,
        /// The problem with it.
        reason: String,
    },
    /// An error of rustls about the whole configuration.
    #[error("[ssl]: {0}")]
    Rustls(#[from] rustls::Error),
}

/// The TLS configuration of connections.
pub struct Tls {
    rules: RwLock<Rules>,
}

struct Rules {
    acceptor: TlsAcceptor,
    handshake_time_max: Duration,
}

impl Tls {
    /// Reads the files that `[ssl]` names. Blocks.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn open(config: &Config) -> Result<Arc<Tls>, TlsError> {
        Ok(Arc::new(Tls {
            rules: RwLock::new(Rules::read(&config.settings().ssl)?),
        }))
    }

    /// Reads them again, for connections from now on. Blocks.
    ///
    /// # Errors
    /// [`TlsError`]; nothing has changed then.
    pub fn reload(&self, config: &Config) -> Result<(), TlsError> {
        let rules = Rules::read(&config.settings().ssl)?;
        *self.rules.write() = rules;
        Ok(())
    }

    /// Secures a connection; `None` when the client cannot, or takes too long.
    pub(crate) async fn accept<S>(&self, stream: S) -> Option<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (handshake, time_max) = {
            let rules = self.rules.read();
            (rules.acceptor.accept(stream), rules.handshake_time_max)
        };
        match tokio::time::timeout(time_max, handshake).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(e)) => {
                tracing::debug!(error = %e, "no TLS");
                None
            }
            Err(_) => {
                tracing::debug!("the TLS handshake took too long");
                None
            }
        }
    }
}

impl Rules {
    fn read(settings: &Ssl) -> Result<Rules, TlsError> {
        let provider = Arc::new(suites::provider(settings)?);
        let versions = suites::versions(settings)?;
        let certificates = certificates("cert_file", settings.cert_file.as_deref())?;
        let key = key::read(settings)?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)?;
        let builder = match settings.verify_ssl_certificates {
            false => builder.with_no_client_auth(),
            true => builder.with_client_cert_verifier(client_verifier(settings, provider)?),
        };
        let mut rules = builder
            .with_single_cert(certificates, key)
            .map_err(|e| match e {
                rustls::Error::InconsistentKeys(_) => TlsError::Mismatch,
                e => e.into(),
            })?;
        rules.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Rules {
            acceptor: TlsAcceptor::from(Arc::new(rules)),
            handshake_time_max: settings.handshake_timeout,
        })
    }
}

/// Returns the verifier of clients' certificates.
fn client_verifier(
    settings: &Ssl,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    let file = settings.cacert_file.as_deref();
    let path = path("cacert_file", file)?;
    for certificate in certificates("cacert_file", file)? {
        roots
            .add(certificate)
            .map_err(|e| unusable("cacert_file", &path, e))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match settings.fail_if_no_peer_cert {
        true => builder,
        false => builder.allow_unauthenticated(),
    };
    builder
        .build()
        .map_err(|e| unusable("cacert_file", &path, e))
}

/// The path that a setting has to have.
fn path(setting: &'static str, path: Option<&str>) -> Result<PathBuf, TlsError> {
    path.map(PathBuf::from).ok_or(TlsError::Unset(setting))
}

fn unusable(
    setting: &'static str,
    path: &std::path::Path,
    reason: impl std::fmt::Display,
) -> TlsError {
    TlsError::File {
        setting,
        path: path.display().to_string(),
        reason: reason.to_string(),
    }
}

fn certificates(
    setting: &'static str,
    file: Option<&str>,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let path = path(setting, file)?;
    let pem = std::fs::read(&path).map_err(|e| unusable(setting, &path, e))?;
    let found = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| unusable(setting, &path, e))?;
    if found.is_empty() {
        return Err(unusable(setting, &path, "there is no certificate in it"));
    }
    Ok(found)
}
