//! The thread that starts all processes, and ends idle ones.
//!
//! A process dies with the *thread* that started it (`PR_SET_PDEATHSIG`), so that thread must live
//! as long as the pools do.

use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal, setsid};

use crate::builtin::Command;

/// A request to the thread.
pub(crate) enum Request {
    Start(Command, SyncSender<std::io::Result<Child>>),
    /// A process became idle, or the settings changed.
    LookAgain,
}

/// Handles requests until all senders are gone. `end_idle` ends processes that were idle for too
/// long, and returns when to check again.
pub(crate) fn run(requests: &Receiver<Request>, end_idle: impl Fn() -> Option<Instant>) {
    let mut wake = None;
    loop {
        let request = match wake {
            Some(at) => {
                requests.recv_timeout(Instant::saturating_duration_since(&at, Instant::now()))
            }
            None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match request {
            Ok(Request::Start(command, reply)) => {
                if let Err(unwanted) = reply.send(start(&command))
                    && let Ok(mut child) = unwanted.0
                {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
            Ok(Request::LookAgain) | Err(RecvTimeoutError::Timeout) => {
                // The first to expire may be the same as before: do not check more often than the
                // clock's resolution.
                wake = end_idle().map(|at| at + Duration::from_millis(1));
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[expect(
    unsafe_code,
    reason = "there is nothing safe that makes a process end with the one that started it"
)]
fn start(command: &Command) -> std::io::Result<Child> {
    let (program, arguments) = command
        .words
        .split_first()
        .ok_or_else(|| std::io::Error::other("the command line is empty"))?;
    let parent = getpid();
    let mut start = std::process::Command::new(program);
    start
        .args(arguments)
        .envs(command.environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: between fork and exec only async-signal-safe operations are allowed: the closure
    // makes four system calls, allocates nothing (an `Error` made of a code or a kind does not) and
    // takes no lock.
    unsafe {
        start.pre_exec(move || {
            // Its own session, and so its own process group: it cannot type into the terminal that
            // the server was started from.
            setsid()?;
            // Before Linux 5.11 there is no such call.
            let _ = confine::keep_descriptors();
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the call.
            if getppid() == Some(parent) {
                Ok(())
            } else {
                Err(std::io::ErrorKind::NotConnected.into())
            }
        });
    }
    let child = start.spawn()?;
    // Containers may have no `/proc`, or not let it be written.
    let _ = confine::end_early(Some(child.id()));
    Ok(child)
}
