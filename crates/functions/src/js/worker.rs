//! The worker's side of isolation by processes.

use std::collections::HashMap;
use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::mpsc;

use confine::Confinement;
use procfs::process::Process;
use profiler::Label;
use projection::{Arguments, lasting_effect};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{set_name, set_no_new_privs};

use super::profile::Profiled;
use super::wire::{self, Definition, Frame, Kind, Received};
use super::{Engine, log};
use query_server::language::{Doc, Emits, Error, ListIo, ReduceRow};

/// Maximum number of definitions that a worker keeps, and their bytes. Their idle heaps are limited
/// separately.
const DEFINITIONS_MAX: usize = 64;
const DEFINITIONS_BYTES_MAX: usize = 16 << 20;
/// Size of one read, in bytes.
const READ_BYTES: usize = 128 << 10;
/// Address space besides the heaps, in bytes: the binary, threads' stacks, reservations of
/// allocators.
const SPACE: u64 = 1 << 30;

/// The `main` of a worker process: answers requests from the socket that is its standard input,
/// until that is closed.
pub fn worker_main() -> ExitCode {
    // The name of the process in listings; nothing depends on it.
    let _ = set_name(c"settee-worker");
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("functions-worker: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Lowers a limit of this process; a lower one stays.
fn limit(resource: Resource, to: u64) -> io::Result<()> {
    let current = getrlimit(resource);
    let lower = |old: Option<u64>| Some(old.map_or(to, |old| old.min(to)));
    setrlimit(
        resource,
        Rlimit {
            current: lower(current.current),
            maximum: lower(current.maximum),
        },
    )?;
    Ok(())
}

/// Returns the address space in use, in bytes; 0 when it is unknown.
fn space_used() -> u64 {
    let pages = Process::myself().and_then(|process| process.statm());
    pages.map_or(0, |statm| statm.size * procfs::page_size())
}

/// Ends the process when the server goes away, even while JavaScript runs. Serves requests for
/// profiles. Returns when its thread has lost the right to open files.
fn watch(socket: UnixStream, mut control: UnixStream) -> io::Result<()> {
    let (send_files, files) = mpsc::channel();
    let watch = move || {
        // All threads exist. A profile may have started and needs this. Without it, functions have
        // no names.
        let _ = profiler::remember();
        if send_files.send(confine::deny_files()).is_err() {
            return;
        }
        let mut profiled = Profiled::default();
        loop {
            let mut fds = [
                PollFd::new(&socket, PollFlags::empty()),
                PollFd::new(&control, PollFlags::IN),
            ];
            let wait = profiled.wait().and_then(|wait| wait.try_into().ok());
            let answer = poll(&mut fds, wait.as_ref());
            let is_asked = fds[1].revents().contains(PollFlags::IN);
            let gone = match answer {
                Ok(_) => fds
                    .iter()
                    .any(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR)),
                Err(error) => error != rustix::io::Errno::INTR,
            };
            profiled.tick();
            if gone || is_asked && profiled.serve(&mut control).is_err() {
                std::process::exit(0);
            }
        }
    };
    let thread = std::thread::Builder::new().name("watch".into());
    thread.stack_size(256 << 10).spawn(watch)?;
    files.recv().map_err(io::Error::other)?.map(drop)
}

/// Applies what does not depend on the options, before the process opens anything.
fn harden() -> io::Result<()> {
    // Before Linux 5.9 there is no such call. Descriptors of the server are not inherited there
    // either, except those that it was started with.
    let _ = confine::close_descriptors();
    telemetry::give_way(telemetry::BACKGROUND_NICE);
    // Containers may have no `/proc`, or not allow writing to it.
    let _ = confine::end_early(None);
    Ok(set_no_new_privs(true)?)
}

/// Limits the damage of a function that exploits the engine: no file, no network, no other process.
/// Called before the first byte of a user's code.
fn confine_all(engine: &Engine, expected: Confinement) -> io::Result<()> {
    // Everything that reads files does so once, before: the local time zone, and the end of the
    // stack.
    confine::read_time_zone();
    // Fails where the limits are too low for any function.
    let _ = engine.check("function () {}", None);
    lasting_effect("function () {}", Arguments::Shared);
    // Not earlier: qemu-user writes a file when the memory map is read, to find the stack's end.
    limit(Resource::Fsize, 0)?;
    if !confine::deny_files()? && expected.files {
        return Err(io::Error::other("the kernel no longer denies files"));
    }
    match expected.calls {
        true => confine::deny_calls(),
        false => Ok(()),
    }
}

fn serve() -> io::Result<()> {
    harden()?;
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    log::queue();
    let control = UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?);
    watch(socket.try_clone()?, control)?;
    let Some(mut first) = Received::read(&mut socket)? else {
        return Ok(());
    };
    let (options, expected) = wire::read_options(&mut first)?;
    // From now on only the superuser can read its memory. The server has opened the file with its
    // memory use before: where `/proc` hides unreadable processes, it could not find it any more.
    confine::hide_memory()?;
    let heaps = options.memory_bytes as u64 * 4;
    limit(Resource::As, space_used() + heaps + SPACE)?;
    limit(Resource::Core, 0)?;
    limit(Resource::Nofile, 16)?;
    limit(Resource::Nproc, 0)?;
    let engine = Engine::new(options);
    confine_all(&engine, expected)?;
    let mut worker = Worker {
        engine,
        known: HashMap::new(),
        clock: 0,
        socket: BufReader::with_capacity(READ_BYTES, socket),
    };
    Frame::new(Kind::Ready).send(worker.socket.get_mut())?;
    while let Some(request) = Received::read(&mut worker.socket)? {
        worker.answer(request)?;
    }
    Ok(())
}

struct CachedDefinition {
    definition: Definition,
    used: u64,
}

struct Worker {
    engine: Engine,
    known: HashMap<u64, CachedDefinition>,
    /// Counts uses, to find the least recently used definition.
    clock: u64,
    socket: BufReader<UnixStream>,
}

/// The result of a request: a frame, an error of the function, or an unknown definition.
enum Outcome {
    Frame(Frame),
    Error(Error),
    Unknown,
}

impl From<Result<Vec<u8>, Error>> for Outcome {
    fn from(result: Result<Vec<u8>, Error>) -> Outcome {
        match result {
            Ok(json) => Outcome::Frame(Frame::new(Kind::Done).bytes(&json)),
            Err(error) => Outcome::Error(error),
        }
    }
}

impl Worker {
    fn answer(&mut self, mut request: Received) -> io::Result<()> {
        let outcome = match request.kind {
            Kind::Define => return self.define(&mut request),
            Kind::Check => {
                let source = request.text()?;
                let lib = request.optional()?;
                let lib = lib.as_deref().map(String::from_utf8_lossy);
                self.engine
                    .check(&source, lib.as_deref())
                    .map(|()| Vec::new())
                    .into()
            }
            Kind::Verify | Kind::Map => self.map(&mut request)?,
            Kind::Reduce | Kind::Rereduce => self.reduce(&mut request)?,
            Kind::Call | Kind::List => self.call(&mut request)?,
            _ => return Err(io::Error::other("not a request")),
        };
        self.log()?;
        let frame = match outcome {
            Outcome::Frame(frame) => frame,
            Outcome::Error(error) => wire::error_frame(&error),
            Outcome::Unknown => Frame::new(Kind::Unknown),
        };
        frame.send(self.socket.get_mut())
    }

    fn log(&mut self) -> io::Result<()> {
        for line in log::take_queued() {
            wire::log_frame(&line).send(self.socket.get_mut())?;
        }
        Ok(())
    }

    fn define(&mut self, request: &mut Received) -> io::Result<()> {
        let (number, definition) = Definition::read(request)?;
        let bytes = |known: &HashMap<u64, CachedDefinition>| -> usize {
            known.values().map(|known| known.definition.bytes()).sum()
        };
        let room = DEFINITIONS_BYTES_MAX.saturating_sub(definition.bytes());
        while self.known.len() >= DEFINITIONS_MAX || bytes(&self.known) > room {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.used);
            let Some(oldest) = oldest.map(|(&number, _)| number) else {
                break;
            };
            self.known.remove(&oldest);
        }
        self.clock += 1;
        let known = CachedDefinition {
            definition,
            used: self.clock,
        };
        self.known.insert(number, known);
        Ok(())
    }

    fn known(&mut self, number: u64) -> Option<&mut CachedDefinition> {
        self.clock += 1;
        let known = self.known.get_mut(&number)?;
        known.used = self.clock;
        Some(known)
    }

    fn map(&mut self, request: &mut Received) -> io::Result<Outcome> {
        let verify = request.kind == Kind::Verify;
        let number = request.number()?;
        let engine = self.engine.clone();
        let Some(known) = self.known(number) else {
            return Ok(Outcome::Unknown);
        };
        let Definition::Maps(group) = &known.definition else {
            return Ok(Outcome::Unknown);
        };
        // Dropped with this request, it leaves its heap for the next.
        let mut mapper = match engine.mapper(group) {
            Ok(mapper) => mapper,
            Err(error) => return Ok(Outcome::Error(error)),
        };
        if verify {
            return Ok(Outcome::Frame(Frame::new(Kind::Done)));
        }
        let fields = request.rest()?;
        let docs: Vec<Doc<'_>> = fields
            .as_chunks::<2>()
            .0
            .iter()
            .map(|&[members, body]| Doc { members, body })
            .collect();
        let mut out = Emits::default();
        Ok(match mapper.map_some(&docs, &mut out) {
            Ok(done) => Outcome::Frame(wire::emits_frame(done, &out)),
            Err(error) => Outcome::Error(error),
        })
    }

    fn reduce(&mut self, request: &mut Received) -> io::Result<Outcome> {
        let number = request.number()?;
        let label = Label::new(&request.text()?);
        let engine = self.engine.clone();
        let Some(known) = self.known(number) else {
            return Ok(Outcome::Unknown);
        };
        let Definition::Reduce {
            database,
            source,
            lib,
        } = &known.definition
        else {
            return Ok(Outcome::Unknown);
        };
        let mut reducer = engine.reducer(database, source, lib.as_deref());
        let rereduce = request.kind == Kind::Rereduce;
        let fields = request.rest()?;
        let answer = profiler::labelled(&label, || {
            if rereduce {
                return reducer.rereduce(&fields);
            }
            let rows = fields.as_chunks::<3>().0.iter();
            let rows: Vec<_> = rows
                .map(|&[key, id, value]| ReduceRow { key, id, value })
                .collect();
            reducer.reduce(&rows)
        });
        Ok(answer.into())
    }

    fn call(&mut self, request: &mut Received) -> io::Result<Outcome> {
        let number = request.number()?;
        let label = Label::new(&request.text()?);
        let path = request.texts()?;
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let Some(known) = self.known(number) else {
            return Ok(Outcome::Unknown);
        };
        let Definition::Design { database, ddoc } = &known.definition else {
            return Ok(Outcome::Unknown);
        };
        let (database, ddoc) = (database.clone(), ddoc.clone());
        let mut designs = self.engine.designs(&database);
        let list = request.kind == Kind::List;
        let args = request.rest()?;
        if !list {
            let call = || designs.call_some(&ddoc, &path, &args);
            let replies = profiler::labelled(&label, call);
            return Ok(Outcome::Frame(wire::replies_frame(&replies)));
        }
        let [args] = args[..] else {
            return Ok(Outcome::Unknown);
        };
        let mut io = Other {
            socket: &mut self.socket,
        };
        let list = || designs.list(&ddoc, &path, args, &mut io);
        let done = profiler::labelled(&label, list);
        Ok(done.map(|()| Vec::new()).into())
    }
}

/// The server's process as the other end of a list function.
struct Other<'a> {
    socket: &'a mut BufReader<UnixStream>,
}

impl Other<'_> {
    fn ask(&mut self, frame: Frame) -> Result<Received, Error> {
        let broken = |error: io::Error| Error::Process(error.to_string());
        frame.send(self.socket.get_mut()).map_err(broken)?;
        let reply = Received::read(self.socket).map_err(broken)?;
        let mut reply = reply.ok_or_else(|| Error::Process("the list was broken off".into()))?;
        if reply.kind == Kind::Failed {
            return Err(wire::read_error(&mut reply).unwrap_or_else(broken));
        }
        Ok(reply)
    }
}

impl ListIo for Other<'_> {
    fn start(&mut self, response: &[u8]) -> Result<(), Error> {
        self.ask(Frame::new(Kind::Start).bytes(response)).map(drop)
    }

    fn chunk(&mut self, text: &str) -> Result<(), Error> {
        self.ask(Frame::new(Kind::Chunk).text(text)).map(drop)
    }

    fn row(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let mut reply = self.ask(Frame::new(Kind::NextRow))?;
        let row = reply.optional();
        row.map_err(|error| Error::Process(error.to_string()))
    }
}
