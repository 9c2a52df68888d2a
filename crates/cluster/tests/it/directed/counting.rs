//! Tests of counting records as being on a majority's disks.

use cluster::position::{Generation, Position};
use cluster::replica::{Header, Input, Kind, Message, Output};

use super::net::{Net, view};

fn shows(out: &[Output]) -> bool {
    out.iter().any(|o| matches!(o, Output::Stable { .. }))
}

#[test]
fn what_was_said_to_be_applied_counts_alone() {
    let mut net = Net::new(1);
    let log = view(&[(0, "r0"), (0, "r1"), (0, "r2")]);
    net.all_read(&log, 1);
    let one = net.replicas.get_mut(&1).expect("it runs");
    let record = |at| Input::Record(log.record(at).expect("it is there"));
    one.handle(record(1));
    one.handle(record(2));
    let applied = |number, next_offset| Input::Applied {
        generation: Generation { number, by: 0 },
        next_offset,
    };
    assert!(!shows(&one.handle(applied(0, 1))), "said before already");
    assert!(!shows(&one.handle(applied(1, 9))), "of another generation");
    assert_eq!(one.stable(), 1);
    // Several at a time.
    one.handle(applied(0, 3));
    assert_eq!(one.stable(), 3);
}

#[test]
fn a_single_replica_counts_its_own_disk_after_a_restart() {
    let mut net = Net::new(1);
    let log = view(&[(0, "r0"), (0, "r1")]);
    net.all_read(&log, 2);
    net.stable.clear();
    net.boot(1);
    net.tick(&log);
    assert_eq!(net.stable.get(&1), Some(&2));
}

/// Returns the record that changes the replicas, as node 1 would write it.
fn change(net: &Net, members: &[u64]) -> Option<Header> {
    net.replicas[&1].change_replicas(members.to_vec())
}

#[test]
fn a_node_is_a_replica_once() {
    let mut net = Net::new(3);
    let log = changed(&mut net, &[&[1, 2, 2]]);
    assert!(change(&net, &[1, 2, 2]).is_none());
    assert!(change(&net, &[1, 2]).is_some());
    net.read(1, &log);
    assert_eq!(*net.disks[&1].cursor.members, [1, 2, 3]);
}

/// Returns a log with one record and changes to these members, each as a writer that knew the one
/// before would write it.
fn changed(net: &mut Net, sets: &[&[u64]]) -> super::net::View {
    let mut log = view(&[(0, "r0")]);
    net.all_read(&log, 1);
    let mut after = 0;
    for members in sets {
        let kind = Kind::Replicas {
            members: members.to_vec(),
            after,
            epoch: 0,
        };
        after = log.push(0, Generation::default(), kind, "change") + 1;
    }
    log
}

#[test]
fn who_is_taken_in_again_has_nothing_until_it_says_so() {
    let mut net = Net::new(3);
    let mut log = changed(&mut net, &[&[1, 2], &[1, 2, 3]]);
    log.push(0, Generation::default(), Kind::Data, "r3");
    // Node 3 was ahead of 1, and reported so.
    net.read_to(3, &log, 4);
    net.stop(3);
    net.stop(2);
    net.read_to(1, &log, 4);
    assert!(
        net.stable[&1] < 3,
        "without anybody's word since the change"
    );
}

#[test]
fn who_is_no_replica_does_not_count() {
    let mut net = Net::with(&[1, 2, 3], &[1, 2]);
    let log = view(&[(0, "r0"), (0, "r1")]);
    net.all_read(&log, 1);
    net.blocked = vec![(1, 2), (2, 3)];
    net.read_to(3, &log, 2);
    net.read_to(1, &log, 2);
    assert_eq!(net.stable[&1], 1);
}

#[test]
fn a_change_counts_under_its_writers_leader_and_after_its_change_alone() {
    let mut net = Net::new(3);
    let mut log = view(&[(0, "r0")]);
    net.all_read(&log, 1);
    let kind = |after, epoch| Kind::Replicas {
        members: vec![1, 2],
        after,
        epoch,
    };
    log.push(1, Generation::default(), kind(0, 0), "another leader");
    log.push(1, Generation::default(), kind(1, 1), "another change");
    net.all_read(&log, 3);
    for disk in net.disks.values() {
        assert_eq!(*disk.cursor.members, [1, 2, 3]);
    }
    log.push(1, Generation::default(), kind(0, 1), "as it should be");
    net.all_read(&log, 4);
    assert_eq!(*net.disks[&1].cursor.members, [1, 2]);
}

#[test]
fn a_change_is_written_when_something_of_its_leader_is_there_to_stay() {
    let mut net = Net::new(3);
    let log = view(&[(0, "r0"), (1, "r1")]);
    net.all_read(&log, 1);
    for id in 1..=3 {
        net.read(id, &log);
        if id == 1 {
            assert!(change(&net, &[1, 2]).is_none());
        }
    }
    assert!(change(&net, &[1, 2]).is_some());
}

#[test]
fn a_read_asks_again_when_the_replicas_changed_meanwhile() {
    let mut net = Net::new(3);
    let log = changed(&mut net, &[&[1, 2]]);
    // A majority answers that 2 has the change, which 1 does not have yet.
    net.read_to(2, &log, 2);
    net.blocked = vec![(1, 3)];
    net.give(1, Input::Read(7));
    net.deliver();
    let asked = net.asks_positions;
    net.read(1, &log);
    assert!(net.asks_positions > asked);
    net.deliver();
    assert!(net.reads_now.contains(&(1, 7)));
}

#[test]
fn a_read_does_not_wait_for_what_nobody_else_can_get() {
    let one = view(&[(0, "a")]);
    let mut net = Net::new(3);
    net.all_read(&one, 1);
    net.tick(&one);
    // The log loses everything after this record, which reached one replica.
    net.read_to(1, &view(&[(0, "a"), (0, "b")]), 2);
    // The replica that is ahead answers first.
    net.give(2, Input::Read(7));
    net.deliver();
    assert_eq!(net.reads_now, [(2, 7)]);
    // The other one's answer is lost at first.
    net.blocked = vec![(2, 3)];
    net.give(2, Input::Read(8));
    net.deliver();
    assert_eq!(net.reads_now, [(2, 7)]);
    net.blocked.clear();
    net.tick(&one);
    assert_eq!(net.reads_now, [(2, 7), (2, 8)]);
    // Records on two of them may be acknowledged.
    net.read_to(3, &view(&[(0, "a"), (0, "b")]), 2);
    net.give(2, Input::Read(9));
    net.tick(&one);
    net.tick(&one);
    assert_eq!(net.reads_now.len(), 2);
}

#[test]
fn an_answer_to_what_was_asked_before_a_restart_does_not_count() {
    let one = view(&[(0, "a")]);
    let two = view(&[(0, "a"), (0, "b")]);
    let mut net = Net::new(3);
    net.all_read(&one, 1);
    net.boot_with(1, 100);
    net.read_back(1, &one);
    // A question of an earlier start with a greater number, answered only now.
    let late = Message::PositionIs {
        round: 100 + (1 << 62),
        generation: Generation::default(),
        next_offset: 1,
    };
    net.say(2, 1, late);
    net.read_to(2, &two, 2);
    net.read_to(3, &two, 2);
    net.blocked = vec![(1, 2)];
    for read in [7, 8] {
        net.give(1, Input::Read(read));
        net.deliver();
    }
    net.tick(&two);
    assert_eq!(net.reads_now, []);
    net.read_to(1, &two, 2);
    assert_eq!(net.reads_now.len(), 2);
}

#[test]
fn equal_offsets_of_other_ways_do_not_count() {
    let mut net = Net::new(3);
    let log = view(&[(0, "r0"), (0, "r1")]);
    net.all_read(&log, 1);
    net.stop(2);
    net.stop(3);
    let other = |position: Position| Message::Durable {
        position: Position {
            chain: [9; 16],
            ..position
        },
        stable: 0,
    };
    let mut position = net.disks[&1].cursor.position;
    position.next_offset = 2;
    // Before this replica has caught up, and after.
    net.say(2, 1, other(position));
    net.read(1, &log);
    net.say(3, 1, other(position));
    assert_eq!(net.stable[&1], 1);
}

#[test]
fn who_lags_far_behind_still_counts() {
    const COUNT: usize = 10_000;
    let mut net = Net::new(3);
    let names: Vec<String> = (0..COUNT).map(|i| format!("r{i}")).collect();
    let records: Vec<(i32, &str)> = names.iter().map(|n| (0, n.as_str())).collect();
    let log = view(&records);
    net.all_read(&log, 1);
    net.stop(3);
    net.blocked = vec![(1, 2)];
    net.read_to(1, &log, COUNT as u64);
    net.read_to(2, &log, 100);
    net.deliver();
    net.blocked.clear();
    net.tick(&log);
    net.tick(&log);
    assert_eq!(net.stable[&1], 100);
}

#[test]
fn nobody_speaks_while_nothing_happens() {
    let mut net = Net::new(3);
    let log = view(&[(0, "r0")]);
    net.all_read(&log, 1);
    for _ in 0..5 {
        net.tick(&log);
    }
    net.sent.clear();
    for _ in 0..100 {
        net.tick(&log);
    }
    assert!(
        net.sent.values().all(|sent| *sent <= 2 * 6),
        "{:?}",
        net.sent
    );
}

#[test]
fn lost_messages_are_said_again_soon() {
    let mut net = Net::new(3);
    let log = view(&[(0, "r0"), (0, "r1")]);
    net.all_read(&log, 1);
    net.blocked = vec![(1, 2), (1, 3), (2, 3)];
    net.all_read(&log, 2);
    net.deliver();
    net.blocked.clear();
    for _ in 0..3 {
        net.tick(&log);
    }
    assert_eq!(net.stable.values().min(), Some(&2));
    // Also to a replica that alone does not know.
    net.boot(1);
    net.read_back(1, &log);
    net.mail.clear();
    net.stable.clear();
    for _ in 0..3 {
        net.tick(&log);
    }
    assert_eq!(net.stable[&1], 2);
}
