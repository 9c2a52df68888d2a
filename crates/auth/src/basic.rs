//! Names with passwords: the `Authorization: Basic` header and logins.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use crate::account::{Account, Login};
use crate::auth::Auth;
use crate::cache::Tag;
use crate::effort::Effort;
use crate::error::AuthError;
use crate::lockout::Key;
use crate::origin::Origin;
use crate::state::State;
use crate::totp::UsedTokens;

/// Standard base64; like Erlang's it does not mind the unused bits of the last character.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Result of checking a name and a password against the cache.
#[derive(Debug)]
pub enum Basic {
    /// No credentials: the header has another scheme, or no colon.
    Anonymous,
    /// They were found right before.
    Hit(Login),
    /// The password must be checked by a key derivation.
    Miss(PendingDerivation),
}

/// A name with a password.
pub(crate) struct Credentials {
    pub(crate) name: String,
    pub(crate) password: Vec<u8>,
}

impl Credentials {
    /// Returns the credentials in a header; `None` when it has none.
    pub(crate) fn parse(header: &str) -> Result<Option<Credentials>, AuthError> {
        match Credentials::encoded(header) {
            Some(encoded) => Credentials::decode(encoded),
            None => Ok(None),
        }
    }

    /// Returns the Base64 text of a header; `None` for other schemes.
    pub(crate) fn encoded(header: &str) -> Option<&str> {
        let (scheme, encoded) = header.trim().split_once(' ')?;
        scheme.eq_ignore_ascii_case("basic").then(|| encoded.trim())
    }

    /// Returns the credentials in the Base64 text of a header; `None` when it has none.
    pub(crate) fn decode(encoded: &str) -> Result<Option<Credentials>, AuthError> {
        let decoded = BASE64.decode(encoded).map_err(|_| AuthError::BadBase64)?;
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

    /// Returns their usual Base64 text. Others have other bits at the end, or bytes in the name
    /// that are not UTF-8.
    pub(crate) fn encode(&self) -> String {
        BASE64.encode([self.name.as_bytes(), b":", &self.password].concat())
    }
}

/// The keyed hash of the credentials, with the generation of the cache at that time.
type Sent = (u64, Tag);

/// The outcome of one key derivation, shared by all who wait for it: for which account, and whether
/// it was right.
pub(crate) type Derivation = OnceLock<(Option<Arc<Account>>, bool)>;

/// Derivations under way. They are owned by the [`PendingDerivation`]s.
pub(crate) type Derivations = Mutex<HashMap<Sent, Weak<Derivation>>>;

/// The request that carried the password.
pub(crate) enum LoginKind {
    /// A header, which has no place for a second factor: an account with one must log in.
    Basic,
    /// In a login, with the token of the second factor.
    Login { token: String, now_secs: u64 },
}

impl LoginKind {
    /// Returns whether the right password is enough. Uses up the token of a second factor.
    pub(crate) fn check(&self, account: &Account, used: &UsedTokens) -> Result<(), AuthError> {
        let enough = match (&account.totp, self) {
            (None, _) => true,
            (Some(_), LoginKind::Basic) => false,
            (Some(totp), LoginKind::Login { token, now_secs }) => totp
                .step_of(token, *now_secs)
                .is_some_and(|step| used.use_up(account.name(), step, *now_secs)),
        };
        if enough {
            Ok(())
        } else {
            Err(AuthError::BadCredentials)
        }
    }
}

/// A name with a password that must be checked by deriving a key. Checks of the same ones at the
/// same time cost one derivation.
pub struct PendingDerivation {
    auth: Auth,
    state: Arc<State>,
    /// `None` when no account has this name.
    account: Option<Arc<Account>>,
    credentials: Credentials,
    sent: Sent,
    way: LoginKind,
    derivation: Arc<Derivation>,
}

impl std::fmt::Debug for PendingDerivation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending")
            .field("name", &self.credentials.name)
            .finish_non_exhaustive()
    }
}

impl PendingDerivation {
    /// The generation of `sent` must have been read before `state`.
    pub(crate) fn new(
        auth: &Auth,
        state: Arc<State>,
        account: Option<Arc<Account>>,
        credentials: Credentials,
        sent: Sent,
        way: LoginKind,
    ) -> PendingDerivation {
        let mut in_flight = auth
            .inner
            .in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let entry = in_flight.entry(sent).or_default();
        let derivation = entry.upgrade().unwrap_or_default();
        *entry = Arc::downgrade(&derivation);
        drop(in_flight);
        PendingDerivation {
            auth: auth.clone(),
            state,
            account,
            credentials,
            sent,
            way,
            derivation,
        }
    }

    /// Returns the name that was given, for the log.
    pub fn name(&self) -> &str {
        &self.credentials.name
    }

    /// [`PendingDerivation::verify`] on a blocking thread of the tokio runtime, when it is this origin's
    /// turn.
    ///
    /// # Errors
    /// Errors of [`PendingDerivation::verify`], and [`AuthError::TooManyLogins`].
    pub async fn verify_in_turn(self, origin: Option<Origin>) -> Result<Login, AuthError> {
        // Without a turn, which others need.
        self.refuse_locked_out(origin.as_ref())?;
        let auth = self.auth.clone();
        let name = &self.credentials.name;
        let turn = auth.inner.turns.wait(origin.as_ref(), name).await;
        let turn = turn.ok_or(AuthError::TooManyLogins)?;
        let verify = move || {
            let _verifies = telemetry::enter(telemetry::State::Auth);
            let checked = self.verify(origin.as_ref());
            // Before the next turn is chosen.
            auth.inner.turns.note(origin.as_ref(), checked.is_ok());
            drop(turn);
            checked
        };
        tokio::task::spawn_blocking(verify)
            .await
            .unwrap_or(Err(AuthError::BadCredentials))
    }

    /// Checks the password. Blocks during a key derivation (a tenth of a second or more), so it
    /// belongs on a thread that may block. `origin` is the origin that wrong passwords are counted
    /// for.
    ///
    /// Every refusal takes as long as with the most expensive hash known; only a lock-out returns
    /// immediately, for existing and unknown names alike.
    ///
    /// # Errors
    /// [`AuthError::BadCredentials`]; [`AuthError::LockedOut`] when this origin gave wrong ones too
    /// often; [`AuthError::TooFewIterations`] and [`AuthError::TooManyIterations`].
    pub fn verify(self, origin: Option<&Origin>) -> Result<Login, AuthError> {
        self.refuse_locked_out(origin)?;
        let _turn = self
            .auth
            .inner
            .gate
            .enter(|| self.derivation.get().is_some());
        // Others of this origin may have failed while we waited.
        self.refuse_locked_out(origin)?;
        let (min, _) = self.state.iterations;
        let iterations = self.iterations().unwrap_or(min);
        if self.is_too_expensive() {
            // The hash is too expensive to check, so the password stays unverified.
            self.waste(None);
            return Err(AuthError::TooManyIterations);
        }
        self.note_effort();
        let mut is_first = false;
        let checked = self.derivation.get_or_init(|| {
            is_first = true;
            (self.account.clone(), self.is_right())
        });
        // The thread that filled the entry may have checked another password of this user.
        let (right, is_repeat) = match checked {
            (then, right) if self.is_account(then.as_deref()) => (*right, !is_first),
            _ => (self.is_right(), false),
        };
        let account = self.account.as_ref().filter(|_| right);
        let Some(account) = account.filter(|account| self.is_enough(account)) else {
            if right {
                // The second factor is wrong: that the first was right is not to be seen.
                self.waste(self.effort());
            }
            self.log_failure(origin);
            // Apps send several requests at once with the same old password, which is one guess.
            // With the right password, each may have another token.
            if right || !is_repeat {
                self.count_failure(origin);
            }
            return Err(AuthError::BadCredentials);
        };
        if iterations < min {
            // Only for callers that know the password.
            return Err(AuthError::TooFewIterations);
        }
        let account = match self.auth.inner.users.get() {
            Some(users) => users.upgrade(account, &self.credentials.password),
            None => account.clone(),
        };
        let (generation, tag) = self.sent;
        self.auth
            .inner
            .cache
            .insert(tag, account.clone(), generation);
        Ok(Login { account })
    }

    fn is_enough(&self, account: &Account) -> bool {
        let used = &self.auth.inner.used_tokens;
        self.way.check(account, used).is_ok()
    }

    fn is_account(&self, other: Option<&Account>) -> bool {
        match (self.account.as_deref(), other) {
            (None, None) => true,
            (Some(own), Some(other)) => own == other,
            _ => false,
        }
    }

    /// A wrong password takes as long as one for a name that does not exist.
    fn is_right(&self) -> bool {
        let hash = self.account.as_ref().and_then(|a| a.hash.as_ref());
        let right = hash.is_some_and(|hash| hash.verify(&self.credentials.password));
        if !right {
            self.waste(self.effort());
        }
        right
    }

    /// Returns the cost of checking the password; `None` when there is no hash.
    fn effort(&self) -> Option<Effort> {
        Some(self.account.as_ref()?.hash.as_ref()?.effort())
    }

    /// From now on every refusal takes as long as one of this name.
    fn note_effort(&self) {
        let of_document = self.account.as_ref().filter(|a| a.is_document);
        if let Some(effort) = self.effort().filter(|_| of_document.is_some()) {
            self.auth.inner.dearest.note(effort);
        }
    }

    /// Spends the rest of the effort of the most expensive hash, after `done`.
    fn waste(&self, done: Option<Effort>) {
        let dearest = self.auth.inner.dearest.with(self.state.effort);
        dearest.spend(&self.credentials.password, done);
    }

    /// Returns whether the hash of a user document takes more than `[chttpd_auth] max_iterations`
    /// allows.
    fn is_too_expensive(&self) -> bool {
        let is_document = self.account.as_ref().is_some_and(|a| a.is_document);
        let effort = self.effort().filter(|_| is_document);
        let (_, max) = self.state.iterations;
        effort.is_some_and(|effort| effort.counted_iterations(self.state.new_effort) > max)
    }

    /// Iterations of a user document's hash.
    fn iterations(&self) -> Option<u64> {
        let account = self.account.as_ref().filter(|a| a.is_document)?;
        let (_, iterations) = account.hash.as_ref()?.pbkdf2()?;
        Some(u64::from(iterations))
    }

    fn lockout_key(&self, origin: &Origin) -> Key {
        match self.account.as_deref() {
            Some(account) => lockout_key(account, origin),
            None => Key::of_nobody(origin, &self.credentials.name),
        }
    }

    fn refuse_locked_out(&self, origin: Option<&Origin>) -> Result<(), AuthError> {
        refuse_locked_out(&self.auth, &self.state, origin, |origin| {
            self.lockout_key(origin)
        })
    }

    fn log_failure(&self, origin: Option<&Origin>) {
        let origin_text = origin.map(tracing::field::display);
        // As text in quotes: a name can hold anything.
        tracing::warn!(
            user = self.credentials.name,
            peer = origin_text,
            "authentication failed"
        );
    }

    fn count_failure(&self, origin: Option<&Origin>) {
        let Some(origin) = origin else {
            return;
        };
        let (lockout, settings) = (&self.auth.inner.lockout, &self.state.lockout);
        lockout.failed(settings, self.lockout_key(origin), Instant::now());
    }
}

pub(crate) fn lockout_key(account: &Account, origin: &Origin) -> Key {
    Key::of_account(origin, account.name(), &account.salt)
}

/// # Errors
/// [`AuthError::LockedOut`].
pub(crate) fn refuse_locked_out(
    auth: &Auth,
    state: &State,
    origin: Option<&Origin>,
    key: impl FnOnce(&Origin) -> Key,
) -> Result<(), AuthError> {
    let lockout = &auth.inner.lockout;
    let Some(origin) = origin.filter(|_| !lockout.is_empty()) else {
        return Ok(());
    };
    if lockout.is_locked(&state.lockout, &key(origin), Instant::now()) {
        Err(AuthError::LockedOut)
    } else {
        Ok(())
    }
}

impl Drop for PendingDerivation {
    fn drop(&mut self) {
        let mut in_flight = self
            .auth
            .inner
            .in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // New holders come only from under this lock, so the last one knows that it is.
        if Arc::strong_count(&self.derivation) == 1 {
            in_flight.remove(&self.sent);
        }
    }
}

/// Limits the number of concurrent key derivations, so that wrong passwords cannot take all
/// processors.
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

    /// Waits for a turn, or until `needless` returns true; it is called whenever another derivation
    /// has finished.
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
    fn every_spelling_of_credentials_has_the_same_usual_one() {
        for (header, usual) in [
            ("Basic YTpi", "YTpi"),
            ("basic \t YTpi ", "YTpi"),
            ("Basic YTo=", "YTo="),
            ("Basic YTp=", "YTo="),
            ("BASIC   Og==", "Og=="),
            ("Basic Oh==", "Og=="),
        ] {
            let credentials = Credentials::parse(header).expect("valid base64");
            assert_eq!(credentials.expect("a colon").encode(), usual, "{header}");
        }
        // A name is read as UTF-8.
        let usual_of = |name: &[u8]| {
            let header = format!("Basic {}", BASE64.encode([name, b":b"].concat()));
            let credentials = Credentials::parse(&header).expect("valid base64");
            credentials.expect("a colon").encode()
        };
        assert_eq!(usual_of(b"\xff"), usual_of(b"\xfe"));
        assert_eq!(usual_of(b"\xff"), usual_of("\u{fffd}".as_bytes()));
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
        let pending = |password: &str| match auth.login("a", password, "", None) {
            Ok(Basic::Miss(pending)) => pending,
            other => panic!("{other:?}"),
        };
        let (first, second, third) = (pending("x"), pending("x"), pending("y"));
        assert!(
            Arc::ptr_eq(&first.derivation, &second.derivation)
                && !Arc::ptr_eq(&first.derivation, &third.derivation)
        );
        assert!(!first.is_right());
        first.derivation.get_or_init(|| (None, true));
        let refused = second.verify(None);
        assert!(
            matches!(refused, Err(AuthError::BadCredentials)),
            "nobody has the name"
        );
        drop((first, third));
        assert!(auth.inner.in_flight.lock().expect("lock").is_empty());
    }

    #[test]
    fn concurrent_checks_of_one_wrong_password_are_one_guess() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut layers = config::Layers::new(folder.path().join("local.ini"));
        let iterations = ("chttpd_auth".into(), "iterations".into(), "10".into());
        layers.overrides.push(iterations);
        let auth = Auth::new(config::Config::load(layers).expect("load")).expect("auth");
        let origin = Origin::from(std::net::IpAddr::from([127, 0, 0, 1]));
        let login = |password: &str| auth.login("a", password, "", Some(&origin));
        let refused = |basic: Result<Basic, AuthError>| match basic {
            Ok(Basic::Miss(pending)) => pending.verify(Some(&origin)).err(),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Some(error),
        };
        for guess in 0..5 {
            let concurrent: Vec<_> = (0..4).map(|_| login(&guess.to_string())).collect();
            for basic in concurrent {
                // The last of the five guesses locks out those who wait for its outcome, too.
                let error = refused(basic);
                let is_known = match error {
                    Some(AuthError::BadCredentials) => true,
                    Some(AuthError::LockedOut) => guess == 4,
                    _ => false,
                };
                assert!(is_known, "{guess}: {error:?}");
            }
        }
        assert!(matches!(refused(login("5")), Some(AuthError::LockedOut)));
    }

    proptest! {
        #[test]
        fn no_header_panics(header in "(Basic )?(\\PC{0,40}|[A-Za-z0-9+/=]{0,40})") {
            let _ = Credentials::parse(&header);
        }
    }
}
