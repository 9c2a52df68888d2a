//! Three logs with their threads, in one process.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cluster::log::{RawReadBackResult, Tail};
use cluster::{CONTROL, Log, NodeId, SlotNumber};
use parking_lot::RwLock;

use crate::disk::LogDisk;
use crate::memory_disk::MemoryDisk;
use crate::{Inlet, LogNode, Options, RaftLog, Transport};

type Inlets = Arc<RwLock<BTreeMap<NodeId, Inlet>>>;

/// Delivers bundles of a node.
struct Wire {
    from: NodeId,
    inlets: Inlets,
}

impl Transport for Wire {
    fn send(&self, to: NodeId, bundle: Bytes) -> bool {
        let inlets = self.inlets.read();
        let inlet = inlets.get(&to);
        inlet.map(|it| it.deliver(self.from, bundle)).is_some()
    }
}

fn start() -> Vec<RaftLog> {
    let disks = (1..=3).map(|node| Arc::new(MemoryDisk::new(node * 10)));
    start_logs(4, disks.collect())
}

/// Starts a log on each of these disks.
pub fn start_logs<D: LogDisk>(slots: SlotNumber, disks: Vec<Arc<D>>) -> Vec<RaftLog> {
    let inlets = Inlets::default();
    let ids = disks.iter().map(|disk| disk.raft_id().unwrap());
    let table: Vec<LogNode> = (1..)
        .zip(ids)
        .map(|(node, raft)| LogNode { raft, node })
        .collect();
    let start = |(me, disk): (&LogNode, Arc<D>)| {
        let options = Options {
            me: *me,
            log: 7,
            origin: me.node,
            slots,
            disk_bytes_max: u64::MAX,
        };
        let wire = Wire {
            from: me.node,
            inlets: inlets.clone(),
        };
        let log = RaftLog::start(options, disk, Arc::new(wire), table.clone(), me.node == 1);
        let log = log.unwrap();
        inlets.write().insert(me.node, log.inlet());
        log
    };
    table.iter().zip(disks).map(start).collect()
}

/// Appends a record until that succeeds.
async fn append(log: &RaftLog, record: &str) -> u64 {
    loop {
        if let Ok(offset) = log.append(CONTROL, record.as_bytes().to_vec()).await {
            return offset;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_read_what_any_node_appended() {
    let logs = start();
    let mut offsets = vec![];
    for number in 0..30 {
        let by = &logs[number % 3];
        offsets.push(append(by, &format!("record {number}")).await);
    }
    assert!(offsets.is_sorted_by(|a, b| a < b), "{offsets:?}");
    let last = offsets[29];
    for log in &logs {
        let mut tail = log.follow(CONTROL, 0);
        let mut found = vec![];
        while found.last().is_none_or(|(offset, _)| *offset < last) {
            if let Tail::Record(record) = tail.recv().await.unwrap() {
                assert_eq!(record.log, 7);
                found.push((record.offset, record.bytes));
            }
        }
        assert!(found.iter().map(|(offset, _)| *offset).eq(0..=last));
        for (number, offset) in offsets.iter().enumerate() {
            let (_, bytes) = &found[*offset as usize];
            assert_eq!(*bytes, format!("record {number}").into_bytes());
        }
    }
    let Ok(RawReadBackResult::Record(record)) = logs[0].read_back(CONTROL, last, 1).await else {
        panic!("the last record is not there");
    };
    assert_eq!(record.bytes, b"record 29");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_applies_slowly_holds_little_of_the_log() {
    const LARGE: usize = 512 << 10;
    let logs = start();
    let mut last = 0;
    for _ in 0..12 {
        last = append(&logs[0], &"x".repeat(LARGE)).await;
    }
    let mut slow = logs[0].follow(CONTROL, 0);
    let mut quick = logs[0].follow(CONTROL, 0);
    let mut next = 0;
    while next <= last {
        if let Some(Tail::Record(record)) = quick.recv().await {
            next = record.offset + 1;
        }
    }
    // As many steps again for the other one.
    for offset in 0..=last {
        let _found = logs[0].read_back(CONTROL, offset, 1).await;
    }
    assert!(slow.len() <= 4, "{} records wait", slow.len());
    let mut offsets = 0..=last;
    while !offsets.is_empty() {
        if let Tail::Record(record) = slow.recv().await.unwrap() {
            assert_eq!(Some(record.offset), offsets.next());
        }
    }
}

#[tokio::test]
async fn what_is_no_record_or_has_no_slot_is_refused() {
    let logs = start();
    assert!(logs[0].append(CONTROL, vec![]).await.is_err());
    assert!(logs[0].append(4, vec![1]).await.is_err());
    assert!(logs[0].follow(4, 0).recv().await.is_none());
}
