//! Reasons for refusing a slot's write: all of it, and nothing else.

use std::sync::atomic::Ordering::Relaxed;

use document::{Attachment, Encoding};
use storage::{
    Change, Error, File, Keyspace, Limits, Outcome, Session, ShardEdit, SlotOutcome, SlotRequest,
    SlotWork, StoreOptions, WorkOutcome,
};

use crate::slots::dump;
use crate::slots::model;
use crate::slots::world::{
    World, done, local, new_doc, options, position, purge, replicated, request, write,
};

/// Puts an unreadable record into a shard.
fn spoil(world: &World, shard: usize, id: &str) {
    let engine = world.store().engine();
    let mut batch = engine.writes();
    let number = world.shard(shard).number.to_be_bytes();
    batch.put(Keyspace::ById, [&number, id.as_bytes()].concat(), [1]);
    batch.commit(true).unwrap();
}

/// Makes the commit thread wait in a commit, so that what is queued now forms one batch.
fn hold(world: &World, shard: usize) -> impl FnOnce() + use<> {
    let edits = vec![new_doc(world.shard(shard), "holds")];
    let batches = &world.store().committer.counters().batches;
    let before = batches.load(Relaxed);
    let held = world.store().committer.edit(edits, Limits::default(), true);
    while batches.load(Relaxed) == before {
        std::thread::yield_now();
    }
    || drop(held.blocking_recv().unwrap().unwrap())
}

#[test]
fn a_write_that_does_not_go_on_from_where_the_slot_is_says_both_positions() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path(), 0, 1);
    let one = |n| {
        vec![request(
            1,
            n,
            vec![new_doc(world.shard(0), &format!("a{n}"))],
        )]
    };
    let refused = |write| match world.apply(write).unwrap_err() {
        e @ Error::SlotPosition { .. } => {
            let text = e.to_string();
            let Error::SlotPosition { slot, stored, from } = e else {
                unreachable!()
            };
            (slot, stored.map(|p| *p), from.map(|p| *p), text)
        }
        e => panic!("{e}"),
    };
    let (slot, stored, from, text) = refused(write(4, 1, 1, one(1)));
    assert_eq!((slot, stored, from), (4, None, position(4, 1)));
    assert!(
        text.starts_with("slot 4 is at its beginning, ") && text.contains("offset 1 of"),
        "{text}"
    );
    world.apply(write(4, 0, 2, one(1))).unwrap();
    let rows = dump::slot_rows(world.store());
    for offset in [0, 1, 3] {
        let (_, stored, from, _) = refused(write(4, offset, 1, one(2)));
        assert_eq!((stored, from), (position(4, 2), position(4, offset)));
    }
    let mut other_chain = write(4, 2, 1, one(2));
    other_chain.from.as_mut().unwrap().chain[15] ^= 1;
    refused(other_chain);
    let mut other_generation = write(4, 2, 1, one(2));
    other_generation.from.as_mut().unwrap().generation.by ^= 1;
    refused(other_generation);
    assert_eq!(dump::slot_rows(world.store()), rows);
    assert_eq!(world.shard(0).meta().update_seq, 1);
    world.apply(write(4, 2, 1, one(2))).unwrap();
    dump::check(world.shard(0), &dump::shard(world.shard(0)));
}

/// Returns an edit of a new document that names a content which is not here.
fn naming_missing(world: &World, id: &str) -> ShardEdit {
    with_missing(new_doc(world.shard(0), id))
}

/// Returns an edit with an attachment whose content is not here.
fn with_missing(mut edit: ShardEdit) -> ShardEdit {
    let attachment = Attachment {
        name: "a".into(),
        content_type: "text/plain".into(),
        md5: [1; 16],
        content: [2; 32],
        length: 3,
        stored_length: 3,
        encoding: Encoding::Identity,
        length_unsure: false,
        revpos: None,
    };
    edit.edit.files.push(File {
        attachment,
        content: None,
    });
    edit
}

#[test]
fn an_edit_that_names_a_missing_content_is_refused_unless_it_has_no_effect() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path(), 0, 1);
    let first = request(1, 1, vec![new_doc(world.shard(0), "there")]);
    world.apply_next(4, first).unwrap();
    let naming = |counter, id| request(1, counter, vec![naming_missing(&world, id)]);
    let refused = world.apply_next(4, naming(2, "new"));
    assert!(matches!(
        refused,
        Err(Error::MissingContent { slot: 4, content }) if content == [2; 32]
    ));
    assert_eq!(world.store().slot(4).unwrap(), position(4, 1));
    // A conflict, and a repeat.
    let conflict = world.apply_next(4, naming(2, "there")).unwrap();
    let outcomes = WorkOutcome::Edits(vec![Outcome::Conflict]);
    assert_eq!(conflict, SlotOutcome::Done(vec![outcomes]));
    let repeat = world.apply_next(4, naming(1, "new")).unwrap();
    assert!(matches!(repeat, SlotOutcome::Done(_)));
    assert!(world.shard(0).record("new").unwrap().is_none());
}

/// Without the purge, the first edit is a conflict, and the second a repeat.
#[test]
fn a_purge_in_the_same_write_may_give_an_edit_an_effect_that_needs_its_content() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path(), 0, 1);
    let shard = world.shard(0).clone();
    let first = new_doc(&shard, "doc");
    let Change::Interactive { rev, .. } = &first.edit.change else {
        unreachable!()
    };
    let rev = rev.clone();
    let written = request(1, 1, vec![first]);
    world.apply_next(4, written).unwrap();
    let purging = |counter, id| SlotRequest {
        session: Session {
            gateway: 2,
            counter,
        },
        work: vec![SlotWork::Purges {
            purges: vec![purge(&shard, id, vec![rev.clone()], 1)],
            limits: Limits::default(),
        }],
    };
    let repeat = || {
        let path = (1, vec![rev.hash.clone()]);
        with_missing(replicated(&shard, "doc", path, r#"{"a":1}"#, false))
    };
    let conflict = || naming_missing(&world, "doc");
    for edit in [repeat(), conflict()] {
        let naming = request(1, 2, vec![edit]);
        let refused = world.apply(write(4, 1, 1, vec![purging(1, "doc"), naming]));
        assert!(
            matches!(
                refused,
                Err(Error::MissingContent { slot: 4, content }) if content == [2; 32]
            ),
            "{refused:?}"
        );
        assert_eq!(world.store().slot(4).unwrap(), position(4, 1));
        assert!(shard.record("doc").unwrap().is_some());
    }
    // Purges of other documents are not in the way.
    let requests = vec![
        purging(1, "other"),
        request(1, 2, vec![repeat()]),
        request(1, 3, vec![conflict()]),
    ];
    let refused = world.apply(write(4, 1, 1, requests));
    assert!(
        matches!(refused, Err(Error::MissingContent { .. })),
        "two edits of one document"
    );
    let requests = vec![purging(1, "other"), request(1, 2, vec![conflict()])];
    let done = world.apply(write(4, 1, 1, requests)).unwrap();
    let outcomes = WorkOutcome::Edits(vec![Outcome::Conflict]);
    assert_eq!(done[1], SlotOutcome::Done(vec![outcomes]));
}

#[test]
fn a_record_that_cannot_be_read_fails_the_whole_write_and_those_after_it_but_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let (world, open_gate) = World::gated(dir.path(), 4);
    spoil(&world, 0, "bad");
    let finish = hold(&world, 3);
    // The digest starts in the batch; with another slot's shard, and one without a slot.
    let [s, other, plain] = [0, 1, 2].map(|i| world.shard(i).clone());
    let first = world.queue(write(1, 0, 1, vec![request(1, 1, vec![new_doc(&s, "a")])]));
    let mut bad = write(
        1,
        1,
        1,
        vec![
            request(1, 2, vec![new_doc(&s, "b"), local(&s, "l", Some(1), "{}")]),
            request(2, 1, vec![new_doc(&s, "c"), new_doc(&s, "bad")]),
        ],
    );
    bad.state = vec![(b"k".to_vec(), Some(vec![1]))];
    let bad = world.queue(bad);
    let after = world.queue(write(1, 2, 1, vec![request(1, 3, vec![new_doc(&s, "d")])]));
    let others = world.queue(write(
        2,
        0,
        1,
        vec![request(1, 1, vec![new_doc(&other, "a")])],
    ));
    let edits = vec![new_doc(&plain, "a")];
    let edits = world.store().committer.edit(edits, Limits::default(), true);
    open_gate.send(()).unwrap();
    finish();
    assert!(done(first).is_ok());
    assert!(matches!(done(bad), Err(Error::Corrupt(_))));
    assert!(matches!(done(after), Err(Error::SlotPosition { .. })));
    assert!(done(others).is_ok());
    assert!(edits.blocking_recv().unwrap().is_ok());
    assert_eq!(world.store().committer.counters().batches.load(Relaxed), 2);
    assert_eq!(world.store().slot(1).unwrap(), position(1, 1));
    assert_eq!(world.store().slot_state(1, b"").unwrap(), []);
    let kept = model::stored(&dump::slot_rows(world.store()), 1);
    assert_eq!(kept.len(), 1);
    for id in ["b", "c", "d"] {
        assert!(s.record(id).unwrap().is_none());
    }
    assert!(s.local("_local/l").unwrap().is_none());
    assert_eq!(s.meta().update_seq, 1);
    assert_eq!(plain.digest(), None);
    // A purge of it is refused as well; an unrelated request continues.
    let mut purging = write(1, 1, 1, vec![request(1, 2, vec![new_doc(&s, "b")])]);
    purging.requests[0].work.push(storage::SlotWork::Purges {
        purges: vec![purge(&s, "bad", vec![], 1)],
        limits: Limits::default(),
    });
    assert!(matches!(world.apply(purging), Err(Error::Corrupt(_))));
    let good = write(1, 1, 1, vec![request(1, 2, vec![new_doc(&s, "b")])]);
    assert!(matches!(
        world.apply(good).unwrap()[..],
        [SlotOutcome::Done(_)]
    ));
    assert!(s.record("b").unwrap().is_some());
}

#[test]
fn a_repeat_needs_nothing_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path(), 0, 1);
    let one = || request(1, 1, vec![new_doc(world.shard(0), "a")]);
    let first = world.apply_next(1, one()).unwrap();
    spoil(&world, 0, "a");
    assert_eq!(world.apply_next(1, one()).unwrap(), first);
    assert_eq!(world.store().slot(1).unwrap(), position(1, 2));
}

#[test]
fn a_shard_that_is_gone_fails_the_whole_write() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path(), 0, 2);
    let [stays, goes] = [world.shard(0).clone(), world.shard(1).clone()];
    let ids = |id| vec![new_doc(&stays, id), new_doc(&goes, id)];
    world.apply_next(1, request(1, 1, ids("a"))).unwrap();
    let dropped = world.store().drop_database("other", vec![goes.clone()]);
    dropped.blocking_recv().unwrap().unwrap();
    let before = dump::shard(&stays);
    let refused = world.apply_next(1, request(1, 2, ids("b")));
    assert!(matches!(refused, Err(Error::Dropped)));
    assert_eq!(dump::shard(&stays), before);
    assert_eq!(world.store().slot(1).unwrap(), position(1, 1));
    let good = request(1, 2, vec![new_doc(&stays, "b")]);
    assert!(matches!(
        world.apply_next(1, good),
        Ok(SlotOutcome::Done(_))
    ));
}

#[test]
fn a_full_disk_fails_the_whole_write_and_the_slot_waits() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(dir.path(), 0, 1);
    let one = |world: &World, n: u64| {
        let id = format!("doc{n}");
        request(1, n, vec![new_doc(world.shard(0), &id)])
    };
    world.apply_next(1, one(&world, 1)).unwrap();
    let rows = dump::slot_rows(world.store());
    let full = StoreOptions {
        reserve_bytes: 1 << 60,
        ..options()
    };
    world.restart_with(&full);
    let refused = world.apply_next(1, one(&world, 2));
    assert!(matches!(refused, Err(Error::DiskFull { .. })));
    assert_eq!(dump::slot_rows(world.store()), rows);
    assert_eq!(world.shard(0).meta().update_seq, 1);
    world.restart();
    world.apply_next(1, one(&world, 2)).unwrap();
    assert_eq!(world.shard(0).meta().update_seq, 2);
    dump::check(world.shard(0), &dump::shard(world.shard(0)));
}

#[test]
fn a_shard_that_others_wrote_to_belongs_to_no_slot() {
    let dir = tempfile::tempdir().unwrap();
    let (world, open_gate) = World::gated(dir.path(), 4);
    let finish = hold(&world, 3);
    let plain = |edit| {
        let edited = world
            .store()
            .committer
            .edit(vec![edit], Limits::default(), true);
        move || drop(edited.blocking_recv().unwrap().unwrap())
    };
    let by_slot = |i: usize| {
        let edits = vec![new_doc(world.shard(i), "b")];
        world.queue(write(1, 0, 1, vec![request(1, 1, edits)]))
    };
    // In one batch with another write there.
    let document = plain(new_doc(world.shard(0), "a"));
    let after_document = by_slot(0);
    let local = plain(local(world.shard(1), "a", Some(1), "{}"));
    let after_local = by_slot(1);
    open_gate.send(()).unwrap();
    finish();
    document();
    local();
    assert_eq!(world.store().committer.counters().batches.load(Relaxed), 2);
    for (i, waiting) in [
        (0, after_document),
        (1, after_local),
        (0, by_slot(0)),
        (1, by_slot(1)),
    ] {
        let refused = done(waiting).unwrap_err();
        let number = world.shard(i).number;
        assert!(
            matches!(refused, Error::NotOfSlot(n) if n == number),
            "{refused}"
        );
        assert_eq!(world.shard(i).digest(), None);
    }
    assert_eq!(world.store().slots().unwrap(), []);
    done(by_slot(2)).unwrap();
    // Concurrent writes are from then on in the digest, in the slot's batches and in others.
    plain(new_doc(world.shard(2), "c"))();
    plain(crate::slots::world::local(
        world.shard(2),
        "c",
        Some(1),
        "{}",
    ))();
    dump::check(world.shard(2), &dump::shard(world.shard(2)));
}

#[test]
fn a_slot_that_is_dropped_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (world, open_gate) = World::gated(dir.path(), 2);
    let one = |n: u64| request(1, n, vec![local(world.shard(0), "a", Some(n + 10), "{}")]);
    let with_state = |slot, offset, n, key: u8| {
        let mut write = write(slot, offset, 1, vec![one(n)]);
        write.state = vec![(vec![key], Some(vec![]))];
        world.queue(write)
    };
    assert!(done(with_state(1, 0, 1, 0)).is_ok());
    let finish = hold(&world, 1);
    let before = with_state(1, 1, 2, 1);
    let neighbour = with_state(2, 0, 1, 1);
    let dropped = world.store().drop_slot(1);
    let stale = with_state(1, 2, 3, 2);
    // The same counter again: it is unknown.
    let anew = with_state(1, 0, 1, 3);
    open_gate.send(()).unwrap();
    finish();
    assert!(done(before).is_ok() && done(neighbour).is_ok());
    dropped.blocking_recv().unwrap().unwrap();
    assert!(matches!(
        done(stale),
        Err(Error::SlotPosition { stored: None, .. })
    ));
    assert!(done(anew).is_ok());
    assert_eq!(model::stored(&dump::slot_rows(world.store()), 1).len(), 1);
    let local = world.shard(0).local("_local/a").unwrap();
    assert_eq!(
        local.unwrap().0,
        11,
        "applied after that of the second counter"
    );
    let keys = |slot| -> Vec<_> {
        let rows = world.store().slot_state(slot, b"").unwrap();
        rows.into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!((keys(1), keys(2)), (vec![vec![3]], vec![vec![1]]));
    assert_eq!(world.store().slots().unwrap(), [1, 2]);
    // Many rows, some of them in files.
    for offset in 1..4 {
        let mut many = write(1, offset, 1, vec![one(offset)]);
        let key = |n: u32| (n.to_be_bytes().to_vec(), Some(vec![0]));
        many.state = (0..6_000 * offset as u32).map(key).collect();
        world.apply(many).unwrap();
        world.store().engine().flush(Keyspace::Meta).unwrap();
        let others = dump::slot_rows(world.store());
        let others = others.into_iter().filter(|(key, _)| key[2] == 2);
        let others: Vec<_> = others.collect();
        let dropped = world.store().drop_slot(1);
        dropped.blocking_recv().unwrap().unwrap();
        let left: Vec<_> = dump::slot_rows(world.store()).into_iter().collect();
        assert_eq!(left, others);
        for offset in 0..=offset {
            world.apply(write(1, offset, 1, vec![])).unwrap();
        }
    }
}

#[test]
fn a_part_that_its_slot_refuses_does_nothing_and_a_repeat_is_told_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(dir.path(), 0, 1);
    let session = Session {
        gateway: 1,
        counter: 1,
    };
    let work = |part| SlotRequest {
        session,
        work: vec![part],
    };
    let refused = work(SlotWork::Refused(7));
    let told = SlotOutcome::Done(vec![WorkOutcome::Refused(7)]);
    assert_eq!(world.apply_next(1, refused).unwrap(), told);
    assert_eq!(world.shard(0).digest(), None);
    world.restart();
    // Sent again when it would succeed.
    let edits = vec![new_doc(world.shard(0), "a")];
    let again = work(SlotWork::Edits {
        edits,
        limits: Limits::default(),
    });
    assert_eq!(world.apply_next(1, again).unwrap(), told);
    assert!(world.shard(0).record("a").unwrap().is_none());
    // Next to parts that are done.
    let mut both = request(1, 2, vec![new_doc(world.shard(0), "b")]);
    both.work.insert(0, SlotWork::Refused(0));
    let outcome = world.apply_next(1, both).unwrap();
    assert!(matches!(
        &outcome,
        SlotOutcome::Done(work) if matches!(work[..], [WorkOutcome::Refused(0), WorkOutcome::Edits(_)])
    ));
    assert!(world.shard(0).record("b").unwrap().is_some());
}
