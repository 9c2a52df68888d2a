//! Brokers for tests: those that `tests/suites/test_kafka_log.py` starts.

// Each test program uses some of it.
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cluster::log::{RawRecord, Tail};
use cluster::{Log, SlotNumber};
use kafka_log::{KafkaLog, Options, TopicOptions, create_topics};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use tokio::sync::mpsc::Receiver;

/// Longer than anything takes that does not hang.
pub const LONG: Duration = Duration::from_secs(60);

/// Returns the brokers; without them a test prints that and ends.
pub fn brokers() -> Option<String> {
    let brokers = std::env::var("SETTEE_TEST_BROKERS").ok();
    if brokers.is_none() {
        println!("skipped: SETTEE_TEST_BROKERS is not set");
    }
    brokers
}

/// Returns the number of brokers.
pub fn broker_count(brokers: &str) -> usize {
    brokers.split(',').count()
}

/// Makes scripts/brokers.py do something to a broker or a topic.
pub fn control(command: &str) {
    let address = std::env::var("SETTEE_TEST_CONTROL").expect("SETTEE_TEST_CONTROL is not set");
    let mut stream = TcpStream::connect(address).unwrap();
    writeln!(stream, "{command}").unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    assert_eq!(answer.trim(), "ok", "{command}");
}

/// Does so without blocking the runtime.
pub async fn control_later(command: String) {
    tokio::task::spawn_blocking(move || control(&command))
        .await
        .unwrap();
}

/// A log that no other test has.
pub fn options(brokers: &str, slots: SlotNumber) -> Options {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Options {
        brokers: brokers.to_owned(),
        cluster: format!("test-{}-{number}", now.as_nanos()),
        slots,
        log: 1,
        properties: BTreeMap::new(),
    }
}

/// Makes a log and opens it.
pub async fn make(options: &Options) -> KafkaLog {
    create_topics(options, TopicOptions::default())
        .await
        .unwrap();
    KafkaLog::open(options.clone()).await.unwrap()
}

/// Returns the next item; a hang is a failure.
pub async fn next(tail: &mut Receiver<Tail>) -> Tail {
    let next = tokio::time::timeout(LONG, tail.recv()).await;
    next.expect("nothing came")
        .expect("the log does not follow any more")
}

/// Returns the next record, skipping reports of the end.
pub async fn record(tail: &mut Receiver<Tail>) -> RawRecord {
    let began = std::time::Instant::now();
    loop {
        match next(tail).await {
            Tail::Record(record) => return record,
            other => assert!(began.elapsed() < LONG, "no record, but {other:?}"),
        }
    }
}

/// Appends until it is in the log; appends answered with an error may be in it too.
pub async fn append(log: &KafkaLog, slot: SlotNumber, bytes: &[u8]) -> u64 {
    let began = std::time::Instant::now();
    loop {
        match log.append(slot, bytes.to_vec()).await {
            Ok(offset) => return offset,
            Err(error) => assert!(began.elapsed() < LONG, "{error}"),
        }
    }
}

/// The number of the broker that leads a slot's partition.
pub async fn leader(options: &Options, slot: SlotNumber) -> i32 {
    let brokers = options.brokers.clone();
    let topic = format!("settee.{}.{}.slots", options.cluster, options.log);
    let ask = move || {
        let reader: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &brokers)
            .create()
            .unwrap();
        let metadata = reader.fetch_metadata(Some(&topic), LONG).unwrap();
        metadata.topics()[0].partitions()[usize::from(slot)].leader()
    };
    tokio::task::spawn_blocking(ask).await.unwrap()
}
