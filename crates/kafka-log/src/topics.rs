//! A log's topics: created, checked, and found.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::{Metadata, MetadataTopic};
use tokio::runtime::Handle;

use crate::client::{self, Context, Reader, trouble};
use crate::names::{Names, log_number};
use crate::options::{OpenError, Options};

/// For the first answer of any broker.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// For one question afterwards.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// Polling interval for topics that were just created.
const LOOK: Duration = Duration::from_millis(100);
/// Retention of records, in milliseconds: three days.
const RETENTION_MS: i64 = 72 * 60 * 60 * 1000;
/// A message may have this many bytes: the largest record, and what is around it. Kafka's default
/// is larger.
const MESSAGE_BYTES: i64 = 1_000_000;
/// With this many replicas, two have to have what is acknowledged.
const REPLICAS: i32 = 3;

/// Options of new topics.
#[derive(Clone, Copy, Debug, Default)]
pub struct TopicOptions {
    /// Replicas of each partition; by default 3, or the number of brokers if there are fewer.
    pub replicas: Option<u16>,
}

/// Creates a log's topics; existing ones stay as they are. Returns whether any was created.
///
/// # Errors
/// [`OpenError`]: when no broker answers, or Kafka refuses.
pub async fn create_topics(options: &Options, topics: TopicOptions) -> Result<bool, OpenError> {
    let work = move |kafka: &Kafka| kafka.create(topics);
    Kafka::with(options, work).await
}

/// Checks that a log's topics exist and have suitable settings.
///
/// # Errors
/// [`OpenError::NoLog`] when a topic is missing, [`OpenError::Unfit`] with an unsuitable setting;
/// when no broker answers.
pub async fn check_topics(options: &Options) -> Result<(), OpenError> {
    Kafka::with(options, Kafka::check).await
}

/// Returns the numbers of all logs of a cluster in Kafka, the newest last. The options' slots and
/// log number are ignored.
///
/// # Errors
/// [`OpenError`]: when no broker answers.
pub async fn log_numbers(options: &Options) -> Result<Vec<u64>, OpenError> {
    Kafka::with(options, Kafka::log_numbers).await
}

/// Returns whether a log's control topic has, or had, records.
///
/// # Errors
/// [`OpenError`]: when no broker answers, or there is no such topic.
pub async fn has_records(options: &Options) -> Result<bool, OpenError> {
    Kafka::with(options, Kafka::has_records).await
}

/// A connection for questions.
struct Kafka {
    reader: Arc<Reader>,
    options: Options,
    names: Names,
    runtime: Handle,
}

impl Kafka {
    async fn with<T: Send + 'static>(
        options: &Options,
        work: impl FnOnce(&Kafka) -> Result<T, OpenError> + Send + 'static,
    ) -> Result<T, OpenError> {
        options.check()?;
        let options = options.clone();
        let runtime = Handle::current();
        let all = move || {
            let kafka = Kafka {
                reader: client::reader(&options, false)?,
                names: Names::new(&options.cluster, options.log, options.slots),
                options,
                runtime,
            };
            work(&kafka)
        };
        let done = tokio::task::spawn_blocking(all).await;
        done.map_err(|e| OpenError::Refused(e.to_string()))?
    }

    /// Returns the metadata of all topics: this does not create a missing one.
    fn metadata(&self) -> Result<Metadata, OpenError> {
        let answer = self.reader.fetch_metadata(None, CONNECT_TIMEOUT);
        answer.map_err(|error| OpenError::Unreachable {
            brokers: self.options.brokers.clone(),
            reason: trouble(&self.reader, &error),
        })
    }

    fn log_numbers(&self) -> Result<Vec<u64>, OpenError> {
        Ok(numbers(&self.options.cluster, &self.metadata()?))
    }

    fn has_records(&self) -> Result<bool, OpenError> {
        let control = &self.names.control;
        let bounds = self.reader.fetch_watermarks(control, 0, ASK_TIMEOUT);
        bounds
            .map(|(_, end)| end > 0)
            .map_err(|error| self.unanswered(error))
    }

    fn admin(&self) -> Result<AdminClient<Context>, OpenError> {
        let config = self.options.common();
        AdminClient::from_config_and_context(&config, Context::default()).map_err(refused)
    }

    fn create(&self, topics: TopicOptions) -> Result<bool, OpenError> {
        let brokers = i32::try_from(self.metadata()?.brokers().len()).unwrap_or(REPLICAS);
        let replicas = topics.replicas.map_or(REPLICAS.min(brokers), i32::from);
        let in_sync = in_sync(replicas).to_string();
        let retention = RETENTION_MS.to_string();
        let new = |name, partitions: u16| {
            NewTopic::new(
                name,
                i32::from(partitions),
                TopicReplication::Fixed(replicas),
            )
            .set("min.insync.replicas", &in_sync)
            .set("unclean.leader.election.enable", "false")
            .set("cleanup.policy", "delete")
            .set("retention.ms", &retention)
            .set("retention.bytes", "-1")
        };
        let requirement = [
            new(&self.names.slots, self.options.slots),
            new(&self.names.control, 1),
        ];
        let admin = self.admin()?;
        let options = AdminOptions::new().operation_timeout(Some(ASK_TIMEOUT));
        let results = self
            .runtime
            .block_on(admin.create_topics(&requirement, &options))
            .map_err(refused)?;
        let mut made = false;
        for result in results {
            match result {
                Ok(_) => made = true,
                Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((name, code)) => {
                    return Err(OpenError::Refused(format!("the topic {name}: {code}")));
                }
            }
        }
        self.wait_until_made()?;
        Ok(made)
    }

    /// Waits, since brokers learn of a topic one after the other, and of its leaders later.
    fn wait_until_made(&self) -> Result<(), OpenError> {
        let began = Instant::now();
        loop {
            let metadata = self.metadata()?;
            let is_there = |name: &str| {
                let mut topics = metadata.topics().iter();
                let topic = topics.find(|topic| topic.name() == name);
                topic.is_some_and(|topic| {
                    let mut all = topic.partitions().iter();
                    !topic.partitions().is_empty()
                        && all.all(|p| p.error().is_none() && p.leader() >= 0)
                })
            };
            if is_there(&self.names.slots) && is_there(&self.names.control) {
                return Ok(());
            }
            if began.elapsed() > ASK_TIMEOUT {
                let slots = &self.names.slots;
                return Err(OpenError::Refused(format!(
                    "the topic {slots} does not get leaders"
                )));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn check(&self) -> Result<(), OpenError> {
        let metadata = self.metadata()?;
        for (name, partitions) in [
            (&self.names.slots, usize::from(self.options.slots)),
            (&self.names.control, 1),
        ] {
            let topic = metadata
                .topics()
                .iter()
                .find(|topic| topic.name() == &**name);
            let Some(topic) = topic.filter(|topic| !topic.partitions().is_empty()) else {
                return Err(self.no_log(name, &metadata));
            };
            let found = topic.partitions().len();
            if found != partitions {
                return Err(unfit(
                    name,
                    (
                        "the number of partitions",
                        found.to_string(),
                        partitions.to_string(),
                    ),
                    "Start with the number of slots that the log was made with; it cannot be changed.",
                ));
            }
            let replicas = topic.partitions().iter().map(|p| p.replicas().len()).min();
            self.check_settings(name, i32::try_from(replicas.unwrap_or(0)).unwrap_or(0))?;
        }
        Ok(())
    }

    fn no_log(&self, topic: &str, metadata: &Metadata) -> OpenError {
        let numbers = numbers(&self.options.cluster, metadata);
        let others: Vec<String> = numbers.iter().map(u64::to_string).collect();
        OpenError::NoLog {
            cluster: self.options.cluster.clone(),
            log: self.options.log,
            topic: topic.to_owned(),
            others: match others.is_empty() {
                true => "none".into(),
                false => others.join(", "),
            },
        }
    }

    /// Returns the error of a request to Kafka: one that was not answered in time may be answered later.
    fn unanswered(&self, error: KafkaError) -> OpenError {
        match error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::OperationTimedOut
                | RDKafkaErrorCode::RequestTimedOut
                | RDKafkaErrorCode::MessageTimedOut
                | RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::LeaderNotAvailable
                | RDKafkaErrorCode::NotLeaderForPartition,
            ) => OpenError::Unreachable {
                brokers: self.options.brokers.clone(),
                reason: trouble(&self.reader, &error),
            },
            _ => refused(error),
        }
    }

    fn check_settings(&self, name: &str, replicas: i32) -> Result<(), OpenError> {
        let admin = self.admin()?;
        let options = AdminOptions::new().request_timeout(Some(ASK_TIMEOUT));
        let asked = [ResourceSpecifier::Topic(name)];
        let answer = self
            .runtime
            .block_on(admin.describe_configs(&asked, &options));
        let mut answer = answer.map_err(|e| self.unanswered(e))?.into_iter();
        let code = |code| OpenError::Refused(format!("the settings of the topic {name}: {code}"));
        let resource = answer
            .next()
            .ok_or_else(|| code(RDKafkaErrorCode::Fail))?
            .map_err(code)?;
        for rule in rules(replicas) {
            rule.check(name, &resource)?;
        }
        Ok(())
    }
}

fn refused(error: KafkaError) -> OpenError {
    OpenError::Refused(error.to_string())
}

/// Returns the numbers of logs that have both topics: one is created after the other.
fn numbers(cluster: &str, metadata: &Metadata) -> Vec<u64> {
    let topics: HashSet<&str> = metadata.topics().iter().map(MetadataTopic::name).collect();
    let numbers = topics.iter().filter_map(|name| log_number(cluster, name));
    let is_whole = |log: &u64| topics.contains(&*Names::new(cluster, *log, 0).control);
    let mut found: Vec<u64> = numbers.filter(is_whole).collect();
    found.sort_unstable();
    found
}

fn in_sync(replicas: i32) -> i64 {
    if replicas >= REPLICAS { 2 } else { 1 }
}

fn unfit(
    topic: &str,
    (setting, found, requirement): (&str, String, String),
    remedy: &str,
) -> OpenError {
    OpenError::Unfit {
        topic: topic.to_owned(),
        setting: setting.to_owned(),
        found,
        requirement,
        remedy: remedy.to_owned(),
    }
}

/// The requirement for a setting.
enum Requirement {
    OneOf(&'static [&'static str]),
    AtLeast(i64),
    /// Or -1, no limit.
    AtLeastOrNone(i64),
}

/// The requirement for one setting of a topic.
struct Rule {
    setting: &'static str,
    requirement: Requirement,
}

fn rules(replicas: i32) -> [Rule; 7] {
    let rule = |setting, requirement| Rule {
        setting,
        requirement,
    };
    [
        rule(
            "min.insync.replicas",
            Requirement::AtLeast(in_sync(replicas)),
        ),
        rule(
            "unclean.leader.election.enable",
            Requirement::OneOf(&["false"]),
        ),
        rule("cleanup.policy", Requirement::OneOf(&["delete"])),
        rule("retention.ms", Requirement::AtLeastOrNone(RETENTION_MS)),
        rule("retention.bytes", Requirement::OneOf(&["-1"])),
        rule("max.message.bytes", Requirement::AtLeast(MESSAGE_BYTES)),
        // Others are not built in.
        rule(
            "compression.type",
            Requirement::OneOf(&["producer", "lz4", "uncompressed"]),
        ),
    ]
}

impl Rule {
    fn check(&self, topic: &str, resource: &ConfigResource) -> Result<(), OpenError> {
        let found = resource
            .get(self.setting)
            .and_then(|entry| entry.value.clone());
        let found = found.unwrap_or_else(|| "not set".into());
        let number: Option<i64> = found.parse().ok();
        let (fits, requirement, value) = match self.requirement {
            Requirement::OneOf(values) => (
                values.contains(&&*found),
                values.join(" or "),
                values[0].to_owned(),
            ),
            Requirement::AtLeast(least) => (
                number.is_some_and(|n| n >= least),
                format!("at least {least}"),
                least.to_string(),
            ),
            Requirement::AtLeastOrNone(least) => (
                number.is_some_and(|n| n >= least || n == -1),
                format!("at least {least}, or -1"),
                least.to_string(),
            ),
        };
        if fits {
            return Ok(());
        }
        let setting = self.setting;
        let remedy = format!(
            "Change it with: kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config {setting}={value}"
        );
        Err(unfit(topic, (setting, found, requirement), &remedy))
    }
}
