//! What a workload of faults measured.

use crate::system::Part;

/// Something that happened at a moment of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    /// Seconds since the workload began.
    pub(crate) at_seconds: f64,
    /// What.
    pub(crate) text: String,
}

/// What a workload of faults came to.
#[derive(Default)]
pub(crate) struct Suffered {
    pub(crate) parts: Vec<Part>,
    /// Name, unit, value.
    pub(crate) figures: Vec<(String, &'static str, f64)>,
    /// The same of what is counted, which several repeats add up.
    pub(crate) counts: Vec<(String, &'static str, u64)>,
    pub(crate) events: Vec<Event>,
    pub(crate) notes: Vec<String>,
    /// What the server promised and did not keep; none when all is there.
    pub(crate) broken: Option<String>,
}
