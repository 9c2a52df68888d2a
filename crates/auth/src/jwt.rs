//! JSON Web Tokens (RFC 7519), signed by a key of `[jwt_keys]`.
//!
//! The key is looked for among those of the algorithm's family (`hmac:`, `rsa:`, `ec:`), so that a
//! public key can never be taken for an HMAC secret.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use config::Settings;
use p521::ecdsa::signature::Verifier;
use p521::ecdsa::{Signature, VerifyingKey};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey,
    VerificationAlgorithm,
};
use serde_json::{Map, Value};
use spki::ObjectIdentifier;
use spki::der::Decode;
use subtle::ConstantTimeEq;

use crate::error::AuthError;
use crate::password::Hash;
use crate::proxy::split;
use crate::user::UserCtx;
use crate::users::member_count;

const RSA_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const P521: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.35");

/// Name of the key of tokens that name none.
const DEFAULT_KID: &str = "_default";

/// The settings of `[jwt_auth]` and `[jwt_keys]`.
pub(crate) struct JwtSettings {
    /// `None` when the setting is invalid: then no token is good.
    required: Option<Vec<Required>>,
    roles: RolesClaim,
    /// Keys by `family:kid`.
    keys: BTreeMap<String, Result<Key, &'static str>>,
}

/// A claim that a token must have, and its required value if any.
#[derive(Debug, PartialEq, Eq)]
struct Required {
    claim: String,
    value: Option<String>,
}

enum RolesClaim {
    Name(String),
    Path(Vec<String>),
}

enum Key {
    Hmac(Vec<u8>),
    /// `RSAPublicKey` in DER.
    Rsa(Vec<u8>),
    /// The point, uncompressed.
    P256(Vec<u8>),
    P384(Vec<u8>),
    P521(VerifyingKey),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Hmac(Hash),
    Rsa(Hash),
    Ec(Hash),
}

impl Algorithm {
    fn of(name: &str) -> Option<Algorithm> {
        let (family, bits) = name.split_at_checked(2)?;
        let hash = match bits {
            "256" => Hash::Sha256,
            "384" => Hash::Sha384,
            "512" => Hash::Sha512,
            _ => return None,
        };
        match family {
            "HS" => Some(Algorithm::Hmac(hash)),
            "RS" => Some(Algorithm::Rsa(hash)),
            "ES" => Some(Algorithm::Ec(hash)),
            _ => None,
        }
    }

    fn family(self) -> &'static str {
        match self {
            Algorithm::Hmac(_) => "hmac",
            Algorithm::Rsa(_) => "rsa",
            Algorithm::Ec(_) => "ec",
        }
    }

    fn verifies(self, key: &Key, message: &[u8], signature: &[u8]) -> bool {
        let public = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key)
                .verify(message, signature)
                .is_ok()
        };
        match (self, key) {
            (Algorithm::Hmac(hash), Key::Hmac(secret)) => {
                hash.hmac(secret, message).ct_eq(signature).into()
            }
            (Algorithm::Rsa(Hash::Sha256), Key::Rsa(key)) => {
                public(&RSA_PKCS1_2048_8192_SHA256, key)
            }
            (Algorithm::Rsa(Hash::Sha384), Key::Rsa(key)) => {
                public(&RSA_PKCS1_2048_8192_SHA384, key)
            }
            (Algorithm::Rsa(Hash::Sha512), Key::Rsa(key)) => {
                public(&RSA_PKCS1_2048_8192_SHA512, key)
            }
            (Algorithm::Ec(Hash::Sha256), Key::P256(key)) => public(&ECDSA_P256_SHA256_FIXED, key),
            (Algorithm::Ec(Hash::Sha384), Key::P384(key)) => public(&ECDSA_P384_SHA384_FIXED, key),
            (Algorithm::Ec(Hash::Sha512), Key::P521(key)) => Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify(message, &signature).is_ok()),
            _ => false,
        }
    }
}

impl Key {
    fn parse(family: &str, value: &str) -> Result<Key, &'static str> {
        match family {
            "hmac" => BASE64_STANDARD
                .decode(value.trim())
                .ok()
                // An empty secret is known to everyone.
                .filter(|secret| !secret.is_empty())
                .map(Key::Hmac)
                .ok_or("Not a valid key"),
            "rsa" => Key::public(value)
                .filter(|key| matches!(key, Key::Rsa(_)))
                .ok_or("not an RSA public key"),
            "ec" => Key::public(value)
                .filter(|key| matches!(key, Key::P256(_) | Key::P384(_) | Key::P521(_)))
                .ok_or("not an EC public key"),
            _ => Err("Unknown kty"),
        }
    }

    fn public(pem: &str) -> Option<Key> {
        let pem = pem.replace("\\n", "\n");
        let (label, der) = decode_pem(&pem)?;
        if label == "RSA PUBLIC KEY" {
            return Some(Key::Rsa(der));
        }
        let info = spki::SubjectPublicKeyInfoRef::from_der(&der).ok()?;
        let key = info.subject_public_key.as_bytes()?.to_vec();
        match info.algorithm.oid {
            RSA_KEY => Some(Key::Rsa(key)),
            EC_KEY => match info.algorithm.parameters_oid().ok()? {
                P256 => Some(Key::P256(key)),
                P384 => Some(Key::P384(key)),
                P521 => VerifyingKey::from_sec1_bytes(&key).ok().map(Key::P521),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Returns label and content. Lines may have any length, as in CouchDB, where a key often stands on
/// one line: that is why this does not use a library, which would be strict about it.
fn decode_pem(pem: &str) -> Option<(&str, Vec<u8>)> {
    let (label, rest) = pem
        .trim()
        .strip_prefix("-----BEGIN ")?
        .split_once("-----")?;
    let (body, end) = rest.split_once("-----END ")?;
    if end.trim_end() != format!("{label}-----") {
        return None;
    }
    let body: String = body.split_whitespace().collect();
    Some((label, BASE64_STANDARD.decode(body).ok()?))
}

fn bad(reason: &'static str) -> AuthError {
    AuthError::BadToken(reason)
}

/// Returns the algorithm that a token's header names, when nothing in the header stands against the
/// token.
fn check_header(header: &Map<String, Value>, type_required: bool) -> Result<Algorithm, AuthError> {
    // Every name in `crit` must be understood, and this implementation understands none; an empty
    // list, or a value that is not a list, is invalid (RFC 7515, 4.1.11).
    if header.contains_key("crit") {
        return Err(bad("Unsupported crit header parameter"));
    }
    // Without `crit` this extension must not be ignored: the signed text would be a different one
    // (RFC 7797).
    if header
        .get("b64")
        .is_some_and(|b64| *b64 != Value::Bool(true))
    {
        return Err(bad("Unsupported b64 header parameter"));
    }
    if type_required {
        match header.get("typ").map(Value::as_str) {
            None => return Err(bad("Missing typ header parameter")),
            Some(Some("JWT")) => {}
            Some(_) => return Err(bad("Invalid typ header parameter")),
        }
    }
    header
        .get("alg")
        .ok_or(bad("Missing alg header parameter"))?
        .as_str()
        .and_then(Algorithm::of)
        .ok_or(bad("Invalid alg header parameter"))
}

impl JwtSettings {
    pub(crate) fn of(settings: &Settings) -> JwtSettings {
        let claims = &settings.jwt_auth;
        let roles = match &claims.roles_claim_path {
            Some(path) => RolesClaim::Path(split_path(path)),
            None => RolesClaim::Name(claims.roles_claim_name.clone()),
        };
        let keys = settings.jwt_keys.all.iter().map(|(name, value)| {
            let family = name.split(':').next().unwrap_or_default();
            (name.clone(), Key::parse(family, value))
        });
        JwtSettings {
            required: parse_required(&claims.required_claims),
            roles,
            keys: keys.collect(),
        }
    }

    /// Returns the problems in the settings. Contains no key's value.
    pub(crate) fn problems(&self) -> Vec<String> {
        let bad_keys = self.keys.iter().filter_map(|(name, key)| {
            let reason = key.as_ref().err()?;
            Some(format!("[jwt_keys] {name}: {reason}"))
        });
        let required = self
            .required
            .is_none()
            .then(|| "[jwt_auth] required_claims is set to an invalid value".to_owned());
        bad_keys.chain(required).collect()
    }

    /// Returns the user of a token.
    pub(crate) fn user(&self, token: &str, now_secs: u64) -> Result<Arc<UserCtx>, AuthError> {
        let required = self.required.as_ref().ok_or(AuthError::JwtMisconfigured)?;
        let parts: Vec<&str> = token.split('.').collect();
        let [header_text, claims_text, signature] = parts[..] else {
            return Err(bad("Malformed token"));
        };
        let header = object(header_text)?;
        let required_of = |claim: &str| required.iter().find(|r| r.claim == claim);
        let algorithm = check_header(&header, required_of("typ").is_some())?;
        let claims = object(claims_text)?;
        check_claims(&claims, required_of, now_secs)?;
        let kid = match header.get("kid") {
            None | Some(Value::Null) if required_of("kid").is_some() => {
                return Err(bad("Missing kid claim"));
            }
            None | Some(Value::Null) => DEFAULT_KID,
            Some(kid) => kid.as_str().ok_or(bad("Malformed token"))?,
        };
        let key = self
            .keys
            .get(&format!("{}:{kid}", algorithm.family()))
            .ok_or(bad("Unknown kid"))?
            .as_ref()
            .map_err(|reason| bad(reason))?;
        let signature = BASE64_URL_SAFE_NO_PAD
            .decode(signature)
            .map_err(|_| bad("Malformed token"))?;
        let message = &token.as_bytes()[..header_text.len() + 1 + claims_text.len()];
        if !algorithm.verifies(key, message, &signature) {
            return Err(bad(match algorithm {
                Algorithm::Hmac(_) => "Bad HMAC",
                _ => "Bad signature",
            }));
        }
        let name = match claims.get("sub") {
            None => return Err(AuthError::TokenRefused("Token missing sub claim.")),
            Some(Value::String(name)) if !name.is_empty() => name.clone(),
            Some(_) => return Err(bad("Malformed token")),
        };
        Ok(Arc::new(UserCtx {
            name: Some(name),
            roles: self.roles(claims)?,
        }))
    }

    fn roles(&self, claims: Map<String, Value>) -> Result<Vec<String>, AuthError> {
        let value = match &self.roles {
            RolesClaim::Name(name) => claims.get(name).cloned(),
            RolesClaim::Path(path) => {
                let claims = Value::Object(claims);
                let found = path
                    .iter()
                    .try_fold(&claims, |value, part| value.as_object()?.get(part));
                found.cloned()
            }
        };
        match value {
            None => Ok(vec![]),
            Some(Value::String(list)) => Ok(split(&list)),
            Some(Value::Array(roles)) => roles
                .into_iter()
                .map(|role| match role {
                    Value::String(role) => Ok(role),
                    _ => Err(bad("Malformed token")),
                })
                .collect(),
            Some(_) => Err(bad("Malformed token")),
        }
    }
}

fn object(base64: &str) -> Result<Map<String, Value>, AuthError> {
    let json = BASE64_URL_SAFE_NO_PAD
        .decode(base64)
        .map_err(|_| bad("Malformed token"))?;
    match serde_json::from_slice(&json) {
        Ok(Value::Object(object)) if member_count(&json) == Some(object.len()) => Ok(object),
        // Others that read the same token may take the other member of the same name.
        Ok(Value::Object(_)) => Err(bad("Malformed token")),
        Ok(_) => Err(bad("Not an object")),
        Err(_) => Err(bad("Malformed token")),
    }
}

/// Checks the claims. Required claims must be present; times must be valid wherever present
/// (CouchDB checks only required ones; RFC 7519 forbids accepting an expired token).
fn check_claims<'a>(
    claims: &Map<String, Value>,
    required: impl Fn(&str) -> Option<&'a Required>,
    now_secs: u64,
) -> Result<(), AuthError> {
    if let Some(iss) = required("iss") {
        match claims.get("iss").map(Value::as_str) {
            None => return Err(bad("Missing iss claim")),
            Some(found) if found.is_none() || found != iss.value.as_deref() => {
                return Err(bad("Invalid iss claim"));
            }
            Some(_) => {}
        }
    }
    match claims.get("iat") {
        None if required("iat").is_some() => return Err(bad("Missing iat claim")),
        Some(iat) if required("iat").is_some() && !(iat.is_u64() || iat.is_i64()) => {
            return Err(bad("Invalid iat claim"));
        }
        _ => {}
    }
    let now = now_secs as f64;
    match claims.get("nbf").map(Value::as_f64) {
        None if required("nbf").is_some() => return Err(bad("Missing nbf claim")),
        Some(None) => return Err(bad("Invalid nbf claim")),
        Some(Some(nbf)) if nbf >= now => {
            return Err(AuthError::TokenRefused("nbf not in past"));
        }
        _ => {}
    }
    match claims.get("exp").map(Value::as_f64) {
        None if required("exp").is_some() => Err(bad("Missing exp claim")),
        Some(None) => Err(bad("Invalid exp claim")),
        Some(Some(exp)) if exp <= now => Err(AuthError::TokenRefused("exp not in future")),
        _ => Ok(()),
    }
}

/// Parses `exp, {iss, "issuer"}`; `None` when it contains a claim that cannot be checked.
fn parse_required(setting: &str) -> Option<Vec<Required>> {
    let mut required = vec![];
    let mut rest = setting.trim();
    while !rest.is_empty() {
        let (claim, value, after) = match rest.strip_prefix('{') {
            Some(tuple) => {
                let (claim, tuple) = tuple.split_once(',')?;
                let (value, after) = tuple.trim_start().strip_prefix('"')?.split_once('"')?;
                let after = after.trim_start().strip_prefix('}')?;
                (claim.trim(), Some(value.to_owned()), after)
            }
            None => {
                let (claim, _) = rest.split_once(',').unwrap_or((rest, ""));
                (claim.trim(), None, &rest[claim.len()..])
            }
        };
        let known = match value {
            Some(_) => claim == "iss",
            None => ["alg", "exp", "iat", "kid", "nbf", "typ"].contains(&claim),
        };
        if !known {
            return None;
        }
        required.push(Required {
            claim: claim.to_owned(),
            value,
        });
        rest = after.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(rest) => rest.trim_start(),
            None if rest.is_empty() => rest,
            None => return None,
        };
    }
    Some(required)
}

/// Returns the parts of a path, separated by dots; `\.` is a dot.
fn split_path(path: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = path.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&'.') => {
                chars.next();
                parts
                    .iter_mut()
                    .last()
                    .into_iter()
                    .for_each(|p| p.push('.'));
            }
            '.' => parts.push(String::new()),
            c => parts.iter_mut().last().into_iter().for_each(|p| p.push(c)),
        }
    }
    parts
}

#[cfg(test)]
#[path = "jwt_tests.rs"]
mod tests;
