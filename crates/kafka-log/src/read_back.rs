//! Reads a record from a leader of a given epoch or a later one.
//!
//! A broker that was cut off may still consider itself the leader, and hold records that the log
//! has lost. So a response counts only with evidence of its sender, and librdkafka provides two
//! kinds:
//!
//! - **The end.** Kafka's answer about a partition's end contains the epoch of the leader that gave it (`bounds.rs`).
//! - **Records.** A fetch contains the leader's epoch that the client knows, and a broker answers it only when that is its own epoch,
//!   neither older nor newer (KIP-320). The client's epoch never decreases, as long as it knows the topic, and is one of librdkafka's
//!   statistics (`leader_epoch`). So first that statistic has to be the requested epoch, or later, and then the fetch is started.
//!   Earlier fetches are discarded: librdkafka numbers fetches.
//!
//! The epoch of a record alone is no evidence: an old leader has old records, and returns them. Nor
//! is librdkafka's metadata, which does not contain leaders' epochs. "Trimmed" needs three answers:
//! a fetch under that epoch that found no such offset, an end after the offset from a leader of
//! that epoch, and a start after it.
//!
//! It has a client of its own, created on demand: the statistics are not free, and a partition is
//! read at one place at a time within a client.

use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::log::{LogError, RawReadBackResult, RawRecord};
use rdkafka::consumer::Consumer;
use rdkafka::error::RDKafkaErrorCode;
use tokio::time::{Instant, sleep, timeout};

use crate::bounds::BoundsOf;
use crate::client::{self, Reader, listen};
use crate::names::{Names, Place};
use crate::options::Options;
use crate::raw::{Event, Reading, Topic};

/// For the whole of it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// For one fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval of checks for changes.
const LOOK: Duration = Duration::from_millis(20);
/// Between questions that were not answered well.
const AGAIN: Duration = Duration::from_millis(100);
/// Between questions who leads.
const REFRESH: Duration = Duration::from_millis(250);
/// How long the client is kept after its last use.
const KEEP: Duration = Duration::from_secs(5);

/// The client.
struct ReadBackClient {
    slots: Arc<Topic>,
    control: Arc<Topic>,
    reader: Arc<Reader>,
}

/// Reads records again.
pub(crate) struct ReadBack {
    options: Options,
    names: Names,
    bounds: BoundsOf,
    back: tokio::sync::Mutex<Weak<ReadBackClient>>,
    /// Each is held by the reader of the slot.
    reading: Vec<tokio::sync::Mutex<()>>,
}

/// A request to read a record again.
#[derive(Clone, Debug)]
pub(crate) struct ReadRequest {
    pub place: Place,
    /// The index of the slot.
    pub index: usize,
    pub offset: u64,
    pub epoch: i32,
}

/// The result of a fetch.
enum Fetched {
    Record(RawRecord),
    /// The leader's log has no such offset.
    OutOfRange,
    /// Nothing was learnt.
    Nothing(String),
}

impl ReadBack {
    pub fn new(options: Options, names: Names, bounds: BoundsOf) -> ReadBack {
        let reading = (0..names.count()).map(|_| tokio::sync::Mutex::new(()));
        ReadBack {
            reading: reading.collect(),
            options,
            names,
            bounds,
            back: tokio::sync::Mutex::new(Weak::new()),
        }
    }

    pub async fn read(&self, request: ReadRequest) -> Result<RawReadBackResult, LogError> {
        let _held = self.reading[request.index].lock().await;
        let mut last = String::from("nobody answered");
        let answer = timeout(ANSWER_TIMEOUT, self.read_on(&request, &mut last)).await;
        answer.unwrap_or_else(|_| {
            let ReadRequest { place, offset, epoch, .. } = request;
            Err(LogError(format!(
                "cannot read offset {offset} of {} [{}] from a leader of epoch {epoch} or later: {last}",
                place.topic, place.partition
            )))
        })
    }

    async fn read_on(
        &self,
        request: &ReadRequest,
        last: &mut String,
    ) -> Result<RawReadBackResult, LogError> {
        let back = self.back().await?;
        loop {
            let start = match self.bounds.get(&request.place).await {
                Some(bounds) if bounds.epoch < request.epoch => {
                    *last = format!("the leader that answers is of epoch {}", bounds.epoch);
                    refresh(&back.reader, &request.place).await;
                    sleep(AGAIN).await;
                    continue;
                }
                Some(bounds) if bounds.end <= request.offset => {
                    return Ok(RawReadBackResult::BeyondEnd);
                }
                Some(bounds) => bounds.start,
                None => {
                    "no leader answers".clone_into(last);
                    sleep(AGAIN).await;
                    continue;
                }
            };
            follow_leader(&back.reader, request, last).await;
            match self.fetch(&back, request).await {
                Fetched::Record(record) => return Ok(RawReadBackResult::Record(record)),
                Fetched::OutOfRange if start > request.offset => {
                    return Ok(RawReadBackResult::Trimmed);
                }
                Fetched::OutOfRange => "the log changes".clone_into(last),
                Fetched::Nothing(why) => *last = why,
            }
            sleep(AGAIN).await;
        }
    }

    async fn fetch(&self, back: &ReadBackClient, request: &ReadRequest) -> Fetched {
        let topic = match request.place.topic == self.names.control {
            true => &back.control,
            false => &back.slots,
        };
        let reading = match Reading::start(topic, request.place.partition, request.offset) {
            Ok(reading) => reading,
            Err(code) => return Fetched::Nothing(code.to_string()),
        };
        let first = timeout(FETCH_TIMEOUT, first(&reading)).await;
        // Dropping waits for librdkafka's threads.
        let _ = tokio::task::spawn_blocking(move || drop(reading)).await;
        match first {
            Ok(Event::Record {
                offset,
                epoch,
                bytes,
            }) if offset == request.offset => {
                let log = self.options.log;
                Fetched::Record(RawRecord {
                    log,
                    offset,
                    epoch,
                    bytes,
                })
            }
            Ok(Event::Record { offset, .. }) => {
                Fetched::Nothing(format!("the next record is at {offset}"))
            }
            // The leader may not know yet that its last records are acknowledged.
            Ok(Event::End { .. }) => Fetched::Nothing("the leader has just started".into()),
            Ok(Event::Failed(
                RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange,
            )) => Fetched::OutOfRange,
            Ok(Event::Failed(code)) => Fetched::Nothing(code.to_string()),
            Err(_) => Fetched::Nothing("no answer to a fetch".into()),
        }
    }

    /// Returns the client, which is dropped some seconds after its last use.
    async fn back(&self) -> Result<Arc<ReadBackClient>, LogError> {
        let mut shared = self.back.lock().await;
        if let Some(back) = shared.upgrade() {
            return Ok(back);
        }
        let (options, names) = (self.options.clone(), self.names.clone());
        let made = tokio::task::spawn_blocking(move || make(&options, &names)).await;
        let back = made.map_err(|e| LogError(e.to_string()))??;
        *shared = Arc::downgrade(&back);
        tokio::spawn(keep(back.clone()));
        Ok(back)
    }
}

fn make(options: &Options, names: &Names) -> Result<Arc<ReadBackClient>, LogError> {
    let reader = client::reader(options, true).map_err(|e| LogError(e.to_string()))?;
    let topic = |name| {
        Topic::new(&reader, name).ok_or_else(|| LogError(format!("{name} cannot be a topic")))
    };
    Ok(Arc::new(ReadBackClient {
        slots: topic(&names.slots)?,
        control: topic(&names.control)?,
        reader,
    }))
}

/// Takes statistics, so that they do not pile up, until the client has not been used for a while.
async fn keep(back: Arc<ReadBackClient>) {
    let mut used = Instant::now();
    while used.elapsed() < KEEP {
        listen(&back.reader);
        if Arc::strong_count(&back) > 1 {
            used = Instant::now();
        }
        sleep(AGAIN).await;
    }
    let _ = tokio::task::spawn_blocking(move || drop(back)).await;
}

async fn first(reading: &Reading) -> Event {
    loop {
        match reading.take() {
            Some(event) => return event,
            None => reading.ready().await,
        }
    }
}

/// Waits until fetches are for a leader of this epoch or a later one.
async fn follow_leader(reader: &Arc<Reader>, request: &ReadRequest, last: &mut String) {
    let mut asked = Instant::now();
    loop {
        listen(reader);
        let epoch = reader.client().context().epoch(&request.place);
        if epoch.is_some_and(|epoch| epoch >= request.epoch) {
            return;
        }
        *last = match epoch {
            Some(epoch) => format!("the leader that is known is of epoch {epoch}"),
            None => "no leader is known".into(),
        };
        if asked.elapsed() > REFRESH {
            refresh(reader, &request.place).await;
            asked = Instant::now();
        }
        sleep(LOOK).await;
    }
}

/// Requests the current leader.
async fn refresh(reader: &Arc<Reader>, place: &Place) {
    let (reader, topic) = (reader.clone(), place.topic.clone());
    let ask = move || {
        reader
            .fetch_metadata(Some(&topic), Duration::from_secs(1))
            .is_ok()
    };
    let _ = tokio::task::spawn_blocking(ask).await;
}
