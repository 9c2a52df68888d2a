//! Copies of slots with attachments.

use std::path::Path;
use std::sync::Arc;

use document::{Attachment, DocId, Encoding, RevHash, RevPath};
use storage::{
    CHUNK_BYTES, Change, Content, Contents, Edit, Error, File, Install, Keyspace, ShardEdit,
    SlotImport, compact,
};

use crate::slots::copy::{frames, install, rows, taken};
use crate::slots::world::{World, new_doc, request, write};

fn bytes(seed: usize, length: usize) -> Vec<u8> {
    let byte = |i: usize| ((i * 31 + seed * 7919) >> 3) as u8 ^ i as u8;
    (0..length).map(byte).collect()
}

fn contents(world: &World, i: usize) -> Arc<Contents> {
    world.store().contents(world.shard(i).clone())
}

fn upload(contents: &Arc<Contents>, bytes: &[u8]) -> Content {
    let mut upload = contents.upload();
    upload.write(bytes).unwrap();
    upload.finish().unwrap()
}

/// Returns a revision of a document with these attachments; without their holders where there is no
/// content.
fn edit(world: &World, i: usize, id: &str, start: u64, contents: &[&Content]) -> ShardEdit {
    let files = contents.iter().enumerate().map(|(n, content)| File {
        attachment: Attachment {
            name: format!("file-{n}"),
            content_type: "a/b".into(),
            md5: [n as u8; 16],
            content: content.id,
            length: content.length(),
            stored_length: content.length(),
            encoding: Encoding::Identity,
            length_unsure: false,
            revpos: None,
        },
        content: Some((*content).clone()),
    });
    let ids = (1..=start).rev().map(|n| RevHash::parse(&format!("h{n}")));
    let path = RevPath {
        start,
        ids: ids.collect(),
    };
    ShardEdit {
        shard: world.shard(i).clone(),
        edit: Edit {
            id: DocId::new(id).unwrap(),
            deleted: false,
            body: b"{}".to_vec(),
            files: files.collect(),
            home: world.shard(i).number,
            access: None,
            change: Change::Replicated { path },
        },
    }
}

fn read(content: &Content) -> Vec<u8> {
    let mut all = vec![];
    while (all.len() as u64) < content.length() {
        all.extend(content.read(all.len() as u64).unwrap());
    }
    all
}

/// Two shards that reference contents of many lengths; some contents have no reference.
fn source(path: &Path) -> (World, Vec<Vec<u8>>) {
    let world = World::new(path, 2, 2);
    let lengths = [
        0,
        1,
        500,
        CHUNK_BYTES - 1,
        CHUNK_BYTES,
        CHUNK_BYTES + 1,
        300_000,
        3 << 20,
    ];
    let all: Vec<_> = lengths
        .iter()
        .enumerate()
        .map(|(n, l)| bytes(n, *l))
        .collect();
    for i in 0..2 {
        let of = contents(&world, i);
        let held: Vec<_> = all.iter().map(|bytes| upload(&of, bytes)).collect();
        let names: Vec<_> = held.iter().skip(i).collect();
        let mut edits = vec![edit(&world, i, "all", 1, &names)];
        edits.extend(
            held[i..]
                .iter()
                .map(|c| edit(&world, i, &format!("one-{}", c.length()), 1, &[c])),
        );
        let old = upload(&of, b"of a revision that compaction removes");
        edits.push(edit(&world, i, "changed", 1, &[&old]));
        world.apply_next(1, request(1, i as u64, edits)).unwrap();
        let edits = vec![edit(&world, i, "changed", 2, &names[2..3])];
        world.apply_next(1, request(2, i as u64, edits)).unwrap();
    }
    (world, all)
}

#[test]
fn contents_come_with_their_documents_under_numbers_of_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let (source, all) = source(&dir.path().join("source"));
    compact(
        &source.store().committer,
        source.shard(1),
        &contents(&source, 1),
        &|_, _| true,
    )
    .unwrap();
    let unnamed = upload(&contents(&source, 0), b"nothing names it");
    let mut begun = contents(&source, 0).upload();
    begun.write(&bytes(9, 200_000)).unwrap();
    let frames = frames(&source, 1, 0..2);
    assert!(frames.iter().all(|frame| frame.len() <= 260 << 10));
    let mut target = World::new(&dir.path().join("target"), 3, 2);
    // Numbers of the source's contents are in use here.
    let taken_up = upload(&contents(&target, 1), b"here before");
    let import = taken(&target, 1, &frames);
    install(&mut target, 1, import, Install::default());
    for i in 0..2 {
        let [a, b] = [&source, &target].map(|world| {
            let number = world.shard(i).number;
            let rows = rows(&world.store().snapshot(), number, &[Keyspace::Attachments]);
            let own = number.to_be_bytes();
            rows.into_iter()
                .filter(|(_, key, _)| key[0] == b'r')
                .map(|(_, key, _)| {
                    assert_eq!(key[33..37], own, "it is of the same shard");
                    [&key[..33], &key[37..]].concat()
                })
                .collect::<Vec<_>>()
        });
        assert_eq!(a, b, "references");
        let of = contents(&target, i);
        for bytes in &all[i..] {
            let id = blake3::hash(bytes);
            let content = of.hold(id.as_bytes()).unwrap().unwrap();
            assert!(read(&content) == *bytes);
        }
        assert!(of.hold(&unnamed.id).unwrap().is_none());
        let old = blake3::hash(b"of a revision that compaction removes");
        let old = of.hold(old.as_bytes()).unwrap();
        assert_eq!(old.is_some(), i == 0);
        let length = old.map_or(0, |old| old.length());
        let named: usize = all[i..].iter().map(Vec::len).sum();
        assert_eq!(of.stored_bytes().unwrap(), named as u64 + length);
        assert_eq!(of.reclaimable_bytes().unwrap(), 0);
    }
    drop(taken_up);
    goes_on(&mut target, &all);
}

/// Imported contents behave like others: they are deduplicated, and removed with their references.
fn goes_on(target: &mut World, all: &[Vec<u8>]) {
    let of = contents(target, 0);
    let before = of.stored_bytes().unwrap();
    let again = upload(&of, &all[7]);
    assert_eq!(again.upload(), None, "it is there");
    let new = upload(&of, b"new");
    let edits = vec![edit(target, 0, "new", 1, &[&again, &new])];
    target.apply_next(1, request(3, 1, edits)).unwrap();
    drop((again, new));
    assert_eq!(of.stored_bytes().unwrap(), before + 3);
    drop(of);
    target.restart();
    let of = contents(target, 0);
    for bytes in all {
        let content = of.hold(blake3::hash(bytes).as_bytes()).unwrap().unwrap();
        assert!(read(&content) == *bytes);
    }
    let edits = vec![edit(target, 0, "changed", 3, &[])];
    target.apply_next(1, request(3, 2, edits)).unwrap();
    compact(&target.store().committer, target.shard(0), &of, &|_, _| {
        true
    })
    .unwrap();
    let old = blake3::hash(b"of a revision that compaction removes");
    assert!(of.hold(old.as_bytes()).unwrap().is_none());
}

#[test]
fn a_content_that_is_damaged_at_the_source_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let (source, _) = source(&dir.path().join("source"));
    let number = source.shard(0).number;
    let snapshot = source.store().snapshot();
    let mut chunks = snapshot.iter(Keyspace::Attachments, number);
    let target = World::new(&dir.path().join("target"), 3, 2);
    let engine = source.store().engine();
    chunks.seek([&number.to_be_bytes()[..], b"c"].concat());
    for damage in [0, 1] {
        let (key, value) = chunks.item().unwrap();
        let mut batch = engine.writes();
        if damage == 0 {
            let mut value = value.to_vec();
            value[0] ^= 1;
            batch.put(Keyspace::Attachments, key, value);
        } else {
            batch.delete(Keyspace::Attachments, key);
        }
        batch.commit(true).unwrap();
        let mut import = SlotImport::new(target.store().clone(), 1);
        let frames = frames(&source, 1, 0..2);
        let failed = frames.iter().find_map(|frame| import.frame(frame).err());
        assert!(matches!(failed, Some(Error::Copy { .. })), "{failed:?}");
    }
}

#[test]
fn contents_under_another_shard_are_not_copied() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path(), 0, 2);
    let content = upload(&contents(&world, 0), b"shared");
    let mut shared = edit(&world, 1, "a", 1, &[&content]);
    shared.edit.home = world.shard(0).number;
    let edits = vec![new_doc(world.shard(0), "b"), shared];
    world
        .apply(write(1, 0, 1, vec![request(1, 1, edits)]))
        .unwrap();
    let snapshot = Arc::new(world.store().snapshot());
    let mut copy = crate::slots::copy::begin(&world, &snapshot, 1, 0..2).unwrap();
    let failed = std::iter::repeat_with(|| copy.next_frame()).find_map(Result::err);
    assert!(matches!(failed, Some(Error::Corrupt(_))));
}
