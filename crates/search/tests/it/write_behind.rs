//! Commits that are in memory only.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support;

use search::{Error, Index};
use support::{Words, found, opened, rounds, term, text, write};

/// Documents and their only words.
type Docs = BTreeMap<String, String>;

/// One update in memory, with these words of documents, or none of a document that is removed.
fn write_in_memory(index: &Index, changes: &BTreeMap<String, Option<String>>, seq: u64) {
    let mut update = index.update_in_memory().unwrap();
    for (id, word) in changes {
        match word {
            Some(word) => update.put(id, None, text(word), &Words).unwrap(),
            None => update.remove(id),
        }
    }
    update.commit(seq, 0).unwrap();
}

fn flush(index: &Index) {
    index.flush(|| Ok::<(), Error>(())).unwrap();
}

fn docs_of(index: &Index) -> Docs {
    let mut docs = Docs::new();
    for word in ["x", "y", "z"] {
        let ids = found(index, term(word)).into_iter();
        docs.extend(ids.map(|id| (id, word.to_owned())));
    }
    docs
}

/// Copies the files of a folder as a crash leaves them.
fn crash(folder: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn an_update_in_memory_is_found_and_its_files_are_written_later() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(&index, &[("a", "x")], 1);
    assert!(!index.has_unwritten());
    let changes = [("b".to_owned(), Some("x".to_owned()))].into();
    write_in_memory(&index, &changes, 2);
    assert_eq!(found(&index, term("x")), ["a", "b"]);
    assert!(index.has_unwritten() && index.unwritten_bytes() > 0);
    let aside = tempfile::tempdir().unwrap();
    let copy = aside.path().join("before");
    crash(dir.path(), &copy);
    assert_eq!(opened(&copy).commit().seq, 1);
    // A failure of the source's sync leaves everything as it is.
    let failed = index.flush(|| Err(Error::Engine("no disk".to_owned())));
    assert!(failed.is_err() && index.has_unwritten());
    flush(&index);
    assert_eq!((index.has_unwritten(), index.unwritten_bytes()), (false, 0));
    drop(index);
    assert_eq!(search::find_damage(dir.path()).unwrap(), None);
    let index = opened(dir.path());
    assert_eq!(index.commit().seq, 2);
    assert_eq!(found(&index, term("x")), ["a", "b"]);
}

#[test]
fn long_files_of_an_update_in_memory_are_in_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    let long: String = (0..100_000).map(|n| format!("w{n} ")).collect();
    let changes = [("a".to_owned(), Some(long))].into();
    write_in_memory(&index, &changes, 1);
    assert!(index.unwritten_bytes() < 1 << 20);
    assert_eq!(found(&index, term("w7")), ["a"]);
    flush(&index);
    drop(index);
    assert_eq!(search::find_damage(dir.path()).unwrap(), None);
    assert_eq!(found(&opened(dir.path()), term("w99999")), ["a"]);
}

#[test]
fn an_update_in_memory_that_is_given_up_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let index = opened(dir.path());
    write(&index, &[("a", "x"), ("b", "x")], 1);
    for seq in 2..5 {
        let update = index.update_in_memory().unwrap();
        update.put("c", None, text("x"), &Words).unwrap();
        update.remove("a");
        update.abandon().unwrap();
        assert_eq!(found(&index, term("x")), ["a", "b"]);
        let changes = [("b".to_owned(), None)].into();
        write_in_memory(&index, &changes, seq);
        assert_eq!(found(&index, term("x")), ["a"]);
        let changes = [("b".to_owned(), Some("x".to_owned()))].into();
        write_in_memory(&index, &changes, seq);
        flush(&index);
        assert_eq!(search::find_damage(dir.path()).unwrap(), None);
    }
}

/// Updates in memory and durable ones, merges, flushes and crashes, compared with a model.
#[test]
fn a_crash_leaves_the_last_flushed_commit_as_a_whole() {
    for seed in 0..rounds(4, 100) {
        let mut random = fastrand::Rng::with_seed(seed);
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("index");
        let index = opened(&folder);
        let (mut docs, mut states) = (Docs::new(), vec![Docs::new()]);
        let mut durable = 0;
        for step in 0..40 {
            let seq = states.len() as u64;
            match random.u32(0..10) {
                0 => {
                    flush(&index);
                    durable = states.len() - 1;
                }
                1 => {
                    index.tidy(&|| false).unwrap();
                }
                2 => {
                    // A durable update is one after everything in memory is written.
                    flush(&index);
                    let id = format!("d{}", random.u32(0..20));
                    write(&index, &[(&id, "z")], seq);
                    docs.insert(id, "z".to_owned());
                    states.push(docs.clone());
                    durable = states.len() - 1;
                }
                _ => {
                    let mut changes = BTreeMap::new();
                    for _ in 0..random.u32(1..4) {
                        let word = ["x", "y"].get(random.usize(0..3)).map(|w| (*w).to_owned());
                        changes.insert(format!("d{}", random.u32(0..20)), word);
                    }
                    for (id, word) in &changes {
                        match word {
                            Some(word) => docs.insert(id.clone(), word.clone()),
                            None => docs.remove(id),
                        };
                    }
                    write_in_memory(&index, &changes, seq);
                    states.push(docs.clone());
                }
            }
            assert_eq!(docs_of(&index), docs, "seed {seed}, step {step}");
            let copy = dir.path().join(step.to_string());
            crash(&folder, &copy);
            assert_eq!(search::find_damage(&copy).unwrap(), None);
            let crashed = opened(&copy);
            assert_eq!(
                crashed.commit().seq,
                durable as u64,
                "seed {seed}, step {step}"
            );
            assert_eq!(
                docs_of(&crashed),
                states[durable],
                "seed {seed}, step {step}"
            );
        }
    }
}
