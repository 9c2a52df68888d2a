//! Work on the runtime's threads, whose result is sent to the calling process.

use embedded::{Result, runtime};
use rustler::env::SavedTerm;
use rustler::{Encoder, Env, LocalPid, OwnedEnv, Term};
use tokio::sync::Semaphore;

use crate::error::{internal, term};

pub mod atoms {
    //! Atoms of results.
    rustler::atoms! { ok, done, eof, timeout }
}

/// A process that waits for `{Tag, Result}`. It gets an error when this is dropped before.
struct Caller {
    pid: LocalPid,
    env: OwnedEnv,
    tag: Option<SavedTerm>,
}

impl Caller {
    fn send<A: for<'a> FnOnce(Env<'a>) -> Term<'a>>(&mut self, result: A) {
        let Some(tag) = self.tag.take() else {
            return;
        };
        let message = |env| (tag.load(env), result(env));
        // It fails when the process has ended, and then nothing waits.
        let _ = self.env.send_and_clear(&self.pid, message);
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.send(|env| term(env, &internal("the call panicked")));
    }
}

/// Starts work, and sends `answer` of its result, or `{error, {Code, Reason}}`. Returns `ok`, or an
/// error when nothing was started, so that nothing will be sent.
pub fn spawn<'e, T: Send + 'static>(
    env: Env<'e>,
    tag: Term<'e>,
    work: impl Future<Output = Result<T>> + Send + 'static,
    answer: impl for<'a> FnOnce(Env<'a>, T) -> Result<Term<'a>> + Send + 'static,
) -> Term<'e> {
    let runtime = match runtime::current() {
        Ok(runtime) => runtime,
        Err(e) => return term(env, &e),
    };
    let of_caller = OwnedEnv::new();
    let mut caller = Caller {
        pid: env.pid(),
        tag: Some(of_caller.save(tag)),
        env: of_caller,
    };
    runtime.spawn(async move {
        let done = work.await;
        caller.send(|env| {
            let answered = done.and_then(|value| answer(env, value));
            answered.unwrap_or_else(|e| term(env, &e))
        });
    });
    atoms::ok().encode(env)
}

/// As [`spawn`], for work that blocks for the time of some reads, or of users' functions.
pub fn spawn_blocking<'e, T: Send + 'static>(
    env: Env<'e>,
    tag: Term<'e>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
    answer: impl for<'a> FnOnce(Env<'a>, T) -> Result<Term<'a>> + Send + 'static,
) -> Term<'e> {
    spawn(env, tag, blocking(work), answer)
}

/// Calls that block at the same time. More wait, so that thousands of processes do not start a
/// thread each.
static PERMITS: Semaphore = Semaphore::const_new(64);

/// Runs work that blocks for the time of some reads on a thread for it.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    // The semaphore is never closed.
    let _permit = PERMITS.acquire().await.map_err(internal)?;
    long_blocking(work).await
}

/// Runs work that blocks until others have ended on a thread for it.
pub async fn long_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(internal).flatten()
}

/// The answer `ok`.
pub fn ok<'a>(env: Env<'a>, (): ()) -> Result<Term<'a>> {
    Ok(atoms::ok().encode(env))
}

/// Returns `{ok, Value}`.
pub fn ok_with<'a>(env: Env<'a>, value: impl Encoder) -> Term<'a> {
    (atoms::ok(), value).encode(env)
}

/// The answer `{ok, {Id, Rev}}` of a written document.
pub fn written<'a>(env: Env<'a>, written: embedded::WriteResult) -> Result<Term<'a>> {
    Ok(ok_with(env, (written.id, written.rev)))
}

/// Binaries of a caller, which are not copied until a thread of the runtime needs them.
pub struct Kept {
    env: OwnedEnv,
    term: SavedTerm,
}

impl Kept {
    /// Keeps a binary, or a list of binaries.
    pub fn of(term: Term<'_>) -> Kept {
        let env = OwnedEnv::new();
        Kept {
            term: env.save(term),
            env,
        }
    }

    /// Returns the bytes of the binary.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        self.env.run(|env| bytes(self.term.load(env)))
    }

    /// Returns the text of the binary.
    pub fn text(&self) -> Result<String> {
        let text = String::from_utf8(self.bytes()?);
        text.map_err(|_| embedded::Error::bad_request("not UTF-8"))
    }

    /// Returns the bytes of each binary of the list.
    pub fn list(&self) -> Result<Vec<Vec<u8>>> {
        self.env.run(|env| {
            let terms: Vec<Term<'_>> = self.term.load(env).decode().map_err(not_bytes)?;
            terms.into_iter().map(bytes).collect()
        })
    }
}

fn bytes(term: Term<'_>) -> Result<Vec<u8>> {
    let binary = term.into_binary().map_err(not_bytes)?;
    Ok(binary.as_slice().to_vec())
}

fn not_bytes(_: rustler::Error) -> embedded::Error {
    embedded::Error::bad_request("not a binary")
}

/// The process that made a call. Work that waits for long checks whether it still waits.
pub struct Process {
    pid: LocalPid,
    env: OwnedEnv,
}

impl Process {
    /// The calling process.
    pub fn calling(env: Env<'_>) -> Process {
        Process {
            pid: env.pid(),
            env: OwnedEnv::new(),
        }
    }

    /// Returns whether it runs.
    pub fn is_alive(&self) -> bool {
        is_alive(&self.env, self.pid)
    }
}

/// Returns whether a process runs. `env`: any that belongs to no process.
pub fn is_alive(env: &OwnedEnv, pid: LocalPid) -> bool {
    env.run(|env| pid.is_alive(env))
}
