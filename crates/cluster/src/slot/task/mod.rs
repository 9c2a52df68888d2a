//! The task that drives a replica: its events, and its reactions.

mod background;
mod drive;

use std::collections::{HashSet, VecDeque};
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::Board;
use super::delay::Delay;
use super::lag::Lag;
use super::propose::{Answer, Failure, Load, Proposals};
use super::read::{ReadCheck, Readers};
use super::types::{Network, Outcomes, SlotOptions, SlotStatus, SlotStore, StoreError};
use crate::log::{AppendError, BoxFuture, Log, LogError, RawReadBackResult, Tail};
use crate::position::{Chain, Generation, NodeId, Position};
use crate::record::Body;
use crate::replica::{Cursor, DurableState, Input, Message, Output, Reason, Replica};

/// Maximum number of records that the store is writing or is to write, and their bytes.
const APPLYING_MAX: usize = 1024;
const APPLYING_BYTES_MAX: usize = 4 << 20;
/// Maximum number of items taken from each channel at a time.
const AT_ONCE_MAX: usize = 256;

/// Commands of handles.
pub(super) enum Command<O> {
    Propose {
        id: u64,
        load: Load,
        copies: Option<usize>,
        answer: Answer<O>,
    },
    Read {
        id: u64,
        now: oneshot::Sender<()>,
    },
    WasRead {
        id: u64,
        position: Position,
        shown: oneshot::Sender<ReadCheck>,
    },
    /// A proposal or a read is given up.
    GiveUp(u64),
    Reseed,
    Know(Vec<NodeId>),
    Stop(oneshot::Sender<()>),
}

/// Results of background operations. The number is that of the replica that started them, counted
/// by starts.
enum Event<C> {
    Appended {
        of: Vec<(u64, u32)>,
        is_whole: bool,
        result: Result<u64, AppendError>,
    },
    BeginAppended {
        boot: u64,
        generation: Generation,
        result: Result<u64, AppendError>,
    },
    ReadBack {
        boot: u64,
        asked: (u64, i32),
        result: Result<RawReadBackResult, LogError>,
    },
    Fetched {
        boot: u64,
        result: Result<C, StoreError>,
    },
    Installed {
        cursor: Box<Cursor>,
        result: Result<(), StoreError>,
    },
}

/// An event that woke the task.
enum Woken<C, O> {
    Tick,
    Promised(Result<(), StoreError>),
    Applied,
    Message(NodeId, Message),
    Command(Command<O>),
    Event(Event<C>),
    Tail(Option<Tail>),
    /// No handles are left.
    Left,
}

/// An output of the replica, with the data that it needs.
struct Todo {
    output: Output,
    body: Option<Body>,
    bytes: usize,
}

/// A record that is being written.
struct PendingWrite<O> {
    written: BoxFuture<'static, Result<Outcomes<O>, StoreError>>,
    of: WriteInfo,
}

struct WriteInfo {
    boot: u64,
    generation: Generation,
    next_offset: u64,
    bytes: usize,
    /// If a caller waits for records of their own: its hash, whether it was for the store, and the
    /// replicas after it.
    single: Option<(Chain, bool, Vec<NodeId>)>,
}

/// The result of writing a record.
type WriteResult<O> = (WriteInfo, Result<Outcomes<O>, StoreError>);

type TaskInputs<O> = (
    mpsc::UnboundedReceiver<Command<O>>,
    mpsc::Receiver<(NodeId, Message)>,
);

pub(super) struct Task<S: SlotStore> {
    options: SlotOptions,
    store: Arc<S>,
    log: Arc<dyn Log>,
    network: Arc<dyn Network>,
    commands: mpsc::UnboundedReceiver<Command<S::Outcome>>,
    messages: mpsc::Receiver<(NodeId, Message)>,
    to_events: mpsc::UnboundedSender<Event<S::Copy>>,
    events: mpsc::UnboundedReceiver<Event<S::Copy>>,
    ticks: Interval,
    board: Arc<Board>,
    /// `None` after the store failed, until it is retried.
    replica: Option<Replica>,
    boot: u64,
    /// The last boot in which it asked how the generation started.
    asked_boot: u64,
    /// A new slot's initial state is being written.
    is_fresh: bool,
    tail: Option<mpsc::Receiver<Tail>>,
    /// The next offset from there.
    next: u64,
    log_end: Option<u64>,
    todo: VecDeque<Todo>,
    promising: Option<BoxFuture<'static, Result<(), StoreError>>>,
    applying: VecDeque<PendingWrite<S::Outcome>>,
    applying_bytes: usize,
    written: Vec<WriteResult<S::Outcome>>,
    /// A copy is being installed.
    is_installing: bool,
    /// The generation of the last applied record.
    generation: Generation,
    reading_back: HashSet<(u64, i32)>,
    proposals: Proposals<S::Outcome>,
    readers: Readers,
    lag: Lag,
    delay: Delay,
    /// The existing nodes.
    known: Vec<NodeId>,
    /// Why the store has not written anything since its last write.
    store_error: Option<StoreError>,
    /// Ticks until the next retry, and the length of the last interval.
    again_ticks: (u32, u32),
    /// Ticks for which a majority has reported that it lacks contents of the next record.
    lacking_ticks: Option<u32>,
    error: Option<String>,
    /// The last message in the program's log, so that it is logged once.
    told: Option<String>,
    told_halt: Option<Reason>,
    stop: Option<Option<oneshot::Sender<()>>>,
}

impl<S: SlotStore> Task<S> {
    pub fn new(
        options: SlotOptions,
        (store, log, network): (Arc<S>, Arc<dyn Log>, Arc<dyn Network>),
        (commands, messages): TaskInputs<S::Outcome>,
        board: Arc<Board>,
    ) -> Task<S> {
        let (to_events, events) = mpsc::unbounded_channel();
        let mut ticks = interval(options.tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Task {
            proposals: Proposals::new(options.again_after),
            lag: Lag::new(options.lag_time_max, options.lag_bytes_max),
            delay: Delay::default(),
            options,
            store,
            log,
            network,
            commands,
            messages,
            to_events,
            events,
            ticks,
            board,
            replica: None,
            boot: 0,
            asked_boot: 0,
            is_fresh: false,
            tail: None,
            next: 0,
            log_end: None,
            todo: VecDeque::new(),
            promising: None,
            applying: VecDeque::new(),
            applying_bytes: 0,
            written: vec![],
            is_installing: false,
            generation: Generation::default(),
            reading_back: HashSet::new(),
            readers: Readers::default(),
            known: vec![],
            store_error: None,
            again_ticks: (0, 0),
            lacking_ticks: None,
            error: None,
            told: None,
            told_halt: None,
            stop: None,
        }
    }

    /// Runs until it is stopped, or no handles are left.
    pub async fn run(mut self, saved: Option<DurableState>) {
        let start = self.options.start;
        self.begin(saved, start);
        self.show();
        while self.stop.is_none() {
            let woken = self.wait().await;
            self.woken(woken);
            self.take_at_hand();
            self.go_on();
            // So that callers see this status once they are answered.
            self.show();
            self.answer();
        }
        self.end().await;
    }

    async fn wait(&mut self) -> Woken<S::Copy, S::Outcome> {
        let follows = self.follows();
        tokio::select! {
            biased;
            _ = self.ticks.tick() => Woken::Tick,
            promised = promised(&mut self.promising) => Woken::Promised(promised),
            () = written(&mut self.applying, &mut self.written) => Woken::Applied,
            event = self.events.recv() => event.map_or(Woken::Left, Woken::Event),
            message = self.messages.recv() => {
                message.map_or(Woken::Left, |(from, message)| Woken::Message(from, message))
            }
            command = self.commands.recv() => command.map_or(Woken::Left, Woken::Command),
            tail = next_tail(&mut self.tail), if follows => Woken::Tail(tail),
        }
    }

    /// Returns whether there is room for records, and no promise has to be on disk before them.
    fn follows(&self) -> bool {
        self.promising.is_none()
            && self.applying.len() < APPLYING_MAX
            && self.applying_bytes < APPLYING_BYTES_MAX
    }

    fn woken(&mut self, woken: Woken<S::Copy, S::Outcome>) {
        match woken {
            Woken::Tick => self.tick(),
            Woken::Promised(result) => match result {
                Ok(()) => {
                    self.store_error = None;
                    self.carry_out();
                }
                Err(error) => self.fail(&error),
            },
            Woken::Applied => self.applied(),
            Woken::Message(from, message) => self.message(from, message),
            Woken::Command(command) => self.command(command),
            Woken::Event(event) => self.event(event),
            Woken::Tail(tail) => self.tail(tail),
            Woken::Left => self.stop = Some(None),
        }
    }

    /// Takes what has arrived meanwhile, without another wake-up for each.
    fn take_at_hand(&mut self) {
        for _ in 0..AT_ONCE_MAX {
            let Ok((from, message)) = self.messages.try_recv() else {
                break;
            };
            self.message(from, message);
        }
        for _ in 0..AT_ONCE_MAX {
            let Ok(command) = self.commands.try_recv() else {
                break;
            };
            self.command(command);
        }
        for _ in 0..AT_ONCE_MAX {
            let follows = self.follows();
            let tail = self.tail.as_mut().filter(|_| follows);
            let Some(Ok(record)) = tail.map(mpsc::Receiver::try_recv) else {
                break;
            };
            self.tail(Some(record));
        }
    }

    fn message(&mut self, from: NodeId, message: Message) {
        if let Message::Durable { position, .. } = &message {
            self.delay
                .reaches(position.generation, position.next_offset);
        }
        self.give(Input::Message { from, message });
    }

    /// Answers requests that are on enough disks, but none before an earlier promise is on disk.
    fn answer(&mut self) {
        if self.promising.is_none()
            && let Some(replica) = &self.replica
        {
            self.proposals.settle(replica);
        }
    }

    /// Reacts to everything that was taken.
    fn go_on(&mut self) {
        if let Some(given_up) = self.readers.given_up() {
            self.give(given_up);
        }
        while let Some(replica) = &self.replica
            && let Some(batch) = self.proposals.next_batch(&self.options.stamp, replica)
        {
            self.append(batch);
        }
    }

    fn tick(&mut self) {
        self.nudge();
        self.lacking_ticks = self.lacking_ticks.map(|ticks| ticks + 1);
        self.proposals.tick();
        self.mark_delay();
        if self.again_ticks.0 > 0 || self.replica.is_none() {
            self.go_on_after_failure();
        }
        if self.replica.is_none() {
            return;
        }
        self.ask_begun();
        if self.tail.as_ref().is_some_and(mpsc::Receiver::is_closed) {
            // If it ends again, that is reported again.
            self.error = None;
            self.follow(self.next);
        }
        self.give(Input::Tick);
        if let Some(replica) = &self.replica {
            self.lag.mark(self.next, replica.stable());
            let follows = self.tail.is_some() && self.again_ticks.0 == 0;
            if follows && self.applying.is_empty() && self.log_end == Some(self.next) {
                // No pending write can fail.
                self.store_error = None;
            }
        }
    }

    /// Asks the replicas how their generation started, once, if this node is not one of them yet. If
    /// it started from an adopted store, the log has no record of it, and the replicas would answer
    /// this node's reports only after some seconds.
    fn ask_begun(&mut self) {
        if std::mem::replace(&mut self.asked_boot, self.boot) == self.boot {
            return;
        }
        let Some(replica) = &self.replica else {
            return;
        };
        let (me, slot) = (self.options.me, self.options.slot);
        let members = &replica.saved().cursor.members;
        if !members.contains(&me) {
            for node in members.iter() {
                self.network.send(*node, slot, Message::AskBegun);
            }
        }
    }

    /// Without a replica too: one whose store fails falls behind.
    fn mark_delay(&mut self) {
        let own = self.board.status().position;
        self.delay
            .reaches(own.generation, self.log_end.unwrap_or_default());
        self.delay.mark(&own, Instant::now());
    }

    /// Returns why nothing new is accepted, if so.
    fn refusal(&mut self) -> Option<Failure<S::Outcome>> {
        if let Some(StoreError::Full(why)) = &self.store_error {
            return Some(Failure::Full(why.clone()));
        }
        let stable = self.replica.as_ref()?.stable();
        self.lag.is_too_far(stable).then_some(Failure::Behind)
    }

    /// A change of replicas counts only under a leader that wrote something: an empty log gets a
    /// record.
    fn nudge(&self) {
        if self.proposals.awaits_change()
            && let Some(replica) = &self.replica
            && let Some(generation) = replica.proposes_in()
            && replica.saved().cursor.last.is_none()
        {
            let record = self.options.stamp.write_requests(generation, &[]);
            let appended = self.log.append(self.options.slot, record);
            tokio::spawn(appended);
        }
    }

    fn command(&mut self, command: Command<S::Outcome>) {
        match command {
            Command::Propose {
                id,
                load,
                copies,
                answer,
            } => match self.refusal() {
                // A change of replicas may be what helps.
                Some(failure) if !matches!(load, Load::Members(_)) => {
                    // The caller may have gone.
                    let _ = answer.send(Err(failure));
                }
                _ => self.proposals.add(id, load, copies, answer),
            },
            Command::Read { id, now } => {
                let input = self.readers.add(id, now);
                self.give(input);
            }
            Command::WasRead {
                id,
                position,
                shown,
            } => {
                if let Some(input) = self.readers.was_read(id, &position, shown) {
                    self.give(input);
                }
            }
            Command::GiveUp(id) => {
                self.readers.give_up(id);
                let board = &self.board;
                let why = || board.status().reason();
                self.proposals.give_up(id, self.replica.as_ref(), why);
            }
            Command::Reseed => self.give(Input::Reseed),
            Command::Know(nodes) => {
                self.known.clone_from(&nodes);
                self.give(Input::Known(nodes));
            }
            Command::Stop(stopped) => self.stop = Some(Some(stopped)),
        }
    }

    /// Updates the status.
    fn show(&self) {
        let mut status = self.board.status();
        status.proposals = self.proposals.len();
        status.reads = self.readers.len();
        status.log_end = self.log_end;
        status.store_fails = self.store_error.is_some() && self.replica.is_none();
        status.is_full = matches!(self.store_error, Some(StoreError::Full(_)));
        match &self.store_error {
            Some(error) => status.error = Some(format!("the store failed: {error}")),
            None => status.error.clone_from(&self.error),
        }
        let Some(replica) = &self.replica else {
            status.proposes = false;
            self.show_delay(&mut status);
            return;
        };
        let cursor = &replica.saved().cursor;
        status.position = cursor.position;
        status.log = cursor.log;
        status.stable = replica.stable();
        status.halted = replica.halted();
        status.sealed = replica.saved().promises.sealed > cursor.position.generation;
        status.proposes = replica.proposes_in().is_some();
        status.members.clone_from(&cursor.members);
        status.durable.clear();
        let durable = cursor.members.iter().map(|n| (*n, replica.durable_of(*n)));
        status.durable.extend(durable);
        self.show_delay(&mut status);
    }

    fn show_delay(&self, status: &mut SlotStatus) {
        status.end = self.delay.end(&status.position);
        status.behind_since = self.delay.since(&status.position);
    }

    /// Finishes current writes.
    async fn end(mut self) {
        self.commands.close();
        self.tail = None;
        while let Some(applying) = self.applying.pop_front() {
            let _ = applying.written.await;
        }
        if let Some(promising) = self.promising.take() {
            let _ = promising.await;
        }
        while self.is_installing {
            match self.events.recv().await {
                Some(Event::Installed { .. }) | None => self.is_installing = false,
                Some(_) => {}
            }
        }
        let stopped = self.stop.take().flatten();
        drop(self);
        if let Some(stopped) = stopped {
            let _ = stopped.send(());
        }
    }
}

/// Waits for the promise that is being written, if any.
async fn promised(
    promising: &mut Option<BoxFuture<'static, Result<(), StoreError>>>,
) -> Result<(), StoreError> {
    let Some(promise) = promising else {
        return pending().await;
    };
    let result = promise.await;
    *promising = None;
    result
}

/// Waits until the store has written some records; they are moved to `written`.
async fn written<O>(applying: &mut VecDeque<PendingWrite<O>>, written: &mut Vec<WriteResult<O>>) {
    poll_fn(|cx| {
        while let Some(first) = applying.front_mut()
            && let Poll::Ready(result) = first.written.as_mut().poll(cx)
        {
            if let Some(first) = applying.pop_front() {
                written.push((first.of, result));
            }
        }
        match written.is_empty() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    })
    .await;
}

/// Returns the next item; pends where nothing is followed, or the reader has ended.
async fn next_tail(tail: &mut Option<mpsc::Receiver<Tail>>) -> Option<Tail> {
    match tail {
        Some(tail) if !tail.is_closed() || !tail.is_empty() => tail.recv().await,
        _ => pending().await,
    }
}
