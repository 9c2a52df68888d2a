//! Memory for the bodies of requests: a budget for all of them, where each waits until there is room for it.
//!
//! A body takes a multiple of its length while it is worked on: as it came, taken apart, as it is stored, and in the batch
//! that is written. Room for it is taken before it is read, so that what waits is with its client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body::BodyClass;
use crate::errors::ApiError;

/// Bodies up to this length take no room: connections are few.
const FREE_BYTES: u64 = 16 << 10;
/// Bodies up to this length have a quarter of the room for themselves, so that they do not wait behind large ones.
const SHORT_BYTES: u64 = 1 << 20;
/// Room is counted in these.
const UNIT_BYTES: u64 = 1 << 10;
/// How long a request waits before it is refused.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How long one waits that has some room already and needs more: others may wait for what it has.
const MORE_WAIT_MAX: Duration = Duration::from_secs(5);
/// What an attachment takes that is stored while it comes: the pieces on their way.
const STREAM_BYTES: u64 = 512 << 10;

/// Room for bodies, and who has it.
pub struct Bodies {
    short: Pool,
    long: Pool,
}

struct Pool {
    free: Arc<Semaphore>,
    units: usize,
    least_free: AtomicUsize,
}

impl Pool {
    fn new(bytes: usize) -> Pool {
        // One body has to fit at any rate.
        let units = (bytes / UNIT_BYTES as usize).clamp(1, u32::MAX as usize);
        Pool {
            free: Arc::new(Semaphore::new(units)),
            units,
            least_free: AtomicUsize::new(units),
        }
    }

    /// Waits for room of so many bytes. More than there is in all is as much as there is.
    async fn take(&self, bytes: u64, patience: Duration) -> Result<OwnedSemaphorePermit, ApiError> {
        let units = usize::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(usize::MAX);
        let units = u32::try_from(units.min(self.units)).unwrap_or(u32::MAX);
        let free = self.free.clone();
        let permit = match free.clone().try_acquire_many_owned(units) {
            Ok(permit) => permit,
            Err(_) => {
                let wait = tokio::time::timeout(patience, free.acquire_many_owned(units)).await;
                let no_room =
                    "no memory for the request's body came free in time ([memory] bodies)";
                let permit = wait.map_err(|_| ApiError::busy(no_room.into()))?;
                permit.map_err(|_| ApiError::worker_failed())?
            }
        };
        self.least_free
            .fetch_min(self.free.available_permits(), Relaxed);
        Ok(permit)
    }

    fn bytes(&self, units: usize) -> u64 {
        units as u64 * UNIT_BYTES
    }
}

impl Bodies {
    /// A budget of so many bytes.
    pub fn new(budget_bytes: usize) -> Arc<Bodies> {
        let short = budget_bytes / 4;
        Arc::new(Bodies {
            short: Pool::new(short),
            long: Pool::new(budget_bytes - short),
        })
    }

    /// All of it, in bytes.
    pub fn budget_bytes(&self) -> u64 {
        self.short.bytes(self.short.units) + self.long.bytes(self.long.units)
    }

    /// What is taken now, and the most that was, in bytes.
    pub fn used_bytes(&self) -> (u64, u64) {
        let used = |pool: &Pool, free: usize| pool.bytes(pool.units.saturating_sub(free));
        let now = |pool: &Pool| used(pool, pool.free.available_permits());
        let most = |pool: &Pool| used(pool, pool.least_free.load(Relaxed));
        (
            now(&self.short) + now(&self.long),
            most(&self.short) + most(&self.long),
        )
    }

    fn pool(&self, bytes: u64) -> &Pool {
        match bytes <= SHORT_BYTES {
            true => &self.short,
            false => &self.long,
        }
    }

    /// Room for an attachment that is stored while it comes.
    pub async fn stream(self: &Arc<Self>) -> Result<Room, ApiError> {
        let permit = self.short.take(STREAM_BYTES, WAIT_MAX).await?;
        Ok(Room {
            bodies: self.clone(),
            factor: 0,
            covered: u64::MAX,
            held: vec![permit],
        })
    }

    /// Room for a body of this class, for little of it as yet.
    pub fn body(self: &Arc<Self>, class: BodyClass) -> Room {
        Room {
            bodies: self.clone(),
            factor: match class {
                BodyClass::Login | BodyClass::Small => 2,
                BodyClass::Document => 3,
                BodyClass::Many => 4,
            },
            covered: FREE_BYTES,
            held: vec![],
        }
    }
}

/// Room that a body has, until it is dropped.
pub struct Room {
    bodies: Arc<Bodies>,
    /// Bytes of memory for each of the body's.
    factor: u64,
    /// The length that there is room for.
    covered: u64,
    held: Vec<OwnedSemaphorePermit>,
}

impl Room {
    /// Takes room for the whole of a body whose length is known.
    ///
    /// # Errors
    /// 503 when none came free in time.
    pub async fn announce(&mut self, length: u64) -> Result<(), ApiError> {
        if length > self.covered {
            let pool = self.bodies.pool(length);
            let bytes = length.saturating_mul(self.factor);
            self.held.push(pool.take(bytes, WAIT_MAX).await?);
            self.covered = length;
        }
        Ok(())
    }

    /// Takes more room when a body has become longer than there is room for.
    ///
    /// # Errors
    /// 503 when none came free in time.
    pub async fn cover(&mut self, length: u64) -> Result<(), ApiError> {
        if length <= self.covered {
            return Ok(());
        }
        // Twice as much each time, so that it is asked for seldom.
        let length = length.max(self.covered * 2);
        let pool = self.bodies.pool(length);
        let bytes = (length - self.covered).saturating_mul(self.factor);
        let left = pool.units
            - self
                .held
                .iter()
                .map(|p| p.num_permits())
                .sum::<usize>()
                .min(pool.units);
        if left > 0 {
            let bytes = bytes.min(pool.bytes(left));
            self.held.push(pool.take(bytes, MORE_WAIT_MAX).await?);
        }
        self.covered = length;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_room_waits_and_is_refused_in_the_end() {
        let bodies = Bodies::new(64 << 20);
        let mut first = bodies.body(BodyClass::Many);
        first.announce(9 * MIB).await.expect("there is room");
        assert_eq!(bodies.used_bytes(), (36 * MIB, 36 * MIB));
        let mut second = bodies.body(BodyClass::Many);
        let refused = second.announce(9 * MIB).await.expect_err("there is none");
        assert_eq!((refused.status, refused.headers.len()), (503, 1));
        // Short ones have their own.
        let mut short = bodies.body(BodyClass::Document);
        short.announce(MIB).await.expect("there is room");
        let waiting = tokio::spawn(async move { second.announce(9 * MIB).await.map(|()| second) });
        tokio::task::yield_now().await;
        drop(first);
        let second = waiting.await.expect("no panic").expect("there is room now");
        drop((second, short));
        assert_eq!(bodies.used_bytes(), (0, 39 * MIB));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_longer_than_all_room_goes_alone() {
        let bodies = Bodies::new(8 << 20);
        let mut huge = bodies.body(BodyClass::Many);
        huge.announce(100 * MIB).await.expect("it goes alone");
        let mut other = bodies.body(BodyClass::Many);
        assert!(other.announce(2 * MIB).await.is_err());
        drop(huge);
        other.announce(2 * MIB).await.expect("there is room again");
    }

    #[tokio::test(start_paused = true)]
    async fn what_grows_takes_more_as_it_does() {
        let bodies = Bodies::new(64 << 20);
        let mut room = bodies.body(BodyClass::Document);
        room.cover(10 << 10).await.expect("it is free");
        assert_eq!(bodies.used_bytes().0, 0);
        for length in (0..200).map(|n| n * 100_000) {
            room.cover(length).await.expect("there is room");
            assert!(bodies.used_bytes().0 <= 64 * MIB);
            assert!(bodies.used_bytes().0 + 48 * 1024 >= (length * 3).min(48 * MIB));
        }
        drop(room);
        assert_eq!(bodies.used_bytes().0, 0);
    }
}
