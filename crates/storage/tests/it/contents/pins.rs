//! Contents that are kept for other nodes, without a document.

use storage::check::{Findings, References, StoreCheck};

use super::{bytes, copy_of, open};

#[test]
fn a_pinned_content_stays_without_a_reference_also_across_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let id = {
        let world = open(dir.path());
        assert!(!world.contents.pin(&[9; 32], b"none").unwrap());
        let content = world.upload(&bytes(1, 300_000));
        let id = content.id;
        assert!(world.contents.pin(&id, b"tag").unwrap());
        drop(content);
        world.contents.sweep_all().unwrap();
        assert!(world.contents.hold(&id).unwrap().is_some());
        id
    };
    let world = open(&copy_of(dir.path()));
    let pinned = world.store.pinned_contents().unwrap();
    assert_eq!(pinned.len(), 1);
    assert_eq!((pinned[0].home, pinned[0].id), (7, id));
    assert_eq!(pinned[0].tag, b"tag");
    let held = world.contents.hold(&id).unwrap();
    world.contents.unpin(&id).unwrap();
    assert!(world.store.pinned_contents().unwrap().is_empty());
    assert!(world.contents.hold(&id).unwrap().is_some(), "it is held");
    drop(held);
    assert_eq!(world.keys(), (0, 0));
}

/// Otherwise every start would examine each content that a node received since the last one.
#[test]
fn a_pinned_content_is_no_upload_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let id = {
        let world = open(dir.path());
        let content = world.upload(&bytes(1, 300_000));
        assert_eq!(world.keys().1, 1);
        assert!(world.contents.pin(&content.id, b"").unwrap());
        assert_eq!(world.keys().1, 0);
        let id = content.id;
        drop(content);
        let again = world.contents.hold(&id).unwrap().unwrap();
        world.written("a", None, &[&again]);
        drop(again);
        world.contents.unpin(&id).unwrap();
        let other = world.upload(&bytes(2, 300_000));
        assert!(world.contents.pin(&other.id, b"").unwrap());
        world.contents.unpin(&other.id).unwrap();
        drop(other);
        // Three chunks, the content's place, one reference.
        assert_eq!(world.keys(), (5, 0));
        id
    };
    let world = open(&copy_of(dir.path()));
    assert!(world.contents.hold(&id).unwrap().is_some());
    assert_eq!(world.keys(), (5, 0));
}

/// A backup of a node becomes the store of a single server.
#[test]
fn forgotten_pins_keep_no_content_from_the_next_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    let contents = [1, 2].map(|seed| world.upload(&bytes(seed, 300_000)));
    for content in &contents {
        assert!(world.contents.pin(&content.id, b"tag").unwrap());
    }
    world.written("a", None, &[&contents[0]]);
    let ids = contents.each_ref().map(|content| content.id);
    drop(contents);
    world.store.forget_pins().unwrap();
    assert!(world.store.pinned_contents().unwrap().is_empty());
    world.compact();
    world.contents.sweep_all().unwrap();
    let there = ids.map(|id| world.contents.hold(&id).unwrap().is_some());
    assert_eq!(there, [true, false]);
}

/// The next compaction does not remove them.
#[test]
fn a_check_counts_no_pinned_content_as_unreferenced() {
    let dir = tempfile::tempdir().unwrap();
    {
        let world = open(dir.path());
        let contents = [1, 2].map(|seed| world.upload(&bytes(seed, 300_000)));
        for content in &contents {
            assert!(world.contents.pin(&content.id, b"tag").unwrap());
        }
        let ids = contents.each_ref().map(|content| content.id);
        drop(contents);
        world.store.forget_pin(7, &ids[0]).unwrap();
        world.store.close();
    }
    let temporary = tempfile::tempdir().unwrap();
    let mut findings = Findings::default();
    let check = StoreCheck::open(dir.path(), temporary.path(), &mut findings).unwrap();
    let none = References::new(temporary.path());
    let totals = check.contents(7, none, &mut findings).unwrap();
    assert_eq!((totals.contents, totals.unreferred), (2, 1));
}

/// The log of a new cluster names none of the contents that a former one did.
#[test]
fn an_adopted_store_has_no_pins() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    let content = world.upload(&bytes(1, 300_000));
    assert!(world.contents.pin(&content.id, b"tag").unwrap());
    drop(content);
    world.store.adopt(storage::Adoption::default()).unwrap();
    assert!(world.store.pinned_contents().unwrap().is_empty());
    world.contents.sweep_all().unwrap();
    assert_eq!(world.keys(), (0, 0));
}

#[test]
fn the_end_of_a_pin_removes_no_content_that_a_document_references() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    let contents = [1, 2].map(|seed| world.upload(&bytes(seed, 300_000)));
    let ids = contents.each_ref().map(|content| content.id);
    for id in &ids {
        assert!(world.contents.pin(id, b"").unwrap());
    }
    world.written("a", None, &[&contents[0]]);
    drop(contents);
    for id in &ids {
        world.contents.unpin(id).unwrap();
    }
    let there = ids.map(|id| world.contents.hold(&id).unwrap().is_some());
    assert_eq!(there, [true, false]);
    assert_eq!(world.contents.stored_bytes().unwrap(), 300_000);
}
