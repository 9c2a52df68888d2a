//! An account that can log in: an administrator of `[admins]`, or a user of the users database.

use std::sync::Arc;

use crate::password::PasswordHash;
use crate::totp::Totp;
use crate::user::UserCtx;

/// An administrator or a user.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) user: Arc<UserCtx>,
    /// `None` when there is no hash, or its form is unknown: then every password is wrong.
    pub(crate) hash: Option<PasswordHash>,
    /// Goes into session cookies. Empty for accounts that cannot log in.
    pub(crate) salt: String,
    /// A second factor, which only logins can give.
    pub(crate) totp: Option<Totp>,
    /// Whether the account is a user document, whose hash can be replaced.
    pub(crate) is_document: bool,
}

impl Account {
    pub(crate) fn admin(name: &str, hash: Option<PasswordHash>) -> Account {
        Account {
            user: Arc::new(UserCtx::admin(name)),
            salt: hash
                .as_ref()
                .map(|hash| hash.salt().to_owned())
                .unwrap_or_default(),
            hash,
            totp: None,
            is_document: false,
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.user.name.as_deref().unwrap_or_default()
    }

    /// About how much memory it takes, in bytes. A user chooses the salt of the own document.
    pub(crate) fn memory_bytes(&self) -> usize {
        let roles = self
            .user
            .roles
            .iter()
            .map(|role| size_of::<String>() + role.len());
        size_of::<Account>() + self.name().len() + 2 * self.salt.len() + roles.sum::<usize>()
    }

    /// Returns whether a password that was right for `earlier` is right for this account.
    pub(crate) fn has_password_of(&self, earlier: &Account) -> bool {
        self.hash.is_some() && self.hash == earlier.hash && self.salt == earlier.salt
    }

    /// This account with further roles.
    pub(crate) fn with_roles(&self, more: &[String]) -> Account {
        let mut user = (*self.user).clone();
        for role in more {
            if !user.roles.contains(role) {
                user.roles.push(role.clone());
            }
        }
        Account {
            user: Arc::new(user),
            hash: self.hash.clone(),
            salt: self.salt.clone(),
            totp: self.totp.clone(),
            is_document: self.is_document,
        }
    }
}

/// An account whose password or cookie was right: the input of a new session cookie.
#[derive(Debug, Clone)]
pub struct Login {
    pub(crate) account: Arc<Account>,
}

impl Login {
    /// Returns the user.
    pub fn user(&self) -> &Arc<UserCtx> {
        &self.account.user
    }

    /// Returns whether the account is a document of the users database.
    pub fn is_document(&self) -> bool {
        self.account.is_document
    }
}
