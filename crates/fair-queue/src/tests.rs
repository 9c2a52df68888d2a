use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::{Admission, Busy, Cause, Limits, Place, Queue, Requester, Share};

fn queue(of_one: usize, waiting_max: usize) -> Arc<Queue> {
    Queue::new(Limits {
        of_user: of_one,
        of_database: of_one,
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
    let slow = |number: u64| state.slow_users.contains(&number.to_string().into(), began);
    assert!(slow(1999) && slow(1000) && !slow(0));
}

#[test]
fn several_owners_together_leave_places_to_others() {
    let queue = Queue::new(Limits {
        user_percent: Some(50),
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
        user_percent: Some(100),
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
    let left = (state.used, state.waiting, state.patient);
    assert_eq!(left, (0, 0, 0));
    assert!(state.shares.is_empty() && state.users.is_empty() && state.databases.is_empty());
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
    assert!(queue.state.lock().shares.is_empty());
}

fn served(admission: &mut Admission) -> Option<Place> {
    match poll(admission) {
        Poll::Ready(Ok(place)) => Some(place),
        _ => None,
    }
}

fn share(user: &str, database: &str) -> Share {
    Requester::user(user).share(&database.into())
}

#[test]
fn a_user_with_many_databases_has_the_share_of_one() {
    let queue = queue(2, 100);
    let ask = |user: &str, database: &str| queue.admission(&share(user, database));
    let held: Vec<_> = (0..2)
        .map(|n| given(&mut ask("many", &n.to_string())))
        .collect();
    let mut waiting: Vec<_> = (2..50).map(|n| ask("many", &n.to_string())).collect();
    assert!(waiting.iter_mut().all(|a| poll(a).is_pending()));
    let other = given(&mut ask("other", "db"));
    let mut second = ask("other", "db");
    assert!(poll(&mut second).is_pending());
    // The user with fewer places is next, whoever came first.
    drop(held);
    let served: Vec<_> = waiting.iter_mut().filter_map(served).collect();
    assert_eq!(served.len(), 1);
    drop((given(&mut second), served, other));
}

#[test]
fn a_database_with_many_users_leaves_a_place_to_others() {
    let queue = queue(2, 100);
    let ask = |user: &str, database: &str| queue.admission(&share(user, database));
    let _held: Vec<_> = (0..2)
        .map(|n| given(&mut ask(&n.to_string(), "busy")))
        .collect();
    let mut waiting: Vec<_> = (2..50).map(|n| ask(&n.to_string(), "busy")).collect();
    assert!(waiting.iter_mut().all(|a| poll(a).is_pending()));
    drop(given(&mut ask("other", "db")));
}

#[test]
fn a_user_with_many_databases_loses_its_newest_callers() {
    let queue = queue(2, 10);
    let ask = |user: &str, database: &str| queue.admission(&share(user, database));
    let _held: Vec<_> = ["many", "many", "other"]
        .map(|user| given(&mut ask(user, user)))
        .into();
    let mut many: Vec<_> = (0..10).map(|n| ask("many", &n.to_string())).collect();
    assert!(many.iter_mut().all(|a| poll(a).is_pending()));
    let mut refused = ask("many", "one more");
    assert!(matches!(poll(&mut refused), Poll::Ready(Err(_))));
    let mut others: Vec<_> = (0..5).map(|_| ask("other", "db")).collect();
    assert!(others.iter_mut().all(|a| poll(a).is_pending()));
    let lost = many.iter_mut().map(poll).filter(Poll::is_ready);
    assert_eq!(lost.count(), 5);
    // Within a user, the database with the most callers loses.
    let mut of_other = ask("other", "second");
    assert!(poll(&mut of_other).is_pending());
    assert!(matches!(poll(&mut others[4]), Poll::Ready(Err(_))));
}

#[test]
fn callers_of_many_users_of_a_database_make_room_for_other_databases() {
    let queue = queue(2, 10);
    let ask = |user: &str, database: &str| queue.admission(&share(user, database));
    let _held: Vec<_> = ["a", "b", "other"]
        .map(|user| given(&mut ask(user, user)))
        .into();
    let mut many: Vec<_> = (0..10).map(|n| ask(&n.to_string(), "busy")).collect();
    assert!(many.iter_mut().all(|a| poll(a).is_pending()));
    let mut other = ask("other", "db");
    assert!(poll(&mut other).is_pending());
    // But no user gets more of the queue by taking many databases.
    let mut many = ask("other", "another");
    assert!(matches!(poll(&mut many), Poll::Ready(Err(_))));
}

#[test]
fn background_work_has_one_share_and_admins_one_for_each_database() {
    let databases: [Arc<str>; 2] = ["a".into(), "b".into()];
    let users = |requester: Requester| databases.each_ref().map(|db| requester.share(db).user);
    let [a, b] = users(Requester::Background);
    assert_eq!(a, b);
    let [a, b] = users(Requester::Admin);
    assert_ne!(a, b);
}

#[test]
fn a_thread_works_for_one_requester_at_a_time() {
    let current = || Cause::current().requester();
    assert_eq!(current(), Requester::Background);
    let entered = Requester::Admin.enter();
    let inner = Requester::user("a").enter();
    assert_eq!(current(), Requester::user("a"));
    drop(inner);
    assert_eq!(current(), Requester::Admin);
    drop(entered);
    assert_eq!(current(), Requester::Background);
}

#[test]
fn background_work_becomes_that_of_the_first_who_waits_for_it() {
    let cause = Cause::default();
    for (joins, whose) in [("a", "a"), ("b", "a")] {
        cause.join(&Requester::user(joins));
        assert_eq!(cause.requester(), Requester::user(whose));
    }
}

/// A queue of 100 places that owners share.
fn shared() -> Arc<Queue> {
    Queue::new(Limits {
        user_percent: Some(100),
        ..Limits::new(100)
    })
}

#[test]
fn an_owner_gets_several_places_while_as_many_stay_free() {
    let queue = shared();
    let wants = |owner: &str, count| match poll(&mut ask(&queue, owner).places(count, 0)) {
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
    assert_eq!((queue.used(), queue.state.lock().shares.len()), (0, 0));
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

/// The kinds of limits that users and databases have together.
fn limits_of_both() -> impl Strategy<Value = Limits> {
    let counted = (1..6_usize).prop_map(|of_user| Limits {
        of_user,
        of_database: of_user + 1,
        ..Limits::new(of_user + 2)
    });
    let shared = (4..40_usize).prop_map(|places| Limits {
        user_percent: Some(50),
        database_percent: Some(200),
        ..Limits::new(places)
    });
    let both = Just(Limits {
        of_user: 10,
        of_database: 20,
        user_percent: Some(50),
        database_percent: Some(200),
        ..Limits::new(32)
    });
    prop_oneof![counted, shared, both]
}

/// A user and a database, by number.
type Owner = (usize, usize);

fn share_of((user, database): Owner) -> Share {
    share(&user.to_string(), &database.to_string())
}

/// Takes places until there are no more for this owner; returns them.
fn all_of(queue: &Arc<Queue>, owner: Owner) -> Vec<Place> {
    std::iter::from_fn(|| queue.try_place(&share_of(owner))).collect()
}

/// Returns whether an owner may have another place, by the documentation of [`Limits`].
fn may_have(limits: &Limits, held: &[(Owner, Place)], (user, database): Owner) -> bool {
    let free = limits.places - held.len();
    let count = |is_counted: &dyn Fn(Owner) -> bool| {
        held.iter().filter(|(owner, _)| is_counted(*owner)).count()
    };
    let is_within = |count: usize, max: usize, percent: Option<usize>| {
        count < max && (count == 0 || percent.is_none_or(|percent| count * 100 < free * percent))
    };
    let of_user = count(&|owner| owner.0 == user);
    let of_database = count(&|owner| owner.1 == database);
    free > 0
        && is_within(of_user, limits.of_user, limits.user_percent)
        && is_within(of_database, limits.of_database, limits.database_percent)
}

proptest! {
    #[test]
    fn places_are_given_as_the_limits_say(
        limits in limits_of_both(),
        steps in proptest::collection::vec((0..3_usize, 0..5_usize, 0..3_usize), 1..100),
    ) {
        let queue = Queue::new(limits);
        let mut held: Vec<(Owner, Place)> = vec![];
        let mut waiting: Vec<(Owner, Admission)> = vec![];
        for (kind, user, database) in steps {
            let owner = (user, database);
            if kind == 0 {
                let released = user * 3 + database;
                if released < held.len() {
                    drop(held.swap_remove(released));
                }
            } else {
                let expected = may_have(&limits, &held, owner);
                let mut admission = queue.admission(&share_of(owner));
                let place = served(&mut admission);
                prop_assert_eq!(place.is_some(), expected);
                match place {
                    Some(place) => held.push((owner, place)),
                    None => waiting.push((owner, admission)),
                }
            }
            for (owner, mut admission) in std::mem::take(&mut waiting) {
                match served(&mut admission) {
                    Some(place) => held.push((owner, place)),
                    None => waiting.push((owner, admission)),
                }
            }
            prop_assert_eq!(queue.used(), held.len());
            for (owner, _) in &waiting {
                prop_assert!(!may_have(&limits, &held, *owner), "{owner:?} waits");
            }
        }
    }

    #[test]
    fn one_user_never_has_all_that_a_database_may_have(
        limits in limits_of_both(),
        others in proptest::collection::vec((0..5_usize, 1..4_usize), 0..40),
    ) {
        let queue = Queue::new(limits);
        let elsewhere = others.into_iter();
        let _elsewhere: Vec<Place> =
            elsewhere.filter_map(|owner| queue.try_place(&share_of(owner))).collect();
        let _all_of_one = all_of(&queue, (10, 0));
        let is_any_free = queue.used() < limits.places;
        prop_assert_eq!(queue.try_place(&share_of((11, 0))).is_some(), is_any_free);
    }

    #[test]
    fn the_users_of_a_database_leave_a_place_to_other_databases(limits in limits_of_both()) {
        let queue = Queue::new(limits);
        let _all: Vec<_> = (0..100).map(|user| all_of(&queue, (user, 0))).collect();
        prop_assert!(queue.try_place(&share_of((100, 1))).is_some());
    }
}
