//! Delays of failed jobs.

use std::time::Duration;

use crate::db::random;

/// Delay after the first crash; doubles with each further one.
const CRASH_WAIT: Duration = Duration::from_secs(30);
const CRASH_EXPONENT_MAX: u32 = 10;
/// Upper limit of the first delay of a document that could not become a job, in seconds; doubles
/// with each further failure.
const DOC_WAIT_S: u64 = 64;
const DOC_EXPONENT_MAX: u32 = 12;
/// Maximum delay, a day, in seconds. (In CouchDB a day is the mean of the maximum.)
const DOC_WAIT_S_MAX: u64 = 86_400;

/// Returns the delay after consecutive crashes, with up to a tenth more, so that the jobs of one
/// vanished server do not retry all at the same time.
pub fn crash_backoff(crashes: u32) -> Duration {
    if crashes == 0 {
        return Duration::ZERO;
    }
    let base = CRASH_WAIT * (1 << (crashes - 1).min(CRASH_EXPONENT_MAX));
    base + base.mul_f64(random() / 10.0)
}

/// Returns the delay of a document after `failures` failures (from 0): a random time below a limit
/// that doubles, as in CouchDB.
pub fn doc_backoff(failures: u32) -> Duration {
    Duration::from_secs(1) + Duration::from_secs(doc_bound_s(failures)).mul_f64(random())
}

fn doc_bound_s(failures: u32) -> u64 {
    (DOC_WAIT_S << failures.min(DOC_EXPONENT_MAX)).min(DOC_WAIT_S_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_double_the_wait_up_to_about_eight_hours() {
        assert_eq!(crash_backoff(0), Duration::ZERO);
        for (crashes, seconds) in [(1, 30), (2, 60), (5, 480), (11, 30_720), (4000, 30_720)] {
            let wait = crash_backoff(crashes).as_secs_f64();
            let base = f64::from(seconds);
            assert!(wait >= base && wait <= base * 1.1, "{crashes}: {wait}");
        }
    }

    #[test]
    fn a_documents_wait_is_anything_up_to_its_bound() {
        for failures in 0..40 {
            let bound = doc_bound_s(failures);
            let wait = doc_backoff(failures).as_secs();
            assert!((1..=bound + 1).contains(&wait), "{failures}: {wait}");
        }
        assert_eq!(
            [0, 1, 10, 11, 4000].map(doc_bound_s),
            [64, 128, 65_536, 86_400, 86_400]
        );
    }
}
