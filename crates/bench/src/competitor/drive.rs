//! Clients of a competitor that each carry out one operation after the other.

use std::time::Duration;

use crate::error::BenchError;
use crate::pace::{Pace, Pacing, Turns};
use crate::slice::Slice;

/// A client gives up after 100 failed operations in a row.
pub(super) const FAILURES_IN_A_ROW_MAX: u32 = 100;

/// One client's operation, again and again.
pub(super) trait Operation {
    /// Executes it once, and returns its number of units.
    async fn once(&mut self) -> Result<u64, String>;
}

/// Runs all clients for `length`, or as `pace` defines, each in a separate task, as the HTTP
/// clients do.
pub(super) async fn drive<O: Operation + 'static>(
    operations: Vec<O>,
    length: Duration,
    pace: Pace,
) -> Result<Slice, BenchError> {
    let pacing = Pacing::start(pace, Some(length), operations.len())?;
    let mut clients = tokio::task::JoinSet::new();
    for operation in operations {
        clients.spawn_local(run(operation, pacing.turns()));
    }
    let mut whole = Slice::new();
    while let Some(joined) = clients.join_next().await {
        match joined {
            Ok(slice) => whole.merge(slice),
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }
    whole.seconds = pacing.seconds();
    if let Some((open, waits)) = pacing.end() {
        whole.take_unsent(open, waits);
    }
    Ok(whole)
}

async fn run(mut operation: impl Operation, mut turns: Turns) -> Slice {
    let mut slice = Slice::new();
    let mut failures_in_a_row = 0;
    while failures_in_a_row < FAILURES_IN_A_ROW_MAX
        && let Some(turn) = turns.next().await
    {
        let start = turn.start();
        match operation.once().await {
            Ok(units) => {
                failures_in_a_row = 0;
                slice.record(units, start.elapsed());
            }
            Err(error) => {
                failures_in_a_row += 1;
                slice.errors.add(1, || error);
            }
        }
    }
    slice
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fails(u32);

    impl Operation for Fails {
        async fn once(&mut self) -> Result<u64, String> {
            tokio::task::yield_now().await;
            self.0 += 1;
            match self.0 % 3 {
                0 => Err(format!("number {}", self.0)),
                _ => Ok(2),
            }
        }
    }

    async fn driven(length: Duration, pace: Pace) -> Slice {
        let local = tokio::task::LocalSet::new();
        let driving = drive(vec![Fails(0), Fails(0)], length, pace);
        local.run_until(driving).await.unwrap()
    }

    #[tokio::test]
    async fn operations_are_counted_and_so_are_those_that_fail() {
        let slice = driven(Duration::from_millis(200), Pace::default()).await;
        assert_eq!(slice.count, 2 * slice.latencies_us.len());
        assert!(slice.errors.count > 0 && slice.errors.first.as_deref() == Some("number 3"));
        assert!(slice.seconds >= 0.2);
    }

    #[tokio::test]
    async fn each_client_does_as_many_as_were_asked_for_at_a_rate_or_without_one() {
        let for_ever = Duration::from_secs(86_400);
        let pace = |rate| Pace {
            rate,
            requests: Some(7),
            ..Pace::default()
        };
        let slice = driven(for_ever, pace(None)).await;
        assert_eq!((slice.count, slice.errors.count), (20, 4));
        let slice = driven(for_ever, pace(Some(2_000.0))).await;
        assert_eq!(slice.open.unwrap().due, 14);
        // Requests that are not sent on a busy machine have waited.
        assert_eq!(slice.latencies_us.len() + slice.errors.count, 14);
    }
}
