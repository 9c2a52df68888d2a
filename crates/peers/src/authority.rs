//! The cluster's certificate authority: a node belongs to the cluster if the authority has signed
//! its certificate.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use crate::certificate::{Facts, Subject, cluster_name, node_name, pem};
use crate::{ClusterId, IdentityError, NodeId};

pub(crate) const DAY: Duration = Duration::from_secs(86_400);
/// Validity of an authority.
const AUTHORITY_TIME: Duration = DAY.saturating_mul(20 * 365);
/// Validity of a node's certificate.
pub(crate) const NODE_TIME: Duration = DAY.saturating_mul(90);
/// A certificate is valid from this much before its creation: clocks differ.
const EARLIER: Duration = DAY;

/// Key and certificate of a cluster's authority (ECDSA, P-256). Its holder can create nodes.
pub struct Authority {
    cluster: ClusterId,
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

/// A certificate and its key.
pub(crate) struct IssuedCertificate {
    pub certificate: CertificateDer<'static>,
    pub key: PrivatePkcs8KeyDer<'static>,
}

impl Authority {
    /// Creates an authority, valid for 20 years.
    ///
    /// # Errors
    /// [`IdentityError`], when there are no random numbers.
    pub fn create(cluster: ClusterId, now: SystemTime) -> Result<Authority, IdentityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut rules = rules(&cluster)?;
        rules.not_before = OffsetDateTime::from(now - EARLIER);
        rules.not_after = OffsetDateTime::from(now + AUTHORITY_TIME);
        let certificate = rules.self_signed(&key)?.der().clone();
        Ok(Authority {
            cluster,
            certificate,
            key,
        })
    }

    /// Returns the authority that [`Authority::to_pem`] wrote.
    ///
    /// # Errors
    /// [`IdentityError::Malformed`].
    pub fn from_pem(text: &str) -> Result<Authority, IdentityError> {
        let malformed = |e: &dyn std::fmt::Display| IdentityError::malformed("authority", e);
        let certificate =
            CertificateDer::from_pem_slice(text.as_bytes()).map_err(|e| malformed(&e))?;
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|e| malformed(&e))?;
        let Subject::Authority(cluster) = Facts::read(&certificate)?.subject else {
            return Err(malformed(&"it is a node's certificate"));
        };
        Ok(Authority {
            cluster,
            certificate,
            key: KeyPair::try_from(&key)?,
        })
    }

    /// Certificate and key as text. **It holds the key:** for this node's disk, or for a node that
    /// joins, encrypted.
    ///
    /// # Errors
    /// [`IdentityError`]; not with an authority of this crate.
    pub fn to_pem(&self) -> Result<String, IdentityError> {
        let certificate = pem("CERTIFICATE", &self.certificate)?;
        Ok(certificate + &pem("PRIVATE KEY", self.key.serialized_der())?)
    }

    /// Returns the cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// SHA-256 of the certificate, by which a node that joins knows it.
    pub fn fingerprint(&self) -> [u8; 32] {
        Sha256::digest(&self.certificate).into()
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Returns a new key and certificate of a node, valid for 90 days.
    pub(crate) fn issue(
        &self,
        node: NodeId,
        now: SystemTime,
    ) -> Result<IssuedCertificate, IdentityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut facts = CertificateParams::new(vec![node_name(&self.cluster, node)])?;
        let name = &mut facts.distinguished_name;
        name.remove(DnType::CommonName);
        name.push(DnType::CommonName, format!("settee node {node}"));
        facts.not_before = OffsetDateTime::from(now - EARLIER);
        facts.not_after = OffsetDateTime::from(now + NODE_TIME);
        facts.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        facts.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        facts.use_authority_key_identifier_extension = true;
        // The issuer's name is derived from the cluster's id alone, so that it need not be read
        // back.
        let rules = rules(&self.cluster)?;
        let certificate = facts.signed_by(&key, &Issuer::from_params(&rules, &self.key))?;
        Ok(IssuedCertificate {
            certificate: certificate.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()),
        })
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({})", cluster_name(&self.cluster))
    }
}

/// Returns an authority's certificate parameters, except for its time. Equal for equal clusters.
fn rules(cluster: &ClusterId) -> Result<CertificateParams, IdentityError> {
    let mut rules = CertificateParams::new(vec![cluster_name(cluster)])?;
    let name = &mut rules.distinguished_name;
    name.remove(DnType::CommonName);
    name.push(
        DnType::CommonName,
        format!("settee cluster {}", data_encoding::HEXLOWER.encode(cluster)),
    );
    rules.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    rules.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::{is_canonical, node_of};

    #[test]
    fn an_authority_survives_its_text_and_signs_as_before() {
        let now = SystemTime::now();
        let authority = Authority::create([7; 16], now).unwrap();
        let read = Authority::from_pem(&authority.to_pem().unwrap()).unwrap();
        assert_eq!(read.cluster(), [7; 16]);
        assert_eq!(read.fingerprint(), authority.fingerprint());
        let issued = read.issue(9, now).unwrap();
        assert_eq!(node_of(&issued.certificate).unwrap(), ([7; 16], 9));
        assert!(is_canonical(&issued.certificate));
        assert!(is_canonical(read.certificate()));
        assert!(node_of(read.certificate()).is_err());
    }

    #[test]
    fn nothing_of_the_key_is_shown() {
        let authority = Authority::create([7; 16], SystemTime::now()).unwrap();
        assert!(!format!("{authority:?}").contains("key"));
        assert!(Authority::from_pem("nothing").is_err());
    }
}
