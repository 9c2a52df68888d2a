//! How much the files of text indexes take: they are looked at one by one, so not each time that somebody asks.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use storage::Store;

/// A look stays good for so long at least,
const AGE_MIN: Duration = Duration::from_secs(1);
/// and for so many times as long as it took: looking takes a part of the time, however many indexes there are and whoever asks.
const REST: u32 = 100;

/// What all text indexes take, open or not.
#[derive(Default)]
pub(crate) struct TextBytes(Mutex<Option<Look>>);

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
    /// Bytes, as of now or of a moment ago. Blocks; another one who asks meanwhile waits for the same look.
    pub fn now(&self, store: &Store) -> u64 {
        let mut last = self.0.lock();
        if let Some(look) = last.as_ref().filter(|look| look.is_good()) {
            return look.bytes;
        }
        let began = Instant::now();
        let bytes = store.folders_bytes();
        *last = Some(Look {
            bytes,
            took: began.elapsed(),
            ended: Instant::now(),
        });
        bytes
    }
}
