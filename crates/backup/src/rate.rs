//! A bound on bytes a second.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Limits the bytes per second.
pub(crate) struct Rate {
    bytes_per_s: f64,
    next: Mutex<Instant>,
}

impl Rate {
    /// `0`: no limit.
    pub(crate) fn new(bytes_per_s: u64) -> Rate {
        Rate {
            bytes_per_s: if bytes_per_s == 0 {
                f64::INFINITY
            } else {
                bytes_per_s as f64
            },
            next: Mutex::new(Instant::now()),
        }
    }

    /// Waits until this many bytes may pass.
    pub(crate) async fn pass(&self, bytes: usize) {
        let wait = self.wait_for(bytes, Instant::now());
        if wait > Duration::ZERO {
            tokio::time::sleep(wait).await;
        }
    }

    fn wait_for(&self, bytes: usize, now: Instant) -> Duration {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
        let mut next = self.next.lock().expect("nothing panics while it is held");
        let begins = (*next).max(now);
        *next = begins + takes;
        begins - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_at_the_rate_and_no_faster() {
        let rate = Rate::new(1_000);
        let start = Instant::now() + Duration::from_secs(1);
        assert_eq!(rate.wait_for(500, start), Duration::ZERO);
        assert_eq!(rate.wait_for(1_000, start), Duration::from_millis(500));
        assert_eq!(rate.wait_for(1, start), Duration::from_millis(1_500));
        let later = start + Duration::from_secs(60);
        assert_eq!(
            rate.wait_for(1, later),
            Duration::ZERO,
            "rest is not saved up"
        );
    }

    #[test]
    fn without_a_rate_nobody_waits() {
        let rate = Rate::new(0);
        let now = Instant::now();
        assert_eq!(rate.wait_for(usize::MAX, now), Duration::ZERO);
        assert_eq!(rate.wait_for(1, now), Duration::ZERO);
    }
}
