//! Versions and cipher suites, which CouchDB's `[ssl]` names as Erlang and OpenSSL do.

use config::settings::Ssl;
use rustls::crypto::{CryptoProvider, ring};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, SupportedProtocolVersion};

use super::TlsError;

/// OpenSSL's names of rustls' suites; the standard's names are those of `CipherSuite`.
const OPENSSL_NAMES: [(&str, CipherSuite); 6] = [
    (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "ECDHE-RSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-RSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-RSA-CHACHA20-POLY1305",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// The suites that `ciphers` names, in its order, or all.
pub fn provider(settings: &Ssl) -> Result<CryptoProvider, TlsError> {
    let all = ring::default_provider();
    let Some(wanted) = &settings.ciphers else {
        return Ok(all);
    };
    let mut suites = vec![];
    for name in words(wanted) {
        match all.cipher_suites.iter().find(|s| is_named(s.suite(), name)) {
            Some(suite) => suites.push(*suite),
            // CouchDB's users list what Erlang once had, CBC among it.
            None => tracing::warn!("[ssl] ciphers: {name} is not supported"),
        }
    }
    if suites.is_empty() {
        let names: Vec<String> = all.cipher_suites.iter().map(|s| name(s.suite())).collect();
        return Err(TlsError::Setting {
            setting: "ciphers",
            reason: format!("none of them is supported; there are {}", names.join(", ")),
        });
    }
    Ok(CryptoProvider {
        cipher_suites: suites,
        ..all
    })
}

/// The standard's name: rustls marks those of TLS 1.3, the standard does not.
fn name(suite: CipherSuite) -> String {
    format!("{suite:?}").replace("TLS13_", "TLS_")
}

fn is_named(suite: CipherSuite, text: &str) -> bool {
    let text = text.to_ascii_uppercase();
    name(suite) == text || OPENSSL_NAMES.contains(&(text.as_str(), suite))
}

/// The versions that `tls_versions` names, or 1.2 and 1.3.
pub fn versions(settings: &Ssl) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    let Some(wanted) = &settings.tls_versions else {
        return Ok(vec![&TLS13, &TLS12]);
    };
    let mut versions = vec![];
    for name in words(wanted) {
        match name.to_ascii_lowercase().as_str() {
            "tlsv1.3" => versions.push(&TLS13),
            "tlsv1.2" => versions.push(&TLS12),
            _ => tracing::warn!("[ssl] tls_versions: {name} is not supported"),
        }
    }
    if versions.is_empty() {
        return Err(TlsError::Setting {
            setting: "tls_versions",
            reason: "none of them is supported; there are tlsv1.2 and tlsv1.3".into(),
        });
    }
    Ok(versions)
}

/// The names in an Erlang list of strings or atoms, or in OpenSSL's list with colons.
fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')))
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_have_the_names_of_the_standard_and_of_openssl() {
        let all = ring::default_provider().cipher_suites;
        let named = |text: &str| all.iter().filter(|s| is_named(s.suite(), text)).count();
        assert_eq!(named("TLS_AES_128_GCM_SHA256"), 1);
        assert_eq!(named("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"), 1);
        assert_eq!(named("ECDHE-RSA-AES128-GCM-SHA256"), 1);
        assert_eq!(named("ecdhe-rsa-aes128-gcm-sha256"), 1);
        assert_eq!(named("AES128-SHA"), 0);
        for (name, _) in OPENSSL_NAMES {
            assert_eq!(named(name), 1, "{name}");
        }
    }

    #[test]
    fn lists_are_erlangs_or_openssls() {
        let erlang: Vec<_> = words(r#"["ECDHE-ECDSA-AES128-SHA256", "X"]"#).collect();
        assert_eq!(erlang, ["ECDHE-ECDSA-AES128-SHA256", "X"]);
        assert_eq!(words("['tlsv1.2','tlsv1.3']").count(), 2);
        assert_eq!(words("A-B:C_D").collect::<Vec<_>>(), ["A-B", "C_D"]);
    }
}
