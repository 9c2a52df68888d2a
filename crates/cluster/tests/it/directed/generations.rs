//! Tests of when a generation starts, and from which state.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::position::{Generation, Position};
use cluster::replica::{
    Cursor, Fence, GenerationStart, GenerationStartRecord, Header, Input, Kind, Message, Reason,
};

use super::net::{Net, View, view};

/// Appends pending starts, as the log does, and notifies their authors.
fn append(net: &mut Net, view: &mut View) -> u64 {
    let (by, begin) = net.appends.pop().expect("a generation is to begin");
    let generation = begin.generation;
    let offset = view.push(9, generation, Kind::Begin(Box::new(begin)), "begin");
    net.give(by, Input::Appended { generation, offset });
    net.read_back(by, view);
    net.deliver();
    offset
}

/// 1 and 3 are partitioned from 2 and from each other; 2 and 3 are ahead of 1.
fn scattered() -> Net {
    let mut net = Net::new(3);
    let all = view(&[(0, "r0"), (0, "r1"), (0, "r2"), (0, "r3")]);
    net.all_read(&all, 1);
    net.blocked = vec![(1, 2), (1, 3), (2, 3)];
    net.read_to(2, &all, 2);
    net.read_to(3, &all, 3);
    net.blocked.clear();
    net.mail.clear();
    net
}

/// 1 is about to replace its state by that of 3.
fn copying(net: &mut Net) {
    net.give(1, Input::NoRecord { start: 0, end: 0 });
    let position = net.disks[&1].cursor.position;
    let sealed = net.disks[&1].promises.sealed;
    net.say(3, 1, Message::CopyGranted { position, sealed });
    assert_eq!(net.copies.remove(&1), Some(3));
}

#[test]
fn a_ballot_is_not_used_twice() {
    let mut net = scattered();
    for _ in 0..20 {
        copying(&mut net);
        net.give(1, Input::CopyRefused);
        net.read_back(1, &view(&[]));
        net.mail.retain(|(_, _, m)| matches!(m, Message::Seal(_)));
    }
    net.deliver();
    let first = net.appends.first().expect("a generation").1.clone();
    assert_eq!(net.disks[&1].promises.sealed, first.generation);
    net.boot(1);
    net.stop(3);
    net.give(1, Input::Reseed);
    net.deliver();
    assert_ne!(net.appends[1].1.generation, first.generation);
}

#[test]
fn what_is_being_replaced_is_not_sealed() {
    let mut net = scattered();
    copying(&mut net);
    net.give(1, Input::Reseed);
    net.say(2, 1, Message::Seal(Generation { number: 9, by: 2 }));
    let seals = |net: &Net| {
        let is = |m: &Message| matches!(m, Message::Seal(_) | Message::Sealed { .. });
        net.mail.iter().any(|(from, _, m)| *from == 1 && is(m))
    };
    assert!(!seals(&net));
    // Requests made meanwhile are carried out then.
    assert!(net.copy(1, 3));
    assert!(seals(&net));
    net.deliver();
    assert!(!net.appends.is_empty());
}

#[test]
fn who_begins_is_one_of_the_sealed() {
    let mut net = scattered();
    // Part of it is still being written: its own seal waits for that.
    let one = net.replicas.get_mut(&1).expect("it runs");
    let record = view(&[(0, "r0"), (0, "r1")])
        .record(1)
        .expect("it is there");
    one.handle(Input::Record(record));
    net.give(1, Input::Reseed);
    net.deliver();
    assert!(net.appends.is_empty());
    let position = net.disks[&2].cursor.position;
    net.give(
        1,
        Input::Applied {
            generation: position.generation,
            next_offset: position.next_offset,
        },
    );
    net.deliver();
    assert_eq!(net.appends.len(), 1);
}

#[test]
fn a_generation_whose_beginner_dies_is_begun_by_another() {
    let mut net = Net::new(3);
    let log = view(&[(0, "r0")]);
    net.all_read(&log, 1);
    net.give(1, Input::Reseed);
    net.deliver();
    net.appends.clear();
    net.stop(1);
    for _ in 0..250 {
        net.tick(&log);
    }
    assert!(!net.appends.is_empty());
    assert!(net.appends.iter().all(|(by, _)| *by != 1));
}

#[test]
fn replicas_that_promised_each_other_away_begin_a_generation() {
    let mut net = Net::new(3);
    let old = view(&[(0, "r0"), (0, "b1")]);
    net.all_read(&old, 1);
    net.read(2, &old);
    // 2 has the promise for leader 1, crashes before it follows, and returns without 1: what 3
    // would follow is promised away.
    let one = view(&[(0, "r0"), (1, "s1"), (1, "s2")]);
    net.give(2, Input::Record(one.record(2).expect("it is there")));
    net.read_back(2, &old);
    net.deliver();
    net.stop(1);
    net.boot(2);
    for _ in 0..400 {
        net.tick(&one);
        net.read(2, &one);
        net.read(3, &one);
    }
    assert!(!net.appends.is_empty());
}

#[test]
fn a_reader_that_is_behind_for_a_moment_begins_no_generation() {
    let mut net = Net::new(3);
    let log = view(&[(0, "r0"), (0, "r1"), (0, "r2")]);
    net.all_read(&log, 1);
    net.blocked = vec![(1, 2), (1, 3), (2, 3)];
    net.read(1, &log);
    net.read_to(3, &log, 3);
    net.deliver();
    net.blocked.clear();
    net.give(3, Input::NoRecord { start: 0, end: 1 });
    assert_eq!(net.replicas[&3].halted(), Some(Reason::Truncated));
    for _ in 0..5 {
        net.tick(&log);
    }
    assert!(net.appends.is_empty());
    assert!(
        net.disks
            .values()
            .all(|d| d.promises.sealed == Generation::default())
    );
}

#[test]
fn who_is_missed_by_a_majority_is_taken_in_by_a_generation() {
    let mut net = Net::new(3);
    let log = view(&[(0, "r0"), (0, "r1")]);
    net.all_read(&log, 1);
    // 1 is gone, 2 continues alone, and 3 applied what the log has lost.
    net.stop(1);
    net.blocked = vec![(2, 3)];
    net.read(2, &log);
    net.read(3, &view(&[(0, "r0"), (0, "lost")]));
    net.deliver();
    net.blocked.clear();
    net.give(3, Input::NoRecord { start: 0, end: 1 });
    for _ in 0..60 {
        net.tick(&view(&[(0, "r0")]));
    }
    assert!(!net.appends.is_empty());
}

#[test]
fn a_generation_begins_at_one_place() {
    let mut net = Net::new(3);
    let mut log = view(&[(0, "r0")]);
    net.all_read(&log, 1);
    net.give(1, Input::Reseed);
    net.deliver();
    let (_, begin) = net.appends[0].clone();
    let generation = begin.generation;
    let first = append(&mut net, &mut log);
    // A producer without an acknowledgement appends it again, and that is found, too.
    let again = log.push(9, generation, Kind::Begin(Box::new(begin)), "begin");
    net.give(
        1,
        Input::Appended {
            generation,
            offset: again,
        },
    );
    for offset in [again, first, again] {
        let found =
            cluster::replica::ReadBackResult::Record(log.record(offset).expect("it is there"));
        net.give(1, Input::ReadBack { offset, found });
    }
    net.deliver();
    for _ in 0..3 {
        net.tick(&log);
    }
    let at: BTreeSet<u64> = net
        .disks
        .values()
        .map(|d| d.cursor.position.next_offset)
        .collect();
    assert_eq!(at, BTreeSet::from([first + 1]));
    assert!(net.mail.is_empty());
}

#[test]
fn a_beginning_that_was_found_once_is_not_looked_at_again() {
    let mut net = Net::new(3);
    let mut log = view(&[(0, "r0")]);
    net.all_read(&log, 1);
    net.give(1, Input::Reseed);
    net.deliver();
    net.blocked = vec![(1, 2), (1, 3)];
    let offset = append(&mut net, &mut log);
    net.blocked.clear();
    // The log lost it, and got it again at the same offset, under a later leader.
    let again = cluster::replica::LogRecord {
        epoch: 10,
        ..log.record(offset).expect("it is there")
    };
    let found = cluster::replica::ReadBackResult::Record(again);
    net.give(1, Input::ReadBack { offset, found });
    net.deliver();
    net.tick(&log);
    let of = |id: u64| net.disks[&id].cursor.position;
    assert_eq!([of(2), of(3)], [of(1), of(1)]);
}

#[test]
fn a_beginning_counts_where_it_was_appended_alone() {
    let mut net = Net::new(3);
    let mut log = view(&[(0, "r0")]);
    net.all_read(&log, 1);
    net.give(1, Input::Reseed);
    net.deliver();
    let (_, begin) = net.appends[0].clone();
    let generation = begin.generation;
    let other = log.push(9, generation, Kind::Begin(Box::new(begin)), "begin");
    // Found, but not at the offset of the acknowledgement, and before it arrived.
    let found = cluster::replica::ReadBackResult::Record(log.record(other).expect("it is there"));
    net.give(
        1,
        Input::ReadBack {
            offset: other,
            found,
        },
    );
    net.deliver();
    assert!(
        net.disks
            .values()
            .all(|d| d.cursor.position.generation < generation)
    );
}

/// Returns the start of a generation at the current state, as its author announces it.
fn begun(net: &Net, generation: Generation) -> GenerationStartRecord {
    let cursor = &net.disks[&1].cursor;
    let begin = cluster::replica::GenerationStart {
        generation,
        base: cursor.position,
        members: cursor.members.to_vec(),
    };
    GenerationStartRecord {
        begin,
        log: 1,
        offset: 0,
        epoch: 0,
        hash: [3; 16],
    }
}

#[test]
fn who_is_sealed_for_a_later_generation_does_not_go_on_in_one_before() {
    let mut net = Net::new(3);
    net.all_read(&view(&[(0, "r0")]), 1);
    net.say(2, 1, Message::Seal(Generation { number: 5, by: 2 }));
    let begun = begun(&net, Generation { number: 4, by: 3 });
    net.say(3, 1, Message::Begun(Box::new(begun)));
    assert_eq!(
        net.disks[&1].cursor.position.generation,
        Generation::default()
    );
}

#[test]
fn promises_of_a_generation_stay_until_the_next_is_on_disk() {
    let mut net = Net::new(3);
    net.all_read(&view(&[(0, "r0")]), 1);
    let position = net.disks[&1].cursor.position;
    let old = Fence {
        generation: position.generation,
        epoch: 4,
        offset: 1,
        chain: position.chain,
        last_epoch: 0,
    };
    net.say(2, 1, Message::AskFence(old));
    let begun = begun(&net, Generation { number: 1, by: 3 });
    let new = Fence {
        generation: begun.begin.generation,
        ..old
    };
    // The start is being written when the next promise is requested.
    let one = net.replicas.get_mut(&1).expect("it runs");
    for message in [Message::Begun(Box::new(begun)), Message::AskFence(new)] {
        one.handle(Input::Message { from: 3, message });
    }
    assert_eq!(one.saved().promises.fences, [old, new]);
}

#[test]
fn nothing_is_given_out_while_a_beginning_waits() {
    let mut net = Net::new(3);
    let log = view(&[(0, "r0"), (0, "r1"), (0, "r2")]);
    net.all_read(&log, 1);
    let begun = begun(&net, Generation { number: 1, by: 3 });
    let one = net.replicas.get_mut(&1).expect("it runs");
    // The first is still being written when the start arrives, by a message that no seal preceded.
    let given = |out: &[cluster::replica::Output]| {
        out.iter()
            .any(|o| matches!(o, cluster::replica::Output::Apply { .. }))
    };
    assert!(given(
        &one.handle(Input::Record(log.record(1).expect("it is there")))
    ));
    one.handle(Input::Message {
        from: 3,
        message: Message::Begun(Box::new(begun)),
    });
    assert!(!given(
        &one.handle(Input::Record(log.record(2).expect("it is there")))
    ));
}

#[test]
fn a_record_whose_contents_nobody_has_is_left_out() {
    let mut net = Net::new(3);
    let mut log = view(&[(0, "r0"), (0, "r1")]);
    net.all_read(&log, 1);
    // They cannot apply r1, and none is ahead of the others.
    for id in 1..=3 {
        net.give(id, Input::Lacking(95));
        assert_eq!(net.replicas[&id].halted(), Some(Reason::Lacking));
    }
    net.tick(&log);
    for _ in 0..10 {
        net.tick(&log);
        for id in 1..=3 {
            net.give(id, Input::Lacking(100));
        }
        if !net.appends.is_empty() {
            break;
        }
    }
    net.deliver();
    append(&mut net, &mut log);
    net.all_read(&log, 3);
    for id in 1..=3 {
        assert_eq!(net.stores[&id], ["r0"]);
    }
}

#[test]
fn a_replica_that_lacks_contents_is_copied_from_one_that_went_on() {
    let mut net = Net::new(3);
    let log = view(&[(0, "r0"), (0, "r1"), (0, "r2")]);
    net.all_read(&log, 1);
    net.read_to(1, &log, 3);
    net.read_to(2, &log, 3);
    // Not while the content may still arrive.
    net.give(3, Input::Lacking(0));
    net.tick(&log);
    net.deliver();
    assert!(!net.copies.contains_key(&3));
    net.boot(3);
    net.give(3, Input::Lacking(21));
    net.tick(&log);
    net.deliver();
    let from = net.copies[&3];
    assert!(net.copy(3, from));
    assert_eq!(net.next_offset(3), 3);
}

/// The first node of a cluster may start with data: with a generation that no record started.
#[test]
fn a_node_that_starts_empty_copies_what_the_first_one_brought() {
    let mut net = Net::with(&[1, 2], &[1]);
    let generation = Generation { number: 1, by: 1 };
    let base = Position {
        chain: [7; 16],
        ..Position::start()
    };
    let begun = GenerationStartRecord {
        begin: GenerationStart {
            generation,
            base,
            members: vec![1],
        },
        log: 0,
        offset: 0,
        epoch: -1,
        hash: [7; 16],
    };
    net.disks.get_mut(&1).expect("a node").cursor = Cursor {
        position: Position { generation, ..base },
        begun: Some(Arc::new(begun)),
        ..Cursor::start(vec![1])
    };
    net.boot(1);
    // A node that lacks the base has written a record, too.
    let mut log = view(&[(0, "early")]);
    log.push(0, generation, Kind::Data, "r1");
    net.read_to(1, &log, 2);
    assert_eq!(net.stores[&1], ["r1"]);
    net.read(2, &log);
    assert_eq!(net.next_offset(2), 0);
    net.tick(&log);
    assert_eq!(net.copies.get(&2), Some(&1));
    assert!(net.copy(2, 1));
    assert_eq!(net.next_offset(2), 2);
}

#[test]
fn another_log_is_not_followed_whatever_its_epochs() {
    let mut net = Net::new(3);
    let mut log = view(&[(0, "r0"), (0, "r1")]);
    net.all_read(&log, 1);
    log.log = 1;
    net.give(1, Input::Record(log.record(1).expect("it is there")));
    assert_eq!(net.replicas[&1].halted(), Some(Reason::Replaced));
    // Nor when its last record looks the same.
    net.boot(2);
    net.read_back(2, &log);
    assert_eq!(net.replicas[&2].halted(), Some(Reason::Replaced));
}

#[test]
fn a_header_of_an_earlier_generation_is_passed_over() {
    let mut net = Net::new(1);
    let mut log = view(&[(0, "r0")]);
    net.all_read(&log, 1);
    net.give(1, Input::Reseed);
    net.deliver();
    append(&mut net, &mut log);
    let late = Header {
        generation: Generation::default(),
        kind: Kind::Data,
    };
    log.push(9, late.generation, late.kind, "late");
    net.read(1, &log);
    assert_eq!(net.stores[&1], ["r0"]);
}
