//! Names with passwords that were right, so that a repeated request costs no key derivation.
//!
//! Neither password nor header is kept: entries are found by a keyed hash of it, whose key is
//! random in each process.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::account::Account;

const SHARDS: usize = 16;

/// The keyed hash of credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag([u8; 32]);

impl std::hash::Hash for Tag {
    /// The tag is a hash already; its first bytes choose the shard, so others are used here.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut part = [0; 8];
        part.copy_from_slice(&self.0[8..16]);
        state.write_u64(u64::from_ne_bytes(part));
    }
}

#[derive(Default)]
struct Unhashed(u64);

impl Hasher for Unhashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

type Shard = RwLock<HashMap<Tag, Arc<Account>, BuildHasherDefault<Unhashed>>>;

pub(crate) struct Cache {
    key: [u8; 32],
    shards: [Shard; SHARDS],
    /// Incremented whenever the cache is cleared. Results from an older generation must not be
    /// kept.
    generation: AtomicU64,
    entries_max: AtomicUsize,
}

impl Cache {
    pub(crate) fn new() -> Cache {
        Cache {
            key: rand::random(),
            shards: Default::default(),
            generation: AtomicU64::new(0),
            entries_max: AtomicUsize::new(0),
        }
    }

    /// Returns the tag of the Base64 text of an `Authorization` header.
    pub(crate) fn tag_of_encoded(&self, encoded: &str) -> Tag {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(b"h").update(encoded.as_bytes());
        Tag(*hasher.finalize().as_bytes())
    }

    /// Returns the tag of a name with a password.
    pub(crate) fn tag_of_login(&self, name: &str, password: &[u8]) -> Tag {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher
            .update(b"l")
            .update(&(name.len() as u64).to_le_bytes())
            .update(name.as_bytes())
            .update(password);
        Tag(*hasher.finalize().as_bytes())
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    pub(crate) fn get(&self, tag: &Tag) -> Option<Arc<Account>> {
        self.shard(tag)
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(tag)
            .cloned()
    }

    /// Keeps a result of `generation`, unless the cache was cleared since.
    pub(crate) fn insert(&self, tag: Tag, account: Arc<Account>, generation: u64) {
        let entries_max = self.entries_max.load(Ordering::Relaxed).div_ceil(SHARDS);
        let mut shard = self
            .shard(&tag)
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        // Under the shard's lock: a clearing that comes later empties this shard after us.
        if entries_max == 0 || generation != self.generation() {
            return;
        }
        while shard.len() >= entries_max && !shard.contains_key(&tag) {
            let Some(any) = shard.keys().next().copied() else {
                break;
            };
            shard.remove(&any);
        }
        shard.insert(tag, account);
    }

    /// Forgets everything, and all verifications under way.
    pub(crate) fn clear(&self, entries_max: usize) {
        self.entries_max.store(entries_max, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.shards.iter().for_each(|shard| {
            shard
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .clear()
        });
    }

    fn shard(&self, tag: &Tag) -> &Shard {
        &self.shards[usize::from(tag.0[0]) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries_max: usize) -> Cache {
        let cache = Cache::new();
        cache.clear(entries_max);
        cache
    }

    fn user() -> Arc<Account> {
        Arc::new(Account::admin("a", None))
    }

    #[test]
    fn what_was_put_in_is_found_until_the_cache_is_cleared() {
        let cache = cache(50);
        let tag = cache.tag_of_encoded("Basic x");
        cache.insert(tag, user(), cache.generation());
        assert_eq!(cache.get(&tag), Some(user()));
        assert_eq!(cache.get(&cache.tag_of_encoded("Basic y")), None);
        cache.clear(50);
        assert_eq!(cache.get(&tag), None);
    }

    #[test]
    fn what_was_verified_before_a_clearing_is_not_kept() {
        let cache = cache(50);
        let (tag, generation) = (cache.tag_of_encoded("Basic x"), cache.generation());
        cache.clear(50);
        cache.insert(tag, user(), generation);
        assert_eq!(cache.get(&tag), None);
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        for entries_max in [0, 1, 50] {
            let cache = cache(entries_max);
            for n in 0..1000 {
                cache.insert(
                    cache.tag_of_encoded(&n.to_string()),
                    user(),
                    cache.generation(),
                );
            }
            let kept: usize = cache
                .shards
                .iter()
                .map(|shard| shard.read().expect("lock").len())
                .sum();
            assert!(kept <= entries_max.div_ceil(SHARDS) * SHARDS, "{kept}");
        }
    }

    #[test]
    fn a_tag_tells_header_name_and_password_apart() {
        let cache = cache(1);
        assert_ne!(
            cache.tag_of_login("ab", b"c"),
            cache.tag_of_login("a", b"bc")
        );
        assert_ne!(cache.tag_of_login("", b"x"), cache.tag_of_encoded("x"));
        assert_ne!(cache.tag_of_encoded("x"), Cache::new().tag_of_encoded("x"));
    }
}
