//! Hand-written schedules: each was, or would be, the loss of an acknowledged write, or the end of
//! a slot.

mod counting;
mod fences;
mod generations;
mod net;
