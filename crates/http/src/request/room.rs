//! Memory for the bodies of requests: a budget for all of them, where each waits until there is room for it.
//!
//! A body takes a multiple of its length while it is processed: as received, parsed, in stored
//! form, and in the batch that is written. A long one takes room for its length before it is read,
//! so that waiting bodies stay with their clients, and room for the rest when it has arrived: so a
//! slow client holds little. Short ones, and attachments, which are stored while they come, have
//! separate room.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body::BodyClass;
use crate::errors::ApiError;

/// Bodies up to this length take no room.
const FREE_BYTES: u64 = 16 << 10;
/// Bodies up to this length are short.
const SHORT_BYTES: u64 = 1 << 20;
/// Room is counted in these.
const UNIT_BYTES: u64 = 1 << 10;
/// How long a request waits before it is refused.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest wait of a body that has some room already and needs more: others may wait for its room.
const MORE_WAIT_MAX: Duration = Duration::from_secs(5);
/// Memory of an attachment that is stored while it arrives: at most the pieces on their way, and
/// the state that deflates it.
const STREAM_BYTES: u64 = 256 << 10;
const DEFLATE_BYTES: u64 = 256 << 10;
/// Least memory of a gzipped body while it is inflated, as the length of a body.
const INFLATING_BYTES: u64 = 32 << 10;
/// Memory of the buffer of a connection that reads a long head.
const LONG_HEAD_MEMORY: usize = 64 << 10;

/// Room for bodies, and its use.
pub struct Bodies {
    short: Pool,
    streams: Pool,
    /// Long bodies while they are read.
    reading: Pool,
    /// Additional memory of long bodies while they are processed.
    working: Pool,
    /// Places of connections that read long heads.
    long_heads: Arc<Semaphore>,
    long_heads_max: usize,
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    /// How long a request waits before it is refused.
    wait_max: Duration,
}

struct Pool {
    free: Arc<Semaphore>,
    units: usize,
    waiting: AtomicUsize,
}

impl Pool {
    fn new(bytes: usize) -> Pool {
        let units = (bytes / UNIT_BYTES as usize).clamp(1, u32::MAX as usize);
        Pool {
            free: Arc::new(Semaphore::new(units)),
            units,
            waiting: AtomicUsize::new(0),
        }
    }

    /// Waits for room. More than the whole budget counts as the whole budget.
    async fn take(&self, bytes: u64, patience: Duration) -> Result<OwnedSemaphorePermit, ApiError> {
        let units = usize::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(usize::MAX);
        let units = u32::try_from(units.min(self.units)).unwrap_or(u32::MAX);
        let free = self.free.clone();
        if let Ok(permit) = free.clone().try_acquire_many_owned(units) {
            return Ok(permit);
        }
        let _waiting = Waiting::new(&self.waiting);
        let wait = tokio::time::timeout(patience, free.acquire_many_owned(units)).await;
        let no_room = "no memory for the request's body came free in time ([memory] bodies)";
        let permit = wait.map_err(|_| ApiError::busy(no_room.into()))?;
        permit.map_err(ApiError::worker_failed)
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Waiting<'a> {
        count.fetch_add(1, Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Which part of the budget room is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Short,
    Streams,
    Reading,
    Working,
}

impl Bodies {
    /// Creates a budget of this size.
    pub fn new(budget_bytes: usize) -> Arc<Bodies> {
        let sixteenth = budget_bytes / 16;
        let long_heads_max = (sixteenth / LONG_HEAD_MEMORY).clamp(4, Semaphore::MAX_PERMITS);
        Arc::new(Bodies {
            short: Pool::new(sixteenth * 3),
            streams: Pool::new(sixteenth * 2),
            reading: Pool::new(sixteenth * 5),
            working: Pool::new(sixteenth * 5),
            long_heads: Arc::new(Semaphore::new(long_heads_max)),
            long_heads_max,
            used_bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            wait_max: WAIT_MAX,
        })
    }

    /// The current and the largest use, in bytes.
    pub fn used_bytes(&self) -> (u64, u64) {
        let long_heads = self.long_heads_max - self.long_heads.available_permits();
        let heads = (long_heads * LONG_HEAD_MEMORY) as u64;
        let used = self.used_bytes.load(Relaxed) + heads;
        (used, self.peak_bytes.load(Relaxed).max(used))
    }

    /// Returns the places of connections that read long heads.
    pub fn long_heads(&self) -> Arc<Semaphore> {
        self.long_heads.clone()
    }

    fn pool(&self, part: Part) -> &Pool {
        match part {
            Part::Short => &self.short,
            Part::Streams => &self.streams,
            Part::Reading => &self.reading,
            Part::Working => &self.working,
        }
    }

    /// Room for an attachment that is stored while it comes; `length` when it is known.
    pub async fn stream(self: &Arc<Self>, length: Option<u64>) -> Result<Room, ApiError> {
        let mut room = Room {
            bodies: self.clone(),
            factor: 0,
            covered: u64::MAX,
            held: vec![],
        };
        let bytes = DEFLATE_BYTES + length.unwrap_or(u64::MAX).min(STREAM_BYTES);
        room.take(Part::Streams, bytes, self.wait_max).await?;
        Ok(room)
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
    held: Vec<(Part, OwnedSemaphorePermit)>,
}

impl Room {
    async fn take(&mut self, part: Part, bytes: u64, patience: Duration) -> Result<(), ApiError> {
        let permit = self.bodies.pool(part).take(bytes, patience).await?;
        let taken = permit.num_permits() as u64 * UNIT_BYTES;
        let used = self.bodies.used_bytes.fetch_add(taken, Relaxed) + taken;
        self.bodies.peak_bytes.fetch_max(used, Relaxed);
        self.held.push((part, permit));
        Ok(())
    }

    fn give_back(&mut self, part: Part) {
        for (_, permit) in self.held.extract_if(.., |(of, _)| *of == part) {
            let bytes = permit.num_permits() as u64 * UNIT_BYTES;
            self.bodies.used_bytes.fetch_sub(bytes, Relaxed);
        }
    }

    /// The room that a part still lacks; more than the whole budget counts as the whole budget.
    fn lacking(&self, part: Part, bytes: u64) -> u64 {
        let of_part = self.held.iter().filter(|(of, _)| *of == part);
        let held: usize = of_part.map(|(_, permit)| permit.num_permits()).sum();
        let all = self.bodies.pool(part).units as u64 * UNIT_BYTES;
        bytes.min(all).saturating_sub(held as u64 * UNIT_BYTES)
    }

    /// Takes room for a body of this length, replacing its present room.
    async fn reach(&mut self, length: u64, patience: Duration) -> Result<(), ApiError> {
        let (part, bytes) = match length <= SHORT_BYTES {
            true => (Part::Short, length.saturating_mul(self.factor)),
            false => (Part::Reading, length),
        };
        let lacking = self.lacking(part, bytes);
        if lacking > 0 {
            self.take(part, lacking, patience).await?;
        }
        if part == Part::Reading {
            self.give_back(Part::Short);
        }
        self.covered = length;
        Ok(())
    }

    /// Takes room for the whole of a body whose length is known.
    ///
    /// # Errors
    /// 503 when too little room was freed in time.
    pub async fn announce(&mut self, length: u64) -> Result<(), ApiError> {
        match length > self.covered {
            true => self.reach(length, self.bodies.wait_max).await,
            false => Ok(()),
        }
    }

    /// Takes the room that a gzipped body needs whatever its length is, before any of it is
    /// decompressed.
    ///
    /// # Errors
    /// 503 when too little room was freed in time.
    pub async fn inflate(&mut self) -> Result<(), ApiError> {
        self.announce(INFLATING_BYTES).await
    }

    /// Returns the length of a body that there is room for.
    pub fn covered(&self) -> u64 {
        self.covered
    }

    /// Takes more room when a body has become longer than there is room for.
    ///
    /// # Errors
    /// 503 when too little room was freed in time.
    pub async fn cover(&mut self, length: u64) -> Result<(), ApiError> {
        if length <= self.covered {
            return Ok(());
        }
        // Twice as much each time, so that requests are rare.
        self.reach(length.max(self.covered * 2), MORE_WAIT_MAX)
            .await
    }

    /// Takes room for processing the body, which has arrived.
    ///
    /// # Errors
    /// 503 when too little room was freed in time.
    pub async fn work_on(&mut self, length: u64) -> Result<(), ApiError> {
        if length <= SHORT_BYTES {
            return Ok(());
        }
        let bytes = length.saturating_mul(self.factor.saturating_sub(1));
        self.take(Part::Working, bytes, self.bodies.wait_max).await
    }

    /// Whether others wait for room of the kind that this one has.
    pub fn is_wanted(&self) -> bool {
        let waiting = |part| self.bodies.pool(part).waiting.load(Relaxed);
        self.held.iter().any(|(part, _)| waiting(*part) > 0)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        for part in [Part::Short, Part::Streams, Part::Reading, Part::Working] {
            self.give_back(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A budget whose requests are refused soon.
    fn impatient(budget_bytes: usize) -> Arc<Bodies> {
        let mut bodies = Arc::into_inner(Bodies::new(budget_bytes)).expect("nobody else has it");
        bodies.wait_max = Duration::from_millis(10);
        Arc::new(bodies)
    }

    #[tokio::test]
    async fn who_finds_no_room_is_refused_in_the_end() {
        let bodies = impatient(64 << 20);
        let mut first = bodies.body(BodyClass::Many);
        first.announce(12 * MIB).await.expect("there is room");
        assert_eq!(bodies.used_bytes(), (12 * MIB, 12 * MIB));
        first
            .work_on(12 * MIB)
            .await
            .expect("it is as much as there is");
        assert_eq!(bodies.used_bytes().0, 32 * MIB);
        let mut second = bodies.body(BodyClass::Many);
        let refused = second.announce(9 * MIB).await.expect_err("there is none");
        assert_eq!((refused.status, refused.headers.len()), (503, 1));
        assert!(!first.is_wanted());
        drop((first, second));
        assert_eq!(bodies.used_bytes().0, 0);
    }

    #[tokio::test]
    async fn who_finds_no_room_waits_for_it() {
        let bodies = Bodies::new(64 << 20);
        let mut first = bodies.body(BodyClass::Many);
        first.announce(12 * MIB).await.expect("there is room");
        let mut second = bodies.body(BodyClass::Many);
        // Short ones and attachments have their own.
        let mut short = bodies.body(BodyClass::Document);
        short.announce(MIB).await.expect("there is room");
        let attachment = bodies.stream(None).await.expect("there is room");
        assert!(!first.is_wanted());
        let waiting = tokio::spawn(async move { second.announce(9 * MIB).await.map(|()| second) });
        tokio::task::yield_now().await;
        assert!(first.is_wanted() && !short.is_wanted());
        drop(first);
        let second = waiting.await.expect("no panic").expect("there is room now");
        drop((second, short, attachment));
        assert_eq!(bodies.used_bytes().0, 0);
    }

    #[tokio::test]
    async fn one_that_is_longer_than_all_room_goes_alone() {
        let bodies = impatient(8 << 20);
        let mut huge = bodies.body(BodyClass::Many);
        huge.announce(100 * MIB).await.expect("it goes alone");
        let mut other = bodies.body(BodyClass::Many);
        assert!(other.announce(2 * MIB).await.is_err());
        drop(huge);
        other.announce(2 * MIB).await.expect("there is room again");
    }

    #[tokio::test]
    async fn what_grows_takes_more_as_it_does() {
        let bodies = Bodies::new(64 << 20);
        let mut room = bodies.body(BodyClass::Document);
        room.cover(10 << 10).await.expect("it is free");
        assert_eq!(bodies.used_bytes().0, 0);
        for length in (0..300).map(|n| n * 100_000) {
            room.cover(length).await.expect("there is room");
            let (used, wanted) = (bodies.used_bytes().0, length.min(20 * MIB));
            assert!(used <= 20 * MIB && used + 32 * 1024 >= wanted, "{used}");
        }
        drop(room);
        assert_eq!(bodies.used_bytes().0, 0);
    }

    #[tokio::test]
    async fn a_short_attachment_takes_little() {
        let bodies = Bodies::new(64 << 20);
        let tiny = bodies.stream(Some(1000)).await.expect("there is room");
        let small = bodies.stream(Some(100 << 10)).await.expect("there is room");
        // With the state that deflates each.
        assert_eq!(bodies.used_bytes().0, (2 * 256 + 1 + 100) << 10);
        drop((tiny, small));
        assert_eq!(bodies.used_bytes().0, 0);
    }
}
