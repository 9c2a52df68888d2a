//! Removals of slots: the rows of the slot go, and empty shards replace its shards.

use storage::{Error, Install, ShardNumber, SlotRemoval};

use crate::slots::world::{World, new_doc, position, request, write};

/// A removal may be made on any thread.
const _: fn() = || {
    fn may_move<T: Send>() {}
    may_move::<SlotRemoval>();
};

fn write_one(world: &World, slot: u16, shard: usize) {
    let edits = vec![new_doc(world.shard(shard), "doc")];
    let requests = vec![request(1, 1, edits)];
    world.apply(write(slot, 0, 1, requests)).unwrap();
}

fn counts(world: &World) -> [u64; 2] {
    [0, 1].map(|shard| world.shard(shard).meta().doc_count)
}

#[test]
fn a_slot_that_was_removed_can_start_again_with_empty_shards() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(dir.path(), 0, 2);
    write_one(&world, 1, 0);
    write_one(&world, 2, 1);
    let removal = SlotRemoval::new(world.store().clone(), 1, 1).unwrap();
    let (old, new) = (world.shard(0).number, removal.numbers()[0]);
    removal
        .install(Install {
            from: position(1, 1),
            replaced: vec![world.shard(0).clone()],
            ..Install::default()
        })
        .unwrap();
    world.store().note_dropped(&[old]);
    world.replace(0, new);
    assert_eq!(world.store().reap().unwrap(), 1);
    for _ in 0..2 {
        assert_eq!(counts(&world), [0, 1]);
        assert_eq!(world.store().slot(1).unwrap(), None);
        assert_eq!(world.store().slots().unwrap(), [2]);
        world.restart();
        // The old shard is listed until its space is reclaimed.
        world.store().reap().unwrap();
    }
    write_one(&world, 1, 0);
    for _ in 0..2 {
        assert_eq!(counts(&world), [1, 1]);
        assert_eq!(world.store().slot(1).unwrap(), position(1, 1));
        world.restart();
        // The new shard is in use: it is not among those that a start removes.
        world.store().reap().unwrap();
        world.restart();
    }
}

#[test]
fn a_removal_that_is_refused_or_dropped_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(dir.path(), 0, 2);
    write_one(&world, 1, 0);
    write_one(&world, 2, 1);
    drop(SlotRemoval::new(world.store().clone(), 1, 3).unwrap());
    assert_eq!(world.store().reap().unwrap(), 3);
    let removal = SlotRemoval::new(world.store().clone(), 1, 1).unwrap();
    let numbers: Vec<ShardNumber> = removal.numbers().to_vec();
    assert!(!numbers.contains(&world.shard(0).number));
    let refused = removal.install(Install {
        from: position(1, 7),
        replaced: vec![world.shard(0).clone()],
        ..Install::default()
    });
    assert!(
        matches!(refused, Err(Error::SlotPosition { slot: 1, .. })),
        "{refused:?}"
    );
    assert_eq!(world.store().reap().unwrap(), 1);
    for _ in 0..2 {
        assert_eq!(counts(&world), [1, 1]);
        assert_eq!(world.store().slot(1).unwrap(), position(1, 1));
        world.restart();
    }
}
