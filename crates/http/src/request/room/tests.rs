//! Room for bodies: its limits, and who gets it.

use futures_util::FutureExt as _;

use super::*;

const MIB: u64 = 1 << 20;

/// A budget whose requests are refused soon.
fn impatient(budget_bytes: usize) -> Arc<Bodies> {
    let mut bodies = Arc::into_inner(Bodies::new(budget_bytes)).expect("nobody else has it");
    bodies.wait_max = Duration::from_millis(10);
    Arc::new(bodies)
}

fn user(name: &str) -> Sharer {
    Sharer::named(name)
}

fn body_of(bodies: &Arc<Bodies>, name: &str) -> Room {
    bodies.body(user(name), BodyClass::Many)
}

fn status(taken: Result<(), ApiError>) -> u16 {
    taken.map_or_else(|e| e.status, |()| 200)
}

#[tokio::test]
async fn who_finds_no_room_is_refused_in_the_end() {
    let bodies = impatient(64 << 20);
    let mut first = bodies.body(Sharer::admin(), BodyClass::Many);
    first.announce(20 * MIB).await.expect("there is room");
    assert_eq!(bodies.used_bytes(), (20 * MIB, 20 * MIB));
    first
        .work_on_text(20 * MIB)
        .await
        .expect("it is as much as a body gets");
    assert_eq!(bodies.used_bytes().0, 26 * MIB);
    let mut second = bodies.body(Sharer::admin(), BodyClass::Many);
    let refused = second.announce(13 * MIB).await.expect_err("there is none");
    assert_eq!((refused.status, refused.headers.len()), (503, 1));
    assert!(!first.is_wanted());
    drop((first, second));
    assert_eq!(bodies.used_bytes().0, 0);
}

#[tokio::test]
async fn who_finds_no_room_waits_for_it() {
    let bodies = Bodies::new(64 << 20);
    let mut first = body_of(&bodies, "a");
    first.announce(12 * MIB).await.expect("there is room");
    let mut second = body_of(&bodies, "a");
    // Short ones and attachments have their own.
    let mut short = bodies.body(user("a"), BodyClass::Document);
    short.announce(MIB).await.expect("there is room");
    let attachment = bodies.stream(user("a"), None).await.expect("there is room");
    assert!(!first.is_wanted());
    let waiting = tokio::spawn(async move { second.announce(9 * MIB).await.map(|()| second) });
    tokio::task::yield_now().await;
    assert!(first.is_wanted() && !short.is_wanted());
    drop(first);
    let second = waiting.await.expect("no panic").expect("there is room now");
    drop((second, short, attachment));
    assert_eq!(bodies.used_bytes().0, 0);
}

#[tokio::test]
async fn a_user_with_many_bodies_leaves_room_to_others() {
    let bodies = impatient(64 << 20);
    let mut held = vec![];
    let mut last = 200;
    while last == 200 {
        let mut room = body_of(&bodies, "a");
        last = status(room.announce(2 * MIB).await);
        held.push(room);
    }
    assert_eq!((held.len(), last), (9, 503), "half of 32 MiB");
    // Others get as long a body as anybody, and do not wait.
    let mut other = body_of(&bodies, "b");
    other.announce(16 * MIB).await.expect("there is room");
    assert_eq!(status(body_of(&bodies, "c").announce(2 * MIB).await), 503);
    drop(held);
    drop(other);
    assert_eq!(bodies.used_bytes().0, 0);
}

#[tokio::test]
async fn a_user_who_waits_for_its_own_share_presses_nobody() {
    let bodies = Bodies::new(64 << 20);
    let mut rich = body_of(&bodies, "a");
    rich.announce(16 * MIB).await.expect("there is room");
    let mut slow = body_of(&bodies, "b");
    slow.announce(2 * MIB).await.expect("there is room");
    let mut more = body_of(&bodies, "a");
    let waiting = tokio::spawn(async move { more.announce(2 * MIB).await });
    tokio::task::yield_now().await;
    assert!(rich.is_wanted() && !slow.is_wanted());
    waiting.abort();
}

#[tokio::test]
async fn a_body_that_can_never_fit_is_refused_at_once() {
    let bodies = Bodies::new(64 << 20);
    let mut others = body_of(&bodies, "b");
    others.announce(16 * MIB).await.expect("there is room");
    let mut stated = body_of(&bodies, "a");
    assert_eq!(status(stated.announce(16 * MIB + 1).await), 413);
    drop(others);
    for (sharer, most) in [(user("a"), 16 * MIB), (Sharer::admin(), 32 * MIB)] {
        let mut stated = bodies.body(sharer.clone(), BodyClass::Many);
        assert_eq!(status(stated.announce(most + 1).await), 413);
        let mut comes = bodies.body(sharer, BodyClass::Many);
        for length in (1..=16).map(|n| n * most / 16) {
            comes.cover(length).await.expect("there is room");
        }
        assert_eq!(status(comes.cover(most + 1).await), 413);
    }
    assert_eq!(bodies.used_bytes().0, 0);
    // However small the budget is, short bodies have room.
    let tiny = Bodies::new(1 << 20);
    let mut short = body_of(&tiny, "a");
    short.announce(MIB).await.expect("it is short");
}

#[tokio::test]
async fn what_grows_takes_more_as_it_does() {
    let bodies = Bodies::new(64 << 20);
    let mut room = bodies.body(Sharer::admin(), BodyClass::Document);
    room.cover(10 << 10).await.expect("it is free");
    assert_eq!(bodies.used_bytes().0, 0);
    for length in (0..300).map(|n| n * 100_000) {
        room.cover(length).await.expect("there is room");
        let used = bodies.used_bytes().0;
        assert!(used <= 32 * MIB && used + 32 * 1024 >= length, "{used}");
    }
    drop(room);
    assert_eq!(bodies.used_bytes().0, 0);
}

#[tokio::test]
async fn a_short_attachment_takes_little() {
    let bodies = Bodies::new(64 << 20);
    let stream = |length| bodies.stream(user("a"), Some(length));
    let tiny = stream(1000).await.expect("there is room");
    let small = stream(100 << 10).await.expect("there is room");
    // With the state that deflates each.
    assert_eq!(bodies.used_bytes().0, (2 * 256 + 1 + 100) << 10);
    drop((tiny, small));
    assert_eq!(bodies.used_bytes().0, 0);
}

#[tokio::test]
async fn users_inflate_in_turns() {
    let bodies = Bodies::new(64 << 20);
    let rooms: Vec<Room> = (0..inflating_max() + 2)
        .map(|_| body_of(&bodies, "a"))
        .collect();
    let turns = rooms.iter().map(Room::turn_to_inflate);
    let mut turns: Vec<_> = turns.map(Box::pin).collect();
    let mut places = vec![];
    for turn in &mut turns[..inflating_max()] {
        places.push(turn.await.expect("a place"));
    }
    let mut waiting: Vec<_> = turns.drain(inflating_max()..).collect();
    assert!(waiting.iter_mut().all(|turn| turn.now_or_never().is_none()));
    let other = body_of(&bodies, "b");
    let mut next = Box::pin(other.turn_to_inflate());
    assert!((&mut next).now_or_never().is_none());
    places.pop();
    assert!(waiting[0].as_mut().now_or_never().is_none());
    assert!(next.now_or_never().is_some(), "the other user is next");
}

#[tokio::test]
async fn values_take_room_by_their_number() {
    let bodies = impatient(64 << 20);
    let arrays = |count: usize| format!("[{}[0]]", "[0],".repeat(count - 1)).into_bytes();
    // About 52,000 short arrays fit into half of the budget, and few bytes are sent.
    let mut many = body_of(&bodies, "a");
    let body = arrays(50_000);
    many.work_on(&body, Parsed::Values).await.expect("it fits");
    let used = bodies.used_bytes().0;
    assert!((20 * MIB..32 * MIB).contains(&used), "{used}");
    // The user's part of the room is taken, another's is free.
    let refused = body_of(&bodies, "a").work_on(&body, Parsed::Values).await;
    assert_eq!(status(refused), 503);
    let mut other = body_of(&bodies, "b");
    other.work_on(&body, Parsed::Values).await.expect("it fits");
    drop((many, other));
    assert_eq!(bodies.used_bytes().0, 0);
    let too_many = arrays(90_000);
    let refused = body_of(&bodies, "a")
        .work_on(&too_many, Parsed::Values)
        .await;
    assert_eq!(status(refused), 413);
    // Documents stay texts, whatever they contain.
    let mut document = body_of(&bodies, "a");
    let done = document.work_on(&too_many, Parsed::Documents).await;
    done.expect("it is a text");
    assert_eq!(bodies.used_bytes().0, 0);
    // A bulk of many documents takes room for each.
    let bulk = format!("{{\"docs\":[{}{{}}]}}", "{},".repeat(20_000));
    document
        .work_on(bulk.as_bytes(), Parsed::Documents)
        .await
        .expect("it fits");
    assert!(bodies.used_bytes().0 > 11 * MIB);
}

#[tokio::test]
async fn ordinary_bodies_take_no_more_for_their_values() {
    let bodies = Bodies::new(64 << 20);
    let doc =
        r#"{"_id":"a","name":"alice","age":30,"tags":["a","b"],"text":"a few words for a line"}"#;
    let bulk = format!("{{\"docs\":[{}{doc}]}}", format!("{doc},").repeat(99));
    let mut room = body_of(&bodies, "a");
    for parsed in [Parsed::Documents, Parsed::Values] {
        room.work_on(doc.as_bytes(), parsed)
            .await
            .expect("it is short");
    }
    room.work_on(bulk.as_bytes(), Parsed::Documents)
        .await
        .expect("it is short");
    assert_eq!(bodies.used_bytes().0, 0);
}

#[test]
fn the_estimate_of_values_covers_what_they_take() {
    // Of the shapes that take the most for their length.
    for one in [
        "[0]",
        "{}",
        "[]",
        "0",
        r#"{"a":1}"#,
        r#""a""#,
        "[[0]]",
        r#"{"a":{"b":[]}}"#,
    ] {
        let body = format!("[{}{one}]", format!("{one},").repeat(9_999));
        let estimate = Parsed::Values.memory(body.as_bytes());
        let value: serde_json::Value = serde_json::from_str(&body).expect("it is JSON");
        let memory = memory_of(&value);
        assert!(memory <= estimate, "{one}: {memory} of {estimate}");
        assert!(
            estimate <= memory * 8 + (1 << 16),
            "{one}: {memory} of {estimate}"
        );
    }
}

/// The additional memory of a value, with the spare places that a map allocates.
fn memory_of(value: &serde_json::Value) -> u64 {
    use serde_json::Value;
    let size = size_of::<Value>();
    (match value {
        Value::Array(items) => {
            let inner: u64 = items.iter().map(memory_of).sum();
            return (items.capacity() * size) as u64 + inner;
        }
        Value::Object(members) => {
            let inner: u64 = members.values().map(memory_of).sum();
            let names: usize = members.keys().map(|name| name.capacity().max(16)).sum();
            // At least four entries of a hash, a name and a value, and as many places of the table.
            let places = match members.len() {
                0 => 0,
                n => n.next_power_of_two().max(4) * (8 + 24 + size + 9),
            };
            return (places + names) as u64 + inner;
        }
        Value::String(text) => text.capacity().max(16),
        _ => 0,
    }) as u64
}
