//! Kafka's settings that an operator may set, and those that are reserved.

use std::collections::BTreeMap;

use cluster::SlotNumber;
use rdkafka::ClientConfig;

use crate::names::is_cluster_name;

/// The location of the log.
#[derive(Clone, Debug)]
pub struct Options {
    /// Some of Kafka's brokers: `host:port,...`.
    pub brokers: String,
    /// The cluster's name, which is in the topics' names: letters, digits, `_` and `-`.
    pub cluster: String,
    /// Number of slots, without the control slot.
    pub slots: SlotNumber,
    /// The log's number: a log that was recreated after a loss has another.
    pub log: u64,
    /// Properties of librdkafka, such as `security.protocol` and `sasl.*`.
    pub properties: BTreeMap<String, String>,
}

/// Why the log cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The cluster's name does not fit into a topic's.
    #[error(
        "{0:?} cannot be a cluster's name: it has 1 to 100 letters, digits, underscores and hyphens"
    )]
    Name(String),
    /// No slots, or so high a number that one would be the control slot.
    #[error("the number of slots must be 1 to 65535")]
    Slots,
    /// A reserved property.
    #[error("the Kafka property {0} cannot be set: Settee's promises depend on its value")]
    Reserved(String),
    /// librdkafka does not take a property.
    #[error("invalid Kafka property: {0}")]
    Property(String),
    /// No broker answered.
    #[error("Kafka's brokers cannot be reached at {brokers}: {reason}")]
    Unreachable {
        /// The brokers that were tried.
        brokers: String,
        /// The last error.
        reason: String,
    },
    /// The log does not exist.
    #[error(
        "the log {log} of the cluster {cluster} does not exist: Kafka has no topic {topic}. Create it as described in the manual, or let `settee cluster reseed` create others; logs of this cluster in Kafka: {others}"
    )]
    NoLog {
        /// The cluster.
        cluster: String,
        /// The log's number.
        log: u64,
        /// The topic that is missing.
        topic: String,
        /// The numbers of existing logs, or "none".
        others: String,
    },
    /// A topic is not as it has to be.
    #[error(
        "the topic {topic} does not fit: {setting} is {found}, and must be {requirement}. {remedy}"
    )]
    Unfit {
        /// The topic.
        topic: String,
        /// The unsuitable setting.
        setting: String,
        /// Its value.
        found: String,
        /// The required value.
        requirement: String,
        /// The remedy.
        remedy: String,
    },
    /// Kafka refused a request.
    #[error("Kafka refuses: {0}")]
    Refused(String),
}

/// Properties that are set here, or that would weaken the log's guarantees, including aliases. An
/// entry that ends in a dot covers everything with that prefix.
const RESERVED: &[&str] = &[
    "acks",
    "allow.auto.create.topics",
    "api.version.",
    "auto.commit.",
    "auto.offset.reset",
    "batch.num.messages",
    "batch.size",
    "bootstrap.servers",
    "broker.version.fallback",
    "check.crcs",
    "client.rack",
    "compression.",
    "consume.callback.max.messages",
    "delivery.report.only.error",
    "delivery.timeout.ms",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "enable.partition.eof",
    "fetch.",
    "group.",
    "isolation.level",
    "linger.ms",
    "log.queue",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes",
    "message.",
    "metadata.broker.list",
    "metadata.max.age.ms",
    "offset.store.",
    "partitioner",
    "plugin.library.paths",
    "queue.buffering.",
    "queued.",
    "queuing.strategy",
    "receive.message.max.bytes",
    "request.required.acks",
    "request.timeout.ms",
    "retries",
    "retry.backoff.",
    "socket.timeout.ms",
    "statistics.interval.ms",
    "sticky.partitioning.linger.ms",
    "topic.metadata.",
    "transaction.timeout.ms",
    "transactional.id",
];

fn is_reserved(property: &str) -> bool {
    let hits = |name: &&str| match name.ends_with('.') {
        true => property.starts_with(*name),
        false => property == *name,
    };
    RESERVED.iter().any(hits)
}

impl Options {
    /// Finds invalid options without requests to Kafka.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        if !is_cluster_name(&self.cluster) {
            return Err(OpenError::Name(self.cluster.clone()));
        }
        if self.slots == 0 || self.slots == cluster::CONTROL {
            return Err(OpenError::Slots);
        }
        if let Some(name) = self.properties.keys().find(|name| is_reserved(name)) {
            return Err(OpenError::Reserved(name.clone()));
        }
        Ok(())
    }

    /// Returns the configuration that all clients share. A broker that is cut off or stopped is
    /// given up within seconds, and one that returns is found within a second.
    pub(crate) fn common(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        config
            .set("bootstrap.servers", &self.brokers)
            .set("allow.auto.create.topics", "false")
            .set("socket.timeout.ms", "6000")
            .set("topic.metadata.refresh.interval.ms", "5000")
            .set("topic.metadata.refresh.fast.interval.ms", "100")
            .set("topic.metadata.propagation.max.ms", "2000");
        for (name, value) in [
            ("client.id", "settee"),
            ("socket.nagle.disable", "true"),
            ("socket.connection.setup.timeout.ms", "4000"),
            ("reconnect.backoff.ms", "50"),
            ("reconnect.backoff.max.ms", "1000"),
        ] {
            if !self.properties.contains_key(name) {
                config.set(name, value);
            }
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(property: &str) -> Options {
        Options {
            brokers: "127.0.0.1:9".into(),
            cluster: "shop".into(),
            slots: 4,
            log: 1,
            properties: [(property.to_owned(), "1".to_owned())].into(),
        }
    }

    #[test]
    fn what_the_promises_depend_on_cannot_be_set() {
        for name in [
            "enable.idempotence",
            "acks",
            "isolation.level",
            "group.id",
            "client.rack",
            "compression.codec",
            "fetch.wait.max.ms",
        ] {
            assert_eq!(
                options(name).check(),
                Err(OpenError::Reserved(name.into())),
                "{name}"
            );
        }
    }

    #[test]
    fn how_brokers_are_spoken_to_can_be_set() {
        for name in [
            "security.protocol",
            "sasl.username",
            "ssl.ca.location",
            "client.id",
        ] {
            assert_eq!(options(name).check(), Ok(()), "{name}");
        }
    }

    #[test]
    fn the_control_slot_is_not_among_the_slots() {
        let with = |slots| Options {
            slots,
            ..options("client.id")
        };
        assert_eq!(with(0).check(), Err(OpenError::Slots));
        assert_eq!(with(u16::MAX).check(), Err(OpenError::Slots));
        assert_eq!(with(u16::MAX - 1).check(), Ok(()));
    }
}
