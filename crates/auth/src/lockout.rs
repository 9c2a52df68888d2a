//! Refusing a client that keeps giving wrong passwords for a name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use config::settings::{ChttpdAuthLockout, LockoutMode};

use crate::origin::Origin;

/// The settings of `[chttpd_auth_lockout]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockoutSettings {
    enforced: bool,
    failures_max: u64,
    life: Duration,
    entries_max: usize,
}

impl LockoutSettings {
    pub(crate) fn of(settings: &ChttpdAuthLockout) -> LockoutSettings {
        LockoutSettings {
            enforced: settings.mode == LockoutMode::Enforce,
            failures_max: settings.threshold,
            life: settings.max_lifetime,
            entries_max: settings.max_objects,
        }
    }
}

/// Wrong passwords are counted by origin, name and salt: a new password starts at zero.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    origin: Origin,
    /// Hash of name and salt: a client can invent names as long as a header.
    hash: [u8; 32],
    is_known: bool,
}

impl Key {
    pub(crate) fn of_account(origin: &Origin, name: &str, salt: &str) -> Key {
        Key::of(origin, name, salt, true)
    }

    /// Returns the key of a name that no account has.
    pub(crate) fn of_nobody(origin: &Origin, name: &str) -> Key {
        Key::of(origin, name, "", false)
    }

    fn of(origin: &Origin, name: &str, salt: &str, is_known: bool) -> Key {
        let mut hasher = blake3::Hasher::new();
        let length = (name.len() as u64).to_le_bytes();
        hasher
            .update(&length)
            .update(name.as_bytes())
            .update(salt.as_bytes());
        Key {
            origin: origin.clone(),
            hash: *hasher.finalize().as_bytes(),
            is_known,
        }
    }
}

/// Counts wrong passwords. Unknown names are counted too, as refusals would otherwise reveal which
/// names exist; they are counted separately, so that a flood of them does not make room for more
/// attempts at an existing name.
#[derive(Default)]
pub(crate) struct Lockout {
    accounts: AttemptCount,
    nobodies: AttemptCount,
}

#[derive(Default)]
struct AttemptCount {
    failures: Mutex<HashMap<Key, Failures>>,
    /// Number of `failures`.
    count: AtomicUsize,
}

struct Failures {
    count: u64,
    since: Instant,
}

impl Lockout {
    /// Returns whether there are no recent failures: the usual case, and cheap to check.
    pub(crate) fn is_empty(&self) -> bool {
        let empty = |counted: &AttemptCount| counted.count.load(Ordering::Relaxed) == 0;
        empty(&self.accounts) && empty(&self.nobodies)
    }

    fn of(&self, key: &Key) -> &AttemptCount {
        match key.is_known {
            true => &self.accounts,
            false => &self.nobodies,
        }
    }

    pub(crate) fn is_locked(&self, settings: &LockoutSettings, key: &Key, now: Instant) -> bool {
        self.of(key).is_locked(settings, key, now)
    }

    pub(crate) fn failed(&self, settings: &LockoutSettings, key: Key, now: Instant) {
        self.of(&key).failed(settings, key, now);
    }
}

impl AttemptCount {
    fn is_locked(&self, settings: &LockoutSettings, key: &Key, now: Instant) -> bool {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures
            .get(key)
            .filter(|f| f.lives(settings, now))
            .map_or(0, |f| f.count);
        settings.enforced && count >= settings.failures_max
    }

    fn failed(&self, settings: &LockoutSettings, key: Key, now: Instant) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= settings.entries_max && !failures.contains_key(&key) {
            make_room(&mut failures, settings, now);
        }
        let entry = failures.entry(key).or_insert(Failures {
            count: 0,
            since: now,
        });
        if !entry.lives(settings, now) {
            *entry = Failures {
                count: 0,
                since: now,
            };
        }
        entry.count += 1;
        self.count.store(failures.len(), Ordering::Relaxed);
    }
}

impl Failures {
    fn lives(&self, settings: &LockoutSettings, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < settings.life
    }
}

/// Drops expired entries, and the oldest if that is not enough. A scan is cheap compared with the
/// password check before it.
fn make_room(failures: &mut HashMap<Key, Failures>, settings: &LockoutSettings, now: Instant) {
    failures.retain(|_, entry| entry.lives(settings, now));
    while failures.len() >= settings.entries_max {
        let Some(oldest) = failures
            .iter()
            .min_by_key(|(_, entry)| entry.since)
            .map(|(key, _)| key.clone())
        else {
            break;
        };
        failures.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: LockoutSettings = LockoutSettings {
        enforced: true,
        failures_max: 5,
        life: Duration::from_secs(300),
        entries_max: 3,
    };

    fn local() -> Origin {
        std::net::IpAddr::from([127, 0, 0, 1]).into()
    }

    fn key(name: &str) -> Key {
        Key::of_account(&local(), name, "salt")
    }

    fn fail(lockout: &Lockout, name: &str, times: usize, now: Instant) {
        (0..times).for_each(|_| lockout.failed(&SETTINGS, key(name), now));
    }

    #[test]
    fn five_failures_lock_one_name_until_their_time_is_over() {
        let (lockout, now) = (Lockout::default(), Instant::now());
        fail(&lockout, "a", 4, now);
        assert!(!lockout.is_locked(&SETTINGS, &key("a"), now));
        fail(&lockout, "a", 1, now);
        assert!(lockout.is_locked(&SETTINGS, &key("a"), now));
        assert!(!lockout.is_locked(&SETTINGS, &key("b"), now));
        assert!(!lockout.is_locked(
            &LockoutSettings {
                enforced: false,
                ..SETTINGS
            },
            &key("a"),
            now
        ));
        let later = now + SETTINGS.life;
        assert!(!lockout.is_locked(&SETTINGS, &key("a"), later));
        fail(&lockout, "a", 1, later);
        assert!(!lockout.is_locked(&SETTINGS, &key("a"), later));
    }

    #[test]
    fn the_number_of_names_is_bounded_and_the_oldest_goes_first() {
        let (lockout, now) = (Lockout::default(), Instant::now());
        fail(&lockout, "old", 5, now);
        for n in 0..3 {
            fail(
                &lockout,
                &n.to_string(),
                5,
                now + Duration::from_secs(n + 1),
            );
        }
        let then = now + Duration::from_secs(9);
        assert!(!lockout.is_locked(&SETTINGS, &key("old"), then));
        assert!(lockout.is_locked(&SETTINGS, &key("2"), then));
        let kept = lockout.accounts.failures.lock().expect("lock").len();
        assert_eq!(kept, 3);
    }

    #[test]
    fn names_that_nobody_has_are_locked_as_well_and_push_nobody_out() {
        let (lockout, now) = (Lockout::default(), Instant::now());
        fail(&lockout, "a", 5, now);
        for n in 0..9 {
            let nobody = Key::of_nobody(&local(), &n.to_string());
            (0..5).for_each(|_| lockout.failed(&SETTINGS, nobody.clone(), now));
            assert!(lockout.is_locked(&SETTINGS, &nobody, now));
        }
        assert!(lockout.is_locked(&SETTINGS, &key("a"), now));
    }

    #[test]
    fn a_replication_of_this_server_is_another_than_its_address() {
        let (lockout, now) = (Lockout::default(), Instant::now());
        let of = |origin: Origin| Key::of_account(&origin, "admin", "salt");
        let own = of(Origin::Replication("eve".to_owned()));
        (0..5).for_each(|_| lockout.failed(&SETTINGS, own.clone(), now));
        assert!(lockout.is_locked(&SETTINGS, &own, now));
        assert!(!lockout.is_locked(&SETTINGS, &of(local()), now));
        let others = of(Origin::Replication("anna".to_owned()));
        assert!(!lockout.is_locked(&SETTINGS, &others, now));
    }
}
