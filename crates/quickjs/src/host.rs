//! JavaScript's access to the outside of its heap.

use std::ffi::CStr;

use crate::control::Control;

/// The other side of the functions of [`Scope::host_object`](crate::Scope::host_object). It is lent
/// to a heap while that is entered.
pub trait Host {
    /// JavaScript called the function with this index among the names that were given, its argument
    /// as text. Whatever it calls may call again. A panic ends the process.
    fn call(&self, function: usize, text: &str, clock: Clock<'_>) -> Reply;
}

/// The result of a function of a [`Host`] for JavaScript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `undefined`
    Undefined,
    /// `null`
    Null,
    /// A number.
    Integer(i64),
    /// A string; what is not UTF-8 in it is replaced.
    Text(Vec<u8>),
    /// It throws a `TypeError` with this message.
    TypeError(&'static CStr),
    /// The script ends: no `catch` or `finally` of it sees why.
    Stop,
}

/// The clock of the call that runs.
#[derive(Clone, Copy)]
pub struct Clock<'a>(pub(crate) &'a Control);

impl Clock<'_> {
    /// Does work that is not JavaScript's: its time does not count.
    pub fn excuse<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.excuse(work)
    }

    /// Restarts it.
    pub fn start(&self) {
        self.0.start_clock();
    }
}

/// A host for scripts that have nothing to say.
#[derive(Clone, Copy, Debug, Default)]
pub struct SilentHost;

impl Host for SilentHost {
    fn call(&self, _: usize, _: &str, _: Clock<'_>) -> Reply {
        Reply::Undefined
    }
}
