//! The private key, which may be encrypted with `[ssl] password`.

use config::settings::Ssl;
use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::{TlsError, path, unusable};

const SETTING: &str = "key_file";
/// The label of an encrypted key in PKCS #8, which OpenSSL writes.
const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";
/// In the head of keys that OpenSSL encrypted in its older way, with a weak derivation of the key from the password.
const LEGACY: &str = "Proc-Type: 4,ENCRYPTED";

pub fn read(settings: &Ssl) -> Result<PrivateKeyDer<'static>, TlsError> {
    let path = path(SETTING, settings.key_file.as_deref())?;
    let bad = |reason: String| unusable(SETTING, &path, reason);
    let pem = std::fs::read_to_string(&path).map_err(|e| bad(e.to_string()))?;
    if pem.contains(LEGACY) {
        return Err(bad(
            "this way to encrypt a key is not supported; convert it with `openssl pkcs8 -topk8`"
                .into(),
        ));
    }
    if !pem.contains(ENCRYPTED) {
        return PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|e| bad(e.to_string()));
    }
    let Some(password) = &settings.password else {
        return Err(bad(
            "the key is encrypted: [ssl] password has to be set".into()
        ));
    };
    let begin = format!("-----BEGIN {ENCRYPTED}-----");
    // Other sections may precede the key.
    let from = pem.find(&begin).unwrap_or(0);
    let (_, document) = SecretDocument::from_pem(&pem[from..]).map_err(|e| bad(e.to_string()))?;
    let encrypted = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes())
        .map_err(|e| bad(e.to_string()))?;
    let key = encrypted
        .decrypt(password)
        .map_err(|_| bad("[ssl] password does not decrypt it".into()))?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}
