//! All groups of a node, without I/O.
//!
//! A driver calls [`Core::tick`] every 100 ms, [`Core::deliver`] for each message, [`Core::append`]
//! and [`Core::fetch`] for its callers. After each it takes [`Core::take_effects`]. While
//! [`Core::begin_flush`] returns something it writes that, syncs if it must, and calls
//! [`Core::end_flush`], in the same order. Meanwhile it may call everything else.

mod appends;
mod core;
mod fetch;
mod fetches;
mod flush;
mod forward;
mod group;
mod sleep;
mod storage;
mod voters;

#[cfg(test)]
pub(crate) use self::core::Mutant;
pub use self::core::{Core, CoreError, Effect};
pub use self::flush::Flush;
