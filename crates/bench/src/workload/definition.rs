//! The interface of all workloads.

use std::time::Duration;

use crate::error::BenchError;
use crate::system::{System, WorkloadPart};

/// Rounds of a timed workload. Their extremes are the spread.
pub(crate) const ROUNDS: u32 = 5;

/// A workload on one server. It is prepared once; then its rounds are interleaved with those of the other server.
pub(crate) trait Workload {
    /// The result of `prepare`: databases, request bytes.
    type State;

    /// How often [`Workload::round`] is called; workloads of a fixed amount of work have one round.
    fn rounds(&self) -> u32 {
        ROUNDS
    }

    /// Whether a round with two servers may be split into many short turns, whose sums count. Not
    /// where a turn has a slow start, or leaves work behind.
    fn is_sliced(&self) -> bool {
        false
    }

    async fn prepare(&self, system: &System) -> Result<Self::State, BenchError>;

    /// Measures each part for about `length`.
    async fn round(
        &self,
        system: &System,
        state: &mut Self::State,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError>;

    /// Single values, and remarks, after the last round.
    async fn finish(&self, _side: &System, _state: Self::State) -> Result<Outcome, BenchError> {
        Ok(Outcome::default())
    }
}

/// The single values and remarks of a workload on one server.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Name, unit, value.
    pub(crate) figures: Vec<(String, &'static str, f64)>,
    pub(crate) notes: Vec<String>,
}
