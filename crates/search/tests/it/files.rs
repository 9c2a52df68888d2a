//! The files of an index: damaged, lost, left over, or copied.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use search::{Error, Index};

use crate::support;

use support::{Words, found, opened, rounds, term, text, write};

/// Files of segments in a folder.
fn segment_files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.len() > 32 && !name.starts_with('.')
        })
        .collect();
    files.sort();
    files
}

/// Returns where tantivy's footer starts: a line of JSON with the checksum, its length, and a
/// constant.
fn footer_at(file: &[u8]) -> usize {
    let numbers = file.len() - 8;
    let length = file[numbers..numbers + 4].try_into().unwrap();
    numbers - u32::from_le_bytes(length) as usize
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Flips the first bit of each file of positions, or flips it back.
fn flip_positions(files: &[PathBuf]) {
    let positions = files
        .iter()
        .filter(|f| f.extension().is_some_and(|e| e == "pos"));
    positions.for_each(|file| flip(file, 0));
}

/// The names of an index's files.
fn files_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn an_index_that_cannot_be_read_is_empty_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    write(&opened(dir.path()), &[("a", "x")], 7);
    std::fs::write(dir.path().join("meta.json"), "{").unwrap();
    let index = opened(dir.path());
    assert!(index.damage().is_some());
    assert_eq!(index.commit().seq, 0);
    write(&index, &[("b", "x")], 8);
    assert_eq!(found(&index, term("x")), ["b"]);
}

#[test]
fn what_cannot_be_opened_now_is_not_thrown_away() {
    let dir = tempfile::tempdir().unwrap();
    write(&opened(dir.path()), &[("a", "x")], 7);
    // A folder in place of the file: an error that does not depend on the file's contents.
    let (meta, aside) = (dir.path().join("meta.json"), dir.path().join("aside"));
    std::fs::rename(&meta, &aside).unwrap();
    std::fs::create_dir(&meta).unwrap();
    assert!(Index::open(dir.path()).is_err());
    std::fs::remove_dir(&meta).unwrap();
    std::fs::rename(&aside, &meta).unwrap();
    let index = opened(dir.path());
    assert!(index.damage().is_none());
    assert_eq!(found(&index, term("x")), ["a"]);
}

#[test]
fn an_update_that_is_given_up_leaves_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(&index, &[("a", "x")], 1);
    let before = segment_files(dir.path());
    let update = index.update(1, 0).unwrap();
    let words: String = (0..40_000).map(|n| format!("w{n} ")).collect();
    // More than a writer keeps in memory.
    for n in 0..60 {
        let id = format!("b{n}");
        update
            .put(&id, None, text(&format!("{words}{n}")), &Words)
            .unwrap();
    }
    update.abandon().unwrap();
    assert_eq!(segment_files(dir.path()), before);
    assert_eq!(found(&index, term("x")), ["a"]);
    // tantivy's list of files drops those that no longer exist.
    write(&index, &[("c", "x")], 2);
    assert_eq!(segment_files(dir.path()).len(), 2 * before.len());
    let list = std::fs::read(dir.path().join(".managed.json")).unwrap();
    let list: Vec<String> = serde_json::from_slice(&list).unwrap();
    assert!(list.iter().all(|name| dir.path().join(name).exists()));
    assert_eq!(found(&index, term("x")), ["a", "c"]);
}

#[test]
fn a_flipped_bit_of_any_file_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(&index, &[("a", "x y z"), ("b", "x y")], 1);
    write(&index, &[("b", "y"), ("c", "z")], 2);
    drop(index);
    assert_eq!(search::find_damage(dir.path()).unwrap(), None);
    let files = segment_files(dir.path());
    assert!(files.len() > 8, "{files:?}");
    for file in files {
        let body = footer_at(&std::fs::read(&file).unwrap());
        for at in (0..body).step_by(body / 20 + 1) {
            flip(&file, at);
            let damage = search::find_damage(dir.path()).unwrap();
            assert!(damage.is_some(), "{}, byte {at}", file.display());
            flip(&file, at);
        }
        let whole = std::fs::read(&file).unwrap();
        for harmed in [&whole[..whole.len() / 2], &[]] {
            std::fs::write(&file, harmed).unwrap();
            let damage = search::find_damage(dir.path()).unwrap();
            assert!(damage.is_some(), "{} cut", file.display());
        }
        std::fs::write(&file, whole).unwrap();
    }
    assert_eq!(search::find_damage(dir.path()).unwrap(), None);
    assert_eq!(search::find_damage(&dir.path().join("none")).unwrap(), None);
}

#[test]
fn an_index_with_a_flipped_bit_is_empty_when_it_is_opened() {
    for extension in ["idx", "pos", "term", "fast", "store"] {
        let dir = tempfile::tempdir().unwrap();
        write(&opened(dir.path()), &[("a", "x y z")], 7);
        let mut files = segment_files(dir.path()).into_iter();
        let file = files.find(|f| f.extension().is_some_and(|e| e == extension));
        flip(&file.unwrap(), 0);
        let index = opened(dir.path());
        assert!(index.damage().unwrap().contains(extension));
        assert_eq!(index.commit().seq, 0);
    }
}

#[test]
fn what_is_damaged_is_not_merged_into_something_that_looks_whole() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    for n in 0..20u64 {
        write(&index, &[(&format!("d{n}"), "x y z")], n + 1);
    }
    assert_eq!(index.look_for_damage().unwrap(), None);
    let files = segment_files(dir.path());
    flip_positions(&files);
    assert!(matches!(index.tidy(&|| false), Err(Error::Engine(_))));
    assert_eq!(index.reader().segments(), 20);
    assert!(index.look_for_damage().unwrap().is_some());
    // The damage is remembered, whatever the size of the index.
    flip_positions(&files);
    drop(index);
    assert!(search::find_damage(dir.path()).unwrap().is_some());
    let index = opened(dir.path());
    assert!(index.damage().is_some());
    write(&index, &[("a", "x")], 30);
    assert_eq!(found(&index, term("x")), ["a"]);
    assert_eq!(search::find_damage(dir.path()).unwrap(), None);
}

#[test]
fn what_was_thrown_away_in_part_is_empty_too() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("damaged"), "why").unwrap();
    let index = opened(dir.path());
    assert_eq!(index.damage(), Some("why"));
    write(&index, &[("a", "x")], 1);
    drop(index);
    assert_eq!(opened(dir.path()).damage(), None);
}

#[test]
fn files_of_a_process_that_was_killed_are_in_nobodys_way() {
    let dir = tempfile::tempdir().unwrap();
    write(
        &opened(dir.path()),
        &[("a", "x"), ("b", "x"), ("c", "x")],
        1,
    );
    // The leftovers of an update that was killed right before its commit.
    let meta = dir.path().join("meta.json");
    let before = std::fs::read(&meta).unwrap();
    write(&opened(dir.path()), &[("a", "y")], 2);
    std::fs::write(&meta, before).unwrap();
    let left = files_in(dir.path());
    let deleted = left.iter().find(|file| file.ends_with(".del"));
    // A truncated file.
    std::fs::write(dir.path().join(deleted.unwrap()), "torn").unwrap();
    assert_eq!(search::find_damage(dir.path()).unwrap(), None);
    let index = opened(dir.path());
    assert_eq!(index.damage(), None);
    assert_eq!(found(&index, term("x")), ["a", "b", "c"]);
    write(&index, &[("a", "y")], 2);
    assert_eq!(found(&index, term("x")), ["b", "c"]);
    assert_eq!(found(&index, term("y")), ["a"]);
    let of_segments = |file: &&String| file.contains('.') && !file.ends_with("json");
    let files = files_in(dir.path());
    let segments: BTreeSet<_> = files
        .iter()
        .filter(of_segments)
        .filter_map(|file| file.split('.').next())
        .filter(|id| !id.is_empty())
        .collect();
    assert_eq!(segments.len(), index.reader().segments(), "{files:?}");
}

#[test]
fn copies_beside_updates_and_merges_are_of_one_commit_each() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(&dir.path().join("index"));
    write(&index, &[("d0", "x")], 1);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 2.. {
                let id = format!("d{}", n - 1);
                // A new document, and an existing one, so that there are deletions as well.
                write(&index, &[(&id, "x"), ("d0", "x")], n);
                index.tidy(&|| false).unwrap();
                if is_over.load(Relaxed) {
                    return;
                }
            }
        });
        let mut seqs = vec![];
        for n in 0..40 {
            let copy = dir.path().join(n.to_string());
            assert!(search::copy_index(&dir.path().join("index"), &copy).unwrap());
            assert_eq!(search::find_damage(&copy).unwrap(), None);
            let copied = Index::open(&copy).unwrap();
            assert_eq!(copied.damage(), None);
            let seq = copied.commit().seq;
            assert_eq!(
                found(&copied, term("x")).len().min(100),
                seq.min(100) as usize
            );
            // A copy is a normal index.
            write(&copied, &[("new", "y")], seq + 1);
            assert_eq!(found(&copied, term("y")), ["new"]);
            seqs.push(seq);
        }
        is_over.store(true, Relaxed);
        assert!(seqs.first() < seqs.last(), "{seqs:?}");
    });
    assert!(!search::copy_index(&dir.path().join("nowhere"), &dir.path().join("none")).unwrap());
}

#[test]
fn a_lost_file_is_damage_and_is_not_copied() {
    for extension in ["idx", "pos", "term", "fast", "store", "fieldnorm", "del"] {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("index");
        let index = opened(&folder);
        write(&index, &[("a", "x y z"), ("b", "x")], 7);
        write(&index, &[("b", "y")], 8);
        assert_eq!(index.look_for_damage().unwrap(), None);
        let mut files = segment_files(&folder).into_iter();
        let file = files.find(|f| f.extension().is_some_and(|e| e == extension));
        std::fs::remove_file(file.unwrap()).unwrap();
        let damage = search::find_damage(&folder).unwrap().unwrap();
        assert!(damage.contains(extension), "{extension}: {damage}");
        assert!(search::copy_index(&folder, &dir.path().join("copy")).is_err());
        // Also of an open index.
        let damage = index.look_for_damage().unwrap();
        let damage = damage.unwrap_or_default();
        assert!(damage.contains(extension), "{extension}: {damage}");
        drop(index);
        assert!(opened(&folder).damage().is_some());
    }
}

#[test]
fn looking_for_damage_makes_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, copy) = (dir.path().join("index"), dir.path().join("copy"));
    write(&opened(&folder), &[("a", "x")], 1);
    assert!(search::copy_index(&folder, &copy).unwrap());
    let files = files_in(&copy);
    assert_eq!(search::find_damage(&copy).unwrap(), None);
    assert_eq!(files_in(&copy).len(), files.len());
}

#[test]
fn what_is_to_be_thrown_away_is_not_copied_and_no_copy_is_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, copy) = (dir.path().join("index"), dir.path().join("copy"));
    let index = opened(&folder);
    write(&index, &[("a", "x y")], 1);
    assert!(search::copy_index(&folder, &copy).unwrap());
    // Its files are the index's own.
    assert!(search::copy_index(&folder, &copy).is_err());
    assert_eq!(search::find_damage(&folder).unwrap(), None);
    assert_eq!(found(&index, term("x")), ["a"]);
    std::fs::write(folder.join("damaged"), "why").unwrap();
    let marked = dir.path().join("marked");
    assert!(!search::copy_index(&folder, &marked).unwrap());
    assert!(!marked.exists());
}

#[test]
fn updates_that_are_given_up_beside_merges_leave_no_files() {
    for round in (0..10u64).step_by(rounds(2, 1)) {
        let dir = tempfile::tempdir().unwrap();
        let index = opened(dir.path());
        let mut seq = 0;
        for _ in 0..40 {
            seq += 1;
            write(&index, &[(&format!("d{seq}"), "x y z")], seq);
        }
        std::thread::scope(|scope| {
            let merging = scope.spawn(|| index.tidy(&|| false));
            while !merging.is_finished() {
                let update = index.update(1, 0).unwrap();
                update.put("new", None, text("x"), &Words).unwrap();
                std::thread::sleep(Duration::from_micros(700 * round));
                update.abandon().unwrap();
            }
            merging.join().unwrap().unwrap();
        });
        assert_eq!(found(&index, term("x")).len(), 40);
        assert_eq!(search::find_damage(dir.path()).unwrap(), None);
        let files = segment_files(dir.path());
        let ids: BTreeSet<_> = files
            .iter()
            .filter_map(|file| file.file_stem()?.to_str()?.split('.').next())
            .collect();
        // Readers may be at a state from before a merge that was committed anyway.
        drop(index);
        let index = opened(dir.path());
        assert_eq!(ids.len(), index.reader().segments(), "{files:?}");
        write(&index, &[("new", "x")], seq + 1);
        assert_eq!(found(&index, term("x")).len(), 41);
    }
}
