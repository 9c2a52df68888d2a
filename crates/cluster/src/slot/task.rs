//! The task that drives a replica.

use std::collections::{HashSet, VecDeque};
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::Board;
use super::propose::{Answer, Batch, Load, Proposals};
use super::read::{Readers, Shown};
use super::types::{
    Network, Outcomes, SlotOptions, SlotStore, Stable, StagedCopy as _, StoreError,
};
use crate::log::{AppendError, Later, Log, LogError, RawFound, RawRecord, Tail};
use crate::position::{Chain, Generation, NodeId, Position, digest};
use crate::record::{Body, RecordError};
use crate::replica::{Begin, Cursor, Found, Input, LogRecord, Message, Output, Replica, Saved};

/// Records that the store writes or is to write: so many, and so many bytes.
const APPLYING_MAX: usize = 1024;
const APPLYING_BYTES_MAX: usize = 4 << 20;
/// What is taken of each channel in one go.
const AT_ONCE_MAX: usize = 256;

/// What handles ask for.
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
        shown: oneshot::Sender<Shown>,
    },
    /// Of a proposal or a read.
    GiveUp(u64),
    Reseed,
    Stop(oneshot::Sender<()>),
}

/// What was done beside the task. The number is the replica's that wanted it, counted by starts.
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
        result: Result<RawFound, LogError>,
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

/// What woke the task.
enum Woken<C, O> {
    Tick,
    Promised(Result<(), StoreError>),
    Applied,
    Message(NodeId, Message),
    Command(Command<O>),
    Event(Event<C>),
    Tail(Option<Tail>),
    /// There are no handles any more.
    Left,
}

/// What the replica wants done, and what it needs for that.
struct Todo {
    output: Output,
    body: Option<Body>,
    bytes: usize,
}

/// A record that is being written.
struct Applying<O> {
    written: Later<'static, Result<Outcomes<O>, StoreError>>,
    of: Applied,
}

struct Applied {
    boot: u64,
    generation: Generation,
    next_offset: u64,
    bytes: usize,
    /// When somebody waits for records by themselves: its hash, whether it was for the store, and the replicas after it.
    single: Option<(Chain, bool, Vec<NodeId>)>,
}

/// A record that was written, or not.
type Written<O> = (Applied, Result<Outcomes<O>, StoreError>);

type Handed<O> = (
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
    /// `None` after the store failed, until it is tried again.
    replica: Option<Replica>,
    boot: u64,
    /// A new slot's beginning is being written.
    is_fresh: bool,
    tail: Option<mpsc::Receiver<Tail>>,
    /// The offset that comes next from there.
    next: u64,
    log_end: Option<u64>,
    todo: VecDeque<Todo>,
    promising: Option<Later<'static, Result<(), StoreError>>>,
    applying: VecDeque<Applying<S::Outcome>>,
    applying_bytes: usize,
    written: Vec<Written<S::Outcome>>,
    /// A copy is taking the state's place.
    is_installing: bool,
    /// Of what was applied last.
    generation: Generation,
    reading_back: HashSet<(u64, i32)>,
    proposals: Proposals<S::Outcome>,
    readers: Readers,
    error: Option<String>,
    /// What was written to the program's log last, so that it is written once.
    told: Option<String>,
    stop: Option<Option<oneshot::Sender<()>>>,
}

impl<S: SlotStore> Task<S> {
    pub fn new(
        options: SlotOptions,
        (store, log, network): (Arc<S>, Arc<dyn Log>, Arc<dyn Network>),
        (commands, messages): Handed<S::Outcome>,
        board: Arc<Board>,
    ) -> Task<S> {
        let (to_events, events) = mpsc::unbounded_channel();
        let mut ticks = interval(options.tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Task {
            proposals: Proposals::new(options.again_after),
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
            error: None,
            told: None,
            stop: None,
        }
    }

    /// Runs until it is stopped or left.
    pub async fn run(mut self, saved: Option<Saved>) {
        let start = self.options.start;
        self.begin(saved, start);
        self.show();
        while self.stop.is_none() {
            let woken = self.wait().await;
            self.woken(woken);
            self.take_at_hand();
            self.go_on();
            self.show();
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

    /// There is room for records, and nothing has to be on disk before them.
    fn follows(&self) -> bool {
        self.promising.is_none()
            && self.applying.len() < APPLYING_MAX
            && self.applying_bytes < APPLYING_BYTES_MAX
    }

    fn woken(&mut self, woken: Woken<S::Copy, S::Outcome>) {
        match woken {
            Woken::Tick => self.tick(),
            Woken::Promised(result) => match result {
                Ok(()) => self.carry_out(),
                Err(error) => self.fail(&error),
            },
            Woken::Applied => self.applied(),
            Woken::Message(from, message) => self.give(Input::Message { from, message }),
            Woken::Command(command) => self.command(command),
            Woken::Event(event) => self.event(event),
            Woken::Tail(tail) => self.tail(tail),
            Woken::Left => self.stop = Some(None),
        }
    }

    /// What has come meanwhile, without another wake-up for each.
    fn take_at_hand(&mut self) {
        for _ in 0..AT_ONCE_MAX {
            let Ok((from, message)) = self.messages.try_recv() else {
                break;
            };
            self.give(Input::Message { from, message });
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

    /// What follows from all that was taken.
    fn go_on(&mut self) {
        if let Some(given_up) = self.readers.given_up() {
            self.give(given_up);
        }
        let Some(replica) = &self.replica else { return };
        self.proposals.settle(replica);
        while let Some(replica) = &self.replica
            && let Some(batch) = self.proposals.next_batch(&self.options.stamp, replica)
        {
            self.append(batch);
        }
    }

    /// Starts a replica from what is on disk.
    fn begin(&mut self, saved: Option<Saved>, start: u64) {
        let Some(saved) = saved else {
            // A new slot: that is written first.
            self.is_fresh = true;
            let cursor = Cursor::start(self.options.genesis.clone());
            return self.apply(None, &cursor, false, 0);
        };
        self.boot += 1;
        self.generation = saved.cursor.position.generation;
        self.reading_back.clear();
        self.proposals.renew();
        let (mut replica, mut out) = Replica::new(self.options.me, start, saved);
        out.extend(self.readers.renew(&mut replica));
        self.replica = Some(replica);
        self.queue(out, &mut None, 0);
        self.carry_out();
    }

    /// The store failed: nothing goes on from here until it is tried again from what it has.
    fn fail(&mut self, error: &StoreError) {
        self.replica = None;
        self.tail = None;
        self.todo.clear();
        self.complain(format!("the store failed: {error}"));
    }

    fn try_again(&mut self) {
        let is_idle = self.applying.is_empty() && self.promising.is_none() && !self.is_installing;
        if !is_idle {
            return;
        }
        match self.store.saved() {
            Ok(saved) => self.begin(saved, fastrand::u64(..)),
            Err(error) => self.fail(&error),
        }
    }

    fn tick(&mut self) {
        if self.replica.is_none() {
            return self.try_again();
        }
        self.nudge();
        self.proposals.tick();
        if self.tail.as_ref().is_some_and(mpsc::Receiver::is_closed) {
            self.follow(self.next);
        }
        self.give(Input::Tick);
    }

    /// A change of replicas counts only under a leader that wrote something: an empty log gets a record.
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

    fn give(&mut self, input: Input) {
        self.give_with(input, None, 0);
    }

    /// Gives the replica an input, with the contents of its record.
    fn give_with(&mut self, input: Input, mut body: Option<Body>, bytes: usize) {
        let Some(replica) = &mut self.replica else {
            return;
        };
        let out = replica.handle(input);
        self.queue(out, &mut body, bytes);
        self.carry_out();
    }

    fn queue(&mut self, out: Vec<Output>, body: &mut Option<Body>, bytes: usize) {
        let todo = out.into_iter().map(|output| {
            let body = match &output {
                Output::Apply { data: true, .. } => body.take(),
                _ => None,
            };
            Todo {
                output,
                body,
                bytes,
            }
        });
        self.todo.extend(todo);
    }

    /// Does what is to be done, in order, up to a promise that has to be on disk.
    fn carry_out(&mut self) {
        while self.promising.is_none()
            && let Some(Todo {
                output,
                body,
                bytes,
            }) = self.todo.pop_front()
        {
            match output {
                Output::Fetch { from } => self.follow(from),
                Output::ReadBack { offset, epoch } => self.read_back(offset, epoch),
                Output::Apply { data, cursor } => self.apply(body, &cursor, data, bytes),
                Output::Promise(promises) => self.promising = Some(self.store.promise(&promises)),
                Output::Send { to, message } => {
                    self.network.send(to, self.options.slot, message);
                }
                Output::Append(begin) => self.append_begin(begin),
                Output::ReadNow(read) => self.readers.read_now(read),
                Output::ReadDone(read) => self.readers.done(read),
                Output::Stable {
                    generation,
                    next_offset,
                } => self.stable(Stable {
                    generation,
                    next_offset,
                }),
                Output::Copy { from } => self.copy(from),
                Output::Halted(reason) => {
                    tracing::warn!(slot = self.options.slot, "the slot halts here: {reason}");
                }
            }
        }
    }

    fn stable(&self, stable: Stable) {
        self.board.stable.send_if_modified(|known| {
            let is_later = stable > *known;
            if is_later {
                *known = stable;
            }
            is_later
        });
    }

    fn follow(&mut self, from: u64) {
        // One at a time.
        self.tail = None;
        self.next = from;
        self.tail = Some(self.log.follow(self.options.slot, from));
    }

    fn tail(&mut self, tail: Option<Tail>) {
        match tail {
            // Followed again at the next tick.
            None => self.lose_tail(),
            Some(Tail::NoRecord { start, end }) => {
                self.log_end = Some(end);
                self.give(Input::NoRecord { start, end });
            }
            Some(Tail::Record(raw)) => {
                self.next = raw.offset + 1;
                self.log_end = self.log_end.max(Some(self.next));
                let bytes = raw.bytes.len();
                let (record, body) = self.decode(&raw);
                self.give_with(Input::Record(record), body, bytes);
            }
        }
    }

    /// A tail that has ended is kept, and is not waited for.
    fn lose_tail(&mut self) {
        let (_, ended) = mpsc::channel(1);
        self.tail = Some(ended);
        self.complain("the log's reader ended".into());
    }

    fn decode(&mut self, raw: &RawRecord) -> (LogRecord, Option<Body>) {
        let (hash, header, body) = match self.options.stamp.read(&raw.bytes) {
            Ok(record) => {
                let header = record.header();
                (record.hash, Some(header), Some(record.body))
            }
            Err(error) => {
                self.no_record(raw.offset, &error);
                (digest(&raw.bytes), None, None)
            }
        };
        let record = LogRecord {
            log: raw.log,
            offset: raw.offset,
            epoch: raw.epoch,
            hash,
            header,
        };
        (record, body)
    }

    fn no_record(&mut self, offset: u64, error: &RecordError) {
        self.complain(format!("at offset {offset} of the log: {error}"));
    }

    /// Says what is wrong, in the status and once in the program's log.
    fn complain(&mut self, text: String) {
        if self.told.as_ref() != Some(&text) {
            tracing::error!(slot = self.options.slot, "{text}");
            self.told = Some(text.clone());
        }
        self.error = Some(text);
    }

    fn apply(&mut self, body: Option<Body>, cursor: &Cursor, data: bool, bytes: usize) {
        let hash = cursor.last.map(|last| last.hash);
        let hash = hash.filter(|_| self.proposals.awaits_records());
        let of = Applied {
            boot: self.boot,
            generation: cursor.position.generation,
            next_offset: cursor.position.next_offset,
            bytes,
            single: hash.map(|hash| (hash, data, cursor.members.to_vec())),
        };
        let written = self.store.apply(body, cursor);
        self.applying_bytes += bytes;
        self.applying.push_back(Applying { written, of });
    }

    /// What the store has written.
    fn applied(&mut self) {
        let mut applied = None;
        for (of, result) in std::mem::take(&mut self.written) {
            self.applying_bytes -= of.bytes;
            match result {
                Err(error) => self.fail(&error),
                Ok(_) if std::mem::take(&mut self.is_fresh) => self.try_again(),
                Ok(outcomes) if self.replica.is_some() && of.boot == self.boot => {
                    applied = Some((of.generation, of.next_offset));
                    self.take_outcomes(of, outcomes);
                }
                // It had failed before.
                Ok(_) => {}
            }
        }
        if let Some((generation, next_offset)) = applied {
            self.give(Input::Applied {
                generation,
                next_offset,
            });
        }
    }

    fn take_outcomes(&mut self, of: Applied, outcomes: Outcomes<S::Outcome>) {
        if of.generation != self.generation {
            self.generation = of.generation;
            self.proposals.renew();
        }
        self.error = None;
        for (key, outcome) in outcomes {
            self.proposals.outcome(key, outcome, of.next_offset);
        }
        if let Some((hash, data, members)) = of.single {
            self.proposals
                .went_by(&hash, data, &members, of.next_offset);
        }
    }

    fn append(&mut self, batch: Batch) {
        let Batch {
            record,
            of,
            is_whole,
        } = batch;
        // Called here, so that records come to the log in this order.
        let appended = self.log.append(self.options.slot, record);
        self.beside(async move {
            Event::Appended {
                of,
                is_whole,
                result: appended.await,
            }
        });
    }

    fn append_begin(&mut self, begin: Begin) {
        let (boot, generation) = (self.boot, begin.generation);
        let record = self.options.stamp.write(generation, &Body::Begin(begin));
        let appended = self.log.append(self.options.slot, record);
        self.beside(async move {
            Event::BeginAppended {
                boot,
                generation,
                result: appended.await,
            }
        });
    }

    fn read_back(&mut self, offset: u64, epoch: i32) {
        let asked = (offset, epoch);
        if !self.reading_back.insert(asked) {
            return;
        }
        let boot = self.boot;
        let found = self.log.read_back(self.options.slot, offset, epoch);
        self.beside(async move {
            Event::ReadBack {
                boot,
                asked,
                result: found.await,
            }
        });
    }

    fn copy(&mut self, from: NodeId) {
        let boot = self.boot;
        let fetched = self.store.copy(from);
        self.beside(async move {
            Event::Fetched {
                boot,
                result: fetched.await,
            }
        });
    }

    fn beside(&self, work: impl Future<Output = Event<S::Copy>> + Send + 'static) {
        let events = self.to_events.clone();
        tokio::spawn(async move {
            let _ = events.send(work.await);
        });
    }

    fn command(&mut self, command: Command<S::Outcome>) {
        match command {
            Command::Propose {
                id,
                load,
                copies,
                answer,
            } => self.proposals.add(id, load, copies, answer),
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
            Command::Stop(stopped) => self.stop = Some(Some(stopped)),
        }
    }

    fn event(&mut self, event: Event<S::Copy>) {
        match event {
            Event::Appended {
                of,
                is_whole,
                result,
            } => self.proposals.appended(of, is_whole, &result),
            Event::BeginAppended {
                boot,
                generation,
                result,
            } => match result {
                Ok(offset) if boot == self.boot => {
                    self.give(Input::Appended { generation, offset });
                }
                Ok(_) => {}
                Err(error) => self.complain(format!("a generation does not begin: {error}")),
            },
            Event::ReadBack {
                boot,
                asked,
                result,
            } if boot == self.boot => self.found(asked, result),
            Event::ReadBack { .. } => {}
            Event::Fetched { boot, result } => {
                if boot == self.boot {
                    self.fetched(result);
                }
            }
            Event::Installed { cursor, result } => self.installed(*cursor, result),
        }
    }

    fn found(&mut self, asked: (u64, i32), result: Result<RawFound, LogError>) {
        self.reading_back.remove(&asked);
        let found = match result {
            Ok(RawFound::Record(raw)) => Found::Record(self.decode(&raw).0),
            Ok(RawFound::Trimmed) => Found::Trimmed,
            Ok(RawFound::BeyondEnd) => Found::BeyondEnd,
            // Asked again by ticks.
            Err(error) => return self.complain(format!("the log was not read: {error}")),
        };
        let offset = asked.0;
        self.give(Input::ReadBack { offset, found });
    }

    fn fetched(&mut self, result: Result<S::Copy, StoreError>) {
        let staged = match result {
            Ok(staged) => staged,
            Err(error) => {
                self.complain(format!("no copy of another replica was made: {error}"));
                return self.give(Input::Copied(None));
            }
        };
        let Some(replica) = &mut self.replica else {
            return;
        };
        if !replica.may_become(staged.cursor()) {
            return self.give(Input::CopyRefused);
        }
        let cursor = Box::new(staged.cursor().clone());
        self.is_installing = true;
        let installed = staged.install();
        self.beside(async move {
            Event::Installed {
                cursor,
                result: installed.await,
            }
        });
    }

    fn installed(&mut self, cursor: Cursor, result: Result<(), StoreError>) {
        self.is_installing = false;
        if let Err(error) = result {
            return self.fail(&error);
        }
        self.generation = cursor.position.generation;
        self.proposals.renew();
        self.error = None;
        self.give(Input::Copied(Some(cursor)));
    }

    /// Brings the status up to date.
    fn show(&self) {
        let mut status = self.board.status();
        status.proposals = self.proposals.len();
        status.reads = self.readers.len();
        status.log_end = self.log_end;
        status.error.clone_from(&self.error);
        let Some(replica) = &self.replica else {
            status.proposes = false;
            return;
        };
        let cursor = &replica.saved().cursor;
        status.position = cursor.position;
        status.stable = replica.stable();
        status.halted = replica.halted();
        status.proposes = replica.proposes_in().is_some();
        status.members.clone_from(&cursor.members);
        status.durable.clear();
        let durable = cursor.members.iter().map(|n| (*n, replica.durable_of(*n)));
        status.durable.extend(durable);
    }

    /// What is being written is written to its end.
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

/// The promise that is being written, when there is one.
async fn promised(
    promising: &mut Option<Later<'static, Result<(), StoreError>>>,
) -> Result<(), StoreError> {
    let Some(promise) = promising else {
        return pending().await;
    };
    let result = promise.await;
    *promising = None;
    result
}

/// Ready when the store has written some of what is under way; that is moved.
async fn written<O>(applying: &mut VecDeque<Applying<O>>, written: &mut Vec<Written<O>>) {
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

/// What comes next; nothing where nothing is followed, or the reader has ended.
async fn next_tail(tail: &mut Option<mpsc::Receiver<Tail>>) -> Option<Tail> {
    match tail {
        Some(tail) if !tail.is_closed() || !tail.is_empty() => tail.recv().await,
        _ => pending().await,
    }
}
