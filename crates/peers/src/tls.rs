//! TLS 1.3 with the certificates of an identity: who is admitted, what is presented, and the
//! meaning of failures.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore,
    ServerConfig, SignatureScheme,
};
use sha2::{Digest as _, Sha256};

use crate::certificate::node_of;
use crate::{Identity, IdentityError, node_name};

const ALPN: &[u8] = b"h2";

/// Shows the certificate that is the identity's at the moment.
#[derive(Debug)]
struct CertificateResolver(Arc<Identity>);

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.certified())
    }
}

impl ResolvesClientCert for CertificateResolver {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.certified())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn roots(authority: &CertificateDer<'static>) -> Result<Arc<RootCertStore>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    Ok(Arc::new(roots))
}

/// Returns the configuration for accepting connections. Clients without a certificate are accepted:
/// they may only join.
pub(crate) fn server(identity: &Arc<Identity>) -> Result<Arc<ServerConfig>, IdentityError> {
    let roots = roots(identity.authority().certificate())?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
        .allow_unauthenticated()
        .build()
        .map_err(|e| IdentityError::malformed("authority", e))?;
    let mut rules = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(CertificateResolver(identity.clone())));
    rules.alpn_protocols = vec![ALPN.to_vec()];
    // A resumed session would be of a certificate that was checked long ago.
    rules.send_tls13_tickets = 0;
    Ok(Arc::new(rules))
}

/// Returns the configuration for connecting to others.
pub(crate) fn client(identity: &Arc<Identity>) -> Result<Arc<ClientConfig>, IdentityError> {
    let roots = roots(identity.authority().certificate())?;
    let mut rules = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(CertificateResolver(identity.clone())));
    rules.alpn_protocols = vec![ALPN.to_vec()];
    rules.resumption = Resumption::disabled();
    Ok(Arc::new(rules))
}

/// Returns the configuration of a node that has no certificate yet, but knows the authority's
/// SHA-256.
pub(crate) fn joiner(fingerprint: [u8; 32]) -> Result<Arc<ClientConfig>, rustls::Error> {
    let verifier = Arc::new(ByFingerprint {
        fingerprint,
        provider: provider(),
    });
    let mut rules = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    rules.alpn_protocols = vec![ALPN.to_vec()];
    rules.resumption = Resumption::disabled();
    Ok(Arc::new(rules))
}

/// Trusts any node of the authority that has this SHA-256. The authority's certificate comes with
/// the node's.
#[derive(Debug)]
struct ByFingerprint {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByFingerprint {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let is_it = |c: &&CertificateDer<'_>| Sha256::digest(c)[..] == self.fingerprint;
        let authority = intermediates
            .iter()
            .find(is_it)
            .ok_or(CertificateError::UnknownIssuer)?;
        let (cluster, node) = node_of(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        let name = ServerName::try_from(node_name(&cluster, node))
            .map_err(|_| CertificateError::BadEncoding)?;
        let roots = roots(&authority.clone().into_owned())?;
        WebPkiServerVerifier::builder_with_provider(roots, self.provider.clone())
            .build()
            .map_err(|e| rustls::Error::General(e.to_string()))?
            .verify_server_cert(end_entity, &[], &name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// Explains an error of the other side, and its remedy. `who` names that side.
pub(crate) fn explain(error: &std::io::Error, who: &str) -> String {
    let inner = error.get_ref().and_then(|e| e.downcast_ref());
    let Some(error) = inner else {
        return error.to_string();
    };
    match error {
        rustls::Error::InvalidCertificate(e) => explain_certificate(e, who),
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => format!(
            "{who} reports that the certificate of this node has expired or is not valid yet: restart settee here, which renews it; \
             if it stays so, correct the clock of this machine or of that one"
        ),
        rustls::Error::AlertReceived(AlertDescription::UnknownCA) => {
            format!(
                "{who} reports that this node belongs to another cluster: join this node to that one"
            )
        }
        rustls::Error::AlertReceived(alert) => {
            format!("{who} refused the certificate of this node: {alert:?}")
        }
        e => format!("TLS with {who}: {e}"),
    }
}

fn explain_certificate(error: &CertificateError, who: &str) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => format!(
            "the certificate of {who} has expired: restart settee there, which renews it; if it stays so, correct the clock of \
             this machine or of that one"
        ),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => format!(
            "the certificate of {who} is not valid yet: correct the clock of this machine or of that one"
        ),
        // Two authorities of one cluster id differ in their keys.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!("{who} is of another cluster: its certificate is of another authority")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("another node answers at the address of {who}: correct the address")
        }
        e => format!("the certificate of {who} is not valid: {e}"),
    }
}
