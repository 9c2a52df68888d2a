//! Sizes of the files of text indexes: they are read one by one, which is slow, so callers do not
//! wait for it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use storage::Store;

/// A scan is valid for at least 1 s,
const AGE_MIN: Duration = Duration::from_secs(1);
/// and for 100 times its duration: scans take a small part of the time, however many indexes and
/// callers there are.
const REST: u32 = 100;

/// The size of all text indexes, open or not.
#[derive(Default)]
pub(crate) struct TextBytes {
    last: Mutex<Option<Look>>,
    /// Held during the first scan.
    looking: Mutex<()>,
    /// Whether a newer scan was requested.
    is_wanted: AtomicBool,
}

struct Look {
    bytes: u64,
    took: Duration,
    ended: Instant,
}

impl Look {
    fn is_good(&self) -> bool {
        self.ended.elapsed() < AGE_MIN.max(self.took * REST)
    }
}

impl TextBytes {
    /// Bytes as of the last scan. When that is old, `wake` should start a [renewal](Self::renew).
    /// The first caller scans itself, and blocks; others get `None` meanwhile.
    pub fn last(&self, store: &Store, wake: impl FnOnce()) -> Option<u64> {
        if let Some((bytes, is_good)) = self.known() {
            if !is_good && !self.is_wanted.swap(true, Relaxed) {
                wake();
            }
            return Some(bytes);
        }
        let _looking = self.looking.try_lock()?;
        // Another one may have looked since.
        if self.known().is_none() {
            self.look(store);
        }
        self.known().map(|(bytes, _)| bytes)
    }

    /// Scans again if that was requested. Blocks.
    pub fn renew(&self, store: &Store) {
        if self.is_wanted() {
            self.look(store);
            self.is_wanted.store(false, Relaxed);
        }
    }

    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Relaxed)
    }

    fn known(&self) -> Option<(u64, bool)> {
        let last = self.last.lock();
        last.as_ref().map(|look| (look.bytes, look.is_good()))
    }

    fn look(&self, store: &Store) {
        let began = Instant::now();
        let bytes = store.folders_bytes();
        *self.last.lock() = Some(Look {
            bytes,
            took: began.elapsed(),
            ended: Instant::now(),
        });
    }
}

#[cfg(test)]
mod tests {
    use storage::StoreOptions;

    use super::*;

    #[test]
    fn nobody_waits_for_a_look_of_another_and_an_old_one_is_renewed_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), &StoreOptions::default(), Box::new(|_| {})).unwrap();
        let bytes = TextBytes::default();
        let told = || {
            let mut woken = 0;
            (bytes.last(&store, || woken += 1), woken)
        };
        let looks = bytes.looking.lock();
        assert_eq!(told(), (None, 0));
        drop(looks);
        assert_eq!(told().0, Some(0));
        let ended = |at| bytes.last.lock().as_mut().unwrap().ended = at;
        let folder = store.folder(7);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("file"), "0123456789").unwrap();
        ended(Instant::now() + Duration::from_secs(3600));
        assert_eq!([told(), told()], [(Some(0), 0); 2]);
        ended(Instant::now() - Duration::from_secs(3600));
        assert_eq!([told(), told()], [(Some(0), 1), (Some(0), 0)]);
        bytes.renew(&store);
        assert_eq!(told().0, Some(10));
        store.close();
    }
}
