//! Authentication, and the storage of users.

use super::kind::{Bool, Count, Int, Milliseconds, Seconds, Shards, Text, Words};

section! {
    /// Sessions and passwords. Keys that CouchDB moved here are also read from [couch_httpd_auth].
    pub struct ChttpdAuth in "chttpd_auth", older "couch_httpd_auth" {
        /// Key that signs session cookies; generated and stored at the first start.
        secret: Option<Text>,
        /// Lifetime of a session after its last use, in seconds.
        timeout: Seconds = "600",
        /// Let browsers keep sessions across their restarts.
        allow_persistent_cookies: Bool = "true",
        /// Hashes that sign session cookies: the first signs, all are accepted (sha, sha224, sha256, sha384, sha512).
        hash_algorithms: Words = "sha256, sha",
        /// PBKDF2 iterations of new password hashes.
        iterations: Int = "600000",
        /// Hash function of new password hashes.
        pbkdf2_prf: Prf = "sha256",
        /// Name of the user database.
        authentication_db: Text = "_users",
        /// Hashing scheme for passwords of new user documents.
        password_scheme: PasswordScheme = "pbkdf2",
        /// Regular expressions that new passwords must match: a list of "expression" or
        /// {"expression", "reason"}.
        password_regexp: Option<Text>,
        /// Rehash a user's password at login if it was hashed with other settings.
        upgrade_hash_on_auth: Bool = "true",
        /// Minimum number of PBKDF2 iterations; users whose hashes have fewer are refused.
        min_iterations: Int = "1",
        /// Maximum number of PBKDF2 iterations; users whose hashes have more are refused.
        max_iterations: Int = "2000000",
        /// Members of user documents that are visible to all readers of the database, separated by
        /// commas.
        public_fields: Option<Words>,
        /// Proxy authentication: trust only requests whose token was generated with the secret.
        proxy_use_secret: Bool = "false",
        /// Proxy authentication: header with the name.
        x_auth_username: Text = "X-Auth-CouchDB-UserName",
        /// Proxy authentication: header with the roles, separated by commas.
        x_auth_roles: Text = "X-Auth-CouchDB-Roles",
        /// Proxy authentication: header with the token, the HMAC of the name in hex.
        x_auth_token: Text = "X-Auth-CouchDB-Token",
        /// Maximum number of names with cached correct passwords, and of cached user documents.
        auth_cache_size: Count = "10000",
        /// Page to which browsers without a session are redirected.
        authentication_redirect: Text = "/_utils/session.html",
        /// Domain attribute of session cookies.
        cookie_domain: Option<Text>,
        /// SameSite attribute of session cookies: lax, strict, none (browsers require HTTPS for
        /// it), or omit for no such attribute.
        same_site: SameSite = "lax",
    }
}

section! {
    /// Lock-outs of clients that repeatedly send wrong passwords.
    pub struct ChttpdAuthLockout in "chttpd_auth_lockout" {
        /// enforce refuses the client, warn and off do not.
        mode: LockoutMode = "enforce",
        /// Number of wrong passwords for one name from one address (IPv6: one /64) before further
        /// ones are refused.
        threshold: Int = "5",
        /// Time for which wrong passwords are counted, in milliseconds.
        max_lifetime: Milliseconds = "300000",
        /// Maximum number of counted pairs of names and addresses.
        max_objects: Count = "10000",
    }
}

section! {
    /// JSON Web Tokens, if jwt_authentication_handler is among [chttpd] authentication_handlers.
    pub struct JwtAuth in "jwt_auth" {
        /// Claims that a token must have, and that are verified: exp, nbf, iat, typ, kid, {iss,
        /// "issuer"}.
        required_claims: Text = "exp",
        /// Claim with the roles, a list or a text with commas.
        roles_claim_name: Text = "_couchdb.roles",
        /// Path of the claim with the roles, its parts separated by dots (\. is a dot); takes
        /// precedence over roles_claim_name.
        roles_claim_path: Option<Text>,
    }
}

section! {
    /// Keys of tokens, one per line: hmac:KID = base64 of the secret, rsa:KID or ec:KID = public
    /// key in PEM with \n for line ends. The KID _default is for tokens without a KID.
    pub struct JwtKeys in "jwt_keys" with all {}
}

section! {
    /// A database per user.
    pub struct CouchPeruser in "couch_peruser" {
        /// Create a database for each user, which only that user can access.
        enable: Bool = "false",
        /// Delete a user's database with the user.
        delete_dbs: Bool = "false",
        /// Prefix of its name, followed by the user's name in hex.
        database_prefix: Text = "userdb-",
        /// Number of shards of such databases; by default [cluster] q.
        q: Option<Shards>,
    }
}

section! {
    /// Server administrators, one per line: name = password. A plain password is replaced by its
    /// hash at start.
    pub struct Admins in "admins" with all {}
}

choice! {
    /// The hash that PBKDF2 repeats.
    pub enum Prf {
        /// SHA-1.
        Sha = "sha",
        /// SHA-224.
        Sha224 = "sha224",
        /// SHA-256.
        Sha256 = "sha256",
        /// SHA-384.
        Sha384 = "sha384",
        /// SHA-512.
        Sha512 = "sha512",
    }
}

choice! {
    /// How the passwords of user documents are hashed.
    pub enum PasswordScheme {
        /// By PBKDF2.
        Pbkdf2 = "pbkdf2",
        /// By one SHA-1 with a salt, as CouchDB 1.2 did.
        Simple = "simple",
    }
}

choice! {
    /// From which sites' pages browsers send a session cookie along.
    pub enum SameSite in any case {
        /// From the same site, and with links that lead here.
        Lax = "lax",
        /// From the same site.
        Strict = "strict",
        /// From all, by HTTPS.
        None = "none",
        /// The browser decides.
        Omit = "omit",
    }
}

choice! {
    /// Lock-outs of clients that repeatedly send wrong passwords.
    pub enum LockoutMode {
        /// It is refused.
        Enforce = "enforce",
        /// Nothing.
        Warn = "warn",
        /// Nothing.
        Off = "off",
    }
}
