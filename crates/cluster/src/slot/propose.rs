//! Proposals waiting to be appended, to be applied, and to be on enough disks.

use std::collections::{BTreeMap, HashMap, VecDeque};

use telemetry::Durations;
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant};

use crate::counters::{ACKNOWLEDGED, APPLIED, LOGGED, QUEUED};
use crate::log::AppendError;
use crate::position::{Chain, Generation, NodeId};
use crate::record::{AROUND_BYTES_MAX, BYTES_MAX, Body, EncodedRequest, STORED_BYTES_MAX, Stamp};
use crate::replica::{Kind, Replica};

/// Maximum number of concurrent appends.
const APPENDS_MAX: usize = 4;
/// Maximum size of requests in a record, in bytes.
const ROOM: usize = BYTES_MAX - AROUND_BYTES_MAX;
/// The time after which a record is appended again doubles up to this many times.
const DOUBLED_MAX: usize = 5;

/// A load to append.
pub(super) enum Load {
    /// A client's request, encoded.
    Request(EncodedRequest),
    /// A record of its own.
    Body(Body),
    /// A change of replicas.
    Members(Vec<NodeId>),
}

/// The result that was waited for.
pub(super) struct Settlement<O> {
    pub outcome: Option<O>,
    pub offset: u64,
    pub copies: usize,
}

/// The reason of a failure.
pub(super) enum Failure<O> {
    TooFew { outcome: Option<O>, copies: usize },
    NotNow(String),
    Full(String),
    Behind,
    NotOne,
    Unknown,
}

pub(super) type Answer<O> = oneshot::Sender<Result<Settlement<O>, Failure<O>>>;

/// A waiting caller, and its condition.
struct Waiter<O> {
    load: Load,
    copies: Option<usize>,
    answer: Answer<O>,
    state: State<O>,
    /// Number of appends.
    attempts: u32,
    /// Appends that the log did not refuse: some of them may be in the log.
    unrefused: u32,
    /// The index of the next part.
    part: u32,
    /// The hash that identifies its record, if it has no key.
    hash: Option<Chain>,
    /// The end of the last step that was measured.
    step_ended: Instant,
    /// The log has it.
    is_logged: bool,
}

enum State<O> {
    /// Waiting to be appended.
    Queued,
    /// Being appended, or in the log.
    Appended,
    /// The log refused it.
    Failed,
    /// Applied here.
    Applied {
        outcome: Option<O>,
        next_offset: u64,
    },
}

/// The room of a record for further requests.
struct RecordRoom {
    bytes: usize,
    stored_bytes: usize,
}

impl Default for RecordRoom {
    fn default() -> RecordRoom {
        RecordRoom {
            bytes: ROOM,
            stored_bytes: STORED_BYTES_MAX,
        }
    }
}

impl RecordRoom {
    /// Takes the room of a request if there is enough. The first request may rewrite any amount in
    /// the store.
    fn takes(&mut self, request: &EncodedRequest) -> bool {
        let is_first = self.bytes == ROOM;
        let fits = request.bytes.len() <= self.bytes
            && (is_first || request.stored_bytes <= self.stored_bytes);
        if fits {
            self.bytes -= request.bytes.len();
            self.stored_bytes = self.stored_bytes.saturating_sub(request.stored_bytes);
        }
        fits
    }
}

/// An append to be made, for these proposals.
pub(super) struct Batch {
    pub record: Vec<u8>,
    pub of: Vec<(u64, u32)>,
    /// No further part follows.
    pub is_whole: bool,
}

/// All waiting proposals, by the numbers that the slot's handles assign.
pub(super) struct Proposals<O> {
    waiters: HashMap<u64, Waiter<O>>,
    by_key: HashMap<(u64, u64), u64>,
    by_hash: HashMap<Chain, u64>,
    queue: VecDeque<u64>,
    /// Refused by the log, until the next tick.
    failed: Vec<u64>,
    /// When to append again what is not applied by then: number and attempt, by the number of times
    /// the time was doubled.
    due: [VecDeque<(Instant, u64, u32)>; DOUBLED_MAX + 1],
    /// Applied proposals by the number of copies that they wait for, ordered by offset.
    applied: BTreeMap<Option<usize>, VecDeque<(u64, u64)>>,
    in_flight: usize,
    again_after: Duration,
    /// The log's reason for refusing the last record.
    refusal: Option<String>,
}

impl<O> Proposals<O> {
    pub fn new(again_after: Duration) -> Proposals<O> {
        Proposals {
            waiters: HashMap::new(),
            by_key: HashMap::new(),
            by_hash: HashMap::new(),
            queue: VecDeque::new(),
            failed: vec![],
            due: Default::default(),
            applied: BTreeMap::new(),
            in_flight: 0,
            again_after,
            refusal: None,
        }
    }

    /// Returns the number of waiting proposals.
    pub fn len(&self) -> usize {
        let keys = self.by_key.len().max(self.by_hash.len());
        self.waiters.len().max(keys)
    }

    pub fn add(&mut self, id: u64, load: Load, copies: Option<usize>, answer: Answer<O>) {
        if let Load::Request(request) = &load
            && let Some(before) = self.by_key.insert(request.key, id)
        {
            // The client proposed it again: the earlier caller does not wait any more.
            self.end(before, Failure::Unknown);
        }
        let waiter = Waiter {
            load,
            copies,
            answer,
            state: State::Queued,
            attempts: 0,
            unrefused: 0,
            part: 0,
            hash: None,
            step_ended: Instant::now(),
            is_logged: false,
        };
        self.waiters.insert(id, waiter);
        self.queue.push_back(id);
    }

    fn remove(&mut self, id: u64) -> Option<Waiter<O>> {
        let waiter = self.waiters.remove(&id)?;
        if let Load::Request(request) = &waiter.load
            && self.by_key.get(&request.key) == Some(&id)
        {
            self.by_key.remove(&request.key);
        }
        if let Some(hash) = &waiter.hash {
            self.by_hash.remove(hash);
        }
        Some(waiter)
    }

    fn end(&mut self, id: u64, failure: Failure<O>) {
        if let Some(waiter) = self.remove(id) {
            let _ = waiter.answer.send(Err(failure));
        }
    }

    /// Ends a proposal whose caller has gone, or whose time is over: returns what is known.
    pub fn give_up(&mut self, id: u64, replica: Option<&Replica>, why: impl FnOnce() -> String) {
        let Some(waiter) = self.remove(id) else {
            return;
        };
        let failure = match waiter.state {
            State::Applied {
                outcome,
                next_offset,
            } => Failure::TooFew {
                outcome,
                copies: replica.map_or(0, |replica| replica.durable_at(next_offset)),
            },
            _ if waiter.unrefused > 0 => Failure::Unknown,
            _ => Failure::NotNow(self.refusal.clone().unwrap_or_else(why)),
        };
        let _ = waiter.answer.send(Err(failure));
    }

    /// Returns the next record to append.
    pub fn next_batch(&mut self, stamp: &Stamp, replica: &Replica) -> Option<Batch> {
        let generation = replica.proposes_in()?;
        while self.in_flight < APPENDS_MAX {
            let id = *self.queue.front()?;
            let Some(waiter) = self.waiters.get(&id).filter(|w| w.is_next()) else {
                self.queue.pop_front();
                continue;
            };
            let batch = match &waiter.load {
                Load::Request(request) if request.bytes.len() <= ROOM => {
                    Some(self.requests(stamp, generation))
                }
                Load::Request(_) => Some(self.part(id, stamp, generation)),
                Load::Body(body) => {
                    let record = stamp.write(generation, body);
                    Some(self.single(id, record))
                }
                Load::Members(members) => {
                    let members = members.clone();
                    self.members(id, members, stamp, replica)
                }
            };
            if batch.is_some() {
                self.in_flight += 1;
                return batch;
            }
        }
        None
    }

    /// Packs as many requests as fit into a record.
    fn requests(&mut self, stamp: &Stamp, generation: Generation) -> Batch {
        let (mut of, mut room) = (vec![], RecordRoom::default());
        while let Some(id) = self.queue.front() {
            if let Some(waiter) = self.waiters.get_mut(id).filter(|w| w.is_next()) {
                match &waiter.load {
                    Load::Request(request) if room.takes(request) => {}
                    _ => break,
                }
                of.push((*id, waiter.append()));
            }
            self.queue.pop_front();
        }
        let request = |(id, _): &(u64, u32)| match &self.waiters.get(id)?.load {
            Load::Request(request) => Some(request),
            _ => None,
        };
        let requests: Vec<&EncodedRequest> = of.iter().filter_map(request).collect();
        Batch {
            record: stamp.write_requests(generation, &requests),
            of,
            is_whole: true,
        }
    }

    /// Returns the next part of a long request.
    fn part(&mut self, id: u64, stamp: &Stamp, generation: Generation) -> Batch {
        let mut batch = Batch {
            record: vec![],
            of: vec![],
            is_whole: false,
        };
        let Some(waiter) = self.waiters.get_mut(&id) else {
            return batch;
        };
        if let Load::Request(request) = &waiter.load {
            let count = request.bytes.len().div_ceil(ROOM) as u32;
            let piece = request.bytes.chunks(ROOM).nth(waiter.part as usize);
            let body = Body::Part {
                gateway: request.key.0,
                counter: request.key.1,
                index: waiter.part,
                count,
                bytes: piece.unwrap_or_default().to_vec(),
            };
            batch.record = stamp.write_needing(request.needs, generation, &body);
            batch.is_whole = waiter.part + 1 == count;
        }
        match waiter.part {
            0 => _ = waiter.append(),
            _ => waiter.unrefused += 1,
        }
        batch.of.push((id, waiter.attempts));
        waiter.part += 1;
        if batch.is_whole {
            waiter.part = 0;
            self.queue.pop_front();
        }
        batch
    }

    /// Returns a record of its own, identified by its hash.
    fn single(&mut self, id: u64, record: Vec<u8>) -> Batch {
        self.queue.pop_front();
        let hash = crate::position::digest(&record);
        let mut of = vec![];
        if let Some(waiter) = self.waiters.get_mut(&id) {
            of.push((id, waiter.append()));
            if let Some(before) = waiter.hash.replace(hash) {
                self.by_hash.remove(&before);
            }
        }
        self.by_hash.insert(hash, id);
        Batch {
            record,
            of,
            is_whole: true,
        }
    }

    fn members(
        &mut self,
        id: u64,
        members: Vec<NodeId>,
        stamp: &Stamp,
        replica: &Replica,
    ) -> Option<Batch> {
        let cursor = &replica.saved().cursor;
        if cursor.members.len() == members.len()
            && cursor.members.iter().all(|n| members.contains(n))
        {
            self.queue.pop_front();
            let next_offset = cursor.position.next_offset;
            self.is_applied(id, None, next_offset);
            return None;
        }
        let Some(header) = replica.change_replicas(members.clone()) else {
            self.queue.pop_front();
            match differ_by_one(&cursor.members, &members) {
                true => self.failed.push(id),
                false => self.end(id, Failure::NotOne),
            }
            return None;
        };
        let Kind::Replicas {
            members,
            after,
            epoch,
        } = header.kind
        else {
            return None;
        };
        let body = Body::Replicas {
            members,
            after,
            epoch,
        };
        let record = stamp.write(header.generation, &body);
        Some(self.single(id, record))
    }

    /// Handles the log's answer to an append.
    pub fn appended(
        &mut self,
        of: Vec<(u64, u32)>,
        is_whole: bool,
        result: &Result<u64, AppendError>,
    ) {
        self.in_flight -= 1;
        let now = Instant::now();
        for (id, attempt) in of {
            let Some(waiter) = self.waiters.get_mut(&id) else {
                continue;
            };
            if matches!(result, Err(AppendError::Refused(_))) {
                waiter.unrefused -= 1;
            }
            if !waiter.waits_for(attempt) {
                continue;
            }
            if result.is_err() {
                waiter.state = State::Failed;
                self.failed.push(id);
            } else if is_whole {
                let doubled = (attempt as usize - 1).min(DOUBLED_MAX);
                let at = now + self.again_after * (1 << doubled);
                waiter.reach_log(now);
                self.due[doubled].push_back((at, id, attempt));
            }
        }
        match result {
            Ok(_) => self.refusal = None,
            Err(error) => self.refusal = Some(error.to_string()),
        }
    }

    /// Handles the outcome of a request, after everything before this offset.
    pub fn outcome(&mut self, key: (u64, u64), outcome: O, next_offset: u64) {
        if let Some(id) = self.by_key.get(&key) {
            self.is_applied(*id, Some(outcome), next_offset);
        }
    }

    /// Handles a record of its own that was applied; `members` are the replicas after it.
    pub fn went_by(&mut self, hash: &Chain, is_data: bool, members: &[NodeId], next_offset: u64) {
        let Some(id) = self.by_hash.get(hash).copied() else {
            return;
        };
        let Some(waiter) = self.waiters.get_mut(&id) else {
            return;
        };
        let had_effect = match &waiter.load {
            Load::Members(wanted) => wanted == members,
            _ => is_data,
        };
        if had_effect {
            self.is_applied(id, None, next_offset);
        } else if matches!(waiter.state, State::Appended) {
            waiter.state = State::Failed;
            self.failed.push(id);
        }
    }

    /// Returns whether a caller waits for a record of its own.
    pub fn awaits_records(&self) -> bool {
        !self.by_hash.is_empty()
    }

    fn is_applied(&mut self, id: u64, outcome: Option<O>, next_offset: u64) {
        if let Some(waiter) = self.waiters.get_mut(&id)
            && !matches!(waiter.state, State::Applied { .. })
        {
            waiter.state = State::Applied {
                outcome,
                next_offset,
            };
            let now = Instant::now();
            // It may be read from the log before the log reports that it has it.
            waiter.reach_log(now);
            waiter.end_step(&APPLIED, now);
            let queue = self.applied.entry(waiter.copies).or_default();
            queue.push_back((next_offset, id));
        }
    }

    /// Settles the proposals that enough replicas have.
    pub fn settle(&mut self, replica: &Replica) {
        let stable = replica.stable();
        let mut done = vec![];
        for (copies, queue) in &mut self.applied {
            while let Some((at, id)) = queue.front().copied() {
                let is_there = match copies {
                    None => at <= stable,
                    Some(copies) => replica.durable_at(at) >= *copies,
                };
                let waits = self.waiters.contains_key(&id);
                if waits && !is_there {
                    break;
                }
                queue.pop_front();
                if waits {
                    done.push((at, id));
                }
            }
        }
        for (at, id) in done {
            let Some(mut waiter) = self.remove(id) else {
                continue;
            };
            waiter.end_step(&ACKNOWLEDGED, Instant::now());
            if let State::Applied { outcome, .. } = waiter.state {
                let _ = waiter.answer.send(Ok(Settlement {
                    outcome,
                    offset: at.saturating_sub(1),
                    copies: replica.durable_at(at),
                }));
            }
        }
    }

    /// Handles a replaced state, or offsets of another meaning: the applied position is read from
    /// the log again. The store detects repeats.
    pub fn renew(&mut self) {
        self.applied.clear();
        self.due.iter_mut().for_each(VecDeque::clear);
        let lost = |state: &State<O>| matches!(state, State::Applied { .. } | State::Appended);
        let all = self.waiters.iter_mut();
        let mut again: Vec<u64> = all
            .filter(|(_, waiter)| lost(&waiter.state))
            .map(|(id, waiter)| {
                waiter.state = State::Queued;
                waiter.part = 0;
                *id
            })
            .collect();
        again.sort_unstable();
        self.queue.retain(|id| again.binary_search(id).is_err());
        self.queue.extend(again);
    }

    /// Appends again the proposals that were not applied in time, and drops proposals whose callers
    /// have gone.
    pub fn tick(&mut self) {
        let now = Instant::now();
        let mut again = std::mem::take(&mut self.failed);
        for due in &mut self.due {
            while let Some((at, id, attempt)) = due.front().copied() {
                let waiter = self.waiters.get(&id);
                let waits = waiter.is_some_and(|w| w.waits_for(attempt));
                if waits && at > now {
                    break;
                }
                due.pop_front();
                again.extend(waits.then_some(id));
            }
        }
        for id in again {
            if let Some(waiter) = self.waiters.get_mut(&id) {
                waiter.state = State::Queued;
                waiter.part = 0;
                self.queue.push_back(id);
            }
        }
        let waiters = &self.waiters;
        self.queue.retain(|id| waiters.contains_key(id));
        for queue in self.applied.values_mut() {
            queue.retain(|(_, id)| waiters.contains_key(id));
        }
        self.applied.retain(|_, queue| !queue.is_empty());
    }

    /// Returns whether a caller waits for a change of replicas, which requires a record in the log.
    pub fn awaits_change(&self) -> bool {
        let is_change = |id: &u64| {
            let waiter = self.waiters.get(id);
            waiter.is_some_and(|w| matches!(w.load, Load::Members(_)))
        };
        self.failed.iter().any(is_change)
    }
}

impl<O> Waiter<O> {
    /// Returns whether this attempt is the last one, and is undecided.
    fn waits_for(&self, attempt: u32) -> bool {
        self.attempts == attempt && matches!(self.state, State::Appended)
    }

    /// Returns whether it waits to be appended, or some of its parts do.
    fn is_next(&self) -> bool {
        match self.state {
            State::Queued => true,
            State::Appended => self.part > 0,
            _ => false,
        }
    }

    /// Records the time of a step that has ended.
    fn end_step(&mut self, times: &Durations, now: Instant) {
        times.record(now.duration_since(self.step_ended));
        self.step_ended = now;
    }

    fn reach_log(&mut self, now: Instant) {
        if !self.is_logged {
            self.is_logged = true;
            self.end_step(&LOGGED, now);
        }
    }

    fn append(&mut self) -> u32 {
        if self.attempts == 0 {
            self.end_step(&QUEUED, Instant::now());
        }
        self.unrefused += 1;
        self.state = State::Appended;
        self.attempts += 1;
        self.attempts
    }
}

/// Returns whether exactly one node was added or removed.
fn differ_by_one(before: &[NodeId], after: &[NodeId]) -> bool {
    let new = after.iter().filter(|n| !before.contains(n)).count();
    let gone = before.iter().filter(|n| !after.contains(n)).count();
    new + gone == 1 && !after.is_empty()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::record::RecordVersion;

    fn request(bytes: usize, stored_bytes: usize) -> EncodedRequest {
        EncodedRequest {
            key: (1, 1),
            needs: RecordVersion::V1,
            bytes: Bytes::from(vec![0; bytes]),
            stored_bytes,
        }
    }

    #[test]
    fn requests_of_one_record_rewrite_a_bounded_part_of_the_store() {
        const STORED_BYTES: usize = 300 << 10;
        let mut room = RecordRoom::default();
        let short = request(70, STORED_BYTES);
        let taken = (0..10_000).take_while(|_| room.takes(&short)).count();
        assert_eq!(taken, STORED_BYTES_MAX / STORED_BYTES);
        assert!(room.takes(&request(70, 0)));

        let mut room = RecordRoom::default();
        assert!(
            room.takes(&request(70, 2 * STORED_BYTES_MAX)),
            "it is alone"
        );
        assert!(!room.takes(&request(70, 1)));

        let mut room = RecordRoom::default();
        let long = request(ROOM / 2, 0);
        assert!(room.takes(&long) && room.takes(&long) && !room.takes(&long));
    }
}
