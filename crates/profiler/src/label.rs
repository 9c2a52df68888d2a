//! The function that this thread runs: a name in the thread's samples.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::compiler_fence;

use crate::sampler::{Names, Probe};

/// A name for samples, like `shop/_design/sales/_view/by_day`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Label(Box<str>);

impl Label {
    /// Semicolons and line ends, which divide frames and stacks, become spaces, and so does what
    /// XML cannot have.
    pub fn new(name: &str) -> Label {
        let is_bad = |c: char| matches!(c, ';' | '\u{fffe}' | '\u{ffff}') || c.is_control();
        Label(name.replace(is_bad, " ").into())
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// An interpreter that runs on this thread.
#[derive(Clone, Copy)]
pub struct Interpreter {
    /// The address of its state.
    pub state: usize,
    /// Writes the names of the running functions, the inner ones first, given `state`.
    ///
    /// It is called in a signal handler, anywhere in the interpreter's work: it may not allocate,
    /// take locks, or panic, and it reads the interpreter's memory only by the probe, since that
    /// may be inconsistent.
    pub functions: fn(usize, &mut Probe, &mut Names<'_>),
}

/// The label that the signal handler finds for this thread. It has no destructor, and exists from
/// the thread's first step on.
#[derive(Clone, Copy)]
struct CurrentLabel {
    label: *const Label,
    /// An address on the stack where the label began.
    since: usize,
}

thread_local! {
    static LABEL: Cell<CurrentLabel> = const { Cell::new(CurrentLabel { label: ptr::null(), since: 0 }) };
    static INTERPRETER: Cell<*const Interpreter> = const { Cell::new(ptr::null()) };
}

/// Restores the previous value, also when the work panics.
struct Reset<T: Copy + 'static>(&'static std::thread::LocalKey<Cell<T>>, T);

impl<T: Copy> Drop for Reset<T> {
    fn drop(&mut self) {
        // The handler sees the effects of the work before this.
        compiler_fence(SeqCst);
        self.0.set(self.1);
    }
}

/// Does work that samples of this thread have under a label.
#[inline]
pub fn labelled<T>(label: &Label, work: impl FnOnce() -> T) -> T {
    let here = CurrentLabel {
        label,
        since: ptr::from_ref(&label).addr(),
    };
    let _reset = Reset(&LABEL, LABEL.replace(here));
    compiler_fence(SeqCst);
    work()
}

/// Waits for a future whose polls samples have under a label, as the work of [`labelled`]. Returns its output.
///
/// A macro, because a future that is handed to a function is moved there and back.
#[macro_export]
macro_rules! under_label {
    ($label:expr, $future:expr) => {{
        let label: &$crate::Label = $label;
        let mut future = ::std::pin::pin!($future);
        ::std::future::poll_fn(|cx| {
            $crate::labelled(label, || ::std::future::Future::poll(future.as_mut(), cx))
        })
        .await
    }};
}

/// Does work in which an interpreter runs on this thread.
#[inline]
pub fn scripted<T>(interpreter: &Interpreter, work: impl FnOnce() -> T) -> T {
    let _reset = Reset(&INTERPRETER, INTERPRETER.replace(interpreter));
    compiler_fence(SeqCst);
    work()
}

/// Returns the label of this thread, and where on the stack it began.
///
/// # Safety
/// It is not kept for longer than the caller runs: not across what ends [`labelled`].
pub(crate) unsafe fn here<'a>() -> Option<(&'a Label, usize)> {
    let here = LABEL.get();
    // SAFETY: a pointer exists only while `labelled` holds the reference that it was made of; this
    // is its thread.
    let label = unsafe { here.label.as_ref() };
    label.map(|label| (label, here.since))
}

/// Returns the interpreter that runs on this thread.
pub(crate) fn interpreter() -> Option<Interpreter> {
    let interpreter = INTERPRETER.get();
    // SAFETY: as above; what is pointed at is copied.
    unsafe { interpreter.as_ref() }.copied()
}

/// Returns the name of this thread's label; empty without one.
pub fn current() -> String {
    // SAFETY: the label is copied immediately.
    unsafe { here() }.map_or_else(String::new, |(label, _)| label.name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_of_a_future_are_under_its_label_and_those_of_others_are_not() {
        use std::pin::pin;
        use std::task::{Context, Poll, Waker};
        let label = Label::new("route find");
        let mut is_first = true;
        let twice = std::future::poll_fn(|_| match std::mem::take(&mut is_first) {
            true => Poll::Pending,
            false => Poll::Ready(current()),
        });
        let mut labelled = pin!(async { crate::under_label!(&label, twice) });
        let mut context = Context::from_waker(Waker::noop());
        assert!(labelled.as_mut().poll(&mut context).is_pending());
        assert_eq!(current(), "");
        let named = labelled.as_mut().poll(&mut context);
        assert_eq!(
            (named, current()),
            (Poll::Ready("route find".to_owned()), String::new())
        );
    }

    #[test]
    fn the_inner_label_counts_and_the_outer_one_goes_on_after_it() {
        let (outer, inner) = (Label::new("a;\u{ffff}b"), Label::new("c"));
        assert_eq!(current(), "");
        labelled(&outer, || {
            assert_eq!(labelled(&inner, current), "c");
            assert_eq!(current(), "a  b");
            let panicked = std::panic::catch_unwind(|| labelled(&inner, || panic!("as it should")));
            assert!(panicked.is_err());
            assert_eq!(current(), "a  b");
        });
        assert_eq!(current(), "");
    }
}
