//! The result of a workload of faults.

use crate::system::WorkloadPart;

/// Something that happened at a moment of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    /// Seconds since the workload began.
    pub(crate) at_seconds: f64,
    /// A description for people.
    pub(crate) text: String,
}

/// The result of a workload of faults.
#[derive(Default)]
pub(crate) struct FaultOutcome {
    pub(crate) parts: Vec<WorkloadPart>,
    /// Name, unit, value.
    pub(crate) figures: Vec<(String, &'static str, f64)>,
    /// Name, unit and value of counters, which are summed over repeats.
    pub(crate) counts: Vec<(String, &'static str, u64)>,
    pub(crate) events: Vec<Event>,
    pub(crate) notes: Vec<String>,
    /// A guarantee that the server broke; `None` if all acknowledged writes were found.
    pub(crate) broken: Option<String>,
}
