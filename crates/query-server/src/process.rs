//! One running query server: lines written to it, lines read from it, and its end.
//!
//! All is done by the thread that uses the process: it waits for whatever is ready first – room in
//! the process's input, or something in its output or its error output – so that two full pipes
//! cannot block each other, and a deadline holds whatever the process does or leaves undone.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::accounts::TrackedProcess;
use crate::answer::{Answer, Unreadable};
use crate::language::{ANSWER_TIME_LIMIT, DesignDoc, Error, MapGroup};
use crate::lines::{Lines, Read};
use crate::settings::Settings;

/// Log lines of one process that are passed on for each answer; the rest is dropped.
const LOG_LINES_MAX: usize = 100;
/// The longest part of a log line that is passed on.
const LOG_LINE_BYTES_MAX: usize = 4096;
/// Time to wait for the error output of a dead process.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// A process gets time to read its input besides the time to answer: at least this many bytes a
/// millisecond.
const INPUT_BYTES_PER_MS: usize = 1024;

/// The state of a process since its last `reset`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Taught {
    /// It must be reset before it is used.
    Unknown,
    Nothing,
    Maps(Arc<MapGroup>),
    /// It reduces with this function, and has this library.
    Reduce(Arc<ReduceFunction>),
    /// It has these design documents of a database.
    Designs(Arc<str>, Vec<DesignDoc>),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReduceFunction {
    pub database: Arc<str>,
    pub source: String,
    pub lib: Option<String>,
}

/// Why a process must not be used any more.
enum Failure {
    TimedOut,
    Ended,
    TooLong,
}

/// Ends, with all processes of its group, when dropped.
pub(crate) struct Process {
    child: Child,
    /// `None` after it has ended.
    account: Option<TrackedProcess>,
    group: Pid,
    language: Arc<str>,
    settings: Arc<Settings>,
    /// `None` after the process closed it.
    input: Option<OwnedFd>,
    output: OwnedFd,
    /// `None` after the process closed it.
    errors: Option<OwnedFd>,
    unsent: Vec<u8>,
    sent: usize,
    lines: Lines,
    error_lines: Lines,
    logged: usize,
    ended: bool,
    /// It failed in a way after which it must not be used.
    pub is_spent: bool,
    /// It answered an error, after which some servers exit.
    pub is_suspect: bool,
    pub taught: Taught,
    /// Number of design documents that it got: a reset removes none.
    pub designs_taught: usize,
}

impl Process {
    /// Takes ownership of a child that is the leader of its own process group and whose three
    /// standard streams are pipes.
    pub fn new(
        mut child: Child,
        language: Arc<str>,
        settings: Arc<Settings>,
    ) -> std::io::Result<Self> {
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(group), (Some(input), Some(output), Some(errors))) = (group, pipes) else {
            return Err(std::io::Error::other("no pipes to the process"));
        };
        let account = TrackedProcess::query_server(child.id(), &language);
        let process = Self {
            child,
            account: Some(account),
            group,
            language,
            settings,
            input: Some(OwnedFd::from(input)),
            output: OwnedFd::from(output),
            errors: Some(OwnedFd::from(errors)),
            unsent: Vec::new(),
            sent: 0,
            lines: Lines::default(),
            error_lines: Lines::default(),
            logged: 0,
            ended: false,
            is_spent: false,
            is_suspect: false,
            taught: Taught::Unknown,
            designs_taught: 0,
        };
        for fd in [&process.input, &process.errors]
            .into_iter()
            .flatten()
            .chain([&process.output])
        {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        Ok(process)
    }

    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// Adds to the line that is to be sent. A newline can only be white space of the JSON: it
    /// becomes a space.
    pub fn write(&mut self, json: &[u8]) {
        let start = self.unsent.len();
        self.unsent.extend_from_slice(json);
        let mut from = start;
        while let Some(found) = memchr::memchr(b'\n', &self.unsent[from..]) {
            self.unsent[from + found] = b' ';
            from += found + 1;
        }
    }

    /// Ends the line. It is sent by the next [`Process::answer`].
    pub fn end_line(&mut self) {
        self.unsent.push(b'\n');
    }

    /// Bytes that the process has not taken yet.
    pub fn unsent_bytes(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// Sends a command and gives the answer.
    pub fn ask(&mut self, command: &[u8]) -> Result<Answer, Error> {
        self.write(command);
        self.end_line();
        let answer = self.answer()?;
        self.expect_silence()?;
        Ok(answer)
    }

    /// Sends a command that is answered with `true`.
    pub fn tell(&mut self, command: &[u8]) -> Result<(), Error> {
        match self.ask(command)? {
            Answer::Value(value) if value == b"true" => Ok(()),
            answer => Err(self.error_of(answer)),
        }
    }

    /// Makes the process forget all but design documents, which no query server forgets.
    pub fn reset(&mut self) -> Result<(), Error> {
        let taught = std::mem::replace(&mut self.taught, Taught::Unknown);
        let command = self.settings.reset_command();
        self.tell(&command)?;
        self.is_suspect = false;
        self.taught = match taught {
            Taught::Designs(database, known) => Taught::Designs(database, known),
            _ => Taught::Nothing,
        };
        Ok(())
    }

    /// Returns the next answer, while what is to be sent is sent. Log lines before it are logged.
    pub fn answer(&mut self) -> Result<Answer, Error> {
        match self.readable_answer()? {
            Ok(answer) => Ok(answer),
            Err(Unreadable::NotJson) => Err(Error::Process(format!(
                "the query server for {} answered something that is not JSON",
                self.language
            ))),
            Err(Unreadable::Unusable(error)) => Err(Error::Process(format!(
                "the answer of the query server for {} cannot be used: {error}",
                self.language
            ))),
        }
    }

    /// Reads an answer, for callers that can continue after an answer that is JSON but unusable.
    pub fn readable_answer(&mut self) -> Result<Result<Answer, Unreadable>, Error> {
        self.logged = 0;
        let reading = Duration::from_millis((self.unsent_bytes() / INPUT_BYTES_PER_MS) as u64);
        let deadline = Instant::now() + self.settings.timeout + reading;
        loop {
            while let Some(line) = self.lines.next_line() {
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                match Answer::read(line) {
                    Ok(Answer::Log(text)) => {
                        log_line(&self.language, &mut self.logged, text.as_bytes(), false)
                    }
                    Err(Unreadable::NotJson) => {
                        self.is_spent = true;
                        log_line(&self.language, &mut self.logged, line, true);
                        return Ok(Err(Unreadable::NotJson));
                    }
                    answer => {
                        self.is_spent |= matches!(answer, Ok(Answer::Fatal { .. }));
                        self.is_suspect |= matches!(answer, Ok(Answer::Failed { .. }));
                        return Ok(answer);
                    }
                }
            }
            self.exchange(deadline)
                .map_err(|failure| self.error_of_failure(&failure))?;
        }
    }

    /// Fails when the process sends more than was requested: its answers can no longer be matched.
    pub fn expect_silence(&mut self) -> Result<(), Error> {
        while let Some(line) = self.lines.next_line() {
            match Answer::read(line) {
                Ok(Answer::Log(text)) => {
                    log_line(&self.language, &mut self.logged, text.as_bytes(), false)
                }
                _ if line.iter().all(u8::is_ascii_whitespace) => {}
                _ => {
                    self.is_spent = true;
                    log_line(&self.language, &mut self.logged, line, true);
                    return Err(Error::Process(format!(
                        "the query server for {} sent more answers than requests",
                        self.language
                    )));
                }
            }
        }
        Ok(())
    }

    /// Returns whether the process can be used again: it is running, and has sent nothing but log
    /// lines since its last answer.
    pub fn is_well(&mut self) -> bool {
        self.logged = 0;
        // It may have logged a lot; one that never ends is not usable.
        for _ in 0..16 {
            match self.exchange(Instant::now()) {
                Ok(()) => {}
                Err(Failure::TimedOut) => {
                    return self.lines.len() == 0 && self.expect_silence().is_ok();
                }
                Err(_) => return false,
            }
            if self.expect_silence().is_err() {
                return false;
            }
        }
        false
    }

    /// Frees memory that large documents took.
    pub fn rest(&mut self) {
        self.unsent.drain(..self.sent);
        self.sent = 0;
        self.unsent.shrink_to(1 << 16);
        self.lines.trim();
        self.error_lines.trim();
    }

    /// Returns the error of an unexpected answer. Its texts are bounded.
    pub fn error_of(&self, answer: Answer) -> Error {
        let error = match answer {
            Answer::Failed { name, reason } | Answer::Fatal { name, reason } => {
                error_of(name, reason)
            }
            Answer::Forbidden(reason) => Error::Forbidden(reason),
            Answer::Unauthorized(reason) => Error::Unauthorized(reason),
            Answer::Value(_) | Answer::Log(_) => Error::Process(format!(
                "the query server for {} answered something unexpected",
                self.language
            )),
        };
        error.bounded()
    }

    /// Waits until something can be read or written, and does it.
    fn exchange(&mut self, deadline: Instant) -> Result<(), Failure> {
        if self.sent == self.unsent.len() {
            self.unsent.clear();
            self.sent = 0;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut fds = Vec::with_capacity(3);
        fds.push(PollFd::new(&self.output, PollFlags::IN));
        let errors_at = self.errors.as_ref().map(|errors| {
            fds.push(PollFd::new(errors, PollFlags::IN));
            fds.len() - 1
        });
        let input_at = self
            .input
            .as_ref()
            .filter(|_| !self.unsent.is_empty())
            .map(|input| {
                fds.push(PollFd::new(input, PollFlags::OUT));
                fds.len() - 1
            });
        match poll(&mut fds, Some(&left)) {
            Ok(0) => return Err(Failure::TimedOut),
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Err(Failure::Ended),
        }
        let ready = |at: Option<usize>| at.is_some_and(|at| !fds[at].revents().is_empty());
        let (output, errors, input) = (ready(Some(0)), ready(errors_at), ready(input_at));
        if errors {
            self.read_errors();
        }
        if input {
            self.send();
        }
        if output {
            if self.lines.read(&self.output) == Read::End {
                return Err(Failure::Ended);
            }
            if self.lines.len() > self.settings.answer_bytes_max {
                return Err(Failure::TooLong);
            }
        }
        // A process that writes all the time to its error output keeps this from waiting.
        if Instant::now() > deadline && !output {
            return Err(Failure::TimedOut);
        }
        Ok(())
    }

    /// Sends as much as fits.
    pub fn send(&mut self) {
        let Some(input) = &self.input else { return };
        match rustix::io::write(input, &self.unsent[self.sent..]) {
            Ok(count) => self.sent += count,
            Err(Errno::AGAIN | Errno::INTR) => {}
            // It may have answered before it closed its input: read its output.
            Err(_) => self.input = None,
        }
        // Keeps the copying linear while a caller keeps adding lines.
        if self.sent > self.unsent.len() / 2 {
            self.unsent.drain(..self.sent);
            self.sent = 0;
        }
    }

    fn read_errors(&mut self) {
        let Some(errors) = &self.errors else { return };
        let ended = self.error_lines.read(errors) == Read::End;
        while let Some(line) = self.error_lines.next_line() {
            log_line(&self.language, &mut self.logged, line, true);
        }
        if (ended || self.error_lines.len() > LOG_LINE_BYTES_MAX)
            && let Some(line) = self.error_lines.rest()
        {
            log_line(&self.language, &mut self.logged, line, true);
        }
        if ended {
            self.errors = None;
        }
    }

    fn error_of_failure(&mut self, failure: &Failure) -> Error {
        self.is_spent = true;
        match failure {
            Failure::TimedOut => Error::Limit {
                limit: ANSWER_TIME_LIMIT,
                value: self.settings.timeout.as_millis().to_string(),
            },
            Failure::TooLong => Error::Process(format!(
                "the query server for {} answered more than {} bytes",
                self.language, self.settings.answer_bytes_max
            )),
            Failure::Ended => {
                let deadline = Instant::now() + LAST_WORDS;
                while self.hear_last_words(deadline) {}
                let how = match self.end() {
                    Some(status) => describe(status),
                    None => "ended".to_owned(),
                };
                Error::Process(format!("the query server for {} {how}", self.language))
            }
        }
    }

    /// Reads the error output once; returns whether there may be more.
    fn hear_last_words(&mut self, deadline: Instant) -> bool {
        let Some(errors) = &self.errors else {
            return false;
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut fds = [PollFd::new(errors, PollFlags::IN)];
        if !matches!(poll(&mut fds, Some(&left)), Ok(1..)) {
            return false;
        }
        self.read_errors();
        Instant::now() < deadline
    }

    /// Kills the process with its group, and reaps it.
    fn end(&mut self) -> Option<ExitStatus> {
        if std::mem::replace(&mut self.ended, true) {
            return None;
        }
        // Its processor time is readable until it is waited for.
        self.account = None;
        // It has not been waited for, so its id cannot be reused.
        let _ = kill_process_group(self.group, Signal::KILL);
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (_, Some(signal)) => format!("was ended by signal {signal}"),
        _ => "ended".to_owned(),
    }
}

/// Returns the error of CouchDB's `error` and `reason`.
pub(crate) fn error_of(name: String, reason: String) -> Error {
    match name.as_str() {
        "compilation_error" | "map_compilation_error" | "reduce_compilation_error" => {
            Error::Compile(reason)
        }
        "reduce_overflow_error" => Error::ReduceOverflow(reason),
        "forbidden" => Error::Forbidden(reason),
        "unauthorized" => Error::Unauthorized(reason),
        // Our query servers answer so.
        "too_deep" => Error::BadArgument(reason),
        _ => Error::Thrown { name, reason },
    }
}

fn log_line(language: &str, logged: &mut usize, line: &[u8], complaint: bool) {
    *logged += 1;
    if *logged > LOG_LINES_MAX {
        if *logged == LOG_LINES_MAX + 1 {
            tracing::warn!(
                language,
                "the query server logs too much: the rest is dropped"
            );
        }
        return;
    }
    let text = String::from_utf8_lossy(&line[..line.len().min(LOG_LINE_BYTES_MAX)]);
    if complaint {
        tracing::warn!(language, ?text, "query server");
    } else {
        tracing::info!(language, ?text, "query server");
    }
}
