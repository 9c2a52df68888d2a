//! QuickJS-NG behind a safe interface: heaps with limits, values that are built from JSON text and
//! written as such, and documents that are built only as far as JavaScript accesses them. It does
//! not know CouchDB, or its callers.
//!
//! A [`Heap`] has limits, and cannot be used after it hit one. It contains [`Context`]s, each with
//! its own globals. [`Heap::enter`] provides a [`Scope`] with [`Value`]s; none of them can leave
//! it, or enter another. Functions that JavaScript may call outside of its heap are a [`Host`]'s. A
//! [`RewindingHeap`] can be restored to an earlier state.
//!
//! All unsafe code about JavaScript is here. Its proofs rely on these facts:
//!
//! - A heap is one value that owns everything that QuickJS created, and is entered by `&mut`: one thread at a time uses it.
//! - A scope's lifetime differs in each call of [`Heap::enter`], and is invariant: so a value is used only in the context that it
//!   was created in, only while that is entered, and never after the heap was rewound or dropped.
//! - Memory seen by callbacks of QuickJS is either QuickJS's own memory or behind cells ([`control`]); none holds a reference to the
//!   state of a context while QuickJS may call back.
//! - A heap is freed block by block, without QuickJS's help. So nothing in it may own anything but memory of the heap.
//!
//! ```
//! use quickjs::{Heap, Limits, SilentHost};
//!
//! let mut heap = Heap::new(&Limits::default()).unwrap();
//! let context = heap.new_context().unwrap();
//! let answer = heap.enter(&context, &SilentHost, |scope| {
//!     let add = scope.evaluate("(function (a, b) { return [a + b] })", c"add").unwrap();
//!     let sum = scope.call(&add, [&scope.value(b"1").unwrap(), &scope.value(b"2.5").unwrap()]).unwrap();
//!     scope.json(&sum).unwrap()
//! });
//! assert_eq!(answer, b"[3.5]");
//! ```

mod allocator;
mod control;
mod copy;
mod from_json;
mod heap;
mod host;
mod lazy;
mod limits;
mod names;
mod native;
mod realm;
mod rewind;
mod running;
mod runtime;
mod scope;
mod shapes;
mod skip;
#[cfg(test)]
mod tests;
mod timer;
mod to_json;
mod value;

pub use from_json::{BuildError, WHOLE};
pub use heap::{Context, Enter, Heap};
pub use host::{Clock, Host, Reply, SilentHost};
pub use limits::{Limit, Limits};
pub use native::Script;
pub use rewind::RewindingHeap;
pub use scope::{Form, RetainedValue, Scope};
pub use timer::CallTimer;
pub use to_json::Interrupted;
pub use value::Value;
