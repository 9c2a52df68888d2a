//! A log whose brokers are killed, stopped, and lose records. One test at a time: they have the
//! same brokers.

use crate::common;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::Log;
use cluster::log::{RawReadBackResult, Tail};
use common::{
    LONG, append, broker_count, brokers, control_later, leader, make, next, options, record,
};
use kafka_log::KafkaLog;

/// Held by the test that runs.
static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_has_a_later_epoch_and_what_is_read_back_is_its_own() {
    let _one = ONE.lock().await;
    let Some(brokers) = brokers() else { return };
    let options = options(&brokers, 1);
    let log = make(&options).await;
    let mut tail = log.follow(0, 0);
    append(&log, 0, b"before").await;
    let before = record(&mut tail).await;
    let led = leader(&options, 0).await;
    control_later(format!("kill {led}")).await;
    if broker_count(&brokers) == 1 {
        control_later(format!("restart {led}")).await;
    }
    append(&log, 0, b"after").await;
    let mut after = record(&mut tail).await;
    while after.bytes != b"after" {
        after = record(&mut tail).await;
    }
    println!("epochs {} and {}", before.epoch, after.epoch);
    assert!(after.epoch > before.epoch);
    // As the new leader has it, the record is still the old leader's.
    let found = log.read_back(0, 0, after.epoch).await.unwrap();
    assert_eq!(found, RawReadBackResult::Record(before));
    let later = log.read_back(0, 0, after.epoch + 100).await;
    assert!(later.is_err(), "{later:?}");
    if broker_count(&brokers) > 1 {
        control_later(format!("restart {led}")).await;
    }
}

/// The appends of four appenders, each with one at a time, as they know them.
async fn load(log: Arc<KafkaLog>, until: Instant) -> Vec<(u64, Vec<u8>)> {
    let mut appenders = vec![];
    for who in 0..4u32 {
        let log = log.clone();
        appenders.push(tokio::spawn(async move {
            let mut known = vec![];
            for n in 0u32.. {
                if Instant::now() > until {
                    break;
                }
                let bytes = format!("{who} {n}").into_bytes();
                if let Ok(offset) = log.append(0, bytes.clone()).await {
                    known.push((offset, bytes));
                }
            }
            known
        }));
    }
    let mut all = vec![];
    for appender in appenders {
        let known = appender.await.unwrap();
        assert!(known.is_sorted(), "one after the other");
        all.extend(known);
    }
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_or_reordered_when_the_leader_dies_under_load() {
    let _one = ONE.lock().await;
    let Some(brokers) = brokers() else { return };
    let options = options(&brokers, 1);
    let log = Arc::new(make(&options).await);
    let mut tail = log.follow(0, 0);
    let until = Instant::now() + Duration::from_secs(20);
    let load = tokio::spawn(load(log.clone(), until));
    for fault in ["kill", "pause"] {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let led = leader(&options, 0).await;
        control_later(format!("{fault} {led}")).await;
        if broker_count(&brokers) > 1 {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        control_later(match fault {
            "kill" => format!("restart {led}"),
            _ => format!("resume {led}"),
        })
        .await;
    }
    let acknowledged = load.await.unwrap();
    let last = append(&log, 0, b"last").await;
    let mut read = vec![];
    let mut stalled = Duration::ZERO;
    while read.len() as u64 <= last {
        let began = Instant::now();
        let record = record(&mut tail).await;
        stalled = stalled.max(began.elapsed());
        assert_eq!(record.offset, read.len() as u64);
        read.push(record.bytes);
    }
    for (offset, bytes) in &acknowledged {
        assert_eq!(&read[usize::try_from(*offset).unwrap()], bytes);
    }
    let offsets: HashSet<u64> = acknowledged.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets.len(), acknowledged.len());
    let twice = read.len() - read.iter().collect::<HashSet<_>>().len();
    println!(
        "{} acknowledged of {} records, {twice} twice",
        acknowledged.len(),
        read.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_log_says_nothing_and_goes_on_when_it_is_back() {
    let _one = ONE.lock().await;
    let Some(brokers) = brokers() else { return };
    let log = make(&options(&brokers, 1)).await;
    let mut tail = log.follow(0, 0);
    append(&log, 0, b"a").await;
    record(&mut tail).await;
    let count = broker_count(&brokers);
    for broker in 1..=count {
        control_later(format!("pause {broker}")).await;
    }
    tokio::time::sleep(Duration::from_millis(2500)).await;
    while tail.try_recv().is_ok() {}
    let quiet = tokio::time::timeout(Duration::from_secs(4), tail.recv()).await;
    let began = Instant::now();
    let refused = log.append(0, b"b".to_vec()).await;
    println!(
        "an append to nobody: {refused:?} after {:?}",
        began.elapsed()
    );
    for broker in 1..=count {
        control_later(format!("resume {broker}")).await;
    }
    assert!(quiet.is_err(), "{quiet:?}");
    assert!(refused.is_err());
    assert!(began.elapsed() < LONG);
    append(&log, 0, b"c").await;
    while record(&mut tail).await.bytes != b"c" {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_lost_its_end_is_said_to_end_before() {
    let _one = ONE.lock().await;
    let Some(brokers) = brokers() else { return };
    if broker_count(&brokers) > 1 {
        return println!("skipped: others would give the records back");
    }
    let options = options(&brokers, 1);
    let log = make(&options).await;
    let mut tail = log.follow(0, 0);
    let mut records = vec![];
    for n in 0..20u8 {
        append(&log, 0, &[n; 100]).await;
        records.push(record(&mut tail).await);
    }
    control_later("kill 1".into()).await;
    control_later(format!("cut_tail settee.{}.1.slots 0 500", options.cluster)).await;
    control_later("restart 1".into()).await;
    let began = Instant::now();
    let end = loop {
        match next(&mut tail).await {
            Tail::NoRecord { end, .. } if end < 20 => break end,
            Tail::NoRecord { .. } | Tail::Trouble(_) => assert!(began.elapsed() < LONG),
            Tail::Record(record) => panic!("{record:?}"),
        }
    };
    println!(
        "it ends at {end} of 20, which is known after {:?}",
        began.elapsed()
    );
    assert!(end > 0);
    let epoch = records[19].epoch;
    assert_eq!(
        log.read_back(0, 19, epoch + 1).await,
        Ok(RawReadBackResult::BeyondEnd)
    );
    let kept = usize::try_from(end - 1).unwrap();
    let found = log.read_back(0, end - 1, epoch + 1).await;
    assert_eq!(found, Ok(RawReadBackResult::Record(records[kept].clone())));
    // Other records replace the lost ones: they have a later epoch.
    for _ in end..=20 {
        append(&log, 0, b"other").await;
    }
    let other = record(&mut tail).await;
    assert_eq!((other.offset, &*other.bytes), (20, b"other".as_slice()));
    assert!(other.epoch > epoch);
    let found = log.read_back(0, 19, other.epoch).await;
    assert!(matches!(found, Ok(RawReadBackResult::Record(r)) if r.bytes == b"other"));
}
