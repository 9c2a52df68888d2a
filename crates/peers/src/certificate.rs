//! The contents of a certificate, its owner and its validity, and its text form.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::der::pem::{LineEnding, encode_string};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::IdentityError;

/// A node of a cluster, permanently: numbers are not reused.
pub type NodeId = u64;

/// The cluster of an authority.
pub type ClusterId = [u8; 16];

/// The suffix of all names in certificates; they are never resolved.
const SUFFIX: &str = "settee.internal";

/// Returns the name in a node's certificate, which the other side looks for.
pub fn node_name(cluster: &ClusterId, node: NodeId) -> String {
    format!("node-{node:016x}.{}", cluster_name(cluster))
}

/// Returns the name in an authority's certificate.
pub(crate) fn cluster_name(cluster: &ClusterId) -> String {
    format!("{}.{SUFFIX}", HEXLOWER.encode(cluster))
}

/// The owner of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Authority(ClusterId),
    Node(ClusterId, NodeId),
}

/// The fields of a certificate that this crate reads. None of them is verified.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub subject: Subject,
    pub not_after: SystemTime,
}

impl Facts {
    pub fn read(certificate: &CertificateDer<'_>) -> Result<Facts, IdentityError> {
        let malformed = |why: &dyn std::fmt::Display| IdentityError::malformed("certificate", why);
        let parsed = Certificate::from_der(certificate.as_ref()).map_err(|e| malformed(&e))?;
        let facts = parsed.tbs_certificate();
        let names = facts
            .get_extension::<SubjectAltName>()
            .map_err(|e| malformed(&e))?
            .map(|(_, names)| names.0)
            .unwrap_or_default();
        let subject = match names.as_slice() {
            [GeneralName::DnsName(name)] => parse_name(name.as_str()),
            _ => None,
        };
        let not_after = facts.validity().not_after.to_unix_duration();
        Ok(Facts {
            subject: subject
                .ok_or_else(|| malformed(&"its name is not that of a node or cluster"))?,
            not_after: UNIX_EPOCH + not_after,
        })
    }
}

/// Returns the validity of a certificate, in DER. Its owner does not matter, and nothing is
/// verified.
///
/// # Errors
/// [`IdentityError::Malformed`].
pub fn times_of(certificate: &[u8]) -> Result<(SystemTime, SystemTime), IdentityError> {
    let parsed = Certificate::from_der(certificate)
        .map_err(|e| IdentityError::malformed("certificate", e))?;
    let times = parsed.tbs_certificate().validity();
    let at = |time: x509_cert::time::Time| UNIX_EPOCH + time.to_unix_duration();
    Ok((at(times.not_before), at(times.not_after)))
}

/// Returns the node that a certificate names, and its cluster.
pub(crate) fn node_of(
    certificate: &CertificateDer<'_>,
) -> Result<(ClusterId, NodeId), IdentityError> {
    match Facts::read(certificate)?.subject {
        Subject::Node(cluster, node) => Ok((cluster, node)),
        Subject::Authority(_) => Err(IdentityError::malformed(
            "certificate",
            "it is an authority's, not a node's",
        )),
    }
}

fn parse_name(name: &str) -> Option<Subject> {
    let labels: Vec<&str> = name.strip_suffix(SUFFIX)?.split('.').collect();
    let cluster =
        |hex: &str| -> Option<ClusterId> { HEXLOWER.decode(hex.as_bytes()).ok()?.try_into().ok() };
    match labels.as_slice() {
        [hex, ""] => cluster(hex).map(Subject::Authority),
        [node, hex, ""] => {
            let digits = node.strip_prefix("node-").filter(|d| d.len() == 16)?;
            let node = HEXLOWER.decode(digits.as_bytes()).ok()?.try_into().ok()?;
            Some(Subject::Node(cluster(hex)?, u64::from_be_bytes(node)))
        }
        _ => None,
    }
}

/// Returns a certificate or key as text.
pub(crate) fn pem(label: &'static str, der: &[u8]) -> Result<String, IdentityError> {
    encode_string(label, LineEnding::LF, der).map_err(|e| IdentityError::malformed("PEM", e))
}

/// Returns whether the bytes are one certificate and nothing else; the contents read by `Facts` are
/// not checked.
#[cfg(test)]
pub(crate) fn is_canonical(certificate: &CertificateDer<'_>) -> bool {
    Certificate::from_der(certificate.as_ref())
        .and_then(|c| x509_cert::der::Encode::to_der(&c))
        .is_ok_and(|der| der == certificate.as_ref())
}

/// Seconds since 1970; 0 before.
pub(crate) fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_cluster_and_node() {
        let cluster = [0xab; 16];
        let node = node_name(&cluster, 0x1234);
        assert_eq!(
            node,
            format!("node-0000000000001234.{}.settee.internal", "ab".repeat(16))
        );
        assert_eq!(parse_name(&node), Some(Subject::Node(cluster, 0x1234)));
        assert_eq!(
            parse_name(&cluster_name(&cluster)),
            Some(Subject::Authority(cluster))
        );
        for other in [
            "",
            "settee.internal",
            "node-1.ab.settee.internal",
            "x.example.org",
            "node-0000000000001234.settee.internal",
        ] {
            assert_eq!(parse_name(other), None, "{other}");
        }
    }
}
