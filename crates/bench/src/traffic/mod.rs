//! Real requests, recorded and replayed.
//!
//! [`record()`] is a proxy that records clients' requests, without credentials; [`replay()`] sends
//! them again, to another server, at the recorded times or faster.

mod class;
mod compare;
mod entry;
mod proxy;
mod recorder;
mod recording;
mod replay;
mod revs;
mod rewrite;
mod secrets;
mod tee;

pub use compare::{ClassReport, Difference, ReplayReport};
pub use entry::RecordingError;
pub use proxy::{RecordOptions, Recorded, record};
pub use replay::{ReplayOptions, replay};
