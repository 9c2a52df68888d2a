//! This node's identity: its certificate and key, the cluster's authority, and their folder.

use std::fs::{self, DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use crate::authority::{DAY, IssuedCertificate, NODE_TIME};
use crate::certificate::{Facts, node_of, pem};
use crate::{Authority, ClusterId, IdentityError, NodeId};

/// Certificate and key of the cluster's authority.
const AUTHORITY_FILE: &str = "authority.pem";
/// Certificate and key of this node, in one file so that they are replaced together.
const NODE_FILE: &str = "node.pem";

/// This node's certificate and key, and the authority that signed it. Servers and clients share one
/// and see its renewal.
#[derive(Debug)]
pub struct Identity {
    node: NodeId,
    folder: PathBuf,
    authority: Authority,
    current: RwLock<Current>,
    /// One renewal at a time.
    renewing: Mutex<()>,
    instance: u64,
}

#[derive(Debug)]
struct Current {
    certified: Arc<CertifiedKey>,
    not_after: SystemTime,
}

impl Identity {
    /// Makes a certificate for a node and writes it into the folder, with the authority. Blocks.
    ///
    /// # Errors
    /// [`IdentityError`]; the folder may hold the authority then.
    pub fn create(
        folder: &Path,
        authority: Authority,
        node: NodeId,
        now: SystemTime,
    ) -> Result<Arc<Identity>, IdentityError> {
        make_folder(folder)?;
        write(folder, AUTHORITY_FILE, &authority.to_pem()?)?;
        let issued = authority.issue(node, now)?;
        write(folder, NODE_FILE, &issued.to_pem()?)?;
        Identity::of(folder, authority, issued)
    }

    /// Reads what [`Identity::create`] wrote. A certificate that has expired is read all the same:
    /// renew it. Blocks.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn open(folder: &Path) -> Result<Arc<Identity>, IdentityError> {
        let authority = Authority::from_pem(&read(folder, AUTHORITY_FILE)?)?;
        let issued = IssuedCertificate::from_pem(&read(folder, NODE_FILE)?)?;
        Identity::of(folder, authority, issued)
    }

    fn of(
        folder: &Path,
        authority: Authority,
        issued: IssuedCertificate,
    ) -> Result<Arc<Identity>, IdentityError> {
        let (cluster, node) = node_of(&issued.certificate)?;
        if cluster != authority.cluster() {
            return Err(IdentityError::OtherCluster { node });
        }
        let mut instance = [0; 8];
        getrandom::fill(&mut instance).map_err(|e| IdentityError::malformed("random bytes", e))?;
        Ok(Arc::new(Identity {
            node,
            folder: folder.to_owned(),
            current: RwLock::new(Current::of(&authority, issued)?),
            authority,
            renewing: Mutex::new(()),
            instance: u64::from_ne_bytes(instance),
        }))
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Its cluster.
    pub fn cluster(&self) -> ClusterId {
        self.authority.cluster()
    }

    /// Returns the cluster's authority.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Until when the certificate is valid.
    pub fn not_after(&self) -> SystemTime {
        self.current.read().not_after
    }

    /// Returns a random number of this process's start, which distinguishes two processes with one
    /// identity.
    pub fn instance(&self) -> u64 {
        self.instance
    }

    /// Renews the certificate when at most a third of its validity is left; returns whether it did.
    /// Must be called at the start and every day. New connections use the new one. Blocks.
    ///
    /// # Errors
    /// [`IdentityError`]; the certificate is the old one then.
    pub fn renew_if_due(&self, now: SystemTime) -> Result<bool, IdentityError> {
        let _one = self.renewing.lock();
        let left = self.not_after().duration_since(now).unwrap_or_default();
        // More than the full validity left means that it was created by a clock that was ahead: it
        // is not accepted before that time.
        let is_early = left > NODE_TIME + DAY;
        if left > NODE_TIME / 3 && !is_early {
            return Ok(false);
        }
        let issued = self.authority.issue(self.node, now)?;
        write(&self.folder, NODE_FILE, &issued.to_pem()?)?;
        *self.current.write() = Current::of(&self.authority, issued)?;
        Ok(true)
    }

    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        self.current.read().certified.clone()
    }
}

impl Current {
    fn of(authority: &Authority, issued: IssuedCertificate) -> Result<Current, IdentityError> {
        let not_after = Facts::read(&issued.certificate)?.not_after;
        let key = rustls::crypto::ring::sign::any_ecdsa_type(&PrivateKeyDer::Pkcs8(issued.key))?;
        // With the authority's own certificate, which a node that joins knows by its hash.
        let chain = vec![issued.certificate, authority.certificate().clone()];
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match()?;
        Ok(Current {
            certified: Arc::new(certified),
            not_after,
        })
    }
}

impl IssuedCertificate {
    fn to_pem(&self) -> Result<String, IdentityError> {
        let certificate = pem("CERTIFICATE", &self.certificate)?;
        Ok(certificate + &pem("PRIVATE KEY", self.key.secret_pkcs8_der())?)
    }

    fn from_pem(text: &str) -> Result<IssuedCertificate, IdentityError> {
        let malformed = |e| IdentityError::malformed("certificate and key of this node", e);
        Ok(IssuedCertificate {
            certificate: CertificateDer::from_pem_slice(text.as_bytes()).map_err(malformed)?,
            key: PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).map_err(malformed)?,
        })
    }
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> IdentityError {
    let path = path.to_owned();
    |source| IdentityError::File { path, source }
}

/// Makes the folder, its owner's alone.
fn make_folder(folder: &Path) -> Result<(), IdentityError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .and_then(|()| fs::set_permissions(folder, fs::Permissions::from_mode(0o700)))
        .map_err(file_error(folder))
}

fn read(folder: &Path, name: &str) -> Result<String, IdentityError> {
    let path = folder.join(name);
    fs::read_to_string(&path).map_err(file_error(&path))
}

/// Writes a file in one step: after a crash it is the old one or the new one. Its owner alone can
/// read it.
fn write(folder: &Path, name: &str, text: &str) -> Result<(), IdentityError> {
    let path = folder.join(name);
    // Temporary files have mode 600.
    let written = tempfile::NamedTempFile::new_in(folder).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(&path).map_err(|e| e.error)?;
        File::open(folder)?.sync_all()
    });
    written.map_err(file_error(&path))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn an_identity_is_read_back_and_is_its_owners_alone() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("a/cluster");
        let now = SystemTime::now();
        let authority = Authority::create([1; 16], now).unwrap();
        let made = Identity::create(&folder, authority, 5, now).unwrap();
        let read = Identity::open(&folder).unwrap();
        assert_eq!((read.node(), read.cluster()), (5, [1; 16]));
        assert_eq!(read.not_after(), made.not_after());
        assert_ne!(read.instance(), made.instance());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        let files: Vec<_> = fs::read_dir(&folder).unwrap().flatten().collect();
        assert_eq!(files.len(), 2);
        for file in files {
            assert_eq!(mode(&file.path()), 0o600);
        }
    }

    #[test]
    fn a_certificate_is_renewed_when_a_third_of_its_time_is_left() {
        let temp = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let authority = Authority::create([1; 16], now).unwrap();
        let identity = Identity::create(temp.path(), authority, 5, now).unwrap();
        assert!(!identity.renew_if_due(now + 59 * DAY).unwrap());
        assert!(identity.renew_if_due(now + 61 * DAY).unwrap());
        assert!(identity.not_after() > now + 150 * DAY);
        assert!(!identity.renew_if_due(now + 61 * DAY).unwrap());
        let read = Identity::open(temp.path()).unwrap();
        assert_eq!(read.not_after(), identity.not_after());
        // Long after it has expired, too.
        assert!(identity.renew_if_due(now + 999 * DAY).unwrap());
    }

    #[test]
    fn a_certificate_of_another_cluster_is_noticed() {
        let temp = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let authority = Authority::create([1; 16], now).unwrap();
        Identity::create(temp.path(), authority, 5, now).unwrap();
        let other = Authority::create([2; 16], now).unwrap();
        write(temp.path(), AUTHORITY_FILE, &other.to_pem().unwrap()).unwrap();
        let error = Identity::open(temp.path()).unwrap_err();
        assert!(matches!(error, IdentityError::OtherCluster { node: 5 }));
    }
}
