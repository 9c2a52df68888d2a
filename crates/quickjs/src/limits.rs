//! Limits of a heap.

use std::time::Duration;

/// Longest string of QuickJS in bytes; with more memory its own sizes could overflow.
const MEMORY_MAX: usize = 1 << 30;
/// With less, not even a context with some code in it can be created.
const MEMORY_MIN: usize = 2 << 20;
const STACK_MIN: usize = 64 << 10;
const STACK_MAX: usize = 64 << 20;

/// The limits of a heap, and of code that runs in it.
#[derive(Clone, Debug)]
pub struct Limits {
    /// JavaScript's time after [`Scope::start_clock`](crate::Scope::start_clock), as
    /// [`CallTimer`](crate::CallTimer) measures it. A single long
    /// call of a built-in function (`"x".repeat(1e8).split("")`) cannot be stopped by it; the
    /// memory limit bounds that.
    pub time: Duration,
    /// Memory of the heap, in bytes.
    pub memory_bytes: usize,
    /// Stack of JavaScript's calls, in bytes.
    pub stack_bytes: usize,
    /// Calls of `emit` in one [`Scope::call_emitting`](crate::Scope::call_emitting).
    pub emit_rows_max: usize,
    /// Longest text that [`Scope::json`](crate::Scope::json) writes, in bytes.
    pub emit_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            time: Duration::from_secs(5),
            memory_bytes: 64 << 20,
            stack_bytes: 512 << 10,
            emit_rows_max: 100_000,
            emit_bytes_max: 64 << 20,
        }
    }
}

impl Limits {
    /// Returns the same with memory and stack brought within what can work, as every heap has them:
    /// 2 MiB to 1 GiB of memory, 64 KiB to 64 MiB of stack.
    pub fn clamped(&self) -> Limits {
        Limits {
            memory_bytes: self.memory_bytes.clamp(MEMORY_MIN, MEMORY_MAX),
            stack_bytes: self.stack_bytes.clamp(STACK_MIN, STACK_MAX),
            ..self.clone()
        }
    }
}

/// The limit that a call ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`Limits::time`]
    Time,
    /// [`Limits::memory_bytes`], or the system has no memory.
    Memory,
    /// [`Limits::emit_rows_max`]
    Rows,
    /// [`Limits::emit_bytes_max`], or the length that the caller of a function that writes had set.
    Bytes,
}
