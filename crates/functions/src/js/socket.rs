//! The server's socket to a worker, which waits for a worker that waits for the processor.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use quickjs::CallTimer;

/// A wait is interrupted this many times within its limit, to check whether the worker is late.
const CHECKS: u32 = 8;

/// A socket whose reads and writes time out when the worker is late, as [`CallTimer`] measures it.
pub(super) struct WorkerSocket {
    stream: UnixStream,
    limit: Duration,
    /// The `schedstat` of the worker's main thread, which executes JavaScript.
    schedstat: Option<File>,
    counts_processor: bool,
}

impl WorkerSocket {
    /// Takes the socket of a process that was just started, a child of this one, which may not hide
    /// its memory before. Until it [`runs`](Self::runs), the limit is one of time alone.
    pub fn new(stream: UnixStream, pid: u32, limit: Duration) -> io::Result<WorkerSocket> {
        let mut socket = WorkerSocket {
            stream,
            limit,
            schedstat: File::open(format!("/proc/{pid}/schedstat")).ok(),
            counts_processor: false,
        };
        socket.set_limit(limit)?;
        Ok(socket)
    }

    /// Sets the limit of a worker that is ready to run functions.
    pub fn runs(&mut self, limit: Duration) -> io::Result<()> {
        self.counts_processor = true;
        self.set_limit(limit)
    }

    fn set_limit(&mut self, limit: Duration) -> io::Result<()> {
        self.limit = limit;
        self.stream.set_read_timeout(Some(limit / CHECKS))?;
        self.stream.set_write_timeout(Some(limit / CHECKS))
    }

    /// Repeats a call that times out until the worker is late.
    fn patiently(
        &mut self,
        mut call: impl FnMut(&mut UnixStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut timer = CallTimer::start(self.limit);
        loop {
            match call(&mut self.stream) {
                Err(error) if is_timeout(&error) => {
                    let cpu_time = || self.cpu_time().filter(|_| self.counts_processor);
                    if timer.is_late_at(Instant::now(), cpu_time) {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }

    /// Returns the worker's processor time; `None` where the kernel does not count it.
    fn cpu_time(&self) -> Option<Duration> {
        let mut text = [0; 64];
        let read = self.schedstat.as_ref()?.read_at(&mut text, 0).ok()?;
        run_time(&text[..read])
    }
}

/// Returns the time that a thread ran: the first of three numbers, in nanoseconds.
fn run_time(schedstat: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(schedstat).ok()?;
    let first = text.split_ascii_whitespace().next()?.parse().ok()?;
    // Kernels without the statistics return zeros.
    (first > 0).then(|| Duration::from_nanos(first))
}

/// Returns whether an error is that of a time-out of a socket.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

impl Read for WorkerSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.patiently(|stream| stream.read(buffer))
    }
}

impl Write for WorkerSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.patiently(|stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket to a thread of this process that never answers, which is this process's main one.
    fn silent() -> (WorkerSocket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let limit = Duration::from_millis(20);
        let socket = WorkerSocket::new(ours, std::process::id(), limit).expect("a socket");
        (socket, theirs)
    }

    #[test]
    fn a_worker_that_is_not_ready_is_late_after_the_limit() {
        let (mut socket, _theirs) = silent();
        let error = socket.read(&mut [0]).expect_err("it is late");
        assert!(is_timeout(&error));
    }

    #[test]
    fn a_worker_that_gets_no_processor_is_waited_for() {
        let (mut socket, mut theirs) = silent();
        if socket.cpu_time().is_none() {
            return;
        }
        // The main thread of the tests waits for this one: it gets no processor time.
        socket.runs(Duration::from_secs(1)).expect("it is set");
        let answers = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(1500));
            theirs.write_all(b"x")
        });
        let read = socket.read(&mut [0]);
        assert!(matches!(read, Ok(1)), "{read:?}");
        answers.join().expect("no panic").expect("it answers");
    }

    #[test]
    fn the_time_that_a_thread_ran_is_read() {
        assert_eq!(run_time(b"1500 20 3\n"), Some(Duration::from_nanos(1500)));
        assert_eq!(run_time(b"0 0 0\n"), None);
        assert_eq!(run_time(b""), None);
    }
}
