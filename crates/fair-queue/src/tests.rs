use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::{Admission, Busy, Limits, Place, Queue};

fn queue(of_one: usize, waiting_max: usize) -> Arc<Queue> {
    Queue::new(Limits {
        of_one,
        waiting_max,
        slow_after: Some(Duration::from_secs(1)),
        ..Limits::new(of_one + 1)
    })
}

fn poll(admission: &mut Admission) -> Poll<Result<Place, Busy>> {
    Pin::new(admission).poll(&mut Context::from_waker(Waker::noop()))
}

fn given(admission: &mut Admission) -> Place {
    match poll(admission) {
        Poll::Ready(Ok(place)) => place,
        other => panic!("{other:?}"),
    }
}

fn ask(queue: &Arc<Queue>, owner: &str) -> Admission {
    queue.admission(&owner.into())
}

/// Takes places until there are no more for this owner; returns them.
fn take_all(queue: &Arc<Queue>, owner: &str) -> Vec<Place> {
    std::iter::from_fn(|| queue.try_place(&owner.into())).collect()
}

#[test]
fn one_owner_leaves_a_place_to_others() {
    let queue = queue(2, 10);
    let _first = given(&mut ask(&queue, "a"));
    let second = given(&mut ask(&queue, "a"));
    let mut third = ask(&queue, "a");
    assert!(poll(&mut third).is_pending());
    let _other = given(&mut ask(&queue, "b"));
    assert!(poll(&mut third).is_pending());
    drop(second);
    drop(given(&mut third));
}

#[test]
fn the_owner_with_fewest_places_is_next_and_equals_take_turns() {
    let queue = queue(2, 100);
    let mut held: Vec<_> = ["a", "a", "b"].map(|o| given(&mut ask(&queue, o))).into();
    let mut waiting: Vec<_> = ["a", "a", "b", "b", "c"]
        .map(|owner| (owner, ask(&queue, owner)))
        .into();
    for (_, admission) in &mut waiting {
        assert!(poll(admission).is_pending());
    }
    let mut order = vec![];
    while !waiting.is_empty() {
        drop(held.remove(0));
        let at = waiting
            .iter_mut()
            .position(|(_, admission)| match poll(admission) {
                Poll::Ready(place) => {
                    held.push(place.unwrap());
                    true
                }
                Poll::Pending => false,
            });
        order.push(waiting.remove(at.expect("a place was given")).0);
    }
    assert_eq!(order, ["c", "a", "b", "a", "b"]);
}

#[test]
fn the_longest_queue_loses_its_newest_when_too_many_wait() {
    let queue = queue(2, 4);
    let _held: Vec<_> = ["a", "a", "b"].map(|o| given(&mut ask(&queue, o))).into();
    let mut many: Vec<_> = (0..4).map(|_| ask(&queue, "a")).collect();
    assert!(many.iter_mut().all(|a| poll(a).is_pending()));
    assert!(matches!(
        poll(&mut ask(&queue, "a")),
        Poll::Ready(Err(Busy { waiting_max: 4 }))
    ));
    let mut other = ask(&queue, "b");
    assert!(poll(&mut other).is_pending());
    assert!(matches!(poll(&mut many[3]), Poll::Ready(Err(_))));
    assert!(many[..3].iter_mut().all(|a| poll(a).is_pending()));
}

#[test]
fn slow_owners_together_leave_a_place_to_others() {
    let queue = queue(2, 10);
    for slow in ["a", "b"] {
        let mut state = queue.state.lock();
        state.note_slow(&slow.into(), Instant::now());
    }
    let first = given(&mut ask(&queue, "a"));
    let _second = given(&mut ask(&queue, "b"));
    let mut third = ask(&queue, "b");
    assert!(poll(&mut third).is_pending());
    drop(given(&mut ask(&queue, "c")));
    assert!(poll(&mut third).is_pending());
    drop(first);
    drop(given(&mut third));
}

#[test]
fn the_owners_that_were_slow_last_are_remembered() {
    let queue = queue(2, 10);
    let mut state = queue.state.lock();
    let began = Instant::now();
    for number in 0..2000 {
        let now = began + Duration::from_millis(number);
        state.note_slow(&number.to_string().into(), now);
    }
    let slow = |number: u64| state.is_slow(&number.to_string().into(), began);
    assert!(slow(1999) && slow(1000) && !slow(0));
}

#[test]
fn several_owners_together_leave_places_to_others() {
    let queue = Queue::new(Limits {
        share_percent: Some(50),
        ..Limits::new(32)
    });
    let counts: Vec<_> = ["a", "b", "c", "d"]
        .map(|owner| take_all(&queue, owner))
        .into();
    let lengths: Vec<_> = counts.iter().map(Vec::len).collect();
    assert_eq!(lengths, [11, 7, 5, 3]);
    // A released place is not for owners that hold more than their share.
    drop(counts);
    let _a = take_all(&queue, "a");
    assert!(!take_all(&queue, "b").is_empty());
}

#[test]
fn a_share_grows_again_when_others_give_places_back() {
    let queue = Queue::new(Limits {
        share_percent: Some(100),
        ..Limits::new(8)
    });
    let mut a = take_all(&queue, "a");
    assert_eq!(a.len(), 4);
    let b = take_all(&queue, "b");
    assert_eq!(b.len(), 2);
    let mut more = ask(&queue, "b");
    assert!(poll(&mut more).is_pending());
    a.truncate(2);
    drop(given(&mut more));
    assert!(queue.try_place(&"c".into()).is_some());
}

#[test]
fn places_can_become_more_and_fewer() {
    let queue = Queue::new(Limits::new(1));
    let first = given(&mut ask(&queue, "a"));
    let mut second = ask(&queue, "a");
    assert!(poll(&mut second).is_pending());
    queue.set_places(2);
    let second = given(&mut second);
    queue.set_places(1);
    drop(first);
    assert!(queue.try_place(&"a".into()).is_none());
    drop(second);
    assert!(queue.try_place(&"a".into()).is_some());
    assert_eq!(queue.used(), 0);
}

#[test]
fn a_patient_caller_is_never_refused() {
    let queue = queue(2, 0);
    let held: Vec<_> = ["a", "a"].map(|o| given(&mut ask(&queue, o))).into();
    let mut patient: Vec<_> = (0..3).map(|_| ask(&queue, "a").patiently()).collect();
    assert!(patient.iter_mut().all(|a| poll(a).is_pending()));
    assert!(matches!(poll(&mut ask(&queue, "a")), Poll::Ready(Err(_))));
    drop(held);
    let served: Vec<_> = patient[..2].iter_mut().map(given).collect();
    assert_eq!(served.len(), 2);
}

#[test]
fn a_caller_that_left_takes_no_place() {
    let queue = queue(2, 4);
    let held: Vec<_> = ["a", "a"].map(|o| given(&mut ask(&queue, o))).into();
    let mut gone = ask(&queue, "a");
    assert!(poll(&mut gone).is_pending());
    let mut given_but_gone = ask(&queue, "a");
    assert!(poll(&mut given_but_gone).is_pending());
    drop(gone);
    drop(held);
    drop(given_but_gone);
    let state = queue.state.lock();
    let left = (state.used, state.waiting, state.patient, state.owners.len());
    assert_eq!(left, (0, 0, 0, 0));
}

#[test]
fn a_place_is_wanted_back_after_its_slice_when_somebody_waits() {
    let queue = Queue::new(Limits {
        slice: Duration::ZERO,
        ..Limits::new(1)
    });
    let place = given(&mut ask(&queue, "a"));
    assert!(!place.is_wanted());
    let mut waiting = ask(&queue, "b");
    assert!(poll(&mut waiting).is_pending());
    assert!(place.is_wanted());
}

#[test]
fn threads_wait_until_it_is_their_turn() {
    let queue = queue(2, 0);
    let count = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let place = ask(&queue, "a").wait().unwrap();
                    assert!(count.fetch_add(1, Ordering::SeqCst) < 2);
                    count.fetch_sub(1, Ordering::SeqCst);
                    drop(place);
                }
            });
        }
    });
    assert!(queue.state.lock().owners.is_empty());
}

/// A queue of 100 places that owners share.
fn shared() -> Arc<Queue> {
    Queue::new(Limits {
        share_percent: Some(100),
        ..Limits::new(100)
    })
}

#[test]
fn an_owner_gets_several_places_while_as_many_stay_free() {
    let queue = shared();
    let mut wants = |owner: &str, count| match poll(&mut ask(&queue, owner).places(count, 0)) {
        Poll::Ready(Ok(place)) => Some(place),
        _ => None,
    };
    let first = wants("a", 30);
    assert_eq!(first.as_ref().map(Place::count), Some(30));
    assert!(wants("a", 21).is_none());
    let second = wants("a", 20);
    assert!(second.is_some() && wants("a", 1).is_none());
    // Another owner gets what is free, once.
    let other = wants("b", 50);
    assert!(other.is_some() && wants("c", 1).is_none());
    drop((first, second, other));
    assert_eq!((queue.used(), queue.state.lock().owners.len()), (0, 0));
}

#[test]
fn work_that_grows_is_limited_by_what_its_owner_holds_besides() {
    let queue = shared();
    let _other = given(&mut ask(&queue, "b").places(40, 0));
    let _some = given(&mut ask(&queue, "a").places(25, 0));
    assert!(poll(&mut ask(&queue, "a").places(25, 0)).is_pending());
    let more = given(&mut ask(&queue, "a").places(25, 25));
    drop(more);
    let _besides = given(&mut ask(&queue, "a").places(1, 0));
    assert!(poll(&mut ask(&queue, "a").places(25, 25)).is_pending());
    let all = given(&mut ask(&queue, "a").places(34, 0).beyond_share());
    assert_eq!((all.count(), queue.used()), (34, 100));
}

#[test]
fn an_owner_that_waits_for_its_share_is_passed_and_presses_no_poorer_one() {
    let queue = shared();
    let rich = given(&mut ask(&queue, "a").places(50, 0));
    let poor = given(&mut ask(&queue, "b").places(10, 0));
    let mut more = ask(&queue, "a").places(10, 0);
    assert!(poll(&mut more).is_pending());
    assert!(rich.is_wanted_by_poorer() && !poor.is_wanted_by_poorer());
    drop(given(&mut ask(&queue, "c").places(40, 0)));
    let mut waits = ask(&queue, "d").places(41, 0);
    assert!(poll(&mut waits).is_pending());
    assert!(poor.is_wanted_by_poorer());
    drop(rich);
    drop(given(&mut waits));
    drop(given(&mut more));
}
