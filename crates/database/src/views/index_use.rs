//! The indexes that were queried since the server's start. The upkeep of others is wasted.

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use storage::Signature;

use crate::catalogue::DatabaseUuid;

/// Most indexes that are remembered; beyond it their use is unknown.
const REMEMBERED_MAX: usize = 100_000;

/// The queried indexes of each database.
#[derive(Default)]
pub(crate) struct IndexUse(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    by_database: FxHashMap<DatabaseUuid, FxHashSet<Signature>>,
    count: usize,
    /// Whether an index could not be noted for lack of room. Which one is not known.
    is_incomplete: bool,
}

impl IndexUse {
    /// Notes a query of an index.
    pub fn note(&self, database: DatabaseUuid, signature: Signature) {
        let mut noted = self.0.lock();
        let of = noted.by_database.get(&database);
        if of.is_some_and(|of| of.contains(&signature)) {
            return;
        }
        if noted.count >= REMEMBERED_MAX {
            noted.is_incomplete = true;
            return;
        }
        noted.count += 1;
        let of = noted.by_database.entry(database).or_default();
        of.insert(signature);
    }

    /// Whether an index was queried; `None` when unknown.
    pub fn was_used(&self, database: DatabaseUuid, signature: Signature) -> Option<bool> {
        let noted = self.0.lock();
        let of = noted.by_database.get(&database);
        match of.is_some_and(|of| of.contains(&signature)) {
            true => Some(true),
            false => (!noted.is_incomplete).then_some(false),
        }
    }

    /// The indexes of a database that were asked.
    pub fn of(&self, database: DatabaseUuid) -> Vec<Signature> {
        let noted = self.0.lock();
        let of = noted.by_database.get(&database);
        of.into_iter().flatten().copied().collect()
    }

    /// Indexes of a database are gone, which makes room for others.
    pub fn forget(&self, database: DatabaseUuid, gone: &[Signature]) {
        let mut noted = self.0.lock();
        let Some(of) = noted.by_database.get_mut(&database) else {
            return;
        };
        let forgotten = gone
            .iter()
            .filter(|signature| of.remove(*signature))
            .count();
        if of.is_empty() {
            noted.by_database.remove(&database);
        }
        noted.count -= forgotten;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(n: usize) -> Signature {
        let mut signature = [0; size_of::<Signature>()];
        signature[..8].copy_from_slice(&n.to_be_bytes());
        signature
    }

    const A: DatabaseUuid = DatabaseUuid::new([1; 16]);
    const B: DatabaseUuid = DatabaseUuid::new([2; 16]);

    #[test]
    fn indexes_that_are_gone_make_room() {
        let used = IndexUse::default();
        for n in 0..REMEMBERED_MAX {
            used.note(A, signature(n));
        }
        used.note(A, signature(0));
        assert_eq!(used.was_used(B, signature(0)), Some(false));
        let gone = used.of(A);
        assert_eq!(gone.len(), REMEMBERED_MAX);
        used.forget(A, &gone);
        assert_eq!(used.of(A), Vec::<Signature>::new());
        used.note(B, signature(1));
        used.forget(B, &[signature(2)]);
        assert_eq!(used.was_used(B, signature(1)), Some(true));
        assert_eq!(used.was_used(B, signature(2)), Some(false));
    }

    #[test]
    fn nothing_is_called_unused_once_there_was_no_room() {
        let used = IndexUse::default();
        for n in 0..=REMEMBERED_MAX {
            used.note(A, signature(n));
        }
        used.forget(A, &used.of(A));
        assert_eq!(used.was_used(A, signature(REMEMBERED_MAX)), None);
    }
}
