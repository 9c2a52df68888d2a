//! Frames with valid sums that are not a valid copy.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::sync::Arc;

use super::frame::{self, Chain};
use super::{Counts, SlotImport, Space};
use crate::slot::rows::{HEAD, Head, STATE};
use crate::{Store, StoreOptions};

fn rows(space: Space, rows: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut frame = frame::rows(space);
    for (key, value) in rows {
        frame::put_row(key, value, &mut frame);
    }
    frame
}

fn end(shards: u64, rows: u64, bytes: u64) -> Vec<u8> {
    frame::end(Counts {
        shards,
        rows,
        bytes,
    })
}

/// Returns the error of an import for frames after the first one and the slot's position.
fn refusal(store: &Arc<Store>, shards: u64, rest: &[Vec<u8>]) -> Option<String> {
    let head = rows(Space::Slot, &[(&[HEAD], &Head::default().encode())]);
    let mut chain = Chain::default();
    let mut import = SlotImport::new(store.clone(), 1);
    let all = [&[frame::begin(1, shards), head], rest].concat();
    let mut frames = all.into_iter().map(|frame| chain.seal(frame));
    let refused = frames.find_map(|frame| import.frame(&frame).err());
    assert_eq!(refused.is_none(), import.is_complete());
    refused.map(|e| e.to_string())
}

/// Frames, the announced number of shards, and the error.
type Case = (u64, Vec<Vec<u8>>, &'static str);

fn check(cases: Vec<Case>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &StoreOptions::default(), Box::new(|_| {})).unwrap();
    let store = Arc::new(store);
    for (shards, rest, reason) in cases {
        let refused = refusal(&store, shards, &rest);
        let refused = refused.unwrap_or_default();
        assert_eq!(refused.is_empty(), reason.is_empty(), "{reason}: {refused}");
        assert!(refused.contains(reason), "{reason}: {refused}");
    }
}

/// Length of the slot's position, which all have.
fn head_bytes() -> u64 {
    Head::default().encode().len() as u64
}

fn shard() -> Vec<u8> {
    frame::shard(b"a", &[])
}

#[test]
fn frames_that_are_no_copy_are_refused() {
    let head = head_bytes();
    let two = |a, b| rows(Space::Slot, &[(&[STATE, a], b""), (&[STATE, b], b"")]);
    let one = |space| rows(space, &[(b"a", b"")]);
    let place = "where none of its kind may be";
    check(vec![
        (0, vec![end(0, 1, head)], ""),
        (1, vec![shard(), end(1, 1, head)], ""),
        (u64::MAX, vec![], "too many shards"),
        (1, vec![end(0, 1, head)], "not all there"),
        (0, vec![end(0, 2, head)], "not all there"),
        (0, vec![end(0, 1, head + 1)], "not all there"),
        (0, vec![shard()], "more shards than announced"),
        (0, vec![frame::begin(1, 0)], place),
        (0, vec![one(Space::ById)], place),
        (1, vec![shard(), two(1, 2)], place),
        (0, vec![two(2, 1)], "not in their order"),
        (0, vec![two(1, 1)], "not in their order"),
        (
            1,
            vec![shard(), one(Space::ById), end(1, 2, head)],
            "digest",
        ),
        (
            1,
            vec![shard(), one(Space::BySeq)],
            "an invalid seq as a key",
        ),
        (0, vec![frame::piece(Space::Slot, b"r", 2, b"123")], "fit"),
        (
            0,
            vec![frame::piece(Space::Slot, b"r", 2, b"1"), end(0, 1, head)],
            "cut short",
        ),
    ]);
}

#[test]
fn contents_that_are_not_what_their_ids_say_are_refused() {
    let id = *blake3::hash(b"content").as_bytes();
    let [first, second] = [0, 1].map(|n: u32| [&id[..], &n.to_be_bytes()].concat());
    let contents = |length: u8, chunks: &[(&[u8], &[u8])]| {
        let length = [length];
        let all = [&[(&id[..], &length[..])], chunks].concat();
        let end = end(1, 1 + all.len() as u64, head_bytes() + 8);
        vec![shard(), rows(Space::Contents, &all), end]
    };
    let one = |space, key: &[u8]| vec![shard(), rows(space, &[(key, b"")])];
    let other = "whose hash differs from its id";
    check(vec![
        (1, contents(7, &[(&first, b"content")]), ""),
        (1, contents(8, &[(&first, b"content")]), other),
        (1, contents(7, &[(&first, b"another")]), other),
        (1, contents(7, &[]), other),
        (1, contents(7, &[(&second, b"content")]), "not in its place"),
        (1, one(Space::References, &id), "invalid key of a reference"),
        (1, one(Space::Contents, &first), "no content"),
        (1, one(Space::Contents, b"a"), "invalid key of a content"),
    ]);
}
