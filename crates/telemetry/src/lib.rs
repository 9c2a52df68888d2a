//! The activity of the threads of this process.
//!
//! Each thread has a clock that records which [`State`] it is in, and counts the time of each. A
//! change of state costs one reading of the processor's time stamp counter and two stores to memory
//! that no other thread writes: about 10 ns. So it is always on.
//!
//! In addition, primitives for counting in other crates: [`Counter`], [`Times`] and [`Durations`].
//!
//! A state is what a thread does, not what a request waits for: a future that waits is in no state,
//! and its thread does something else meanwhile. [`within!`] enters a state whenever a future is
//! polled, [`enter`] until its result is dropped.

mod counter;
mod logged;
mod part;
mod priority;
mod socket;
mod state;
mod thread;
mod ticks;
pub mod trace;
mod usage;
mod within;

pub use counter::{BOUNDS_US, Counter, Durations, Striped, Times, distribution};
pub use logged::{LINES_LEFT_OUT, LOGGED};
pub use part::part_of;
pub use priority::{BACKGROUND_NICE, give_way, lower_priority, take_long_turns};
pub use socket::{dropped_connections, ms_since_data};
pub use state::{STATES, State};
pub use thread::{StateGuard, ThreadTimes, enter, entered_at, park, threads, unpark};
pub use ticks::Tick;
pub use usage::{UsageByName, Use};
