//! A log on real brokers that do nothing unusual.

use crate::common;

use std::time::{Duration, Instant};

use cluster::log::{AppendError, RawReadBackResult, Tail};
use cluster::record::BYTES_MAX;
use cluster::{CONTROL, Log};
use common::{append, brokers, control_later, make, next, options, record};
use kafka_log::{KafkaLog, OpenError, TopicOptions, check_topics, create_topics, log_numbers};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;

#[tokio::test(flavor = "multi_thread")]
async fn records_come_in_the_order_of_their_appends() {
    let Some(brokers) = brokers() else { return };
    let log = make(&options(&brokers, 4)).await;
    let mut tail = log.follow(2, 0);
    // All at the same time: their order is that of the calls.
    let appends: Vec<_> = (0..500u32)
        .map(|n| log.append(2, n.to_be_bytes().to_vec()))
        .collect();
    for (n, append) in appends.into_iter().enumerate() {
        assert_eq!(append.await, Ok(n as u64));
    }
    for n in 0..500u32 {
        let record = record(&mut tail).await;
        assert_eq!((record.log, record.offset), (1, u64::from(n)));
        assert_eq!(record.bytes, n.to_be_bytes());
        assert!(record.epoch >= 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_control_slot_is_a_topic_of_its_own() {
    let Some(brokers) = brokers() else { return };
    let log = make(&options(&brokers, 2)).await;
    assert_eq!(append(&log, CONTROL, b"members").await, 0);
    assert_eq!(append(&log, 0, b"edits").await, 0);
    assert_eq!(record(&mut log.follow(CONTROL, 0)).await.bytes, b"members");
    let found = log.read_back(CONTROL, 0, 0).await.unwrap();
    assert!(matches!(found, RawReadBackResult::Record(r) if r.bytes == b"members"));
    assert!(matches!(
        log.append(2, vec![]).await,
        Err(AppendError::Refused(_))
    ));
    assert_eq!(log.follow(2, 0).recv().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_is_said_when_it_is_reached_and_while_it_stays() {
    let Some(brokers) = brokers() else { return };
    let log = make(&options(&brokers, 1)).await;
    let mut tail = log.follow(0, 0);
    for _ in 0..3 {
        assert_eq!(next(&mut tail).await, Tail::NoRecord { start: 0, end: 0 });
    }
    append(&log, 0, b"a").await;
    assert_eq!(record(&mut tail).await.offset, 0);
    for _ in 0..3 {
        assert_eq!(next(&mut tail).await, Tail::NoRecord { start: 0, end: 1 });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_outside_of_the_log_are_said_to_be() {
    let Some(brokers) = brokers() else { return };
    let options = options(&brokers, 1);
    let log = make(&options).await;
    for n in 0..10u8 {
        append(&log, 0, &[n]).await;
    }
    let mut tail = log.follow(0, 1000);
    for _ in 0..3 {
        assert_eq!(next(&mut tail).await, Tail::NoRecord { start: 0, end: 10 });
    }
    control_later(format!(
        "truncate_topic settee.{}.1.slots 0 4",
        options.cluster
    ))
    .await;
    let mut tail = log.follow(0, 2);
    assert_eq!(next(&mut tail).await, Tail::NoRecord { start: 4, end: 10 });
    let mut tail = log.follow(0, 4);
    assert_eq!(record(&mut tail).await.offset, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_is_followed_again_from_an_earlier_offset() {
    let Some(brokers) = brokers() else { return };
    let log = make(&options(&brokers, 1)).await;
    for n in 0..100u8 {
        append(&log, 0, &[n]).await;
    }
    let mut tail = log.follow(0, 0);
    record(&mut tail).await;
    for from in [60, 10, 99, 0] {
        tail = log.follow(0, from);
        for offset in from..100 {
            assert_eq!(record(&mut tail).await.offset, offset);
        }
    }
    // The older one ends, though it was not dropped.
    let mut newer = log.follow(0, 5);
    while let Some(other) = tail.recv().await {
        assert!(matches!(other, Tail::NoRecord { .. }));
    }
    assert_eq!(record(&mut newer).await.offset, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_record_fits() {
    let Some(brokers) = brokers() else { return };
    let log = make(&options(&brokers, 1)).await;
    // Not to be compressed.
    let mut state = 1u64;
    let bytes: Vec<u8> = (0..BYTES_MAX)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    let appends: Vec<_> = (0..20).map(|_| log.append(0, bytes.clone())).collect();
    for append in appends {
        append.await.unwrap();
    }
    let mut tail = log.follow(0, 0);
    for offset in 0..20 {
        let record = record(&mut tail).await;
        assert_eq!(record.offset, offset);
        assert!(record.bytes == bytes);
    }
    let large = log.append(0, vec![0; 2 << 20]).await;
    assert!(matches!(large, Err(AppendError::Refused(_))), "{large:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_receiver_holds_up_no_other_slot() {
    let Some(brokers) = brokers() else { return };
    let log = make(&options(&brokers, 2)).await;
    let mut slow = log.follow(0, 0);
    let mut quick = log.follow(1, 0);
    let appends: Vec<_> = (0..300).map(|_| log.append(0, vec![7; 64 << 10])).collect();
    for append in appends {
        append.await.unwrap();
    }
    let mut slowest = Duration::ZERO;
    for n in 0..50 {
        let began = Instant::now();
        append(&log, 1, b"quick").await;
        assert_eq!(record(&mut quick).await.offset, n);
        slowest = slowest.max(began.elapsed());
    }
    println!("beside a receiver that takes nothing: at most {slowest:?}");
    for offset in 0..300 {
        assert_eq!(record(&mut slow).await.offset, offset);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_read_back_or_said_not_to_be_there() {
    let Some(brokers) = brokers() else { return };
    let options = options(&brokers, 2);
    let log = make(&options).await;
    for n in 0..10u8 {
        append(&log, 1, &[n]).await;
    }
    let began = Instant::now();
    let found = log.read_back(1, 7, 0).await.unwrap();
    println!(
        "the first record that is read back takes {:?}",
        began.elapsed()
    );
    assert!(matches!(found, RawReadBackResult::Record(r) if r.bytes == [7] && r.offset == 7));
    let began = Instant::now();
    log.read_back(1, 8, 0).await.unwrap();
    println!("the second takes {:?}", began.elapsed());
    assert_eq!(
        log.read_back(1, 10, 0).await,
        Ok(RawReadBackResult::BeyondEnd)
    );
    assert_eq!(
        log.read_back(1, 1000, 0).await,
        Ok(RawReadBackResult::BeyondEnd)
    );
    control_later(format!(
        "truncate_topic settee.{}.1.slots 1 5",
        options.cluster
    ))
    .await;
    assert_eq!(log.read_back(1, 4, 0).await, Ok(RawReadBackResult::Trimmed));
    let found = log.read_back(1, 5, 0).await.unwrap();
    assert!(matches!(found, RawReadBackResult::Record(r) if r.bytes == [5]));
    // No leader is of that epoch yet.
    let later = log.read_back(1, 5, 1000).await;
    assert!(
        later.as_ref().is_err_and(|e| e.0.contains("epoch")),
        "{later:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_are_not_there_are_named() {
    let began = Instant::now();
    let error = KafkaLog::open(options("127.0.0.1:9,127.0.0.1:11", 4))
        .await
        .err()
        .unwrap();
    println!("{error} (after {:?})", began.elapsed());
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("127.0.0.1:9,127.0.0.1:11"));
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_gone_is_said_to_be() {
    let Some(brokers) = brokers() else { return };
    let mut options = options(&brokers, 2);
    options.log = 3;
    let log = make(&options).await;
    append(&log, 0, b"a").await;
    let mut other = options.clone();
    other.log = 12;
    assert_eq!(
        create_topics(&other, TopicOptions::default()).await,
        Ok(true)
    );
    assert_eq!(
        create_topics(&other, TopicOptions::default()).await,
        Ok(false)
    );
    assert_eq!(log_numbers(&options).await, Ok(vec![3, 12]));
    other.log = 4;
    let error = check_topics(&other).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("logs of this cluster in Kafka: 3, 12"),
        "{error}"
    );
    let topic = format!("settee.{}.3.slots", options.cluster);
    control_later(format!("delete_topic {topic}")).await;
    assert_eq!(log_numbers(&options).await, Ok(vec![12]));
    let error = KafkaLog::open(options).await.err().unwrap();
    assert!(matches!(error, OpenError::NoLog { .. }), "{error}");
    println!("{error}");
    let lost = log.append(0, b"b".to_vec()).await;
    assert!(lost.is_err(), "{lost:?}");
    println!("{}", lost.unwrap_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_does_not_fit_is_refused_with_what_is_wrong() {
    let Some(brokers) = brokers() else { return };
    for (setting, value, partitions) in [
        ("retention.ms", "1000", 4),
        ("unclean.leader.election.enable", "true", 4),
        ("cleanup.policy", "compact", 4),
        ("max.message.bytes", "1000", 4),
        ("compression.type", "gzip", 4),
        ("retention.ms", "-1", 3),
    ] {
        let options = options(&brokers, 4);
        let name = format!("settee.{}.1.slots", options.cluster);
        let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
            .set("bootstrap.servers", &brokers)
            .create()
            .unwrap();
        let topic =
            NewTopic::new(&name, partitions, TopicReplication::Fixed(1)).set(setting, value);
        let made = admin
            .create_topics(&[topic], &AdminOptions::new())
            .await
            .unwrap();
        assert!(made[0].is_ok(), "{made:?}");
        create_topics(&options, TopicOptions::default())
            .await
            .unwrap();
        let error = KafkaLog::open(options).await.err().unwrap();
        println!("{error}");
        assert!(
            matches!(&error, OpenError::Unfit { setting: s, .. } if s == setting || partitions == 3)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn how_long_it_takes() {
    let Some(brokers) = brokers() else { return };
    let log = make(&options(&brokers, 16)).await;
    let mut tails: Vec<_> = (0..16).map(|slot| log.follow(slot, 0)).collect();
    let (mut appended, mut delivered) = (vec![], vec![]);
    for n in 0..2100 {
        let slot = n % 16;
        let began = Instant::now();
        let append = log.append(slot, vec![1; 1000]);
        let append = async { (append.await.unwrap(), began.elapsed()) };
        let arrive = async { (record(&mut tails[usize::from(slot)]).await, began.elapsed()) };
        let ((offset, to_append), (record, to_deliver)) = tokio::join!(append, arrive);
        assert_eq!(record.offset, offset);
        if n >= 100 {
            appended.push(to_append);
            delivered.push(to_deliver);
        }
    }
    for (what, mut times) in [("acknowledged", appended), ("delivered", delivered)] {
        times.sort_unstable();
        let at = |part: usize| times[times.len() * part / 100];
        println!("append to {what}: p50 {:?}, p99 {:?}", at(50), at(99));
    }
}
