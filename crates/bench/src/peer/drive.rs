//! Clients of a peer that each carry out one operation after the other.

use std::time::{Duration, Instant};

use crate::slice::Slice;

/// A client whose operations fail so often in a row gives up.
const FAILURES_IN_A_ROW_MAX: u32 = 100;

/// One client's operation, again and again.
pub(super) trait Operation {
    /// Carries it out, and says how many units it was.
    async fn once(&mut self) -> Result<u64, String>;
}

/// Lets all clients run for `length`, each in a task of its own, as the HTTP clients do.
pub(super) async fn drive<O: Operation + 'static>(operations: Vec<O>, length: Duration) -> Slice {
    let start = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for operation in operations {
        clients.spawn_local(run(operation, start + length));
    }
    let mut whole = Slice::new();
    while let Some(joined) = clients.join_next().await {
        match joined {
            Ok(slice) => whole.merge(slice),
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }
    whole.seconds = start.elapsed().as_secs_f64();
    whole
}

async fn run(mut operation: impl Operation, deadline: Instant) -> Slice {
    let mut slice = Slice::new();
    let mut failures_in_a_row = 0;
    while failures_in_a_row < FAILURES_IN_A_ROW_MAX {
        let start = Instant::now();
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
        if Instant::now() >= deadline {
            break;
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

    #[tokio::test]
    async fn operations_are_counted_and_so_are_those_that_fail() {
        let local = tokio::task::LocalSet::new();
        let driving = drive(vec![Fails(0), Fails(0)], Duration::from_millis(5));
        let slice = local.run_until(driving).await;
        assert_eq!(slice.count, 2 * slice.latencies_us.len());
        assert!(slice.errors.count > 0 && slice.errors.first.as_deref() == Some("number 3"));
        assert!(slice.seconds >= 0.005);
    }
}
