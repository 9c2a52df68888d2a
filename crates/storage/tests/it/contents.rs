//! Contents of attachments: stored once, kept while they are needed, removed afterwards, whatever
//! crash comes between.

mod pins;

use std::path::Path;
use std::sync::Arc;

use document::{Attachment, DocId, Encoding, Rev, StoredBody, body_term, revision_id};
use storage::{
    CHUNK_BYTES, Change, Content, Contents, Edit, File, Keyspace, Limits, Outcome, Shard,
    ShardEdit, ShardNumber, ShardPurge, Store, StoreOptions, compact, hashed, reclaim_contents,
};

/// Longer contents are written to files of their own from here on.
const DIRECT_FROM_BYTES: usize = 16 << 20;

/// The contents under one shard.
struct World {
    store: Arc<Store>,
    shard: Arc<Shard>,
    contents: Arc<Contents>,
}

fn open(path: &Path) -> World {
    let options = StoreOptions {
        block_cache_bytes: 8 << 20,
        ..StoreOptions::default()
    };
    let store = Store::open(path, &options, Box::new(|_| {})).unwrap();
    World::under(7, Arc::new(store))
}

impl World {
    fn under(number: ShardNumber, store: Arc<Store>) -> World {
        let shard = Arc::new(store.shard(number).unwrap());
        World {
            contents: store.contents(shard.clone()),
            store,
            shard,
        }
    }

    /// Opens another shard of the same store, with contents of its own.
    fn beside(&self, number: ShardNumber) -> World {
        World::under(number, self.store.clone())
    }

    fn upload(&self, bytes: &[u8]) -> Content {
        let mut upload = self.contents.upload();
        for piece in bytes.chunks(50_000) {
            upload.write(piece).unwrap();
        }
        upload.finish().unwrap()
    }

    fn edit(&self, id: &str, parent: Option<Rev>, files: &[&Content]) -> Outcome {
        let files: Vec<File> = files
            .iter()
            .enumerate()
            .map(|(n, content)| File {
                attachment: attachment(&format!("file-{n}"), content),
                content: Some((*content).clone()),
            })
            .collect();
        self.edit_with(id, parent, files)
    }

    fn edit_with(&self, id: &str, parent: Option<Rev>, files: Vec<File>) -> Outcome {
        let body_term = body_term(b"{}").unwrap();
        let edit = Edit {
            id: DocId::new(id).unwrap(),
            deleted: false,
            body: b"{}".to_vec(),
            change: Change::Interactive {
                rev: revision_id(false, parent.as_ref(), &body_term, &hashed(&files)),
                parent,
                body_term: None,
            },
            files,
            home: self.contents.home(),
            access: None,
        };
        let edit = ShardEdit {
            shard: self.shard.clone(),
            edit,
        };
        let done = self
            .store
            .committer
            .edit(vec![edit], Limits::default(), true);
        let outcome = done.blocking_recv().unwrap().unwrap().0.remove(0);
        // The commit thread releases the edit's contents after it answered.
        let synced = self.store.committer.sync();
        synced.blocking_recv().unwrap().unwrap();
        outcome
    }

    fn written(&self, id: &str, parent: Option<Rev>, files: &[&Content]) -> Rev {
        match self.edit(id, parent, files) {
            Outcome::Written(rev) => rev,
            refused => panic!("{refused:?}"),
        }
    }

    fn compact(&self) {
        compact(
            &self.store.committer,
            &self.shard,
            &self.contents,
            &|_, _| true,
        )
        .unwrap();
    }

    /// Returns the numbers of keys of contents, and of unreferenced uploads.
    fn keys(&self) -> (usize, usize) {
        let of_contents = ["c", "h", "r"].map(|kind| self.keys_of(kind));
        let snapshot = self.store.snapshot();
        let mut it = snapshot.iter_all(Keyspace::Meta);
        (of_contents.iter().sum(), count(&mut it, b"u"))
    }

    fn keys_of(&self, kind: &str) -> usize {
        let snapshot = self.store.snapshot();
        let mut it = snapshot.iter_all(Keyspace::Attachments);
        let mut prefix = self.contents.home().to_be_bytes().to_vec();
        prefix.extend_from_slice(kind.as_bytes());
        count(&mut it, &prefix)
    }

    /// Returns the bytes of the files with attachments.
    fn file_bytes(&self) -> u64 {
        let all = self.store.keyspace_bytes();
        let attachments = all.iter().find(|(name, _)| *name == "attachments");
        attachments.unwrap().1
    }
}

fn count(it: &mut storage::Cursor<'_>, prefix: &[u8]) -> usize {
    it.seek(prefix);
    let mut count = 0;
    while it.key().is_some_and(|key| key.starts_with(prefix)) {
        count += 1;
        it.next();
    }
    count
}

fn attachment(name: &str, content: &Content) -> Attachment {
    Attachment {
        name: name.into(),
        content_type: "image/png".into(),
        md5: [0; 16],
        content: content.id,
        length: content.length(),
        stored_length: content.length(),
        encoding: Encoding::Identity,
        length_unsure: false,
        revpos: None,
    }
}

fn read(content: &Content) -> Vec<u8> {
    let mut bytes = vec![];
    loop {
        let piece = content.read(bytes.len() as u64).unwrap();
        if piece.is_empty() {
            return bytes;
        }
        bytes.extend(piece);
    }
}

/// Returns bytes that no other seed produces.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn what_is_written_is_read_from_any_place_on() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    let chunk = CHUNK_BYTES;
    for length in [
        0,
        1,
        chunk - 1,
        chunk,
        chunk + 1,
        3 * chunk,
        DIRECT_FROM_BYTES,
        DIRECT_FROM_BYTES + 2 * chunk + 5,
    ] {
        let bytes = bytes(length as u64 + 1, length);
        let content = world.upload(&bytes);
        assert_eq!(content.length(), length as u64);
        assert!(read(&content) == bytes, "{length} bytes");
        for at in [1, chunk as u64, length as u64 / 2] {
            let piece = content.read(at).unwrap();
            let rest = bytes.get(at as usize..).unwrap_or_default();
            assert!(rest.starts_with(&piece) && piece.is_empty() == rest.is_empty());
        }
        world.written(&format!("doc-{length}"), None, &[&content]);
    }
    assert_eq!(world.keys().1, 0, "all are referred to");
}

#[test]
fn equal_contents_are_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    let bytes = bytes(1, DIRECT_FROM_BYTES + 300_000);
    let first = world.upload(&bytes);
    world.written("a", None, &[&first]);
    let keys = world.keys();
    let second = world.upload(&bytes);
    assert_eq!(second.id, first.id);
    assert_eq!(world.keys(), keys, "the second left nothing");
    world.written("b", None, &[&second, &first]);
    assert_eq!(world.keys().0, keys.0 + 1, "one reference more");
    assert_eq!(world.contents.stored_bytes().unwrap(), bytes.len() as u64);
}

#[test]
fn what_nothing_refers_to_goes_with_its_last_holder() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    let content = world.upload(&bytes(1, 500_000));
    let other = content.clone();
    drop(content);
    assert_eq!(read(&other).len(), 500_000);
    let id = other.id;
    drop(other);
    assert_eq!(world.keys(), (0, 0));
    assert!(world.contents.hold(&id).unwrap().is_none());
}

#[test]
fn an_upload_that_is_not_ended_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    for length in [10, 400_000, DIRECT_FROM_BYTES + 400_000] {
        let mut upload = world.contents.upload();
        upload.write(&bytes(1, length)).unwrap();
        drop(upload);
        assert_eq!(world.keys(), (0, 0), "{length} bytes");
    }
    let files = std::fs::read_dir(dir.path().join("ingest")).unwrap();
    assert_eq!(files.count(), 0);
}

#[test]
fn a_refused_edit_refers_to_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    world.written("a", None, &[]);
    let content = world.upload(&bytes(1, 300_000));
    assert_eq!(world.edit("a", None, &[&content]), Outcome::Conflict);
    drop(content);
    assert_eq!(world.keys(), (0, 0));
}

#[test]
fn compaction_removes_contents_that_only_old_revisions_name() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    let [old, kept, new] = [1, 2, 3].map(|seed| world.upload(&bytes(seed, 200_000)));
    let first = world.written("a", None, &[&old, &kept]);
    world.written("a", Some(first), &[&kept, &new]);
    let ids = [old.id, kept.id, new.id];
    drop((old, kept, new));
    assert!(
        ids.iter()
            .all(|id| world.contents.hold(id).unwrap().is_some()),
        "before"
    );
    world.compact();
    let there = ids.map(|id| world.contents.hold(&id).unwrap().is_some());
    assert_eq!(there, [false, true, true]);
    world.contents.reclaim().unwrap();
    assert_eq!(
        read(&world.contents.hold(&ids[2]).unwrap().unwrap()),
        bytes(3, 200_000)
    );
    assert_eq!(world.contents.stored_bytes().unwrap(), 400_000);
}

#[test]
fn a_reader_keeps_what_compaction_would_remove() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    let content = world.upload(&bytes(1, 300_000));
    let first = world.written("a", None, &[&content]);
    world.written("a", Some(first), &[]);
    world.compact();
    assert_eq!(read(&content), bytes(1, 300_000));
    drop(content);
    assert_eq!(world.keys(), (0, 0));
}

#[test]
fn contents_of_purged_documents_go_with_the_next_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    let content = world.upload(&bytes(1, 300_000));
    let rev = world.written("a", None, &[&content]);
    drop(content);
    let purge = ShardPurge {
        shard: world.shard.clone(),
        id: DocId::new("a").unwrap(),
        revs: vec![rev],
        uuid: [0; 16],
    };
    let purged = world.store.committer.purge(vec![purge], Limits::default());
    purged.blocking_recv().unwrap().unwrap();
    world.compact();
    assert_eq!(world.keys(), (0, 0));
}

#[test]
fn what_a_crash_leaves_is_removed_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let ids = {
        let world = open(dir.path());
        let kept = world.upload(&bytes(1, 300_000));
        world.written("a", None, &[&kept]);
        let unreferred = world.upload(&bytes(2, 300_000));
        let long = world.upload(&bytes(3, DIRECT_FROM_BYTES + 300_000));
        let mut unfinished = world.contents.upload();
        unfinished.write(&bytes(4, 300_000)).unwrap();
        let ids = [kept.id, unreferred.id, long.id];
        // Simulates a crash: nothing is released or closed.
        std::mem::forget((kept, unreferred, long));
        std::mem::forget(unfinished);
        ids
    };
    let world = open(&copy_of(dir.path()));
    let there = ids.map(|id| world.contents.hold(&id).unwrap().is_some());
    assert_eq!(there, [true, false, false]);
    // Three chunks, the content's place, one reference.
    assert_eq!(world.keys(), (5, 0));
    let again = world.upload(&bytes(2, 300_000));
    assert_eq!(read(&again), bytes(2, 300_000));
}

#[test]
fn what_was_held_when_a_crash_came_is_removed_by_the_next_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let ids = {
        let world = open(dir.path());
        let [held, kept] = [1, 2].map(|seed| world.upload(&bytes(seed, 300_000)));
        let first = world.written("a", None, &[&held, &kept]);
        world.written("a", Some(first), &[&kept]);
        world.compact();
        assert_eq!(world.keys_of("r"), 1, "only of what the leaf names");
        let ids = [held.id, kept.id];
        // Simulates a crash: the reader does not release it.
        std::mem::forget((held, kept));
        ids
    };
    let world = open(&copy_of(dir.path()));
    assert_eq!(world.contents.stored_bytes().unwrap(), 600_000);
    let read_now = world.contents.hold(&ids[0]).unwrap();
    world.compact();
    world.contents.sweep_all().unwrap();
    let there = ids.map(|id| world.contents.hold(&id).unwrap().is_some());
    assert_eq!(there, [true, true], "somebody reads it again");
    drop(read_now);
    let there = ids.map(|id| world.contents.hold(&id).unwrap().is_some());
    assert_eq!(there, [false, true]);
    assert_eq!(world.contents.stored_bytes().unwrap(), 300_000);
}

#[test]
fn only_contents_without_references_are_swept() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    let contents: Vec<_> = (0..20)
        .map(|seed| world.upload(&bytes(seed, 5_000)))
        .collect();
    for (n, content) in contents.iter().enumerate().filter(|(n, _)| n % 3 != 0) {
        let first = world.written(&format!("a-{n}"), None, &[content]);
        world.written(&format!("a-{n}"), Some(first), &[content]);
    }
    let ids: Vec<_> = contents.iter().map(|content| content.id).collect();
    std::mem::forget(contents);
    let copy = copy_of(dir.path());
    // The entries of their uploads would make the start remove them.
    let world = open_after(&copy, |engine, batch| {
        let snapshot = engine.snapshot();
        let mut it = snapshot.iter_all(Keyspace::Meta);
        it.seek(b"u");
        while let Some(key) = it.key().filter(|key| key.starts_with(b"u")) {
            batch.delete(Keyspace::Meta, key);
            it.next();
        }
    });
    assert_eq!(world.keys_of("h"), 20);
    world.contents.sweep_all().unwrap();
    for (n, id) in ids.iter().enumerate() {
        let there = world.contents.hold(id).unwrap().is_some();
        assert_eq!(there, n % 3 != 0, "{n}");
    }
}

#[test]
fn space_of_what_went_before_a_restart_is_given_back_by_the_next_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let length = DIRECT_FROM_BYTES + (8 << 20);
    {
        let world = open(dir.path());
        let content = world.upload(&bytes(1, length));
        let first = world.written("a", None, &[&content]);
        world.written("a", Some(first), &[]);
        world.compact();
        world.contents.reclaim().unwrap();
        drop(content);
        assert_eq!(world.keys(), (0, 0));
        assert_eq!(world.contents.reclaimable_bytes().unwrap(), length as u64);
        world.store.close();
    }
    let world = open(dir.path());
    assert!(world.file_bytes() > 1 << 20, "{}", world.file_bytes());
    assert_eq!(world.contents.reclaimable_bytes().unwrap(), length as u64);
    world.contents.reclaim().unwrap();
    assert!(world.file_bytes() < 1 << 20, "{}", world.file_bytes());
    assert_eq!(world.contents.reclaimable_bytes().unwrap(), 0);
}

#[test]
fn bytes_of_contents_are_counted_in_stores_that_did_not_count_them() {
    let dir = tempfile::tempdir().unwrap();
    {
        let world = open(dir.path());
        for seed in 0..3 {
            let content = world.upload(&bytes(seed, 200_000));
            world.written(&format!("a-{seed}"), None, &[&content]);
        }
        assert_eq!(world.contents.stored_bytes().unwrap(), 600_000);
        world.store.close();
    }
    let world = open_after(dir.path(), |_, batch| {
        batch.delete(Keyspace::Meta, b"b");
        batch.delete(Keyspace::Attachments, [0, 0, 0, 7, b'b']);
    });
    assert_eq!(world.contents.stored_bytes().unwrap(), 600_000);
}

/// Opens a store whose rows were changed before.
fn open_after(
    path: &Path,
    change: impl FnOnce(&Arc<storage::Engine>, &mut storage::Writes<'_>),
) -> World {
    {
        let engine = storage::Engine::open(path, &StoreOptions::default()).unwrap();
        let mut batch = engine.writes();
        change(&engine, &mut batch);
        batch.commit(true).unwrap();
    }
    open(path)
}

#[test]
fn attachments_of_many_gigabytes_are_counted_in_full() {
    let dir = tempfile::tempdir().unwrap();
    let length = 9_u64 << 30;
    {
        let world = open(dir.path());
        let mut content = attachment("long", &world.upload(b"not so long"));
        (content.length, content.stored_length) = (length, length);
        let file = File {
            attachment: content,
            content: None,
        };
        let rev = world.edit_with("a", None, vec![file.clone()]);
        let Outcome::Written(rev) = rev else {
            panic!("conflict")
        };
        assert_eq!(world.shard.meta().external_bytes, length + 2);
        // Now with a tree.
        world.edit_with("a", Some(rev), vec![file]);
        assert_eq!(world.shard.meta().external_bytes, length + 2);
        world.store.close();
    }
    let world = open(dir.path());
    let record = world.shard.record("a").unwrap().unwrap();
    assert_eq!(record.leaf_bytes(), length + 2);
}

/// Copies a store that is still open.
fn copy_of(path: &Path) -> std::path::PathBuf {
    crate::slots::crash::copy(path, path.with_extension("copy"))
}

#[test]
fn a_body_and_its_attachments_are_stored_together() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    let content = world.upload(b"hello");
    world.written("a", None, &[&content]);
    let record = world.shard.record("a").unwrap().unwrap();
    let stored = world.shard.body(record.seq).unwrap().unwrap();
    let body = StoredBody::split(&stored);
    assert_eq!(body.json, b"{}");
    let attachments = body.attachments().unwrap();
    assert_eq!(attachments.len(), 1);
    assert_eq!(
        (attachments[0].content, attachments[0].revpos),
        (content.id, Some(1))
    );
}

#[test]
fn equal_contents_of_two_shards_are_stored_in_each_and_go_by_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let here = open(dir.path());
    let there = here.beside(8);
    let length = DIRECT_FROM_BYTES + 300_000;
    let bytes = bytes(1, length);
    let first = here.upload(&bytes);
    assert!(there.contents.hold(&first.id).unwrap().is_none());
    let second = there.upload(&bytes);
    assert_eq!(second.id, first.id);
    let rev = here.written("a", None, &[&first]);
    there.written("b", None, &[&second]);
    assert_eq!(here.keys(), (here.keys_of("c") + 2, 0));
    assert_eq!(there.keys(), (there.keys_of("c") + 2, 0));
    assert_eq!(here.keys_of("c"), there.keys_of("c"));
    drop((first, second));
    here.written("a", Some(rev), &[]);
    here.compact();
    here.contents.sweep_all().unwrap();
    there.contents.sweep_all().unwrap();
    assert_eq!(here.contents.stored_bytes().unwrap(), 0);
    assert_eq!(there.contents.stored_bytes().unwrap(), length as u64);
    assert_eq!((here.keys().0, there.keys_of("h")), (0, 1));
    let id = *blake3::hash(&bytes).as_bytes();
    assert!(here.contents.hold(&id).unwrap().is_none());
    assert!(read(&there.contents.hold(&id).unwrap().unwrap()) == bytes);
}

#[test]
fn space_of_several_shards_is_given_back_together() {
    let dir = tempfile::tempdir().unwrap();
    let here = open(dir.path());
    let worlds = [here.beside(8), here.beside(9), here];
    let all = worlds.each_ref().map(|world| world.contents.clone());
    let length = DIRECT_FROM_BYTES + (2 << 20);
    for (seed, world) in worlds.iter().enumerate() {
        let content = world.upload(&bytes(seed as u64, length));
        let kept = world.upload(&bytes(9, 200_000));
        let first = world.written("a", None, &[&content, &kept]);
        world.written("a", Some(first), &[&kept]);
        drop((content, kept));
        world.compact();
        assert_eq!(world.contents.reclaimable_bytes().unwrap(), length as u64);
    }
    reclaim_contents(&all).unwrap();
    reclaim_contents(&[]).unwrap();
    for world in &worlds {
        assert_eq!(world.contents.reclaimable_bytes().unwrap(), 0);
        let id = *blake3::hash(&bytes(9, 200_000)).as_bytes();
        let kept = world.contents.hold(&id).unwrap().unwrap();
        assert!(read(&kept) == bytes(9, 200_000));
    }
    assert!(worlds[0].file_bytes() < 2 << 20);
}

#[test]
fn what_a_crash_leaves_under_several_shards_is_removed_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let id = *blake3::hash(&bytes(1, 300_000)).as_bytes();
    {
        let here = open(dir.path());
        let there = here.beside(8);
        // The same content: a document names it in one, nothing in the other.
        let kept = here.upload(&bytes(1, 300_000));
        here.written("a", None, &[&kept]);
        let unreferred = there.upload(&bytes(1, 300_000));
        for world in [&here, &there] {
            let mut unfinished = world.contents.upload();
            unfinished.write(&bytes(2, 300_000)).unwrap();
            std::mem::forget(unfinished);
        }
        std::mem::forget((kept, unreferred));
    }
    let here = open(&copy_of(dir.path()));
    let there = here.beside(8);
    // Three chunks, the content's place, one reference.
    assert_eq!((here.keys(), there.keys()), ((5, 0), (0, 0)));
    assert!(here.contents.hold(&id).unwrap().is_some());
    assert!(there.contents.hold(&id).unwrap().is_none());
    assert_eq!(here.contents.stored_bytes().unwrap(), 300_000);
    assert_eq!(there.contents.stored_bytes().unwrap(), 0);
}
