//! Writes of slots: whoever applies the same log comes to the same state, and what is refused leaves no trace.

pub mod copy;
mod copy_contents;
mod copy_refusals;
pub mod crash;
mod dump;
mod history;
mod model;
mod refusals;
mod replay;
mod sessions;
pub mod world;
