//! The replicas of slots on this node.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cluster::record::{Body, EncodedRequest};
use cluster::replica::Message;
use cluster::slot::{ChangeError, ProposeError, Slot, SlotStatus, Wait};
use cluster::{CONTROL, Generation, NodeId, SlotNumber};
use parking_lot::Mutex;
use storage::SlotOutcome;
use tokio::time::Instant;

use crate::control::{Catalogue, ControlSlot};
use crate::hold::Hold;
use crate::log_reach::LogReach;
use crate::progress::Progress;
use crate::propose::{Cause, NoOutcome, ProposalResult};
use crate::slot::DataSlot;
use crate::slot_lives::Lives;
use crate::validation::Validators;

/// A replica that failed where others succeeded is not retried for this time.
const UNABLE_TIME: Duration = Duration::from_secs(3);

/// The reason of a node that other nodes answer for.
const NO_LOG: &str = "this node cannot reach the log, other nodes can";

/// The replicas of this node.
pub struct Replicas {
    me: NodeId,
    count: SlotNumber,
    /// Whether this node reaches the log.
    pub(crate) reach: Arc<LogReach>,
    started: OnceLock<Started>,
    /// The number of data slots that do not run here.
    missing: AtomicUsize,
    /// Slots had, or have, some of the nodes only, and this node does not count in all of them.
    is_partial: AtomicBool,
}

struct Started {
    control: Replica,
    /// By slot.
    data: Vec<Lives<Replica>>,
}

/// A started data slot.
pub(crate) struct StartedSlot {
    /// The slot.
    pub slot: Slot<DataSlot>,
    /// The design documents that edits must have been validated by.
    pub validators: Arc<Validators>,
    /// It has no data, and does not count among the slot's replicas.
    pub is_blank: bool,
}

/// One replica.
pub struct Replica {
    me: NodeId,
    slot: AnySlot,
    /// The design documents that edits must have been validated by.
    validators: Arc<Validators>,
    /// Until then other nodes are tried first for writes.
    no_writes_until: Mutex<Option<Instant>>,
    /// Until then other nodes are tried first for reads.
    no_reads_until: Mutex<Option<Instant>>,
    /// When it was last known to be current.
    pub(crate) hold: Arc<Hold>,
    reach: Arc<LogReach>,
    /// It started without data, and has had none when this was last checked.
    is_blank: AtomicBool,
}

enum AnySlot {
    Control(Slot<ControlSlot>),
    Data(Slot<DataSlot>),
}

/// Calls a method of either kind of slot.
macro_rules! with {
    ($replica:expr, $slot:ident => $work:expr) => {
        match &$replica.slot {
            AnySlot::Control($slot) => $work,
            AnySlot::Data($slot) => $work,
        }
    };
}

impl Replicas {
    /// Creates those of this node in a cluster with `count` data slots, none of them started.
    pub fn new(me: NodeId, count: SlotNumber) -> Replicas {
        Replicas {
            me,
            count,
            reach: Arc::default(),
            started: OnceLock::new(),
            missing: AtomicUsize::new(0),
            is_partial: AtomicBool::new(false),
        }
    }

    /// Returns the number of data slots.
    pub fn count(&self) -> SlotNumber {
        self.count
    }

    /// Sets the slots that have been started, once. Others may be added.
    pub(crate) fn start(
        &self,
        control: Slot<ControlSlot>,
        mut data: BTreeMap<SlotNumber, StartedSlot>,
    ) {
        let control = AnySlot::Control(control);
        let missing = usize::from(self.count) - data.len();
        let lives = (0..self.count).map(|slot| match data.remove(&slot) {
            Some(started) => Lives::of(self.replica(started)),
            None => Lives::default(),
        });
        let started = Started {
            control: Replica::new(self.me, control, (Arc::default(), false), &self.reach),
            data: lives.collect(),
        };
        // A second call has no effect.
        if self.started.set(started).is_ok() {
            self.missing.store(missing, Release);
        }
    }

    /// Returns whether there are data slots that do not run here.
    pub(crate) fn lacks_some(&self) -> bool {
        self.missing.load(Acquire) > 0
    }

    /// Returns whether this node may lack data of slots: some do not run here, or it does not count
    /// in some since slots had some of the nodes only.
    pub(crate) fn is_partial(&self) -> bool {
        self.lacks_some() || self.is_partial.load(Acquire)
    }

    /// Notes whether slots have some of the nodes only. If not any more, this node still lacks data
    /// until it counts in all of them.
    pub(crate) fn note_partial(&self, is_placed: bool) {
        if is_placed {
            self.is_partial.store(true, Release);
        } else if self.is_partial.load(Acquire) {
            let counts_in_all = self.all().all(|(_, replica)| replica.is_member());
            let is_partial = self.lacks_some() || !counts_in_all;
            self.is_partial.store(is_partial, Release);
        }
    }

    fn replica(&self, started: StartedSlot) -> Replica {
        let StartedSlot {
            slot,
            validators,
            is_blank,
        } = started;
        let of_slot = (validators, is_blank);
        Replica::new(self.me, AnySlot::Data(slot), of_slot, &self.reach)
    }

    /// Adds a data slot. Returns whether it is the one that runs: another one may have been
    /// started.
    pub(crate) fn add(&self, slot: SlotNumber, started: StartedSlot) -> bool {
        let lives = self.lives(slot);
        let is_added = lives.is_some_and(|lives| lives.add(self.replica(started)));
        if is_added {
            self.missing.fetch_sub(1, AcqRel);
        }
        is_added
    }

    /// Ends a data slot, after its current writes.
    pub(crate) async fn end(&self, slot: SlotNumber) {
        if let Some(replica) = self.lives(slot).and_then(Lives::end) {
            self.missing.fetch_add(1, AcqRel);
            with!(replica, slot => slot.clone().stop().await);
        }
    }

    fn lives(&self, slot: SlotNumber) -> Option<&Lives<Replica>> {
        self.started.get()?.data.get(usize::from(slot))
    }

    /// Returns the replica of a slot.
    pub fn get(&self, slot: SlotNumber) -> Option<&Replica> {
        let started = self.started.get()?;
        match slot {
            CONTROL => Some(&started.control),
            slot => started.data.get(usize::from(slot))?.running(),
        }
    }

    /// Returns all of them, with their slots.
    pub fn all(&self) -> impl Iterator<Item = (SlotNumber, &Replica)> {
        let started = self.started.get().into_iter();
        started.flat_map(|started| {
            let control = std::iter::once((CONTROL, &started.control));
            let data = (0..).zip(&started.data);
            control.chain(data.filter_map(|(slot, lives)| Some((slot, lives.running()?))))
        })
    }

    /// Returns the nodes that have a slot, for a part that these replicas refer to: no nodes once
    /// they are gone. Those of a slot that is on other nodes are in the state of the cluster.
    pub(crate) fn nodes_by_slot(
        self: &Arc<Self>,
        catalogue: &Arc<Catalogue>,
    ) -> impl Fn(SlotNumber) -> Vec<NodeId> + use<> {
        let (replicas, catalogue) = (Arc::downgrade(self), catalogue.clone());
        move |slot| {
            let Some(replicas) = replicas.upgrade() else {
                return vec![];
            };
            let is_here = || replicas.get(slot).is_some_and(Replica::is_member);
            if !catalogue.is_placed() || is_here() {
                return replicas.nodes_of(slot);
            }
            let decided = catalogue.with(|state| {
                let of = state.placement.slots.get(&slot)?;
                Some(of.replicas.iter().copied().collect())
            });
            decided.unwrap_or_else(|| replicas.nodes_of(slot))
        }
    }

    /// Returns the nodes that have a slot, as this one knows them.
    pub(crate) fn nodes_of(&self, slot: SlotNumber) -> Vec<NodeId> {
        let members = self.get(slot).map(|replica| replica.status().members);
        let members = members.filter(|members| !members.is_empty());
        members.unwrap_or_else(|| vec![self.me])
    }

    /// Returns the positions that they have reached, without those that cannot continue.
    pub(crate) fn progress(&self) -> Progress {
        self.progress_of(|_| true)
    }

    /// Returns the positions that they have reached in the log with this number.
    pub(crate) fn progress_in(&self, log: u64) -> Progress {
        self.progress_of(|status| status.log == log)
    }

    fn progress_of(&self, counts: impl Fn(&SlotStatus) -> bool) -> Progress {
        let at = |(slot, replica): (SlotNumber, &Replica)| {
            let status = replica.status();
            let is_healthy = status.halted.is_none() && !status.is_full && !status.store_fails;
            let position = status.position;
            let position = (slot, position.generation.number, position.next_offset);
            (is_healthy && counts(&status)).then_some(position)
        };
        Progress(self.all().filter_map(at).collect())
    }

    /// Stops all.
    pub async fn stop(&self) {
        for (_, replica) in self.all() {
            with!(replica, slot => slot.clone().stop().await);
        }
    }
}

impl Replica {
    fn new(
        me: NodeId,
        slot: AnySlot,
        (validators, is_blank): (Arc<Validators>, bool),
        reach: &Arc<LogReach>,
    ) -> Replica {
        Replica {
            me,
            slot,
            validators,
            no_writes_until: Mutex::new(None),
            no_reads_until: Mutex::new(None),
            hold: Arc::default(),
            reach: reach.clone(),
            is_blank: AtomicBool::new(is_blank),
        }
    }

    /// Returns whether it started without data of the slot, and has none yet.
    fn is_blank(&self) -> bool {
        if !self.is_blank.load(Acquire) {
            return false;
        }
        let position = self.status().position;
        let is_blank = position.next_offset == 0 && position.generation == Generation::default();
        self.is_blank.store(is_blank, Release);
        is_blank
    }

    /// Returns whether it is worth trying for a write before others.
    pub fn is_able(&self) -> bool {
        self.counts()
            && !self.status().is_full
            && !rests(&self.no_writes_until)
            && !self.reach.is_elsewhere()
    }

    /// Returns whether it follows its log, and is one of the slot's replicas.
    fn counts(&self) -> bool {
        let status = self.status();
        status.halted.is_none() && !status.store_fails && self.is_among(&status) && !self.is_blank()
    }

    /// Returns whether it is known to be one of the slot's replicas.
    pub(crate) fn is_member(&self) -> bool {
        self.status().members.contains(&self.me)
    }

    /// Returns whether reads should try other nodes first.
    pub fn read_failed_lately(&self) -> bool {
        rests(&self.no_reads_until)
    }

    /// Returns whether it is one of the replicas. Unknown before it has started.
    fn is_among(&self, status: &SlotStatus) -> bool {
        status.members.is_empty() || status.members.contains(&self.me)
    }

    /// Returns why it should not be tried.
    pub fn why_unable(&self) -> NoOutcome {
        let status = self.status();
        let text = match self.is_among(&status) {
            true if self.reach.is_elsewhere() => NO_LOG.to_owned(),
            true => status.reason(),
            false => "this node is not one of the slot's replicas yet".into(),
        };
        let cause = match status.is_full {
            true => Cause::Full,
            false => Cause::NotNow,
        };
        let is_sure = true;
        NoOutcome {
            text,
            cause,
            is_sure,
        }
    }

    /// Records that it could not do a task that others can.
    pub fn note_unable(&self) {
        *self.no_writes_until.lock() = Some(Instant::now() + UNABLE_TIME);
    }

    /// Returns its status.
    pub fn status(&self) -> SlotStatus {
        with!(self, slot => slot.status())
    }

    /// Returns the generation of its log.
    pub fn generation(&self) -> Generation {
        self.status().position.generation
    }

    /// Returns the design documents that edits must have been validated by.
    pub fn validators(&self) -> &Validators {
        &self.validators
    }

    /// Returns the number of its state; see [`Slot::replaced`].
    pub fn replaced(&self) -> Option<u64> {
        with!(self, slot => slot.replaced())
    }

    /// Delivers a message. A replica without data answers no question whose answer counts as that
    /// of one with data: this node may have had the slot before, and a node that still takes it for
    /// a replica must not get a majority by its ignorance.
    pub fn deliver(&self, from: NodeId, message: Message) {
        if counts_for_majorities(&message) && self.is_blank() {
            return;
        }
        with!(self, slot => slot.deliver(from, message));
    }

    /// Proposes an encoded request.
    ///
    /// # Errors
    /// The reason why its outcome is unknown.
    pub async fn propose(
        &self,
        request: EncodedRequest,
        wait: Wait,
    ) -> Result<ProposalResult, NoOutcome> {
        with!(self, slot => done(slot.propose_encoded(request, wait).await))
    }

    /// Appends a record that is not a request.
    ///
    /// # Errors
    /// The reason why its outcome is unknown.
    pub async fn append(&self, body: Body, deadline: Instant) -> Result<(), NoOutcome> {
        let done = with!(self, slot => slot.append(body, deadline).await.map(drop));
        done.map_err(not_done)
    }

    /// Waits until this node has everything acknowledged before.
    ///
    /// # Errors
    /// The reason why that is not known.
    pub async fn fresh(&self, deadline: Instant) -> Result<(), String> {
        if self.reach.is_elsewhere() {
            return Err(NO_LOG.to_owned());
        }
        // A replica with a full disk stays behind.
        if !self.counts() || self.status().is_full && self.read_failed_lately() {
            return Err(self.why_unable().text);
        }
        let done = with!(self, slot => slot.begin_read(deadline).await.map(drop));
        self.note_read(done.is_ok());
        done.map_err(|e| e.to_string())
    }

    /// Waits until everything that readers see now is stable.
    ///
    /// # Errors
    /// The reason why that is not known.
    pub async fn settle(&self, deadline: Instant) -> Result<(), String> {
        let done = with!(self, slot => slot.settle(deadline).await);
        self.note_read(done.is_ok());
        done.map_err(|e| e.to_string())
    }

    /// After a failure reads try other nodes first for a while, even if the first half of another
    /// read succeeds.
    fn note_read(&self, is_ok: bool) {
        if !is_ok {
            *self.no_reads_until.lock() = Some(Instant::now() + UNABLE_TIME);
        }
    }

    /// Changes the slot's replicas.
    ///
    /// # Errors
    /// Errors of [`Slot::change_replicas`].
    pub async fn change(&self, members: Vec<NodeId>, deadline: Instant) -> Result<(), ChangeError> {
        with!(self, slot => slot.change_replicas(members, deadline).await)
    }

    /// Sets the existing nodes.
    pub fn know(&self, nodes: Vec<NodeId>) {
        with!(self, slot => slot.know(nodes));
    }

    /// Starts a new generation, unless it has no data: it could not begin, and would be kept from
    /// copying the present one.
    pub fn reseed(&self) {
        if self.is_blank() {
            return;
        }
        with!(self, slot => slot.reseed());
    }
}

/// Returns whether the answer to a question is counted towards a majority.
fn counts_for_majorities(message: &Message) -> bool {
    matches!(
        message,
        Message::AskFence(_) | Message::Seal(_) | Message::AskPosition { .. }
    )
}

fn rests(until: &Mutex<Option<Instant>>) -> bool {
    until.lock().is_some_and(|until| until > Instant::now())
}

fn done(
    proposed: Result<cluster::slot::ProposalOutcome<SlotOutcome>, ProposeError<SlotOutcome>>,
) -> Result<ProposalResult, NoOutcome> {
    match proposed {
        Ok(proposed) => Ok(ProposalResult {
            outcome: proposed.outcome,
            is_safe: true,
            copies: proposed.copies,
        }),
        Err(ProposeError::TooFew { outcome, copies }) => Ok(ProposalResult {
            outcome,
            is_safe: false,
            copies,
        }),
        Err(e) => Err(not_done(e)),
    }
}

fn not_done<O>(e: ProposeError<O>) -> NoOutcome
where
    ProposeError<O>: std::fmt::Display,
{
    let cause = match &e {
        ProposeError::Full(_) => Cause::Full,
        ProposeError::Behind => Cause::Behind,
        _ => Cause::NotNow,
    };
    NoOutcome {
        text: e.to_string(),
        is_sure: cause != Cause::NotNow || matches!(e, ProposeError::NotNow(_)),
        cause,
    }
}
