//! Reads the values of many keys.

use rocksdb::DBPinnableSlice;

use super::Engine;
use crate::Error;
use crate::keyspace::Keyspace;
use crate::snapshot::Value;

/// Number of values that are read together: at first, factor of growth, and maximum, which is that
/// of the engine's own batches.
const TOGETHER_FIRST: usize = 8;
const TOGETHER_GROWTH: usize = 4;
const TOGETHER_MAX: usize = 32;
/// After values of this length together fewer are read together, in bytes.
const TOGETHER_BYTES: usize = 1 << 20;

type Found<'a> = Result<Option<DBPinnableSlice<'a>>, rocksdb::Error>;

impl Engine {
    /// Returns the values of many keys, in order. They are read as they are taken, some together:
    /// lengths are unknown before, and each value may have megabytes.
    pub fn multi_get<'k>(
        &self,
        k: Keyspace,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> impl Iterator<Item = Result<Option<Value<'_>>, Error>> {
        let mut keys = keys.into_iter();
        let mut together = TOGETHER_FIRST;
        let mut read: std::vec::IntoIter<Found<'_>> = vec![].into_iter();
        let values = std::iter::from_fn(move || {
            if let Some(value) = read.next() {
                return Some(value);
            }
            let next: Vec<&[u8]> = keys.by_ref().take(together).collect();
            if next.is_empty() {
                return None;
            }
            let values = self
                .db
                .batched_multi_get_cf(self.cf(k), next.iter().copied(), false);
            together = next_together(together, values.iter().map(length).sum());
            read = values.into_iter();
            read.next()
        });
        values.map(|value| Ok(value?.map(Value)))
    }
}

fn length(value: &Found<'_>) -> usize {
    match value {
        Ok(Some(value)) => value.len(),
        Ok(None) | Err(_) => 0,
    }
}

/// Returns the number of values to read after some that have this many bytes.
fn next_together(together: usize, bytes: usize) -> usize {
    match bytes < TOGETHER_BYTES {
        true => (together * TOGETHER_GROWTH).min(TOGETHER_MAX),
        false => (together / TOGETHER_GROWTH).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreOptions;

    fn keys(count: u16) -> Vec<[u8; 2]> {
        (0..count).map(u16::to_be_bytes).collect()
    }

    fn put(engine: &Engine, key: [u8; 2], value: &[u8]) {
        let mut writes = engine.writes();
        writes.put(Keyspace::IndexRows, key, value);
        writes.commit(false).unwrap();
    }

    #[test]
    fn values_are_read_when_they_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), &StoreOptions::default()).unwrap();
        let keys = keys(1000);
        for key in &keys {
            put(&engine, *key, key);
        }
        let all = || engine.multi_get(Keyspace::IndexRows, keys.iter().map(|key| &key[..]));
        let found: Vec<_> = all()
            .map(|value| value.unwrap().unwrap().to_vec())
            .collect();
        assert_eq!(
            found,
            keys.iter().map(|key| key.to_vec()).collect::<Vec<_>>()
        );

        let mut values = all();
        for _ in 0..500 {
            values.next().unwrap().unwrap();
        }
        let read = 500 + TOGETHER_MAX;
        put(&engine, keys[read], b"later");
        let value = values.nth(read - 500).unwrap().unwrap().unwrap();
        assert_eq!(&value[..], b"later");
        assert!(values.all(|value| value.unwrap().is_some()));
    }

    #[test]
    fn few_long_values_are_read_together() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), &StoreOptions::default()).unwrap();
        let keys = keys(20);
        let long = "x".repeat(TOGETHER_BYTES / 4);
        for key in &keys[..TOGETHER_FIRST] {
            put(&engine, *key, long.as_bytes());
        }
        let mut values = engine.multi_get(Keyspace::IndexRows, keys.iter().map(|key| &key[..]));
        let value = values.nth(TOGETHER_FIRST).unwrap().unwrap();
        assert!(value.is_none());
        put(&engine, keys[TOGETHER_FIRST + 2], b"later");
        let value = values.nth(1).unwrap().unwrap().unwrap();
        assert_eq!(&value[..], b"later");
    }
}
