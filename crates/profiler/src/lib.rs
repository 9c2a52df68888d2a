//! A sampling profiler of this process's processor time.
//!
//! A [`Session`] samples the stacks of all threads, each by a timer of its own that counts the
//! thread's processor time. When it is over, [`Symbols`] resolves the addresses, and a [`Profile`]
//! is the result: stacks with their counts, as folded text, a flame graph, or pprof's format.
//!
//! - [`labelled`] records whose function runs: a thread's samples have it as a frame. It costs two stores to memory of the thread.
//! - [`scripted`] records which interpreter runs, which then supplies the names of its functions.
//!
//! While no session runs there are no timers, and no signals. All unsafe code is in `sampler`,
//! `arena` and `label`: the handler of SIGPROF, which allocates nothing, takes no lock and never
//! waits. It walks the stack by frame pointers, and reads memory only through the kernel
//! ([`Probe`]), which returns an error for an invalid address. It does not use unwind tables:
//! unwinders that do take locks and allocate, and have crashed servers.

mod arena;
mod label;
mod modules;
mod pprof;
mod process_state;
mod profile;
mod sampler;
mod samples;
mod session;
mod svg;
mod symbols;

pub use label::{Interpreter, Label, current, labelled, scripted};
pub use process_state::remember;
pub use profile::{Growth, Profile, Unit};
pub use sampler::{Names, Probe, running};
pub use samples::Samples;
pub use session::{HZ_MAX, Session, TICK};
pub use svg::{Graph, differences};
pub use symbols::Symbols;

/// The reason why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One at a time.
    #[error("another profile is being recorded")]
    Busy,
    /// The system gives no timers.
    #[error("threads cannot be sampled: {0}")]
    Timers(std::io::Error),
    /// The text is not a profile.
    #[error("line {line} is not a folded stack: stack, space, number")]
    Folded {
        /// Starts at 1.
        line: usize,
    },
    /// There is nothing to draw.
    #[error("there are no samples: no thread used processor time")]
    Empty,
    /// A graph could not be drawn.
    #[error("the flame graph cannot be drawn: {0}")]
    Graph(std::io::Error),
}
