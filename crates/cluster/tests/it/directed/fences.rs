//! Tests of who may follow a new leader.

use cluster::replica::{Fence, Input, Message};

use super::net::{Net, view};

/// Returns whether a generation that starts without one of the replicas keeps the record at offset
/// 1, which may have been acknowledged.
fn generation_keeps(net: &mut Net, name: &str, (dies, begins): (u64, u64)) {
    let offset = 1;
    let is_stable = net.stable.values().any(|stable| *stable > offset);
    net.stop(dies);
    net.give(begins, Input::Reseed);
    net.deliver();
    let (_, begin) = net.appends.first().expect("a majority is there").clone();
    let base = net
        .replicas
        .keys()
        .find(|id| net.disks[*id].cursor.position == begin.base)
        .expect("a replica's state");
    let kept = net.stores[base].iter().any(|n| n == name);
    assert!(kept || !is_stable, "{name} was acknowledged and is gone");
}

#[test]
fn who_promised_to_a_later_leader_does_not_follow_one_between() {
    let mut net = Net::new(3);
    let old = view(&[(0, "r0"), (0, "a1")]);
    net.all_read(&old, 1);
    // 1 applies a1 alone. Leader 1 lacked that and wrote d1; leader 2 had a1, and not d1.
    net.read(1, &old);
    let one = view(&[(0, "r0"), (1, "d1")]);
    let two = view(&[(0, "r0"), (0, "a1"), (2, "e2")]);
    net.read(1, &two);
    assert_eq!(net.next_offset(1), 3);
    net.read(2, &one);
    net.read(3, &one);
    generation_keeps(&mut net, "d1", (2, 3));
}

#[test]
fn who_promised_to_a_later_leader_takes_over_no_state_of_one_between() {
    let mut net = Net::new(3);
    let old = view(&[(0, "r0"), (0, "a1")]);
    net.all_read(&old, 1);
    net.read(1, &old);
    // 3 promises 1, and 2 follows leader 1 by earlier promises.
    let two = view(&[(0, "r0"), (0, "a1"), (2, "e2")]);
    net.read(1, &two);
    let mut between = net.disks[&3].cursor.clone();
    between.position = between.position.after(1, 1, &[1; 16]);
    between.epochs = [(0, 0), (1, 1)].to_vec().into();
    let three = net.replicas.get_mut(&3).expect("it runs");
    assert!(!three.may_become(&between));
    // Nor where a later leader continued from there: the promise covers that state too.
    between.position = between.position.after(2, 3, &[2; 16]);
    between.epochs = [(0, 0), (1, 1), (3, 2)].to_vec().into();
    assert!(!three.may_become(&between));
}

#[test]
fn a_leader_is_followed_from_one_place() {
    let mut net = Net::new(3);
    let old = view(&[(0, "r0"), (0, "b1")]);
    net.all_read(&old, 1);
    // 2 applies b1 alone. Leader 1 lacked that; 2's question is answered by a replica that had it.
    net.read(2, &old);
    let one = view(&[(0, "r0"), (1, "s1"), (1, "s2"), (1, "s3"), (1, "s4")]);
    net.give(2, Input::Record(one.record(2).expect("it is there")));
    net.read_back(2, &old);
    net.deliver();
    net.read(2, &one);
    for id in [1, 3] {
        for _ in 0..3 {
            net.read(id, &one);
        }
    }
    net.read(2, &one);
    net.read(2, &one);
    generation_keeps(&mut net, "s1", (1, 3));
}

#[test]
fn a_log_that_begins_where_a_replica_goes_on_does_not_make_two_ways() {
    let mut net = Net::new(3);
    let old = view(&[(0, "r0"), (0, "b1")]);
    net.all_read(&old, 1);
    net.read(2, &old);
    let one = view(&[(0, "r0"), (1, "s1"), (1, "s2"), (1, "s3"), (1, "s4")]);
    // 2 no longer finds its last record: the log starts right after it.
    net.read(2, &one.from(2));
    for id in [1, 3] {
        for _ in 0..3 {
            net.read(id, &one);
        }
    }
    net.read(2, &one.from(2));
    net.read(2, &one.from(2));
    let on_one = |id: u64| net.disks[&id].cursor.position.leader_epoch == 1;
    assert!(!(on_one(2) && on_one(1)), "two ways under one leader");
    generation_keeps(&mut net, "s1", (1, 3));
}

#[test]
fn an_idle_log_that_forgot_everything_is_followed_on() {
    let mut net = Net::new(3);
    net.all_read(&view(&[(0, "r0"), (0, "r1")]), 2);
    let all = view(&[(0, "r0"), (0, "r1"), (1, "r2")]);
    for id in 1..=3 {
        net.boot(id);
    }
    for id in 1..=3 {
        net.read_back(id, &all.from(2));
        net.read_to(id, &all.from(2), 3);
    }
    assert_eq!(net.stable.values().min(), Some(&3));
}

#[test]
fn a_record_that_was_appended_again_is_another_one() {
    // The same bytes at the same offset were promised away for one leader, and not for another.
    let (one, two) = (view(&[(1, "r")]), view(&[(2, "r")]));
    let chain = |view: &super::net::View| {
        let mut net = Net::new(1);
        net.read_to(1, view, 1);
        net.disks[&1].cursor.position.chain
    };
    assert_ne!(chain(&one), chain(&two));
}

/// Returns 1's answer to a question.
fn promises(net: &mut Net, fence: Fence) -> bool {
    net.mail.clear();
    net.say(2, 1, Message::AskFence(fence));
    let answer = net.mail.iter().find_map(|(_, to, message)| match message {
        Message::FenceAnswer {
            fence: of,
            promised,
        } if *to == 2 && *of == fence => Some(*promised),
        _ => None,
    });
    answer.expect("an answer")
}

#[test]
fn who_follows_a_leader_promises_it_to_those_on_the_same_way_alone() {
    let mut net = Net::new(3);
    let all = view(&[(0, "r0"), (2, "r1"), (2, "r2")]);
    net.all_read(&all, 1);
    let base = net.disks[&1].cursor.position;
    net.read_to(1, &all, 3);
    let fence = Fence {
        generation: base.generation,
        epoch: 2,
        offset: 1,
        chain: base.chain,
        last_epoch: 0,
    };
    assert!(promises(&mut net, fence));
    let other_way = Fence {
        chain: [7; 16],
        ..fence
    };
    assert!(!promises(&mut net, other_way));
    for epoch in [1, 3] {
        assert!(!promises(&mut net, Fence { epoch, ..fence }));
    }
}

#[test]
fn a_promise_outlives_a_crash() {
    let mut net = Net::new(3);
    let old = view(&[(0, "r0"), (0, "r1")]);
    net.all_read(&old, 1);
    let position = net.disks[&1].cursor.position;
    let fence = Fence {
        generation: position.generation,
        epoch: 5,
        offset: 1,
        chain: position.chain,
        last_epoch: 0,
    };
    assert!(promises(&mut net, fence));
    net.boot(1);
    net.read_back(1, &old);
    net.read(1, &old);
    assert_eq!(net.next_offset(1), 1, "an older leader's record");
    let other = Fence {
        chain: [7; 16],
        ..fence
    };
    assert!(!promises(&mut net, other));
}

#[test]
fn no_promise_goes_to_who_followed_an_older_leader() {
    let mut net = Net::new(3);
    let all = view(&[(0, "r0"), (1, "r1")]);
    net.all_read(&all, 1);
    let base = net.disks[&1].cursor.position;
    net.read_to(1, &all, 2);
    let fence = Fence {
        generation: base.generation,
        epoch: 2,
        offset: 3,
        chain: [7; 16],
        last_epoch: 0,
    };
    assert!(!promises(&mut net, fence));
}
