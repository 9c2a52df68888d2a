//! Delays of retries.

use std::time::Duration;

/// Delay before the first retry.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// Maximum delay, also when a server requests a longer one.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// Returns the delay before retry number `attempt` (from 0), with jitter, or the one that the
/// server requested.
pub fn wait(attempt: u32, retry_after: Option<Duration>) -> Duration {
    if let Some(asked) = retry_after {
        return asked.min(WAIT_MAX);
    }
    let base = FIRST_WAIT
        .saturating_mul(1 << attempt.min(16))
        .min(WAIT_MAX);
    base / 2 + base.mul_f64(random() / 2.0)
}

/// Returns a random number from 0 to 1.
pub fn random() -> f64 {
    let mut bytes = [0; 4];
    // Without random numbers there is no jitter; nothing else depends on them.
    let _ = getrandom::fill(&mut bytes);
    f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
}

/// Parses `Retry-After`: seconds, or a date.
pub fn retry_after(value: &str) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(value.trim()).ok()?;
    Some(
        at.duration_since(std::time::SystemTime::now())
            .unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_jitter_downwards() {
        for attempt in 0..40 {
            let base = FIRST_WAIT
                .saturating_mul(1 << attempt.min(16))
                .min(WAIT_MAX);
            let wait = wait(attempt, None);
            assert!(wait <= base && wait >= base / 2, "{attempt}: {wait:?}");
        }
    }

    #[test]
    fn a_server_says_when_to_come_again() {
        assert_eq!(wait(9, retry_after("3")), Duration::from_secs(3));
        assert_eq!(wait(0, retry_after("999999")), WAIT_MAX);
        assert_eq!(
            retry_after("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(Duration::ZERO)
        );
        assert_eq!(retry_after("soon"), None);
    }
}
