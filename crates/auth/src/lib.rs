//! Authentication and authorization: server administrators, users, sessions, tokens, and the
//! security objects of databases.
//!
//! Independent of HTTP except for the text of a few headers. Password hashes, user documents and
//! session cookies are CouchDB's, so a `local.ini` and a users database can be carried over and
//! clients notice no difference.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod account;
mod admins;
mod auth;
mod basic;
mod cache;
pub mod counters;
mod crowd;
mod effort;
mod error;
mod handlers;
mod jwt;
mod lockout;
mod origin;
mod password;
mod proxy;
mod reputation;
mod security;
mod session;
mod state;
mod totp;
mod turns;
mod user;
mod users;

pub use account::Login;
pub use auth::{Auth, Authentication, RequestCredentials};
pub use basic::{Basic, PendingDerivation};
pub use error::AuthError;
pub use handlers::Handler;
pub use origin::Origin;
pub use password::{Hash, PasswordHash, hash_password, random_password};
pub use security::{DefaultSecurity, Security, SecurityError};
pub use session::{CookieScope, Session};
pub use user::UserCtx;
pub use users::{hash_of_user, user_doc_id};
