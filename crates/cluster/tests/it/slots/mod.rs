//! Three replicas of a slot in one process, with the real driver, over a log in memory.

mod nodes;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cluster::log::{Log, RawReadBackResult};
use cluster::memory_log::Faults;
use cluster::position::Generation;
use cluster::record::{Body, RecordVersion, RecordVersions, Stamp};
use cluster::slot::{ChangeError, ProposeError, ReadError, Wait};
use nodes::{Nodes, SLOT, majority, request, stamp, within, write_all};

/// Runs `meanwhile` under concurrent writes.
async fn under_load(nodes: &Arc<Nodes>, count: u64, meanwhile: impl Future<Output = ()>) {
    let clients: Vec<_> = (1..=4)
        .map(|gateway| {
            let nodes = Arc::clone(nodes);
            tokio::spawn(async move { write_all(&nodes, gateway, count).await })
        })
        .collect();
    meanwhile.await;
    let mut acknowledged = vec![];
    for client in clients {
        acknowledged.extend(client.await.expect("it ends"));
    }
    assert_eq!(acknowledged.len() as u64, 4 * count);
    nodes.net.loss.store(0, Ordering::Relaxed);
    nodes.log.set(Faults::default());
    nodes.agree(&acknowledged).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proposals_from_all_come_out_once_each_and_alike() {
    let nodes = Arc::new(Nodes::three());
    under_load(&nodes, 100, async {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_messages_repeated_records_and_lost_answers_double_and_lose_nothing() {
    let nodes = Arc::new(Nodes::three());
    nodes.net.loss.store(10, Ordering::Relaxed);
    nodes.log.set(Faults {
        delay: Duration::from_millis(1),
        twice: 100,
        written_unknown: 100,
        lost_unknown: 100,
        ..Faults::default()
    });
    under_load(&nodes, 60, async {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_loses_its_end_loses_nothing_acknowledged() {
    let nodes = Arc::new(Nodes::three());
    let operator = Arc::clone(&nodes);
    let operator = tokio::spawn(async move { operator.operate().await });
    under_load(&nodes, 150, async {
        for lost in [0, 0, 2, 0, 5, 1] {
            tokio::time::sleep(Duration::from_millis(150)).await;
            nodes.log.cut(SLOT, lost);
        }
    })
    .await;
    operator.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_lost_and_made_anew_loses_nothing_acknowledged() {
    let nodes = Arc::new(Nodes::three());
    let operator = Arc::clone(&nodes);
    let operator = tokio::spawn(async move { operator.operate().await });
    under_load(&nodes, 150, async {
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            nodes.log.lose(SLOT);
        }
    })
    .await;
    operator.abort();
    let generation = nodes.slot(1).status().position.generation;
    assert!(generation > Generation::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_start_again_from_what_they_have() {
    let nodes = Arc::new(Nodes::three());
    under_load(&nodes, 100, async {
        for node in [1, 2, 3, 1, 2, 3] {
            tokio::time::sleep(Duration::from_millis(40)).await;
            nodes.stop_one(node).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            nodes.start_one(node);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_after_the_log_forgot_is_copied() {
    let nodes = Nodes::three();
    write_all(&nodes, 1, 5).await;
    nodes.stop_one(3).await;
    let kept = nodes.log.end(SLOT);
    let acknowledged = write_all(&nodes, 2, 20).await;
    nodes.log.trim(SLOT, kept as usize + 10);
    nodes.start_one(3);
    nodes.agree(&acknowledged).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_one_and_it_goes_on_when_there_is_room() {
    let nodes = Nodes::three();
    write_all(&nodes, 1, 5).await;
    nodes.disks[&3].is_full.store(true, Ordering::SeqCst);
    let acknowledged = write_all(&nodes, 2, 30).await;
    let is_full = |error: String| error.contains("the disk is full");
    nodes
        .until("full", || nodes.slot(3).status().error.is_some_and(is_full))
        .await;
    nodes.disks[&3].is_full.store(false, Ordering::SeqCst);
    nodes.agree(&acknowledged).await;
}

/// Others have what the replica lacks, or do not need it any more, and continue meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_breaks_off_begins_no_generation() {
    let nodes = Nodes::three();
    write_all(&nodes, 1, 5).await;
    nodes.agree(&[]).await;
    nodes.stop_one(3).await;
    let acknowledged = write_all(&nodes, 2, 10).await;
    let disk = &nodes.disks[&3];
    disk.lacks.store(true, Ordering::SeqCst);
    disk.broken_copies.store(1, Ordering::SeqCst);
    nodes.start_one(3);
    let lacks = || disk.lacks.load(Ordering::SeqCst);
    nodes.until("copied", || !lacks()).await;
    assert_eq!(disk.broken_copies.load(Ordering::SeqCst), 0);
    nodes.agree(&acknowledged).await;
    for node in 1..=3 {
        let generation = nodes.slot(node).status().position.generation;
        assert_eq!(generation, Generation::default(), "{}", nodes.describe());
    }
}

/// Writes that need only one disk do not run ahead of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_proposed_while_a_majority_is_far_behind() {
    let nodes = Nodes::start_with(3, 3, Duration::from_millis(1), Duration::from_millis(500));
    write_all(&nodes, 1, 3).await;
    nodes.agree(&[]).await;
    nodes.cut_off(1, true);
    let slot = nodes.slot(1);
    let by_one = || Wait {
        copies: Some(1),
        ..majority(5_000)
    };
    let mut taken = 0;
    let refused = loop {
        match slot.propose(request((7, taken), "a", b"1"), by_one()).await {
            Ok(_) => taken += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, ProposeError::Behind);
    assert!(taken > 0);
    nodes.cut_off(1, false);
    let settled = slot.settle(within(10_000)).await;
    settled.expect("the others catch up");
    let taken = slot.propose(request((7, 1_000_000), "a", b"1"), by_one());
    taken.await.expect("it is taken again");
    nodes.agree(&[]).await;
}

/// So nothing more enters the log that they could not apply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_what_is_proposed() {
    let nodes = Nodes::three();
    write_all(&nodes, 1, 3).await;
    nodes.disks[&3].is_full.store(true, Ordering::SeqCst);
    for counter in 0..3 {
        let asked = request((2, counter), "a", b"1");
        let done = nodes.slot(1).propose(asked, majority(10_000)).await;
        done.expect("two are enough");
    }
    let slot = nodes.slot(3);
    nodes.until("full", || slot.status().is_full).await;
    let asked = request((9, 1), "a", b"1");
    let refused = slot.propose(asked.clone(), majority(5_000)).await;
    assert!(matches!(refused, Err(ProposeError::Full(_))), "{refused:?}");
    nodes.disks[&3].is_full.store(false, Ordering::SeqCst);
    nodes.until("room", || !slot.status().is_full).await;
    let done = slot.propose(asked, majority(10_000)).await;
    done.expect("it is taken again");
    nodes.agree(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_request_travels_in_parts() {
    let nodes = Nodes::three();
    nodes.log.set(Faults {
        twice: 200,
        ..Faults::default()
    });
    let body = vec![b'x'; 3 << 20];
    let long = request((1, 0), "long", &body);
    let proposed = nodes.slot(1).propose(long, majority(30_000)).await;
    let mut acknowledged = write_all(&nodes, 2, 3).await;
    acknowledged.push(((1, 0), proposed.expect("it is applied").outcome));
    nodes.agree(&acknowledged).await;
    assert_eq!(nodes.disks[&2].state().documents["long"], body);
}

/// One client counts up; every reader, anywhere, sees at least the value acknowledged before, and
/// never less than before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_are_linearizable() {
    let nodes = Arc::new(Nodes::three());
    nodes.net.loss.store(5, Ordering::Relaxed);
    let acknowledged = Arc::new(AtomicU64::new(0));
    let shown = Arc::new(AtomicU64::new(0));
    let reader = |node: u64| {
        let (nodes, acknowledged) = (Arc::clone(&nodes), Arc::clone(&acknowledged));
        let shown = Arc::clone(&shown);
        tokio::spawn(async move {
            let mut reads = 0;
            loop {
                let floor = acknowledged.load(Ordering::SeqCst);
                let floor = floor.max(shown.load(Ordering::SeqCst));
                let disk = &nodes.disks[&node];
                let read = || {
                    let state = disk.state();
                    let text = state.documents.get("r").cloned().unwrap_or(b"0".to_vec());
                    let text = String::from_utf8(text).expect("digits");
                    text.parse::<u64>().expect("a number")
                };
                let Ok(found) = nodes.slot(node).read(within(2_000), read).await else {
                    continue;
                };
                assert!(found >= floor, "{found} at {node}, after {floor}");
                shown.fetch_max(found, Ordering::SeqCst);
                reads += 1;
                if found == 300 {
                    return reads;
                }
            }
        })
    };
    let readers: Vec<_> = (0..9).map(|i| reader(1 + i % 3)).collect();
    for value in 1..=300u64 {
        if value % 100 == 0 {
            nodes.log.cut(SLOT, 0);
        }
        let asked = request((1, value), "r", value.to_string().as_bytes());
        while nodes
            .slot(1 + value % 3)
            .propose(asked.clone(), majority(2_000))
            .await
            .is_err()
        {}
        acknowledged.store(value, Ordering::SeqCst);
    }
    let mut reads = 0;
    for reader in readers {
        reads += reader.await.expect("it sees the last");
    }
    println!("{reads} reads");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_tells_what_is_known() {
    let nodes = Nodes::three();
    write_all(&nodes, 1, 3).await;
    let slot = nodes.slot(1);
    let ask = |counter| slot.propose(request((9, counter), "a", b"1"), majority(1_000));

    let faults = Faults::default();
    nodes.log.set(Faults {
        refuses: true,
        ..faults
    });
    // On a busy machine the time may be over before the log is queried.
    let mut refused = Err(ProposeError::Unknown);
    for _ in 0..10 {
        refused = slot
            .propose(request((9, 1), "a", b"1"), majority(2_000))
            .await;
        if matches!(&refused, Err(ProposeError::NotNow(why)) if why.contains("takes nothing")) {
            break;
        }
    }
    assert!(
        matches!(&refused, Err(ProposeError::NotNow(why)) if why.contains("takes nothing")),
        "{refused:?}"
    );

    nodes.log.set(Faults {
        hangs: true,
        ..faults
    });
    assert_eq!(ask(2).await, Err(ProposeError::Unknown));
    nodes.log.set(faults);
    nodes
        .until("settled", || slot.status().stable == nodes.log.end(SLOT))
        .await;

    nodes.cut_off(1, true);
    let too_few = ask(3).await;
    let Err(ProposeError::TooFew { outcome, copies: 1 }) = too_few else {
        panic!("{too_few:?}");
    };
    let read = slot.read(within(150), || ()).await;
    assert!(matches!(read, Err(ReadError::NotNow(_))), "{read:?}");
    assert!(slot.settle(within(50)).await.is_err());
    let wait = Wait {
        copies: Some(1),
        ..majority(5_000)
    };
    let by_one = slot.propose(request((9, 4), "a", b"2"), wait).await;
    assert_eq!(by_one.expect("one is enough").copies, 1);

    nodes.cut_off(1, false);
    let wait = Wait {
        copies: Some(3),
        ..majority(5_000)
    };
    let again = slot.propose(request((9, 3), "a", b"1"), wait).await;
    let again = again.expect("it is repeated");
    assert_eq!((again.outcome, again.copies), (outcome, 3));
    slot.settle(within(5_000)).await.expect("all of it");
}

/// The log loses what one replica alone has applied, and the others continue beyond it: all that
/// was read there is not stable, though everything up to its offset is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_and_lost_does_not_settle_by_what_came_instead() {
    let nodes = Nodes::three();
    write_all(&nodes, 1, 3).await;
    nodes.stop_one(2).await;
    nodes.stop_one(3).await;
    let slot = nodes.slot(1);
    let wait = Wait {
        copies: Some(1),
        ..majority(5_000)
    };
    let alone = slot.propose(request((9, 1), "a", b"1"), wait).await;
    alone.expect("one is enough");
    let seen = slot.replaced();
    let settling = tokio::spawn({
        let slot = slot.clone();
        async move { slot.settle(within(20_000)).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    nodes.log.cut(SLOT, 1);
    nodes.cut_off(1, true);
    nodes.start_one(2);
    nodes.start_one(3);
    let at = nodes.log.end(SLOT);
    write_all(&nodes, 2, 8).await;
    nodes.cut_off(1, false);
    let there = || slot.status().stable > at && slot.replaced().is_some();
    nodes.until("replaced", there).await;
    assert!(settling.await.expect("it answers").is_err());
    assert!(seen.is_some() && slot.replaced() != seen);
    slot.settle(within(5_000)).await.expect("what is there now");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_wait_any_more_leaves_nothing_behind() {
    let nodes = Nodes::three();
    write_all(&nodes, 1, 3).await;
    nodes.log.set(Faults {
        delay: Duration::from_millis(20),
        ..Faults::default()
    });
    nodes.cut_off(1, true);
    let slot = nodes.slot(1);
    for counter in 0..50 {
        let propose = slot.propose(request((5, counter), "a", b"1"), majority(60_000));
        let read = slot.read(within(60_000), || ());
        let append = slot.append(Body::Await { version: 1 }, within(60_000));
        let gone = Duration::from_millis(counter % 7);
        let all = async { tokio::join!(propose, read, append) };
        assert!(tokio::time::timeout(gone, all).await.is_err());
    }
    nodes
        .until("forgotten", || {
            let status = slot.status();
            (status.proposals, status.reads) == (0, 0)
        })
        .await;
    nodes.cut_off(1, false);
    nodes.agree(&[]).await;
    slot.read(within(5_000), || ()).await.expect("it reads");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_by_themselves_and_changes_of_replicas_are_there_to_stay() {
    let nodes = Nodes::start(4, 3, Duration::from_millis(1));
    let slot = nodes.slot(1);
    let deadline = within(20_000);
    let body = Body::Await { version: 2 };
    let not_one = slot.change_replicas(vec![1, 4, 5], deadline).await;
    assert_eq!(not_one, Err(ChangeError::NotOne));
    let four = slot.change_replicas(vec![1, 2, 3, 4], deadline).await;
    four.expect("one more");
    let offset = slot.append(body.clone(), deadline).await.expect("stable");
    assert!(slot.status().stable > offset);
    let three = nodes.slot(2).change_replicas(vec![1, 2, 4], deadline).await;
    three.expect("one less");
    nodes
        .until("known", || slot.status().members == [1, 2, 4])
        .await;
    let acknowledged = write_all(&nodes, 1, 10).await;
    nodes.agree(&acknowledged).await;
    assert_eq!(nodes.disks[&4].state().others, [body]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_of_another_cluster_is_named() {
    let nodes = Nodes::three();
    write_all(&nodes, 1, 3).await;
    let other = Stamp {
        cluster: [8; 16],
        key: [1; 32],
        ..stamp()
    };
    let body = Body::Await { version: 1 };
    let record = other.write(Generation::default(), &body);
    nodes.log.append(SLOT, record).await.expect("it takes it");
    let slot = nodes.slot(2);
    nodes
        .until("halted", || slot.status().halted.is_some())
        .await;
    let error = slot.status().error.expect("it says why");
    assert!(error.contains("belongs to another cluster"), "{error}");
    // It checks again from time to time, and may append the request meanwhile.
    let result = slot.propose(request((1, 9), "a", b"1"), majority(50)).await;
    let is_known = matches!(result, Err(ProposeError::NotNow(_) | ProposeError::Unknown));
    assert!(is_known, "{result:?}");
}

/// Updates three nodes one after the other, in this order, under load, and then raises the record
/// version.
async fn upgrade(order: [u64; 3]) -> Arc<Nodes> {
    let nodes = Arc::new(Nodes::none(3));
    let mut running = vec![];
    for node in 1..=3 {
        nodes.start_program(node, RecordVersions::new(RecordVersion::V1));
    }
    under_load(&nodes, 40, async {
        for node in order {
            tokio::time::sleep(Duration::from_millis(40)).await;
            nodes.stop_one(node).await;
            let versions = RecordVersions::new(RecordVersion::V2);
            nodes.start_program(node, versions.clone());
            running.push(versions);
        }
        running.iter().for_each(|of| of.raise(RecordVersion::V2));
    })
    .await;
    nodes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_updated_in_any_order_under_load() {
    for order in [
        [1, 2, 3],
        [1, 3, 2],
        [2, 1, 3],
        [2, 3, 1],
        [3, 1, 2],
        [3, 2, 1],
    ] {
        let nodes = upgrade(order).await;
        // After the last one: the next record has the new version, and all read it.
        let acknowledged = write_all(&nodes, 9, 3).await;
        nodes.agree(&acknowledged).await;
        let last = nodes.log.end(SLOT) - 1;
        let versions = [0, last].map(|offset| {
            let found = nodes.log.read_back(SLOT, offset, 0);
            async move {
                match found.await {
                    Ok(RawReadBackResult::Record(record)) => record.bytes[0],
                    other => panic!("{other:?}"),
                }
            }
        });
        let [first, last] = versions;
        assert_eq!((first.await, last.await), (1, 2), "{order:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_is_raised_too_early_halts_the_nodes_that_do_not_read_it() {
    let nodes = Nodes::none(3);
    for node in 1..=3 {
        let known = [RecordVersion::V2, RecordVersion::V1][usize::from(node == 3)];
        let versions = RecordVersions::new(known);
        versions.raise(known);
        nodes.start_program(node, versions);
    }
    let slot = nodes.slot(1);
    let written = slot.propose(request((1, 1), "a", b"1"), majority(20_000));
    written.await.expect("two of three read it");
    let old = nodes.slot(3);
    nodes
        .until("halted", || old.status().halted.is_some())
        .await;
    let error = old.status().error.expect("it says why");
    assert!(
        error.contains("has version 2, this program reads version 1"),
        "{error}"
    );
    nodes.stop_one(3).await;
    nodes.start_one(3);
    let acknowledged = write_all(&nodes, 2, 3).await;
    nodes.agree(&acknowledged).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_slot_says_so() {
    let nodes = Nodes::three();
    write_all(&nodes, 1, 3).await;
    let slot = nodes.slot(1);
    nodes.stop_one(1).await;
    let result = slot.propose(request((1, 9), "a", b"1"), majority(50)).await;
    assert_eq!(result, Err(ProposeError::Stopped));
    let result = slot.read(within(50), || ()).await;
    assert_eq!(result, Err(ReadError::Stopped));
}

/// `cargo test -p cluster --test it slots::speed -- --nocapture`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn speed() {
    let nodes = Arc::new(Nodes::start(3, 3, Duration::ZERO));
    write_all(&nodes, 1, 3).await;
    for clients in [1, 16, 128] {
        let began = std::time::Instant::now();
        let tasks: Vec<_> = (0..clients)
            .map(|client| {
                let slot = nodes.slot(1 + client % 3);
                tokio::spawn(async move {
                    let mut times = vec![];
                    for counter in 0..3_000 / clients {
                        let key = (clients * 1_000 + client + 1_000, counter);
                        let asked = std::time::Instant::now();
                        let request = request(key, "a", b"{\"value\":1}");
                        slot.propose(request, majority(20_000)).await.expect("done");
                        times.push(asked.elapsed());
                    }
                    times
                })
            })
            .collect();
        let mut times = vec![];
        for task in tasks {
            times.extend(task.await.expect("it ends"));
        }
        times.sort();
        let rate = times.len() as f64 / began.elapsed().as_secs_f64();
        let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        println!("{clients} clients: {rate:.0} proposals/s, p50 {p50:?}, p99 {p99:?}");
    }
}
