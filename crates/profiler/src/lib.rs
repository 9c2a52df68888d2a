//! Where does the processor time of this process go?
//!
//! A [`Session`] samples the stacks of all threads, each by a timer of its own that counts the thread's processor time. When it is
//! over, [`Symbols`] gives the addresses names, and a [`Profile`] is what comes of it: stacks with how often each was seen, as
//! folded text, a flame graph, or pprof's format.
//!
//! - [`labelled`] says whose function runs: a thread's samples have it as a frame. It costs two stores to memory of the thread.
//! - [`scripted`] says which interpreter runs, which then gives the names of its functions.
//!
//! While no session runs there are no timers, and no signals. All unsafe code is in `sampler`, `arena` and `label`:
//! the handler of SIGPROF, which allocates nothing, takes no lock and waits for nobody. It walks the stack by frame pointers, and
//! reads memory only by way of the kernel ([`Probe`]), which answers an error where there is none. It does not use unwind tables:
//! unwinders that do take locks and allocate, and have ended servers.

mod arena;
mod label;
mod modules;
mod pprof;
mod profile;
mod remembered;
mod sampler;
mod samples;
mod session;
mod svg;
mod symbols;

pub use label::{Interpreter, Label, current, labelled, scripted};
pub use profile::{Growth, Profile, Unit};
pub use remembered::remember;
pub use sampler::{Names, Probe, running};
pub use samples::Samples;
pub use session::{HZ_MAX, Session, TICK};
pub use svg::{Graph, differences};
pub use symbols::Symbols;

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One at a time.
    #[error("a profile is being made")]
    Busy,
    /// The system gives no timers.
    #[error("threads cannot be sampled: {0}")]
    Timers(std::io::Error),
    /// The text is none of a profile.
    #[error("line {line} is no folded stack: stack, space, number")]
    Folded {
        /// Counted from 1.
        line: usize,
    },
    /// There is nothing to draw.
    #[error("there are no samples: nothing took processor time")]
    Empty,
    /// A graph could not be drawn.
    #[error("the flame graph cannot be drawn: {0}")]
    Graph(std::io::Error),
}
