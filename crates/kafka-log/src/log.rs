//! The log.

use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::log::{AppendError, LogError, RawReadBackResult, Tail};
use cluster::{BoxFuture, Log, SlotNumber};
use rdkafka::consumer::Consumer;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::bounds::BoundsOf;
use crate::client::{self, Reader, listen};
use crate::names::Names;
use crate::options::{OpenError, Options};
use crate::producer::Producer;
use crate::raw::Topic;
use crate::read_back::{ReadBack, ReadRequest};
use crate::tail::{Follower, Slot, Source};
use crate::topics;

/// Time limit of the question whether a broker answers.
const REACH_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval of checks for a client's messages.
const LISTEN: Duration = Duration::from_millis(500);

/// A log in Kafka. It has three clients: one writes, one follows all slots, and one, created on
/// demand, reads records again.
pub struct KafkaLog {
    names: Names,
    log: u64,
    runtime: Handle,
    producer: Producer,
    topics: Topics,
    slots: Vec<Arc<Slot>>,
    bounds: BoundsOf,
    read_back: Arc<ReadBack>,
    reader: Weak<Reader>,
}

/// The topics of the following client.
struct Topics {
    slots: Arc<Topic>,
    control: Arc<Topic>,
}

impl KafkaLog {
    /// Opens an existing log, on tokio's runtime.
    ///
    /// # Errors
    /// [`OpenError`]: after ten seconds when no broker answers; when the topics are missing, or have unsuitable settings.
    pub async fn open(options: Options) -> Result<KafkaLog, OpenError> {
        topics::check_topics(&options).await?;
        KafkaLog::open_unchecked(options).await
    }

    /// Opens a log that was checked, or that is gone, without checks: it delivers nothing until it
    /// exists.
    ///
    /// # Errors
    /// [`OpenError`], for invalid settings.
    pub async fn open_unchecked(options: Options) -> Result<KafkaLog, OpenError> {
        let runtime = Handle::current();
        let made = tokio::task::spawn_blocking(move || KafkaLog::connect(options, runtime));
        made.await.map_err(|e| OpenError::Refused(e.to_string()))?
    }

    fn connect(options: Options, runtime: Handle) -> Result<KafkaLog, OpenError> {
        let names = Names::new(&options.cluster, options.log, options.slots);
        let reader = client::reader(&options, false)?;
        let topic = |name: &str| {
            Topic::new(&reader, name).ok_or_else(|| OpenError::Name(options.cluster.clone()))
        };
        let topics = Topics {
            slots: topic(&names.slots)?,
            control: topic(&names.control)?,
        };
        let producer = Producer::new(&options)?;
        let weak = Arc::downgrade(&reader);
        runtime.spawn(listen_on(weak.clone()));
        let bounds = BoundsOf::start(reader, &runtime);
        Ok(KafkaLog {
            slots: (0..names.count()).map(|_| Arc::new(Slot::new())).collect(),
            log: options.log,
            read_back: Arc::new(ReadBack::new(options, names.clone(), bounds.clone())),
            runtime,
            producer,
            topics,
            bounds,
            names,
            reader: weak,
        })
    }
}

/// Takes a client's log lines, which pile up otherwise.
async fn listen_on(reader: Weak<Reader>) {
    while let Some(reader) = reader.upgrade() {
        listen(&reader);
        drop(reader);
        tokio::time::sleep(LISTEN).await;
    }
}

impl Log for KafkaLog {
    fn append(
        &self,
        slot: SlotNumber,
        record: Vec<u8>,
    ) -> BoxFuture<'static, Result<u64, AppendError>> {
        match self.names.place(slot) {
            Some(place) => self.producer.append(&place, &record),
            None => {
                Box::pin(
                    async move { Err(AppendError::Refused(format!("there is no slot {slot}"))) },
                )
            }
        }
    }

    fn follow(&self, slot: SlotNumber, from: u64) -> mpsc::Receiver<Tail> {
        let (Some(place), Some(index)) = (self.names.place(slot), self.names.index(slot)) else {
            // Delivers nothing, which is known immediately.
            return mpsc::channel(1).1;
        };
        let topic = match slot {
            cluster::CONTROL => &self.topics.control,
            _ => &self.topics.slots,
        };
        let source = Source {
            topic: topic.clone(),
            place,
            log: self.log,
            bounds: self.bounds.clone(),
        };
        let (follower, receiver) = Follower::new(&self.slots[index], source, from);
        self.runtime.spawn(follower.run());
        receiver
    }

    fn read_back(
        &self,
        slot: SlotNumber,
        offset: u64,
        epoch: i32,
    ) -> BoxFuture<'static, Result<RawReadBackResult, LogError>> {
        let (Some(place), Some(index)) = (self.names.place(slot), self.names.index(slot)) else {
            return Box::pin(async move { Err(LogError(format!("there is no slot {slot}"))) });
        };
        let read_back = self.read_back.clone();
        let request = ReadRequest {
            place,
            index,
            offset,
            epoch,
        };
        Box::pin(async move { read_back.read(request).await })
    }

    fn is_reachable(&self) -> BoxFuture<'static, bool> {
        let (reader, control) = (self.reader.clone(), self.names.control.clone());
        let ask = move || {
            let answers = |reader: Arc<Reader>| {
                let answer = reader.fetch_metadata(Some(&control), REACH_TIMEOUT);
                answer.is_ok()
            };
            reader.upgrade().is_some_and(answers)
        };
        Box::pin(async move { tokio::task::spawn_blocking(ask).await.unwrap_or(false) })
    }
}
