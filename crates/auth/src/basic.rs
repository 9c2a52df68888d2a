//! Names with passwords: the `Authorization: Basic` header and logins.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use crate::admins::{Auth, State};
use crate::cache::Tag;
use crate::error::AuthError;
use crate::user::UserCtx;

/// Standard base64; like Erlang's it does not mind the unused bits of the last character.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// What a name with a password comes to.
#[derive(Debug)]
pub enum Basic {
    /// There is none: the header is of another scheme, or has no colon.
    Anonymous,
    /// They were found right before.
    Hit(Arc<UserCtx>),
    /// They must be checked, which takes long.
    Miss(Pending),
}

/// A name with a password.
pub(crate) struct Credentials {
    pub(crate) name: String,
    pub(crate) password: Vec<u8>,
}

impl Credentials {
    /// Those of a header; `None` when it has none.
    pub(crate) fn parse(header: &str) -> Result<Option<Credentials>, AuthError> {
        let Some((scheme, encoded)) = header.trim().split_once(' ') else {
            return Ok(None);
        };
        if !scheme.eq_ignore_ascii_case("basic") {
            return Ok(None);
        }
        let decoded = BASE64
            .decode(encoded.trim())
            .map_err(|_| AuthError::BadBase64)?;
        let Some(colon) = decoded.iter().position(|byte| *byte == b':') else {
            return Ok(None);
        };
        // CouchDB's way to say "log me out" with Basic.
        if decoded == b"_:_" {
            return Ok(None);
        }
        let name = String::from_utf8_lossy(&decoded[..colon]).into_owned();
        Ok(Some(Credentials {
            name,
            password: decoded[colon + 1..].to_vec(),
        }))
    }
}

/// The outcome of one key derivation, shared by all who wait for it.
pub(crate) type Slot = OnceLock<Option<Arc<UserCtx>>>;

/// Derivations under way, by the cache's generation and tag. The slots are owned by the [`Pending`]s.
pub(crate) type InFlight = Mutex<HashMap<(u64, Tag), Weak<Slot>>>;

/// A name with a password that must be checked by deriving a key. Checks of the same ones at the same time cost one
/// derivation.
pub struct Pending {
    auth: Auth,
    state: Arc<State>,
    credentials: Credentials,
    tag: Tag,
    generation: u64,
    slot: Arc<Slot>,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending")
            .field("name", &self.credentials.name)
            .finish_non_exhaustive()
    }
}

impl Pending {
    /// `generation` must have been read before `state`.
    pub(crate) fn new(
        auth: &Auth,
        state: Arc<State>,
        credentials: Credentials,
        tag: Tag,
        generation: u64,
    ) -> Pending {
        let mut in_flight = auth
            .inner
            .in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let entry = in_flight.entry((generation, tag)).or_default();
        let slot = entry.upgrade().unwrap_or_default();
        *entry = Arc::downgrade(&slot);
        drop(in_flight);
        Pending {
            auth: auth.clone(),
            state,
            credentials,
            tag,
            generation,
            slot,
        }
    }

    /// The name that was given, for the log.
    pub fn name(&self) -> &str {
        &self.credentials.name
    }

    /// Checks the password. Blocks for as long as a key derivation takes (a tenth of a second and more), so it
    /// belongs on a thread that may block. `peer` is whom to count wrong passwords for.
    ///
    /// # Errors
    /// [`AuthError::BadCredentials`]; [`AuthError::LockedOut`] when this peer gave wrong ones too often.
    pub fn verify(self, peer: Option<IpAddr>) -> Result<Arc<UserCtx>, AuthError> {
        self.refuse_locked_out(peer)?;
        let _turn = self.auth.inner.gate.enter(|| self.slot.get().is_some());
        // Others of this peer may have failed while we waited.
        self.refuse_locked_out(peer)?;
        let outcome = self
            .slot
            .get_or_init(|| self.state.verify(&self.credentials));
        match outcome {
            Some(user) => {
                self.auth
                    .inner
                    .cache
                    .insert(self.tag, user.clone(), self.generation);
                Ok(user.clone())
            }
            None => {
                self.count_failure(peer);
                Err(AuthError::BadCredentials)
            }
        }
    }

    fn refuse_locked_out(&self, peer: Option<IpAddr>) -> Result<(), AuthError> {
        let locked = self.lockout_key(peer).is_some_and(|key| {
            self.auth
                .inner
                .lockout
                .is_locked(&self.state.lockout, &key, Instant::now())
        });
        if locked {
            Err(AuthError::LockedOut)
        } else {
            Ok(())
        }
    }

    fn count_failure(&self, peer: Option<IpAddr>) {
        if let Some(key) = self.lockout_key(peer) {
            self.auth
                .inner
                .lockout
                .failed(&self.state.lockout, key, Instant::now());
        }
    }

    /// Only names that exist are counted, as in CouchDB.
    fn lockout_key(&self, peer: Option<IpAddr>) -> Option<(IpAddr, String, String)> {
        let salt = self.state.salt(&self.credentials.name)?;
        Some((peer?, self.credentials.name.clone(), salt.to_owned()))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut in_flight = self
            .auth
            .inner
            .in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // New holders come only from under this lock, so the last one knows that it is.
        if Arc::strong_count(&self.slot) == 1 {
            in_flight.remove(&(self.generation, self.tag));
        }
    }
}

/// Lets only so many derivations run at a time, so that wrong passwords cannot take all processors.
pub(crate) struct Gate {
    free: Mutex<usize>,
    changed: Condvar,
}

/// The right to derive a key, until dropped.
pub(crate) struct Turn<'a>(Option<&'a Gate>);

impl Gate {
    /// Half of the processors, at least one.
    pub(crate) fn new() -> Gate {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Gate {
            free: Mutex::new((processors / 2).max(1)),
            changed: Condvar::new(),
        }
    }

    /// Waits for a turn, or until `needless`, which is asked each time that somebody has finished.
    fn enter(&self, needless: impl Fn() -> bool) -> Turn<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = self
            .changed
            .wait_while(free, |free| *free == 0 && !needless());
        let mut free = wait.unwrap_or_else(PoisonError::into_inner);
        if needless() {
            return Turn(None);
        }
        *free -= 1;
        Turn(Some(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(gate) = self.0 {
            *gate.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            gate.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(header: &str) -> Option<(String, String)> {
        let credentials = Credentials::parse(header).expect("valid base64")?;
        Some((
            credentials.name,
            String::from_utf8_lossy(&credentials.password).into_owned(),
        ))
    }

    #[test]
    fn name_and_password_are_split_at_the_first_colon() {
        let both = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
        assert_eq!(parse("Basic YWRtaW46YWRtaW4="), both("admin", "admin"));
        assert_eq!(parse("basic  YTpiOmM= "), both("a", "b:c"));
        assert_eq!(parse("Basic Og=="), both("", ""));
    }

    #[test]
    fn other_schemes_and_texts_without_colon_are_anonymous() {
        for header in [
            "",
            "Basic",
            "Basic ",
            "Basic bm9jb2xvbg==",
            "Bearer abc",
            "Foo bar",
            "Basic Xzpf",
        ] {
            assert_eq!(parse(header), None, "{header}");
        }
    }

    #[test]
    fn what_is_not_base64_is_refused() {
        for header in ["Basic ###", "Basic YQ", "Basic é", "Basic YTpi YTpi"] {
            assert!(
                matches!(Credentials::parse(header), Err(AuthError::BadBase64)),
                "{header}"
            );
        }
    }

    #[test]
    fn checks_of_one_header_share_one_derivation_and_leave_nothing_in_flight() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let layers = config::Layers::new(folder.path().join("local.ini"));
        let auth = Auth::new(config::Config::load(layers).expect("load")).expect("auth");
        let pending = |password: &str| match auth.login("a", password) {
            Basic::Miss(pending) => pending,
            other => panic!("{other:?}"),
        };
        let (first, second, third) = (pending("x"), pending("x"), pending("y"));
        assert!(Arc::ptr_eq(&first.slot, &second.slot) && !Arc::ptr_eq(&first.slot, &third.slot));
        first
            .slot
            .get_or_init(|| Some(Arc::new(UserCtx::admin("a"))));
        assert!(second.verify(None).is_ok(), "the outcome of the first");
        drop((first, third));
        assert!(auth.inner.in_flight.lock().expect("lock").is_empty());
    }

    proptest! {
        #[test]
        fn no_header_panics(header in "(Basic )?(\\PC{0,40}|[A-Za-z0-9+/=]{0,40})") {
            let _ = Credentials::parse(&header);
        }
    }
}
