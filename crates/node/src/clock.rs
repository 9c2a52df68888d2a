//! The time of day, which may be set.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Work that depends on the time of day is skipped once after the clock moved further than this, beyond the elapsed time.
const MOVE_MAX: Duration = Duration::from_secs(3600);

/// Finds out whether the clock was set.
pub(crate) struct Clock {
    last: (Instant, SystemTime),
}

impl Default for Clock {
    fn default() -> Clock {
        Clock {
            last: (Instant::now(), SystemTime::now()),
        }
    }
}

impl Clock {
    /// Returns whether the clock has moved as far as time has elapsed since the last call.
    pub fn has_moved_steadily(&mut self) -> bool {
        let now = (Instant::now(), SystemTime::now());
        let expected = self.last.1 + (now.0 - self.last.0);
        let moved = match now.1.duration_since(expected) {
            Ok(ahead) => ahead,
            Err(behind) => behind.duration(),
        };
        self.last = now;
        moved < MOVE_MAX
    }
}

/// Returns the time in seconds since 1970.
pub(crate) fn unix_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}
