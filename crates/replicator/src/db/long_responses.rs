//! Long answers of other servers, of which only some are held in memory at a time: a server may send anything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fair_queue::{Limits, Place, Queue, Share};
use reqwest::Response;

use crate::rows::ROW_BYTES_MAX;

/// An answer, or a row of one, is long from this length on.
pub const LONG_BYTES: usize = 1 << 20;
/// There is a place for each part of this size of `[memory] replications`,
const PLACE_BYTES: u64 = 32 << 20;
/// but not fewer places than this, and not more than that.
const PLACES: (u64, u64) = (2, 64);
/// An answer waits for a place up to this time.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// After this time, an answer must have had this rate while others wait, in bytes per second.
const GRACE: Duration = Duration::from_secs(10);
const RATE_MIN: u64 = 64 << 10;

/// The places of all replications of a server.
pub fn places(budget_bytes: u64) -> Arc<Queue> {
    let places = (budget_bytes / PLACE_BYTES).clamp(PLACES.0, PLACES.1) as usize;
    Queue::new(Limits {
        of_user: places - 1,
        user_percent: Some(50),
        slice: GRACE,
        ..Limits::new(places)
    })
}

/// The owner and the counter of long responses. Responses have it among their extensions.
#[derive(Clone)]
pub struct ResponseOwner {
    pub places: Arc<Queue>,
    pub owner: Share,
    /// Length of the longest row, in bytes.
    pub row_bytes_max: usize,
}

/// Returns the length of the longest row of a response, in bytes.
pub fn row_bytes_max(response: &Response) -> usize {
    let counted = response.extensions().get::<ResponseOwner>();
    counted.map_or(ROW_BYTES_MAX, |counted| counted.row_bytes_max)
}

/// The place of one answer, while it is long.
#[derive(Default)]
pub struct ResponsePermit {
    counted: Option<ResponseOwner>,
    place: Option<(Place, Instant)>,
}

impl ResponsePermit {
    /// For the answer of a response.
    pub fn of(response: &Response) -> ResponsePermit {
        ResponsePermit {
            counted: response.extensions().get().cloned(),
            place: None,
        }
    }

    /// Releases the place, unless this many bytes are still long.
    pub fn release_unless_long(&mut self, bytes: usize) {
        if bytes <= LONG_BYTES {
            self.place = None;
        }
    }

    /// Call it before more of the answer is read, with the number of bytes that are held. Waits for a place if that is long.
    /// `others_wait`: for the memory that was taken for the answer.
    ///
    /// # Errors
    /// No place became free in time, or the response is too slow while others wait.
    pub async fn hold(&mut self, bytes: usize, others_wait: bool) -> Result<(), String> {
        self.release_unless_long(bytes);
        if bytes <= LONG_BYTES {
            return Ok(());
        }
        if let Some((place, since)) = &self.place {
            let is_slow = (bytes as u64) < RATE_MIN * since.elapsed().as_secs();
            let is_late = since.elapsed() >= GRACE;
            return match is_slow && (place.is_wanted() || is_late && others_wait) {
                true => Err("a long answer is too slow, and others wait".into()),
                false => Ok(()),
            };
        }
        if let Some(counted) = &self.counted {
            let admission = counted.places.admission(&counted.owner).patiently();
            let place = tokio::time::timeout(WAIT_MAX, admission).await;
            let place = place.map_err(|_| "too many long answers of servers at a time");
            let place = place?.map_err(|busy| busy.to_string())?;
            self.place = Some((place, Instant::now()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn holding(places: &Arc<Queue>, owner: &str) -> ResponsePermit {
        ResponsePermit {
            counted: Some(ResponseOwner {
                places: places.clone(),
                owner: owner.into(),
                row_bytes_max: ROW_BYTES_MAX,
            }),
            place: None,
        }
    }

    #[tokio::test]
    async fn long_answers_have_places_and_one_user_does_not_get_all() {
        let places = places(0);
        let (mut first, mut second, mut other) = (
            holding(&places, "a"),
            holding(&places, "a"),
            holding(&places, "b"),
        );
        let take = |holding: &mut ResponsePermit, bytes| holding.hold(bytes, false).now_or_never();
        assert_eq!(take(&mut first, LONG_BYTES), Some(Ok(())));
        assert_eq!(places.used(), 0);
        assert_eq!(take(&mut first, LONG_BYTES + 1), Some(Ok(())));
        assert_eq!(take(&mut first, 60 * LONG_BYTES), Some(Ok(())));
        assert_eq!(take(&mut second, LONG_BYTES + 1), None);
        assert_eq!(take(&mut other, LONG_BYTES + 1), Some(Ok(())));
        assert_eq!(take(&mut first, 0), Some(Ok(())));
        assert_eq!(take(&mut second, LONG_BYTES + 1), Some(Ok(())));
    }
}
