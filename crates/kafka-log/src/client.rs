//! Clients that read, and librdkafka's own output: its log lines and statistics.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use serde::Deserialize;

use crate::names::Place;
use crate::options::{OpenError, Options};

/// Keeps the last messages.
#[derive(Default)]
pub(crate) struct Context {
    trouble: Mutex<Option<String>>,
    epochs: Mutex<HashMap<String, HashMap<i32, i32>>>,
}

impl Context {
    /// Returns the last error.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    /// Returns the leader's epoch in this client's fetches of a partition, according to the last
    /// statistics. It never decreases while the topic is the same one.
    pub fn epoch(&self, place: &Place) -> Option<i32> {
        let epochs = self.epochs.lock();
        let epoch = *epochs.get(&*place.topic)?.get(&place.partition)?;
        (epoch >= 0).then_some(epoch)
    }
}

/// The part of librdkafka's statistics that is used.
#[derive(Deserialize)]
struct Figures {
    #[serde(default)]
    topics: HashMap<String, TopicFigures>,
}

#[derive(Deserialize)]
struct TopicFigures {
    #[serde(default)]
    partitions: HashMap<String, PartitionFigures>,
}

#[derive(Deserialize)]
struct PartitionFigures {
    partition: i32,
    #[serde(default = "unknown")]
    leader_epoch: i32,
}

fn unknown() -> i32 {
    -1
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        if matches!(level, RDKafkaLogLevel::Error) {
            *self.trouble.lock() = Some(message.to_owned());
        }
        // A broker that is away would fill the server's log.
        tracing::debug!(target: "kafka", "{fac}: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "kafka", "{error}: {reason}");
        *self.trouble.lock() = Some(reason.to_owned());
    }

    fn stats_raw(&self, statistics: &[u8]) {
        let figures: Figures = match serde_json::from_slice(statistics) {
            Ok(figures) => figures,
            Err(error) => return tracing::warn!(target: "kafka", "figures: {error}"),
        };
        let epochs = figures.topics.into_iter().map(|(name, topic)| {
            let of = topic.partitions.into_values();
            (name, of.map(|p| (p.partition, p.leader_epoch)).collect())
        });
        *self.epochs.lock() = epochs.collect();
    }
}

impl ConsumerContext for Context {}

/// A client that reads.
pub(crate) type Reader = BaseConsumer<Context>;

/// Processes the events of a client, without waiting.
pub(crate) fn listen(reader: &Reader) {
    while reader.poll(std::time::Duration::ZERO).is_some() {}
}

/// Returns a client's last error message, or this one.
pub(crate) fn trouble(reader: &Reader, error: &KafkaError) -> String {
    listen(reader);
    let said = reader.client().context().trouble();
    said.unwrap_or_else(|| error.to_string())
}

/// Creates a client that reads. It does not use consumer groups: no group, no commits, and only
/// requested offsets.
pub(crate) fn reader(options: &Options, figures: bool) -> Result<Arc<Reader>, OpenError> {
    let mut config = options.common();
    config
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        .set("enable.partition.eof", "true")
        .set("check.crcs", "true")
        .set("isolation.level", "read_uncommitted")
        // A partition that is started, or has room again, waits for the fetch that is under way: so
        // this is short.
        .set("fetch.wait.max.ms", "100")
        .set("fetch.min.bytes", "1")
        .set("fetch.queue.backoff.ms", "5")
        .set("fetch.error.backoff.ms", "100")
        .set("fetch.message.max.bytes", "1048576")
        .set("fetch.max.bytes", "16777216")
        // For each partition's own queue.
        .set("queued.min.messages", "10000")
        .set("queued.max.messages.kbytes", "512")
        .set("statistics.interval.ms", if figures { "100" } else { "0" });
    let made = Reader::from_config_and_context(&config, Context::default());
    made.map(Arc::new)
        .map_err(|e| OpenError::Property(e.to_string()))
}
