//! The server's side of isolation by processes: workers, and functions that run in them.

use std::collections::HashSet;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use lru::LruCache;
use telemetry::State;

use super::budget::{Budget, Share};
use super::profile::Control;
use super::reducer::Source;
use super::socket::{WorkerSocket, is_timeout};
use super::wire::{self, Definition, Frame, Kind, Received};
use super::{IDLE_TIME_MAX, Options};
use crate::counters::{PROCESS_ENDS, PROCESS_FAILURES, PROCESS_STARTS};
use query_server::TrackedProcess;
use query_server::language::{
    DesignDoc, Designs, Doc, Emits, Error, ListIo, MapGroup, Mapper, ReduceRow, Reducer,
};

/// A worker enforces the time limit itself; one that exceeds it by this much is in a built-in
/// function that does not end, and is killed. One that waits for the processor is not.
const GRACE: Duration = Duration::from_secs(1);
/// Time limit of a worker's start. A worker gives way to everything else, so on a busy machine this is more than a call's time limit.
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum number of definitions known to one worker before they are all sent again: it forgets
/// more than it reports.
const KNOWN_MAX: usize = 1024;
/// Maximum number of design documents whose numbers are remembered, and maximum size of their texts
/// in bytes: they are compared.
const DESIGNS_MAX: usize = 256;
const DESIGNS_BYTES_MAX: usize = 8 << 20;
/// Maximum size of maps and reduces whose numbers are remembered, in bytes. A longer one gets a new
/// number each time.
const DEFINITIONS_BYTES_MAX: usize = 8 << 20;

struct Worker {
    /// Its share of the memory of all workers. It is dropped before the process is waited for, so
    /// its process number is never another's.
    share: Option<Share>,
    /// Its processor time and memory. It is dropped before the process is waited for too.
    account: Option<TrackedProcess>,
    child: Child,
    socket: BufReader<WorkerSocket>,
    /// The profiler's control.
    control: Arc<Control>,
    /// Definitions that were sent to it.
    known: HashSet<u64>,
    /// When it was last used.
    used: Instant,
    is_ready: bool,
    /// It has answered something since it was taken, or was started then.
    has_lived: bool,
    /// It gave an invalid answer.
    has_failed: bool,
}

impl Drop for Worker {
    fn drop(&mut self) {
        match self.has_failed {
            true => PROCESS_FAILURES.count(),
            false => PROCESS_ENDS.count(),
        }
        self.control.end();
        self.share = None;
        self.account = None;
        // Both fail only for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Worker {
    fn start(options: &Options, budget: &Arc<Budget>) -> io::Result<Worker> {
        let program = match &options.worker.program {
            Some(program) => program.clone(),
            // By this name the kernel runs exactly the file that runs now, even after another
            // version replaced it.
            None if cfg!(target_os = "linux") => PathBuf::from("/proc/self/exe"),
            None => std::env::current_exe()?,
        };
        let (ours, theirs) = UnixStream::pair()?;
        let (control, their_control) = UnixStream::pair()?;
        let child = Command::new(program)
            .arg0("settee")
            .args(&options.worker.args)
            .env_clear()
            .env("TZ", &options.time_zone)
            .current_dir("/")
            // Signals of the terminal are for the server, which ends its workers.
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(OwnedFd::from(their_control)))
            .stderr(Stdio::inherit())
            .spawn()?;
        PROCESS_STARTS.count();
        let control = Control::register(control);
        let pid = child.id();
        let mut worker = Worker {
            share: Some(budget.share(pid)),
            account: Some(TrackedProcess::worker(pid)),
            child,
            socket: BufReader::new(WorkerSocket::new(ours, pid, START_TIME_MAX)?),
            control,
            known: HashSet::new(),
            used: Instant::now(),
            is_ready: false,
            has_lived: true,
            has_failed: false,
        };
        worker.send(wire::options_frame(options, confine::of_this_kernel()))?;
        Ok(worker)
    }

    fn send(&mut self, frame: Frame) -> io::Result<()> {
        frame.send(self.socket.get_mut())
    }

    /// Waits until it is set up. From then on it has the time limit to answer.
    fn wait_until_ready(&mut self, time: Duration) -> io::Result<()> {
        if self.is_ready {
            return Ok(());
        }
        let first = self.receive().map_err(|error| match is_timeout(&error) {
            true => io::Error::other(format!("it is not ready after {START_TIME_MAX:?}")),
            false => error,
        })?;
        if first.kind != Kind::Ready {
            return Err(io::Error::other("unexpected answer"));
        }
        self.is_ready = true;
        self.socket.get_mut().runs(time + GRACE)
    }

    /// Returns the next frame that is not a log line.
    fn receive(&mut self) -> io::Result<Received> {
        loop {
            let frame = Received::read(&mut self.socket)?;
            let mut frame = frame.ok_or(io::ErrorKind::UnexpectedEof)?;
            self.has_lived = true;
            match frame.kind {
                Kind::Log => wire::read_log(&mut frame)?.log(),
                _ => return Ok(frame),
            }
        }
    }

    /// Records whether it runs a function, which decides when its memory is reclaimed.
    fn works(&mut self, works: bool) {
        if let Some(share) = &self.share {
            share.works(works);
        }
    }

    /// Returns whether it was ended because all workers together took too much memory.
    fn is_evicted(&self) -> bool {
        self.share.as_ref().is_some_and(Share::is_evicted)
    }

    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

/// The workers of an engine. The callers limit the number at work.
pub(super) struct Processes {
    options: Options,
    budget: Arc<Budget>,
    /// Idle workers; the most recently used one is last.
    idle: Mutex<Vec<Worker>>,
    numbers: AtomicU64,
    designs: Mutex<Vec<(Arc<str>, DesignDoc, u64)>>,
    /// Mappers and reducers are created and dropped: their definitions keep their numbers.
    definitions: Mutex<Definitions>,
}

struct Definitions {
    known: LruCache<Arc<Definition>, Defined>,
    bytes: usize,
}

impl Definitions {
    fn insert(&mut self, definition: Arc<Definition>, defined: Defined) {
        self.bytes += definition.bytes();
        self.known.put(definition, defined);
        while self.bytes > DEFINITIONS_BYTES_MAX
            && let Some((oldest, _)) = self.known.pop_lru()
        {
            self.bytes -= oldest.bytes();
        }
    }
}

/// The state of a definition.
#[derive(Clone, Copy)]
struct Defined {
    number: u64,
    /// It compiles.
    is_verified: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Locked state is changed in single steps, so that a panic leaves it valid.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Processes {
    pub fn new(options: &Options) -> Arc<Processes> {
        Arc::new_cyclic(|processes: &Weak<Processes>| Processes {
            options: options.clone(),
            budget: Budget::new(options.workers_bytes_max, processes.clone()),
            idle: Mutex::default(),
            numbers: AtomicU64::new(1),
            designs: Mutex::default(),
            definitions: Mutex::new(Definitions {
                known: LruCache::unbounded(),
                bytes: 0,
            }),
        })
    }

    /// Returns the current memory of all workers, and its maximum so far, in bytes.
    pub fn memory(&self) -> (u64, u64) {
        self.budget.used_bytes()
    }

    /// Ends the worker that was idle for longest; returns whether there is one.
    pub fn end_oldest(&self) -> bool {
        let mut idle = lock(&self.idle);
        let oldest = (!idle.is_empty()).then(|| idle.remove(0));
        drop(idle);
        oldest.is_some()
    }

    /// Returns a definition with its number, the same as that of a recently used equal one.
    fn defined(&self, definition: Definition) -> (Arc<Definition>, Defined) {
        let mut definitions = lock(&self.definitions);
        if let Some((known, defined)) = definitions.known.get_key_value(&definition) {
            return (known.clone(), *defined);
        }
        let defined = Defined {
            number: self.number(),
            is_verified: false,
        };
        let definition = Arc::new(definition);
        definitions.insert(definition.clone(), defined);
        (definition, defined)
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of a design document of a database.
    fn design(&self, database: &Arc<str>, ddoc: &DesignDoc) -> u64 {
        let mut designs = lock(&self.designs);
        let is_same = |(of, known, _): &(Arc<str>, DesignDoc, u64)| of == database && known == ddoc;
        if let Some(at) = designs.iter().position(is_same) {
            let known = designs.remove(at);
            let number = known.2;
            designs.push(known);
            return number;
        }
        let bytes = |design: &(Arc<str>, DesignDoc, u64)| design.1.json.len();
        let mut kept: usize = designs.iter().map(bytes).sum();
        while designs.len() >= DESIGNS_MAX
            || !designs.is_empty() && kept + ddoc.json.len() > DESIGNS_BYTES_MAX
        {
            kept -= bytes(&designs.remove(0));
        }
        let number = self.number();
        designs.push((database.clone(), ddoc.clone(), number));
        number
    }

    fn take(&self, number: u64) -> io::Result<Worker> {
        let mut idle = lock(&self.idle);
        // One that knows the functions, or the most recently used one.
        while !idle.is_empty() {
            let knowing = |worker: &Worker| worker.known.contains(&number);
            let last = idle.len() - 1;
            let at = idle.iter().rposition(knowing).unwrap_or(last);
            let mut worker = idle.remove(at);
            worker.has_lived = false;
            if worker.is_running() {
                worker.works(true);
                return Ok(worker);
            }
        }
        drop(idle);
        self.start()
    }

    fn start(&self) -> io::Result<Worker> {
        let mut worker = Worker::start(&self.options, &self.budget)?;
        worker.works(true);
        Ok(worker)
    }

    /// Ends workers that were not used recently.
    pub fn rest(&self) {
        let mut idle = lock(&self.idle);
        let ended: Vec<_> = idle
            .extract_if(.., |w| w.used.elapsed() > IDLE_TIME_MAX)
            .collect();
        drop(idle);
        drop(ended);
    }

    fn give_back(&self, mut worker: Worker) {
        worker.used = Instant::now();
        worker.works(false);
        // As many as work at a time without lists.
        let idle_max = (self.options.workers_max + 2) * 2;
        let mut idle = lock(&self.idle);
        let ended = (idle.len() >= idle_max).then(|| idle.remove(0));
        idle.push(worker);
        drop(idle);
        drop(ended);
    }

    /// Sends a request to a worker, whose answers `converse` reads. A worker that fails is killed.
    fn request<T>(
        &self,
        number: u64,
        definition: Option<&Definition>,
        request: impl Fn() -> Frame,
        mut converse: impl FnMut(&mut Worker) -> io::Result<Reply<T>>,
    ) -> Result<T, Error> {
        let _runs = telemetry::enter(State::Functions);
        let mut may_rest = true;
        loop {
            let worker = match may_rest {
                true => self.take(number),
                false => self.start(),
            };
            let mut worker = worker.map_err(|error| {
                Error::Process(format!("a worker for functions does not start: {error}"))
            })?;
            let reply = worker.wait_until_ready(self.options.time);
            let reply =
                reply.and_then(|()| talk(&mut worker, number, definition, &request, &mut converse));
            match reply {
                Ok(Reply::Done(done)) => {
                    self.give_back(worker);
                    return Ok(done);
                }
                Ok(Reply::Error(error)) => {
                    self.give_back(worker);
                    return Err(error);
                }
                Ok(Reply::Unknown) => {
                    return Err(Error::Process("a worker has no functions".into()));
                }
                // The worker is killed.
                Err(error) => match blame(&error, worker.has_lived, worker.is_evicted()) {
                    Blame::None => may_rest = false,
                    Blame::Memory => {
                        worker.has_failed = true;
                        return Err(self.budget.error());
                    }
                    Blame::Call => {
                        worker.has_failed = true;
                        return Err(self.broken(&error));
                    }
                },
            }
        }
    }

    /// Returns the error of a worker that does not answer.
    fn broken(&self, error: &io::Error) -> Error {
        if is_timeout(error) {
            return Error::Limit {
                limit: query_server::language::TIME_LIMIT,
                value: self.options.time.as_millis().to_string(),
            };
        }
        if has_died(error) {
            return Error::Process("the worker process of the functions died".into());
        }
        Error::Process(format!("a worker for functions failed: {error}"))
    }

    fn simple(
        &self,
        number: u64,
        definition: Option<&Definition>,
        request: impl Fn() -> Frame,
    ) -> Result<Vec<u8>, Error> {
        self.request(number, definition, request, |worker| {
            let mut frame = worker.receive()?;
            reply(&mut frame, |frame| Ok(frame.bytes()?.to_vec()))
        })
    }

    pub fn check(&self, source: &str, lib: Option<&str>) -> Result<(), Error> {
        let request = || {
            let frame = Frame::new(Kind::Check).text(source);
            frame.optional(lib.map(str::as_bytes))
        };
        self.simple(0, None, request).map(drop)
    }

    pub fn mapper(self: &Arc<Self>, group: &MapGroup) -> Result<ProcessMapper, Error> {
        let (definition, defined) = self.defined(Definition::Maps(group.clone()));
        let number = defined.number;
        if !defined.is_verified {
            let request = || Frame::new(Kind::Verify).number(number);
            self.request(number, Some(&definition), request, |worker| {
                reply(&mut worker.receive()?, |_| Ok(()))
            })?;
            if let Some(defined) = lock(&self.definitions).known.get_mut(&definition) {
                defined.is_verified = true;
            }
        }
        Ok(ProcessMapper {
            processes: self.clone(),
            number,
            definition,
            views: group.maps.len(),
        })
    }

    pub fn reducer(self: &Arc<Self>, source: Source) -> ProcessReducer {
        let (definition, defined) = self.defined(Definition::Reduce {
            database: source.database,
            source: source.source,
            lib: source.lib,
        });
        ProcessReducer {
            processes: self.clone(),
            number: defined.number,
            definition,
        }
    }
}

/// A worker's reply.
enum Reply<T> {
    Done(T),
    Error(Error),
    Unknown,
}

fn reply<T>(
    frame: &mut Received,
    done: impl FnOnce(&mut Received) -> io::Result<T>,
) -> io::Result<Reply<T>> {
    Ok(match frame.kind {
        Kind::Done => Reply::Done(done(frame)?),
        Kind::Failed => Reply::Error(wire::read_error(frame)?),
        Kind::Unknown => Reply::Unknown,
        _ => return Err(io::Error::other("unexpected answer")),
    })
}

/// A [`Mapper`] in worker processes.
pub(super) struct ProcessMapper {
    processes: Arc<Processes>,
    number: u64,
    definition: Arc<Definition>,
    views: usize,
}

impl Mapper for ProcessMapper {
    fn map(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<(), Error> {
        let mut done = 0;
        while done < docs.len() {
            let mark = out.mark();
            let some = self.map_some(&docs[done..], out)?;
            out.renumber(mark, done);
            done += some;
        }
        Ok(())
    }

    fn map_some(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<usize, Error> {
        let size = |doc: &Doc<'_>| doc.members.len() + doc.body.len() + 16;
        let request = || {
            let frame = Frame::of(Kind::Map, docs.iter().map(size).sum::<usize>() + 8);
            docs.iter().fold(frame.number(self.number), |frame, doc| {
                frame.bytes(doc.members).bytes(doc.body)
            })
        };
        let (views, definition) = (self.views, Some(&*self.definition));
        self.processes
            .request(self.number, definition, request, |worker| {
                reply(&mut worker.receive()?, |frame| {
                    wire::read_emits(frame, docs.len(), views, out)
                })
            })
    }
}

/// A [`Reducer`] in worker processes.
pub(super) struct ProcessReducer {
    processes: Arc<Processes>,
    number: u64,
    definition: Arc<Definition>,
}

impl Reducer for ProcessReducer {
    fn reduce(&mut self, rows: &[ReduceRow<'_>]) -> Result<Vec<u8>, Error> {
        let request = || {
            let frame = Frame::new(Kind::Reduce).number(self.number);
            let frame = frame.text(&profiler::current());
            rows.iter().fold(frame, |frame, row| {
                frame.bytes(row.key).bytes(row.id).bytes(row.value)
            })
        };
        self.processes
            .simple(self.number, Some(&self.definition), request)
    }

    fn rereduce(&mut self, values: &[&[u8]]) -> Result<Vec<u8>, Error> {
        let request = || {
            let frame = Frame::new(Kind::Rereduce).number(self.number);
            let frame = frame.text(&profiler::current());
            values.iter().fold(frame, |frame, value| frame.bytes(value))
        };
        self.processes
            .simple(self.number, Some(&self.definition), request)
    }
}

/// [`Designs`] in worker processes.
pub(super) struct ProcessDesigns {
    pub processes: Arc<Processes>,
    pub database: Arc<str>,
}

impl ProcessDesigns {
    /// Returns a design document's number, and the definition for a worker that does not know it.
    fn defined(&self, ddoc: &DesignDoc) -> (u64, Definition) {
        let database = self.database.clone();
        let number = self.processes.design(&database, ddoc);
        let ddoc = ddoc.clone();
        (number, Definition::Design { database, ddoc })
    }
}

fn call_frame(kind: Kind, number: u64, path: &[&str], args: &[&[u8]]) -> Frame {
    let size = args.iter().map(|args| args.len() + 8).sum::<usize>();
    let frame = Frame::of(kind, size + 256).number(number);
    let frame = frame.text(&profiler::current());
    let frame = frame.number(path.len() as u64);
    let frame = path.iter().fold(frame, |frame, part| frame.text(part));
    args.iter().fold(frame, |frame, args| frame.bytes(args))
}

impl Designs for ProcessDesigns {
    fn call(&mut self, ddoc: &DesignDoc, path: &[&str], args: &[u8]) -> Result<Vec<u8>, Error> {
        let mut replies = self.call_some(ddoc, path, &[args]);
        replies
            .pop()
            .unwrap_or_else(|| Err(Error::Process("no reply".into())))
    }

    fn call_some(
        &mut self,
        ddoc: &DesignDoc,
        path: &[&str],
        args: &[&[u8]],
    ) -> Vec<Result<Vec<u8>, Error>> {
        let (number, definition) = self.defined(ddoc);
        let request = || call_frame(Kind::Call, number, path, args);
        let replies = self
            .processes
            .request(number, Some(&definition), request, |worker| {
                reply(&mut worker.receive()?, |frame| {
                    wire::read_replies(frame, args.len())
                })
            });
        replies.unwrap_or_else(|error| vec![Err(error)])
    }

    fn list(
        &mut self,
        ddoc: &DesignDoc,
        path: &[&str],
        args: &[u8],
        io: &mut dyn ListIo,
    ) -> Result<(), Error> {
        let (number, definition) = self.defined(ddoc);
        let request = || call_frame(Kind::List, number, path, &[args]);
        self.processes
            .request(number, Some(&definition), request, |worker| {
                converse(worker, io)
            })
    }
}

/// Sends a worker a request, and the definitions that it needs.
fn talk<T>(
    worker: &mut Worker,
    number: u64,
    definition: Option<&Definition>,
    request: impl Fn() -> Frame,
    mut converse: impl FnMut(&mut Worker) -> io::Result<Reply<T>>,
) -> io::Result<Reply<T>> {
    // A worker forgets definitions when it has too many, hence the second attempt.
    for _ in 0..2 {
        if worker.known.len() > KNOWN_MAX {
            worker.known.clear();
        }
        if let Some(definition) = definition
            && worker.known.insert(number)
        {
            worker.send(definition.frame(number))?;
        }
        worker.send(request())?;
        match converse(worker)? {
            Reply::Unknown => worker.known.remove(&number),
            reply => return Ok(reply),
        };
    }
    Err(io::Error::other("it does not know its functions"))
}

/// The cause of a worker's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blame {
    /// Not this call: the worker had died before, or was dying. It is retried with another one, once.
    None,
    /// The memory of all workers.
    Memory,
    /// This call.
    Call,
}

/// `has_lived`: the worker has answered since it was taken, or was started for this call. One that was ended for its memory may
/// have been ended for the call before.
fn blame(error: &io::Error, has_lived: bool, is_evicted: bool) -> Blame {
    match (has_died(error) && !has_lived, is_evicted) {
        (true, _) => Blame::None,
        (false, true) => Blame::Memory,
        (false, false) => Blame::Call,
    }
}

/// Returns whether an error means that the process is gone.
fn has_died(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// Serves a list function that runs in a worker.
fn converse(worker: &mut Worker, io: &mut dyn ListIo) -> io::Result<Reply<()>> {
    loop {
        let mut frame = worker.receive()?;
        let answer = match frame.kind {
            Kind::Start => io.start(frame.bytes()?).map(|()| Frame::new(Kind::Done)),
            Kind::Chunk => io.chunk(&frame.text()?).map(|()| Frame::new(Kind::Done)),
            Kind::NextRow => io
                .row()
                .map(|row| Frame::new(Kind::Row).optional(row.as_deref())),
            _ => return reply(&mut frame, |_| Ok(())),
        };
        worker.send(answer.unwrap_or_else(|error| wire::error_frame(&error)))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_was_ended_for_an_earlier_call_is_not_this_calls_fault() {
        let gone = io::Error::from(io::ErrorKind::UnexpectedEof);
        let late = io::Error::from(io::ErrorKind::TimedOut);
        assert_eq!(blame(&gone, false, true), Blame::None);
        assert_eq!(blame(&gone, false, false), Blame::None);
        assert_eq!(blame(&gone, true, true), Blame::Memory);
        assert_eq!(blame(&gone, true, false), Blame::Call);
        assert_eq!(blame(&late, false, false), Blame::Call);
    }
}
