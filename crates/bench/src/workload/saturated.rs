//! Latency of cheap requests while the server has more connections than it can serve concurrently.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::LocalSet;

use super::read::repeat;
use super::{Outcome, Workload};
use crate::documents::Shape;
use crate::error::BenchError;
use crate::slice::{Check, ClosedLoop, Requests, Slice, connect};
use crate::system::{System, Watch, WorkloadPart};
use crate::target::Target;

/// GETs of one document from many connections, and concurrently one connection that reads the
/// configuration, which is in memory, and one for the sizes of all databases; both first on the
/// idle server.
pub(crate) struct Saturated {
    pub(crate) connections: usize,
    pub(crate) databases: u64,
}

pub(crate) struct SaturatedState {
    document: Vec<u8>,
    config: Vec<u8>,
    dbs_info: Vec<u8>,
}

impl Workload for Saturated {
    type State = SaturatedState;

    async fn prepare(&self, system: &System) -> Result<SaturatedState, BenchError> {
        let mut names = Vec::new();
        for number in 0..self.databases {
            names.push(system.create(&format!("saturated-{number}")).await?);
        }
        let document = format!("/{}/document", system.create("saturated").await?);
        let mut body = Vec::new();
        Shape::Bytes300.push_body(&mut body, 1);
        system.require("PUT", &document, Some(&body)).await?;
        Ok(SaturatedState {
            document: system.target.request("GET", &document, None),
            config: system.target.request("GET", "/_node/_local/_config", None),
            dbs_info: dbs_info_request(system, &names).await?,
        })
    }

    async fn round(
        &self,
        system: &System,
        state: &mut SaturatedState,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let target = &*system.target;
        let probe = |request: &Vec<u8>| probe(target.clone(), vec![request.clone()], length);
        let config_idle = system
            .part("config_idle", "req", probe(&state.config))
            .await?;
        let dbs_info_idle = system
            .part("dbs_info_idle", "req", probe(&state.dbs_info))
            .await?;
        let clients = connect(target, self.connections).await?;
        let loading = ClosedLoop::timed(&system.target, length * 2, Check::Status)
            .run_on(clients, repeat(state.document.clone(), 1));
        let probing = async {
            let config = probe(&state.config).await?;
            Ok::<_, BenchError>((config, probe(&state.dbs_info).await?))
        };
        let watch = Watch::start(&system.pids);
        let (load, probed) = tokio::join!(loading, probing);
        let (config, dbs_info) = probed?;
        Ok(vec![
            config_idle,
            dbs_info_idle,
            watch.part("saturated_get", "req", load?),
            alone("config_saturated", config),
            alone("dbs_info_saturated", dbs_info),
        ])
    }

    async fn finish(&self, _side: &System, _state: SaturatedState) -> Result<Outcome, BenchError> {
        Ok(Outcome {
            notes: vec![format!(
                "saturated: {} connections, {} databases in _dbs_info",
                self.connections,
                self.databases.min(DBS_INFO_LIMIT)
            )],
            ..Outcome::default()
        })
    }
}

const DBS_INFO_LIMIT: u64 = 100;

/// A server that has no GET of `_dbs_info` (CouchDB before 3.2) gets a POST with the databases'
/// names.
async fn dbs_info_request(system: &System, names: &[String]) -> Result<Vec<u8>, BenchError> {
    let path = format!("/_dbs_info?limit={DBS_INFO_LIMIT}");
    if system.call("GET", &path, None).await?.0 == 200 {
        return Ok(system.target.request("GET", &path, None));
    }
    let keys = serde_json::json!({ "keys": names[..names.len().min(DBS_INFO_LIMIT as usize)] });
    let body = keys.to_string();
    Ok(system
        .target
        .request("POST", "/_dbs_info", Some(body.as_bytes())))
}

/// The process's cost is in the line of the load.
pub(crate) fn alone(name: &'static str, slice: Slice) -> WorkloadPart {
    WorkloadPart {
        name,
        unit: "req",
        slice,
        cpu_seconds: None,
        peak_resident_bytes: None,
    }
}

/// Measures one connection from a separate thread, so that the latency does not include waits in
/// the busy load client. It alternates between the requests.
pub(super) async fn probe(
    target: Target,
    requests: Vec<Vec<u8>>,
    length: Duration,
) -> Result<Slice, BenchError> {
    let probing = async move || {
        ClosedLoop::timed(&Rc::new(target), length, Check::Status)
            .run(1, in_turns(requests))
            .await
    };
    on_thread("bench-probe", probing).await
}

/// Measures on a thread of its own.
pub(super) async fn on_thread<M>(name: &str, measuring: M) -> Result<Slice, BenchError>
where
    M: AsyncFnOnce() -> Result<Slice, BenchError> + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let result = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(BenchError::from)
                .and_then(|runtime| LocalSet::new().block_on(&runtime, measuring()));
            // The run may have been interrupted.
            let _ = sender.send(result);
        })?;
    receiver.await.unwrap_or_else(|_| {
        Err(BenchError::Options(
            "a thread of the load client has failed".to_owned(),
        ))
    })
}

fn in_turns(requests: Vec<Vec<u8>>) -> impl FnMut(usize) -> Requests {
    let requests = Rc::new(requests);
    move |_| {
        let requests = Rc::clone(&requests);
        let mut at = 0;
        Box::new(move |out: &mut Vec<u8>| {
            out.extend_from_slice(requests.get(at % requests.len().max(1))?);
            at += 1;
            Some(1)
        })
    }
}
