use std::future::Future;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use super::*;

/// The number of orders. A newcomer may come just after the turn of the one that sets it apart.
const ROUND: usize = 5;

type Waiting<'t> = Pin<Box<dyn Future<Output = Option<Turn>> + 't>>;

fn is_ready<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

fn address(n: u8) -> Origin {
    IpAddr::from([n, 0, 0, 1]).into()
}

fn parsed(text: &str) -> Origin {
    text.parse::<IpAddr>().expect("an address").into()
}

/// A check that waits.
fn enter<'t>(turns: &'t Turns, origin: Origin, name: impl Into<String>) -> Waiting<'t> {
    let name = name.into();
    let mut check: Waiting<'t> = Box::pin(async move { turns.wait(Some(&origin), &name).await });
    assert!(is_ready(check.as_mut()).is_none(), "it waits");
    check
}

/// Returns the number of checks that begin before that of a newcomer, when wrong passwords wait that
/// came before it. The last `later` of them come after it, one for each turn.
fn checks_before(flood: &[(Origin, String)], later: usize, newcomer: (Origin, &str)) -> usize {
    let turns = Turns::of(1);
    let mut running = is_ready(pin!(turns.wait(None, "another"))).expect("free");
    let (first, later) = flood.split_at(flood.len() - later);
    let mut later = later.iter();
    let mut senders: Vec<_> = first.iter().collect();
    let mut waiting: Vec<Waiting<'_>> = first
        .iter()
        .map(|(origin, name)| enter(&turns, origin.clone(), name.as_str()))
        .collect();
    let (origin, name) = newcomer;
    let mut newcomer = enter(&turns, origin, name);
    let mut before = 0;
    loop {
        if let Some(sender) = later.next() {
            senders.push(sender);
            waiting.push(enter(&turns, sender.0.clone(), sender.1.as_str()));
        }
        drop(running);
        if is_ready(newcomer.as_mut()).is_some() {
            return before;
        }
        let next = waiting
            .iter_mut()
            .enumerate()
            .find_map(|(n, check)| Some((n, is_ready(check.as_mut())?)));
        let (n, turn) = next.expect("a check has the turn");
        drop(waiting.swap_remove(n));
        let (origin, _) = senders.swap_remove(n);
        turns.note(Some(origin), false);
        running = turn;
        before += 1;
    }
}

/// Checks of distinct names from these addresses.
fn flood(number: usize, address: impl Fn(usize) -> String) -> Vec<(Origin, String)> {
    (0..number)
        .map(|n| (parsed(&address(n)), format!("someone{n}")))
        .collect()
}

#[test]
fn a_flood_from_one_ipv6_site_delays_others_by_at_most_a_round() {
    let flood = flood(400, |n| format!("2001:db8:5:{n:x}::1"));
    for later in [0, 200] {
        for newcomer in ["2001:db8:6::1", "192.0.2.1"] {
            let before = checks_before(&flood, later, (parsed(newcomer), "fay"));
            assert!(
                before <= ROUND,
                "{newcomer}: {before} checks, {later} later"
            );
        }
    }
}

#[test]
fn a_flood_from_one_customer_delays_others_of_its_site_by_at_most_a_round() {
    let flood = flood(200, |n| format!("2001:db8:5:1{n:02x}::1"));
    for later in [0, 100] {
        let before = checks_before(&flood, later, (parsed("2001:db8:5:200::1"), "fay"));
        assert!(before <= ROUND, "{before} checks, {later} later");
    }
}

#[test]
fn a_flood_from_ipv4_networks_delays_others_by_at_most_a_round() {
    let flood = flood(400, |n| format!("10.1.{}.{}", n % 200, n / 200));
    for later in [0, 200] {
        let before = checks_before(&flood, later, (parsed("10.2.1.1"), "fay"));
        assert!(before <= ROUND, "{before} checks, {later} later");
    }
}

#[test]
fn a_flood_of_one_address_with_many_names_delays_others_by_at_most_a_round() {
    let flood = flood(400, |_| "10.1.2.3".to_owned());
    // At the flood's own address only until more of it comes.
    for (newcomer, later) in [("10.1.2.4", 0), ("10.1.2.4", 200), ("10.1.2.3", 0)] {
        let before = checks_before(&flood, later, (parsed(newcomer), "fay"));
        assert!(
            before <= ROUND,
            "{newcomer}: {before} checks, {later} later"
        );
    }
}

#[test]
fn a_flood_of_one_name_from_everywhere_delays_other_names_by_at_most_a_round() {
    let flood: Vec<_> = (0..400)
        .map(|n| {
            (
                parsed(&format!("{}.{}.1.1", n % 200 + 1, n / 200)),
                "anna".to_owned(),
            )
        })
        .collect();
    for later in [0, 200] {
        let before = checks_before(&flood, later, (parsed("203.0.113.1"), "fay"));
        assert!(before <= ROUND, "{before} checks, {later} later");
    }
}

#[test]
fn a_burst_of_many_names_from_everywhere_delays_later_ones_by_at_most_a_round() {
    let flood = flood(400, |n| format!("{}.{}.1.1", n % 200 + 1, n / 200));
    let before = checks_before(&flood, 0, (parsed("203.0.113.1"), "fay"));
    assert!(before <= ROUND, "{before} checks");
}

#[test]
fn an_address_that_gave_a_right_password_comes_first_whatever_waits() {
    let turns = Turns::of(1);
    let (owner, other) = (address(1), address(2));
    turns.note(Some(&owner), true);
    let running = is_ready(pin!(turns.wait(None, "another"))).expect("free");
    let mut flood: Vec<_> = (3..200)
        .map(|n| enter(&turns, address(n), "anna"))
        .collect();
    let mut owns = enter(&turns, owner, "anna");
    flood.push(enter(&turns, other, "anna"));
    drop(running);
    let turn = is_ready(owns.as_mut()).flatten();
    assert!(turn.is_some());
    let next = flood
        .iter_mut()
        .filter_map(|check| is_ready(check.as_mut()));
    assert_eq!(next.count(), 0);
}

#[test]
fn everybody_has_a_turn_in_the_end() {
    let turns = Turns::of(2);
    let origins = |n: usize| parsed(&format!("10.{}.{}.{}", n % 2, n % 3, n % 5));
    let first = is_ready(pin!(turns.wait(None, "a"))).expect("free");
    let second = is_ready(pin!(turns.wait(None, "b"))).expect("free");
    let mut waiting: Vec<_> = (0..300)
        .map(|n| enter(&turns, origins(n), format!("name{}", n % 7)))
        .collect();
    drop((first, second));
    while !waiting.is_empty() {
        let before = waiting.len();
        // Each turn ends at once.
        waiting.retain_mut(|check| is_ready(check.as_mut()).is_none());
        assert!(waiting.len() < before, "{before} wait");
    }
    let state = turns.queues.lock();
    assert_eq!((state.free, state.waiting), (2, 0));
    assert!(state.queues.is_empty() && state.crowds.is_empty());
}

#[test]
fn one_address_leaves_turns_to_others_and_gives_them_back() {
    let turns = Turns::of(2);
    let (a, b) = (address(1), address(2));
    let first = is_ready(pin!(turns.wait(Some(&a), "a")))
        .expect("free")
        .expect("few wait");
    let mut second = pin!(turns.wait(Some(&a), "b"));
    assert!(
        is_ready(second.as_mut()).is_none(),
        "its own turns are taken"
    );
    let other = is_ready(pin!(turns.wait(Some(&b), "a"))).expect("another's turn");
    assert!(
        is_ready(pin!(turns.wait(None, "a"))).is_none(),
        "all are taken"
    );
    drop(first);
    // The other check that waits has gone.
    assert!(is_ready(second.as_mut()).is_some());
    drop(other);
    let state = turns.queues.lock();
    assert_eq!((state.free, state.waiting), (2, 0));
}

#[test]
fn claimants_that_nobody_waits_for_are_forgotten() {
    let turns = Turns::of(4);
    for n in 0..100 {
        drop(is_ready(pin!(turns.wait(Some(&address(n)), "a"))));
    }
    let state = turns.queues.lock();
    assert!(state.queues.is_empty() && state.crowds.is_empty());
}

#[test]
fn an_address_without_failures_comes_before_many_that_failed() {
    let turns = Turns::of(1);
    let running = is_ready(pin!(turns.wait(Some(&address(0)), "a"))).expect("free");
    let mut flood: Vec<_> = (1..=60)
        .flat_map(|n| [address(n), address(n), address(n)])
        .map(|origin| {
            turns.note(Some(&origin), false);
            enter(&turns, origin, "a")
        })
        .collect();
    let mut first = enter(&turns, address(200), "a");
    drop(running);
    let turn = is_ready(first.as_mut()).expect("the next turn");
    assert!(
        flood
            .iter_mut()
            .all(|waiting| is_ready(waiting.as_mut()).is_none())
    );
    drop(turn);
    let next = flood
        .iter_mut()
        .filter_map(|waiting| is_ready(waiting.as_mut()));
    assert_eq!(
        next.collect::<Vec<_>>().len(),
        1,
        "then the others, one at a time"
    );
}

#[test]
fn the_checks_of_a_name_are_bounded_but_for_addresses_that_gave_a_right_password() {
    let turns = Turns::of(1);
    let owner = address(250);
    turns.note(Some(&owner), true);
    let _running = is_ready(pin!(turns.wait(None, "another"))).expect("free");
    let flood: Vec<_> = (0..WAITING_OF_EACH_MAX)
        .map(|n| {
            enter(
                &turns,
                parsed(&format!("{}.{}.1.1", n % 200 + 1, n / 200)),
                "anna",
            )
        })
        .collect();
    let more = is_ready(pin!(turns.wait(Some(&address(240)), "anna")));
    assert!(
        more.is_some_and(|turn| turn.is_none()),
        "refused immediately"
    );
    drop(enter(&turns, address(240), "fay"));
    drop(enter(&turns, owner, "anna"));
    drop(flood);
    assert_eq!(turns.queues.lock().waiting, 0);
}

#[test]
fn a_network_that_fills_the_queue_of_a_name_does_not_keep_others_out() {
    let turns = Turns::of(1);
    let running = is_ready(pin!(turns.wait(None, "another"))).expect("free");
    let of_site = |n: usize| parsed(&format!("2001:db8:5:{n:x}::1"));
    let mut flood: Vec<_> = (0..WAITING_OF_EACH_MAX)
        .map(|n| enter(&turns, of_site(n), "anna"))
        .collect();
    for name in ["anna", "fay"] {
        let more = of_site(WAITING_OF_EACH_MAX);
        let more = is_ready(pin!(turns.wait(Some(&more), name)));
        assert!(more.is_some_and(|turn| turn.is_none()), "{name}: too many");
    }
    let mut owner = enter(&turns, address(200), "anna");
    flood.retain_mut(|check| is_ready(check.as_mut()).is_none());
    assert_eq!(flood.len(), WAITING_OF_EACH_MAX - 1, "one is refused");
    assert_eq!(turns.queues.lock().waiting, WAITING_OF_EACH_MAX);
    let mut turn = running;
    let mut before = 0;
    loop {
        drop(turn);
        if let Some(owns) = is_ready(owner.as_mut()) {
            assert!(owns.is_some(), "it is not refused");
            break;
        }
        let next = flood
            .iter_mut()
            .enumerate()
            .find_map(|(n, check)| Some((n, is_ready(check.as_mut())?)));
        let (n, began) = next.expect("a check has the turn");
        drop(flood.swap_remove(n));
        turn = began;
        before += 1;
    }
    assert!(before <= ROUND, "{before} checks");
}

#[test]
fn checks_that_may_not_run_are_not_searched_by_those_that_come() {
    let turns = Turns::of(2);
    let a = address(1);
    let running = is_ready(pin!(turns.wait(Some(&a), "a"))).expect("free");
    let searches = || turns.queues.lock().searches;
    let before = searches();
    let flood: Vec<_> = (0..100)
        .map(|n| enter(&turns, a.clone(), format!("name{n}")))
        .collect();
    assert_eq!(searches(), before, "the address has its turn");
    drop(is_ready(pin!(turns.wait(Some(&address(2)), "a"))).expect("the other turn"));
    assert!(searches() > before);
    drop((running, flood));
    let state = turns.queues.lock();
    assert_eq!((state.free, state.waiting), (2, 0));
}

/// As many checks as may wait, of 8 sites and as many names.
fn fill(turns: &Turns) -> Vec<Waiting<'_>> {
    (0..WAITING_MAX)
        .map(|n| enter(turns, of_eight_sites(n), format!("name{}", site(n))))
        .collect()
}

fn site(n: usize) -> usize {
    n * 8 / WAITING_MAX
}

fn of_eight_sites(n: usize) -> Origin {
    parsed(&format!("2001:db8:{}:{n:x}::1", site(n)))
}

#[test]
fn waiting_checks_are_bounded_and_the_largest_crowd_makes_room() {
    for has_failed in [false, true] {
        let turns = Turns::of(1);
        let _running = is_ready(pin!(turns.wait(None, "another"))).expect("free");
        let mut waiting = fill(&turns);
        if has_failed {
            for n in 0..WAITING_MAX {
                turns.note(Some(&of_eight_sites(n)), false);
            }
        }
        let again = of_eight_sites(3000);
        let more = is_ready(pin!(turns.wait(Some(&again), "name1")));
        assert!(
            more.is_some_and(|turn| turn.is_none()),
            "refused immediately"
        );
        let user = enter(&turns, address(200), "fay");
        let refused = waiting
            .iter_mut()
            .filter_map(|check| is_ready(check.as_mut()));
        assert_eq!(refused.filter(Option::is_none).count(), 1);
        assert_eq!(turns.queues.lock().waiting, WAITING_MAX);
        drop(waiting);
        assert_eq!(turns.queues.lock().waiting, 1, "the others have gone");
        drop(user);
        assert!(turns.queues.lock().queues.is_empty());
    }
}

#[test]
fn clients_that_go_leave_their_queue_at_once() {
    let turns = Turns::of(1);
    let (a, b) = (address(1), address(2));
    let running = is_ready(pin!(turns.wait(Some(&a), "a"))).expect("free");
    let mut waiting: Vec<_> = (0..WAITING_OF_EACH_MAX)
        .map(|_| enter(&turns, a.clone(), "a"))
        .collect();
    let one_more = is_ready(pin!(turns.wait(Some(&a), "b")));
    assert!(
        one_more.is_some_and(|turn| turn.is_none()),
        "its queue is full"
    );
    // From the middle, the front and the back.
    for at in [2000, 0, WAITING_OF_EACH_MAX - 3] {
        drop(waiting.remove(at));
    }
    let claimant = Claimant::new(Some(&a), "a");
    let queued = || turns.queues.lock().queues[&claimant].len();
    assert_eq!(queued(), WAITING_OF_EACH_MAX - 3);
    assert_eq!(turns.queues.lock().waiting, WAITING_OF_EACH_MAX - 3);
    let mut last = enter(&turns, a.clone(), "a");
    let other = enter(&turns, b.clone(), "b");
    drop(waiting);
    drop(other);
    let others = Claimant::new(Some(&b), "b");
    assert!(!turns.queues.lock().queues.contains_key(&others));
    drop(running);
    let turn = is_ready(last.as_mut()).expect("the next turn");
    assert!(turn.is_some());
    // A check that is over removes no other.
    drop(last);
    drop(turn);
    let state = turns.queues.lock();
    assert_eq!((state.free, state.waiting), (1, 0));
    assert!(state.queues.is_empty() && state.crowds.is_empty());
}

#[test]
fn thousands_of_clients_may_go_while_they_wait() {
    let turns = Turns::of(1);
    let running = is_ready(pin!(turns.wait(None, "a"))).expect("free");
    let mut waiting: Vec<_> = (0..WAITING_OF_EACH_MAX)
        .map(|_| Box::pin(turns.wait(None, "a")))
        .collect();
    for check in &mut waiting {
        assert!(is_ready(check.as_mut()).is_none());
    }
    let mut last = waiting.split_off(WAITING_OF_EACH_MAX - 1);
    drop(waiting);
    // The stack of a thread is small enough to overflow if each turn begins the next by a call.
    std::thread::scope(|scope| {
        let small = std::thread::Builder::new().stack_size(256 << 10);
        let end = small.spawn_scoped(scope, move || drop(running));
        end.expect("a thread").join().expect("no overflow");
    });
    let turn = is_ready(last[0].as_mut()).expect("the next turn");
    assert!(turn.is_some(), "the last one, who still waits");
    assert!(turns.queues.lock().waiting == 0);
}
