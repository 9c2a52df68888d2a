//! QuickJS-NG behind a safe interface: heaps with limits, values that are made of JSON text and written as such, and documents
//! that are made only as far as JavaScript looks at them. It knows no CouchDB, and nothing of who calls what when.
//!
//! A [`Heap`] has its limits, and is of no more use once it ran into one. In it are [`Context`]s, each with its own globals.
//! [`Heap::enter`] gives a [`Scope`], in which there are [`Value`]s; none gets out of it, nor into another.
//! What JavaScript may call outside of its heap is a [`Host`]'s. A [`RewindingHeap`] can be taken back to what it was.
//!
//! All unsafe code about JavaScript is here. What its proofs rely upon:
//!
//! - A heap is one value that owns all that QuickJS made, and is entered by `&mut`: one thread at a time uses it.
//! - A scope's lifetime is another in each call of [`Heap::enter`], and invariant: so a value is used only in the context that it
//!   was made in, only while that is entered, and never after the heap was taken back or is gone.
//! - What callbacks of QuickJS find is either QuickJS's own memory or behind cells ([`control`]); none holds a reference to the
//!   state of a context while QuickJS may call back.
//! - A heap is freed block by block, without QuickJS's help. So nothing in it may own anything but memory of the heap.
//!
//! ```
//! use quickjs::{Heap, Limits, Silent};
//!
//! let mut heap = Heap::new(&Limits::default()).unwrap();
//! let context = heap.new_context().unwrap();
//! let answer = heap.enter(&context, &Silent, |scope| {
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
mod to_json;
mod value;

pub use from_json::{BuildError, WHOLE};
pub use heap::{Context, Enter, Heap};
pub use host::{Clock, Host, Reply, Silent};
pub use limits::{Limit, Limits};
pub use native::Script;
pub use rewind::RewindingHeap;
pub use scope::{Form, RetainedValue, Scope};
pub use to_json::Failed;
pub use value::Value;
