//! Memory for the bodies of requests: a budget for all of them, where each waits until there is room for it.
//!
//! Room is shared by users, and by addresses of clients without a login: a user who has room gets
//! more only while it has less than is free, and what is freed goes to the waiting user with the
//! least. A body that is longer than the part of one user is refused.
//!
//! A body takes a multiple of its length while it is processed: as received, parsed, in stored
//! form, and in the batch that is written. A long one takes room for its length before it is read,
//! so that waiting bodies stay with their clients, and room for the rest when it has arrived: so a
//! slow client holds little. Short ones, and attachments, which are stored while they come, have
//! separate room.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fair_queue::{Limits, Place, Queue};

use super::body::BodyClass;
use crate::errors::ApiError;
use crate::shares::Sharer;

/// The setting of the budget.
const SETTING: &str = "[memory] bodies";
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
/// About the memory of a parsed JSON value in an array or an object, in bytes: as `serde_json::Value`,
/// with the name of a member, or the spare places of an array.
const VALUE_MEMORY: u64 = 160;
/// Additional memory of an array and of an object: the least that one with contents takes.
const ARRAY_MEMORY: u64 = 320;
const OBJECT_MEMORY: u64 = 500;
/// About the additional memory of a document of a bulk, its outcome and its response.
const DOCUMENT_MEMORY: u64 = 600;
/// A short body takes room for its values if they take this much more than the body has.
const VALUES_FREE_MEMORY: u64 = 64 << 10;
/// Memory of the buffer of a connection that reads a long head.
const LONG_HEAD_MEMORY: usize = 64 << 10;

/// Room for bodies, and its use.
pub struct Bodies {
    budget_bytes: u64,
    short: Pool,
    streams: Pool,
    /// Long bodies while they are read.
    reading: Pool,
    /// Additional memory of long bodies while they are processed.
    working: Pool,
    /// Places of connections that read long heads.
    long_heads: Arc<Queue>,
    /// Places for inflating portions of bodies, one for each processor.
    inflating: Arc<Queue>,
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    /// How long a request waits before it is refused.
    wait_max: Duration,
}

struct Pool {
    room: Arc<Queue>,
    units: usize,
}

/// Places of which one owner gets another only while it holds less than are free.
fn shared(places: usize, min: usize) -> Limits {
    Limits {
        user_percent: Some(100),
        ..Limits::new(places.max(min))
    }
}

impl Pool {
    fn new(bytes: usize) -> Pool {
        let limits = shared(bytes / UNIT_BYTES as usize, 1);
        Pool {
            room: Queue::new(limits),
            units: limits.places,
        }
    }

    /// Waits for room for a body that holds some.
    async fn take(
        &self,
        sharer: &Sharer,
        (units, held): (usize, usize),
        patience: Duration,
    ) -> Result<Place, ApiError> {
        let admission = self.room.admission(sharer.share()).places(units, held);
        let admission = match sharer.is_admin() {
            true => admission.beyond_share(),
            false => admission,
        };
        let room = tokio::time::timeout(patience, admission.patiently()).await;
        let no_room = "no memory for the request's body came free in time ([memory] bodies)";
        Ok(room.map_err(|_| ApiError::busy(no_room.into()))??)
    }
}

/// How many portions are inflated at a time: one for each processor, and at least two.
fn inflating_max() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2))
}

/// The form of a body while it is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// JSON values that each take memory of their own.
    Values,
    /// Documents, which stay texts.
    Documents,
}

impl Parsed {
    /// About the memory of this form of a body, in bytes. Separators within strings count too.
    fn memory(self, body: &[u8]) -> u64 {
        let count = |separator: u8| memchr::memchr_iter(separator, body).count() as u64;
        let objects = count(b'{');
        match self {
            Parsed::Values => {
                let arrays = count(b'[');
                let values = count(b',') + arrays + objects;
                values * VALUE_MEMORY + arrays * ARRAY_MEMORY + objects * OBJECT_MEMORY
            }
            Parsed::Documents => objects * DOCUMENT_MEMORY,
        }
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
        Arc::new(Bodies {
            budget_bytes: budget_bytes as u64,
            short: Pool::new(sixteenth * 2),
            streams: Pool::new(sixteenth * 2),
            reading: Pool::new(sixteenth * 8),
            // The last one is for long heads.
            working: Pool::new(sixteenth * 3),
            long_heads: Queue::new(shared(sixteenth / LONG_HEAD_MEMORY, 4)),
            inflating: Queue::new(Limits::new(inflating_max())),
            used_bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            wait_max: WAIT_MAX,
        })
    }

    /// The current and the largest use, in bytes.
    pub fn used_bytes(&self) -> (u64, u64) {
        let heads = (self.long_heads.used() * LONG_HEAD_MEMORY) as u64;
        let used = self.used_bytes.load(Relaxed) + heads;
        (used, self.peak_bytes.load(Relaxed).max(used))
    }

    fn use_more(&self, bytes: u64) {
        let used = self.used_bytes.fetch_add(bytes, Relaxed) + bytes;
        self.peak_bytes.fetch_max(used, Relaxed);
    }

    /// Returns the places of connections that read long heads.
    pub fn long_heads(&self) -> Arc<Queue> {
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
    ///
    /// # Errors
    /// 503 when too little room was freed in time.
    pub async fn stream(
        self: &Arc<Self>,
        sharer: Sharer,
        length: Option<u64>,
    ) -> Result<Room, ApiError> {
        let mut room = Room {
            bodies: self.clone(),
            sharer,
            factor: 0,
            covered: u64::MAX,
            held: vec![],
            beyond: 0,
        };
        let bytes = DEFLATE_BYTES + length.unwrap_or(u64::MAX).min(STREAM_BYTES);
        room.take(Part::Streams, bytes, self.wait_max).await?;
        Ok(room)
    }

    /// Room for a body of this class, for little of it as yet.
    pub fn body(self: &Arc<Self>, sharer: Sharer, class: BodyClass) -> Room {
        Room {
            bodies: self.clone(),
            sharer,
            factor: match class {
                BodyClass::Login | BodyClass::Small => 2,
                BodyClass::Document => 3,
                BodyClass::Many => 4,
            },
            covered: FREE_BYTES,
            held: vec![],
            beyond: 0,
        }
    }
}

/// Returns whether the error is that there can never be room for a body.
pub fn can_never_fit(e: &ApiError) -> bool {
    e.status == 413 && e.reason.contains(SETTING)
}

/// Room that a body has, until it is dropped.
pub struct Room {
    bodies: Arc<Bodies>,
    sharer: Sharer,
    /// Bytes of memory for each of the body's.
    factor: u64,
    /// The length that there is room for.
    covered: u64,
    held: Vec<(Part, Place)>,
    /// Memory of its values beyond what one body is given, in bytes: it counts as used.
    beyond: u64,
}

impl Room {
    async fn take(&mut self, part: Part, bytes: u64, patience: Duration) -> Result<(), ApiError> {
        let wanted = usize::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(usize::MAX);
        let (held, max) = (self.held_units(part), self.units_max(part));
        let units = wanted.min(max.saturating_sub(held)).max(1);
        let pool = self.bodies.pool(part);
        let room = pool.take(&self.sharer, (units, held), patience).await?;
        let taken = room.count() as u64 * UNIT_BYTES;
        self.bodies.use_more(taken);
        self.held.push((part, room));
        Ok(())
    }

    fn give_back(&mut self, part: Part) {
        for (_, room) in self.held.extract_if(.., |(of, _)| *of == part) {
            let bytes = room.count() as u64 * UNIT_BYTES;
            self.bodies.used_bytes.fetch_sub(bytes, Relaxed);
        }
    }

    fn held_units(&self, part: Part) -> usize {
        let of_part = self.held.iter().filter(|(of, _)| *of == part);
        of_part.map(|(_, room)| room.count()).sum()
    }

    /// The most that this body may have of a part: half of it. A server admin's may be read into all.
    fn units_max(&self, part: Part) -> usize {
        let all = self.bodies.pool(part).units;
        match part == Part::Reading && self.sharer.is_admin() {
            true => all,
            false => (all / 2).max(1),
        }
    }

    /// The room that a part still lacks; more than the body may have counts as that.
    fn lacking(&self, part: Part, bytes: u64) -> u64 {
        let all = self.units_max(part) as u64 * UNIT_BYTES;
        bytes
            .min(all)
            .saturating_sub(self.held_units(part) as u64 * UNIT_BYTES)
    }

    /// The longest body that there can be room for. Short ones are not refused: their memory counts
    /// as at most what a user may have.
    fn length_max(&self) -> u64 {
        SHORT_BYTES.max(self.units_max(Part::Reading) as u64 * UNIT_BYTES)
    }

    fn check_length(&self, length: u64) -> Result<(), ApiError> {
        let max = self.length_max();
        let part = match self.sharer.is_admin() {
            true => "half",
            false => "a quarter",
        };
        match length > max {
            true => Err(ApiError::too_large(&format!("{part} of {SETTING}"), max)),
            false => Ok(()),
        }
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
    /// 413 when there can never be room for it, 503 when too little was freed in time.
    pub async fn announce(&mut self, length: u64) -> Result<(), ApiError> {
        self.check_length(length)?;
        match length > self.covered {
            true => self.reach(length, self.bodies.wait_max).await,
            false => Ok(()),
        }
    }

    /// Takes the room that a gzipped body needs whatever its length is, before any of it is
    /// decompressed.
    ///
    /// # Errors
    /// 503 when too little was freed in time.
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
    /// 413 when there can never be room for it, 503 when too little was freed in time.
    pub async fn cover(&mut self, length: u64) -> Result<(), ApiError> {
        if length <= self.covered {
            return Ok(());
        }
        self.check_length(length)?;
        // Twice as much each time, so that requests are rare.
        let twice = (self.covered * 2).min(self.length_max());
        self.reach(length.max(twice), MORE_WAIT_MAX).await
    }

    /// Waits for the user's turn to inflate a portion.
    ///
    /// # Errors
    /// None, since it waits.
    pub async fn turn_to_inflate(&self) -> Result<Place, ApiError> {
        let turns = &self.bodies.inflating;
        Ok(turns.admission(self.sharer.share()).patiently().await?)
    }

    /// Takes room for processing the body, which has arrived.
    ///
    /// # Errors
    /// 413 when its values take more than half of the budget, 503 when too little room was freed in
    /// time.
    pub async fn work_on(&mut self, body: &[u8], parsed: Parsed) -> Result<(), ApiError> {
        let length = body.len() as u64;
        // Nothing so short has many values.
        if length <= UNIT_BYTES {
            return Ok(());
        }
        let memory = parsed.memory(body);
        let max = self.bodies.budget_bytes / 2;
        if parsed == Parsed::Values && memory > max {
            let what = format!("the memory of JSON values in one body: half of {SETTING}");
            return Err(ApiError::too_large(&what, max));
        }
        let copies = self.copies(length);
        if length > SHORT_BYTES {
            self.take_working(memory.max(copies)).await?;
            self.use_beyond(memory.saturating_sub(copies));
            return Ok(());
        }
        let more = memory.saturating_sub(length.saturating_mul(self.factor));
        if more > VALUES_FREE_MEMORY {
            self.take_working(more).await?;
            self.use_beyond(more);
        }
        Ok(())
    }

    /// Counts memory of values for which there is no room as used.
    fn use_beyond(&mut self, bytes: u64) {
        let given = self.held_units(Part::Working) as u64 * UNIT_BYTES;
        self.beyond = bytes.saturating_sub(given);
        self.bodies.use_more(self.beyond);
    }

    /// Takes room for processing a document's text of this length, which has arrived.
    ///
    /// # Errors
    /// 503 when too little room was freed in time.
    pub async fn work_on_text(&mut self, length: u64) -> Result<(), ApiError> {
        match length > SHORT_BYTES {
            true => self.take_working(self.copies(length)).await,
            false => Ok(()),
        }
    }

    /// The memory of a body's other forms.
    fn copies(&self, length: u64) -> u64 {
        length.saturating_mul(self.factor.saturating_sub(1))
    }

    async fn take_working(&mut self, bytes: u64) -> Result<(), ApiError> {
        self.take(Part::Working, bytes, self.bodies.wait_max).await
    }

    /// Whether a user with no more room of the same kind waits for it.
    pub fn is_wanted(&self) -> bool {
        self.held.iter().any(|(_, room)| room.is_wanted_by_poorer())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.bodies.used_bytes.fetch_sub(self.beyond, Relaxed);
        for part in [Part::Short, Part::Streams, Part::Reading, Part::Working] {
            self.give_back(part);
        }
    }
}

#[cfg(test)]
mod tests;
