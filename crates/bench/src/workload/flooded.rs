//! Latency of a cheap request while more clients connect than the server can accept.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::sync::Barrier;

use super::read::repeat;
use super::saturated::{alone, on_thread, probe};
use super::{Outcome, Workload};
use crate::documents::Shape;
use crate::error::BenchError;
use crate::pace::Pace;
use crate::slice::{Check, ClosedLoop, Slice, connect};
use crate::system::{System, Watch, WorkloadPart};
use crate::target::Target;

/// Threads of the load for each processor: as with several programs that send, the server does not have a processor for itself.
const THREADS_A_PROCESSOR: usize = 4;

/// GETs of one document by clients on several threads, each request on a new connection, and
/// concurrently a client that reads the configuration in the same way, at first on the idle server.
///
/// One thread that sends is slower than a server, so that its requests wait in the client, where no
/// other client sees it.
pub(crate) struct Flooded {
    pub(crate) clients: usize,
}

pub(crate) struct FloodedState {
    document: Vec<u8>,
    config: Vec<u8>,
}

impl Workload for Flooded {
    type State = FloodedState;

    async fn prepare(&self, system: &System) -> Result<FloodedState, BenchError> {
        let document = format!("/{}/document", system.create("flooded").await?);
        let mut body = Vec::new();
        Shape::Bytes300.push_body(&mut body, 1);
        system.require("PUT", &document, Some(&body)).await?;
        Ok(FloodedState {
            document: system.target.request("GET", &document, None),
            config: system.target.request("GET", "/_node/_local/_config", None),
        })
    }

    async fn round(
        &self,
        system: &System,
        state: &mut FloodedState,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let target = Target::clone(&system.target);
        target.set_pace(Pace {
            new_connections: true,
            ..Pace::default()
        });
        let probe = || probe(target.clone(), vec![state.config.clone()], length);
        let idle = system.part("config_before_flood", "req", probe()).await?;
        let watch = Watch::start(&system.pids);
        let loading = load(&target, self.clients, length, &state.document);
        let (load, probed) = tokio::join!(loading, probe());
        Ok(vec![
            idle,
            watch.part("flooded_get", "req", load?),
            alone("config_flooded", probed?),
        ])
    }

    async fn finish(&self, _side: &System, _state: FloodedState) -> Result<Outcome, BenchError> {
        Ok(Outcome {
            notes: vec![format!(
                "flooded: {} clients on {} threads",
                self.clients,
                threads(self.clients)
            )],
            ..Outcome::default()
        })
    }
}

/// Number of threads for this number of clients.
fn threads(clients: usize) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (THREADS_A_PROCESSOR * processors).min(clients)
}

/// Runs the clients on their threads, which start to send at the same time.
async fn load(
    target: &Target,
    clients: usize,
    length: Duration,
    request: &[u8],
) -> Result<Slice, BenchError> {
    let threads = threads(clients);
    let all_connected = Arc::new(Barrier::new(threads));
    let running = (0..threads).map(|at| {
        let share = clients / threads + usize::from(at < clients % threads);
        let (target, request) = (target.clone(), request.to_vec());
        let all_connected = Arc::clone(&all_connected);
        on_thread("bench-load", async move || {
            let target = Rc::new(target);
            let connections = connect(&target, share).await;
            // One that could not connect must not keep the others.
            all_connected.wait().await;
            ClosedLoop::timed(&target, length, Check::Status)
                .run_on(connections?, repeat(request, 1))
                .await
        })
    });
    Ok(side_by_side(try_join_all(running).await?))
}

/// The sum of slices of the same time. The client's time is that of the busiest thread.
fn side_by_side(slices: Vec<Slice>) -> Slice {
    let mut whole = Slice::new();
    let clients = slices.iter().filter_map(|slice| slice.client);
    let busiest = clients.max_by(|a, b| a.cpu_seconds.total_cmp(&b.cpu_seconds));
    for slice in slices {
        whole.seconds = whole.seconds.max(slice.seconds);
        whole.merge(slice);
    }
    whole.client = busiest;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::ClientTime;

    #[test]
    fn threads_together_are_as_long_as_the_longest_and_as_busy_as_the_busiest() {
        let of = |seconds: f64, cpu_seconds: f64| {
            let mut slice = Slice::new();
            slice.record(1, Duration::from_millis(1));
            slice.seconds = seconds;
            slice.client = Some(ClientTime {
                cpu_seconds,
                waited_seconds: 0.0,
            });
            slice
        };
        let whole = side_by_side(vec![of(2.0, 0.5), of(2.5, 0.9), of(1.0, 0.1)]);
        assert_eq!((whole.count, whole.seconds), (3, 2.5));
        assert_eq!(whole.client.map(|client| client.cpu_seconds), Some(0.9));
    }

    #[test]
    fn there_are_no_more_threads_than_clients() {
        assert_eq!([1, 2].map(threads), [1, 2]);
        assert!(threads(1_000) >= THREADS_A_PROCESSOR);
    }
}
