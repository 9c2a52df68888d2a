//! Clients that continue while their server is down.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::ledger::Ledger;
use super::process::Process;
use super::timeline::Timeline;
use crate::error::BenchError;
use crate::slice::Slice;
use crate::target::Target;
use crate::workload::Caller;

pub(super) const WRITERS: usize = 8;
pub(super) const READERS: usize = 8;
const DATABASE: &str = "settee-bench-faults";
/// How soon a client that got no answer tries again.
const RETRY: Duration = Duration::from_millis(5);

/// Writers and readers at work.
pub(super) struct Load {
    stop: Rc<Cell<bool>>,
    shared: Rc<RefCell<Shared>>,
    clients: tokio::task::JoinSet<Ledger>,
    start: Instant,
}

struct Shared {
    slice: Slice,
    first_error: Option<String>,
}

struct Client {
    caller: Caller,
    timeline: Timeline,
    stop: Rc<Cell<bool>>,
    shared: Rc<RefCell<Shared>>,
    number: usize,
}

impl Load {
    /// Makes a database and starts all clients.
    pub(super) async fn start(process: &Process, timeline: &Timeline) -> Result<Self, BenchError> {
        let target = process.target();
        Caller::new(target)
            .require("PUT", &format!("/{DATABASE}"), None)
            .await?;
        let mut load = Self {
            stop: Rc::default(),
            shared: Rc::new(RefCell::new(Shared {
                slice: Slice::new(),
                first_error: None,
            })),
            clients: tokio::task::JoinSet::new(),
            start: Instant::now(),
        };
        for number in 0..WRITERS + READERS {
            let client = load.client(target, timeline, number);
            if number < WRITERS {
                load.clients.spawn_local(client.write());
            } else {
                load.clients.spawn_local(client.read());
            }
        }
        Ok(load)
    }

    fn client(&self, target: &Rc<Target>, timeline: &Timeline, number: usize) -> Client {
        Client {
            caller: Caller::new(target),
            timeline: timeline.clone(),
            stop: Rc::clone(&self.stop),
            shared: Rc::clone(&self.shared),
            number,
        }
    }

    pub(super) fn first_error(&self) -> Option<String> {
        self.shared.borrow().first_error.clone()
    }

    /// Ends all clients. Returns the acknowledged writes, and the measurement: time in which the
    /// server was down counts, errors do not.
    pub(super) async fn stop(mut self) -> (Ledger, Slice) {
        self.stop.set(true);
        let mut ledger = Ledger::of(DATABASE);
        while let Some(joined) = self.clients.join_next().await {
            match joined {
                Ok(own) => ledger.merge(own),
                Err(failed) => std::panic::resume_unwind(failed.into_panic()),
            }
        }
        let mut slice = self.shared.borrow().slice.clone();
        slice.seconds = self.start.elapsed().as_secs_f64();
        (ledger, slice)
    }
}

impl Client {
    /// Alternates between inserting documents, and counting up the client's own document.
    async fn write(mut self) -> Ledger {
        let mut ledger = Ledger::of(DATABASE);
        let counter = format!("counter-{}", self.number);
        // Unknown after a request without an answer: it may have been carried out.
        let mut known: Option<(Option<String>, u64)> = Some((None, 0));
        for turn in 0_u64.. {
            if self.stop.get() {
                break;
            }
            if turn % 2 == 0 {
                let id = format!("{}-{turn:010}", self.number);
                let body = format!(r#"{{"n":{turn}}}"#);
                if self.put(&id, &body).await.is_some() {
                    ledger.insert(id);
                }
                continue;
            }
            let Some((rev, count)) = known.take() else {
                known = self.find(&counter).await;
                if let Some((_, count)) = &known {
                    ledger.see(&counter, *count);
                }
                continue;
            };
            let count = count + 1;
            let rev_member = rev.map_or(String::new(), |rev| format!(r#""_rev":"{rev}","#));
            let body = format!(r#"{{{rev_member}"count":{count}}}"#);
            if let Some(rev) = self.put(&counter, &body).await {
                ledger.count(&counter, count);
                known = Some((Some(rev), count));
            }
        }
        ledger
    }

    /// Reads documents that the first writers have inserted, also those that are missing.
    async fn read(mut self) -> Ledger {
        let mut rng = fastrand::Rng::new();
        while !self.stop.get() {
            let (writer, turn) = (rng.usize(..WRITERS), 2 * rng.u64(..50));
            let path = format!("/{DATABASE}/{writer}-{turn:010}");
            self.call("GET", &path, None, &[200, 404]).await;
        }
        Ledger::of(DATABASE)
    }

    /// The revision, when the write was acknowledged.
    async fn put(&mut self, id: &str, body: &str) -> Option<String> {
        let path = format!("/{DATABASE}/{id}");
        self.call("PUT", &path, Some(body.as_bytes()), &[201])
            .await?;
        let reply: Value = serde_json::from_slice(&self.caller.reply).ok()?;
        reply["rev"].as_str().map(str::to_owned)
    }

    /// The current value of a counter; `None` without a response.
    async fn find(&mut self, id: &str) -> Option<(Option<String>, u64)> {
        let path = format!("/{DATABASE}/{id}");
        match self.call("GET", &path, None, &[200, 404]).await? {
            404 => Some((None, 0)),
            _ => {
                let doc: Value = serde_json::from_slice(&self.caller.reply).ok()?;
                Some((
                    Some(doc["_rev"].as_str()?.to_owned()),
                    doc["count"].as_u64()?,
                ))
            }
        }
    }

    /// The status, when it is one of those expected. Otherwise nothing, after a moment.
    async fn call(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
        expected: &[u16],
    ) -> Option<u16> {
        let (began, start) = (self.timeline.now(), Instant::now());
        let answered = self.caller.send(method, path, body).await;
        let problem = match answered {
            Ok(status) if expected.contains(&status) => {
                self.timeline.note(began);
                let mut shared = self.shared.borrow_mut();
                shared.slice.record(1, start.elapsed());
                return Some(status);
            }
            Ok(status) => self.caller.refused(method, path, status),
            Err(error) => error,
        };
        let problem = problem.to_string();
        self.shared.borrow_mut().first_error.get_or_insert(problem);
        tokio::time::sleep(RETRY).await;
        None
    }
}
