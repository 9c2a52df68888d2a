//! Who is asking, and what they may do: server administrators, sessions, and databases' security objects.
//!
//! Knows nothing of HTTP but the text of a few headers. Password hashes and session cookies are CouchDB's, so a
//! `local.ini` can be carried over and clients notice no difference.

#![warn(missing_docs)]

mod admins;
mod basic;
mod cache;
mod error;
mod lockout;
mod password;
mod security;
mod session;
mod user;

pub use admins::Auth;
pub use basic::{Basic, Pending};
pub use error::AuthError;
pub use password::{Hash, PasswordHash, hash_password, random_password};
pub use security::{DefaultSecurity, Security, SecurityError};
pub use session::Session;
pub use user::UserCtx;
