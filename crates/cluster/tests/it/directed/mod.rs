//! Schedules by hand: each was, or would be, the loss of something acknowledged, or the end of a slot.

mod counting;
mod fences;
mod generations;
mod net;
