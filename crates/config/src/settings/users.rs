//! Who may come in, and how users are kept.

use super::kind::{Bool, Count, Int, Milliseconds, Seconds, Shards, Text, Words};

section! {
    /// Sessions and passwords. Keys that CouchDB moved here are also looked for in [couch_httpd_auth].
    pub struct ChttpdAuth in "chttpd_auth", older "couch_httpd_auth" {
        /// Key that signs session cookies; made up and kept at first start.
        secret: Option<Text>,
        /// Life of a session after its last use, in seconds.
        timeout: Seconds = "600",
        /// Let browsers keep sessions over restarts.
        allow_persistent_cookies: Bool = "true",
        /// Hashes that sign session cookies: the first signs, all are accepted (sha, sha224, sha256, sha384, sha512).
        hash_algorithms: Words = "sha256, sha",
        /// PBKDF2 iterations of new password hashes.
        iterations: Int = "600000",
        /// Hash of new password hashes.
        pbkdf2_prf: Prf = "sha256",
        /// Name of the database that users log in from.
        authentication_db: Text = "_users",
        /// How passwords of new user documents are hashed.
        password_scheme: PasswordScheme = "pbkdf2",
        /// Regular expressions that new passwords of users must match: a list of "expression" or {"expression",
        /// "reason"}.
        password_regexp: Option<Text>,
        /// Hash a user's password anew at login when it was hashed by other settings than these.
        upgrade_hash_on_auth: Bool = "true",
        /// Users whose hashes have fewer PBKDF2 iterations are refused.
        min_iterations: Int = "1",
        /// Users whose hashes have more PBKDF2 iterations are refused.
        max_iterations: Int = "2000000",
        /// Members of user documents that everybody may see who may read the database, separated by commas.
        public_fields: Option<Words>,
        /// Proxy authentication: believe only requests whose token was made with the secret.
        proxy_use_secret: Bool = "false",
        /// Proxy authentication: header with the name.
        x_auth_username: Text = "X-Auth-CouchDB-UserName",
        /// Proxy authentication: header with the roles, separated by commas.
        x_auth_roles: Text = "X-Auth-CouchDB-Roles",
        /// Proxy authentication: header with the token, the HMAC of the name in hex.
        x_auth_token: Text = "X-Auth-CouchDB-Token",
        /// Most names with passwords remembered as right, and most user documents kept in memory.
        auth_cache_size: Count = "10000",
        /// Where a browser without a session is sent.
        authentication_redirect: Text = "/_utils/session.html",
        /// Domain attribute of session cookies.
        cookie_domain: Option<Text>,
        /// SameSite attribute of session cookies: lax, strict, none (browsers want HTTPS for it), or omit for no such
        /// attribute.
        same_site: SameSite = "lax",
    }
}

section! {
    /// What happens to a client that keeps giving wrong passwords.
    pub struct ChttpdAuthLockout in "chttpd_auth_lockout" {
        /// enforce refuses the client, warn and off do not.
        mode: LockoutMode = "enforce",
        /// Wrong passwords, for one name from one address (of IPv6 one /64), until it is refused.
        threshold: Int = "5",
        /// How long wrong passwords are counted, in milliseconds.
        max_lifetime: Milliseconds = "300000",
        /// Most names with addresses counted at a time.
        max_objects: Count = "10000",
    }
}

section! {
    /// JSON Web Tokens, when jwt_authentication_handler is among [chttpd] authentication_handlers.
    pub struct JwtAuth in "jwt_auth" {
        /// Claims that a token must have and that are checked: exp, nbf, iat, typ, kid, {iss, "issuer"}.
        required_claims: Text = "exp",
        /// Claim with the roles, a list or a text with commas.
        roles_claim_name: Text = "_couchdb.roles",
        /// Path of the claim with the roles, its parts separated by dots (\. is a dot); counts before roles_claim_name.
        roles_claim_path: Option<Text>,
    }
}

section! {
    /// Keys of tokens, one a line: hmac:KID = base64 of the secret, rsa:KID or ec:KID = public key in PEM with \n for
    /// line ends. The KID _default is for tokens that name none.
    pub struct JwtKeys in "jwt_keys" with all {}
}

section! {
    /// A database for each user.
    pub struct CouchPeruser in "couch_peruser" {
        /// Make a database for each user of the database of users, that only the user can use.
        enable: Bool = "false",
        /// Delete a user's database with the user.
        delete_dbs: Bool = "false",
        /// What its name begins with; the user's name in hex follows.
        database_prefix: Text = "userdb-",
        /// Shards of such databases; [cluster] q when not set.
        q: Option<Shards>,
    }
}

section! {
    /// Server administrators, one a line: name = password. A plain password is replaced by its hash at start.
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
    /// What happens to a client that keeps giving wrong passwords.
    pub enum LockoutMode {
        /// It is refused.
        Enforce = "enforce",
        /// Nothing.
        Warn = "warn",
        /// Nothing.
        Off = "off",
    }
}
