//! Kept stores are sound; what is done to them afterwards is found, or every read gives the same answers as before; and a repair saves
//! everything that there is in one.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use database::check::{CheckOptions, Report, check};
use database::repair::{RepairHooks, RepairedDatabase, repair};
use fastrand::Rng;
use serde_json::Value;
use storage::{Body, Engine, Keyspace, Row, StoreOptions};

use crate::golden::functions::Golden;
use crate::golden::{assert_same, describe, expected, kept, runtime, unpacked, write};
use crate::support::rounds;

fn looked_at(store: &Path) -> Result<Report, database::Error> {
    let temporary = tempfile::tempdir().unwrap();
    check(
        store,
        CheckOptions {
            temporary: temporary.path().to_owned(),
            languages: Some(Arc::new(Golden { maps: true })),
            time_zone: functions::UTC.to_owned(),
            begun: Box::new(|_| {}),
        },
    )
}

fn said(report: &Report) -> Vec<String> {
    let damage = report.damage();
    damage
        .map(|found| format!("{}: {}", found.subject(), found.finding.says))
        .collect()
}

/// Files with their lengths and when they were changed.
fn listing(dir: &Path) -> Vec<(String, u64, SystemTime)> {
    let entry = |entry: fs::DirEntry| {
        let metadata = entry.metadata().unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, metadata.len(), metadata.modified().unwrap())
    };
    let mut all: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|e| entry(e.unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn kept_stores_are_sound_and_a_check_changes_nothing() {
    for name in kept() {
        let dir = unpacked(&name);
        let before = listing(dir.path());
        let report = looked_at(dir.path()).unwrap();
        assert_eq!(said(&report), Vec::<String>::new(), "{name}");
        assert_eq!(listing(dir.path()), before, "{name}");
        assert!(report.totals.documents > 400, "{:?}", report.totals);
        assert!(report.totals.index_rows > 1_000, "{:?}", report.totals);
        // After a server had it, too.
        write::open(dir.path(), false).close();
        let report = looked_at(dir.path()).unwrap();
        assert_eq!(said(&report), Vec::<String>::new(), "{name}, opened once");
    }
}

#[test]
fn a_store_that_a_server_has_open_is_not_looked_at() {
    let dir = unpacked(crate::golden::CURRENT);
    let databases = write::open(dir.path(), false);
    // Locks of files are a process's: another one is a child of this test.
    let refused = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "golden::check::child_looks",
            "--ignored",
            "--nocapture",
        ])
        .env("SETTEE_LOOK_AT", dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&refused.stdout);
    assert!(text.contains("a server has it open"), "{text}");
    databases.close();
}

#[test]
#[ignore = "a part of another test"]
fn child_looks() {
    if let Ok(store) = std::env::var("SETTEE_LOOK_AT") {
        println!("{}", looked_at(Path::new(&store)).unwrap_err());
    }
}

/// A store that is harmed: tables are links, since nothing changes them but a fault, which makes them a file of their own first.
fn harmed_copy(from: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() && entry.file_name() != "LOCK" {
            fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
        }
    }
    dir
}

/// A change, and whether it may stay undetected although reads differ, because the store has the
/// changed data only once.
struct Fault {
    what: String,
    may_be_unseen: bool,
}

fn flip_in_file(dir: &Path, rng: &mut Rng) -> Fault {
    let mut files: Vec<_> = listing(dir)
        .into_iter()
        .filter(|(_, len, _)| *len > 0)
        .collect();
    // The engine's own statistics, and its options of the last run, are never read.
    files.retain(|(name, ..)| {
        !name.starts_with("LOG") && !name.starts_with("OPTIONS") && name != "IDENTITY"
    });
    let (name, len, _) = &files[rng.usize(..files.len())];
    let path = dir.join(name);
    let mut bytes = fs::read(&path).unwrap();
    let at = rng.usize(..*len as usize);
    bytes[at] ^= 1 << rng.u8(..8);
    fs::write(&path, bytes).unwrap();
    Fault {
        what: format!("a bit of byte {at} of {name} ({len})"),
        // The end of the log is what a crash leaves.
        may_be_unseen: name.ends_with(".log"),
    }
}

fn change_row(dir: &Path, rng: &mut Rng) -> Fault {
    let options = StoreOptions::default();
    let engine = Engine::open(dir, &options).unwrap();
    let snapshot = engine.snapshot();
    let k = Keyspace::ALL[rng.usize(..Keyspace::ALL.len())];
    let mut rows = vec![];
    let mut it = snapshot.iter_all(k);
    it.seek_to_first();
    while let Some((key, value)) = it.item() {
        rows.push((key.to_vec(), value.to_vec()));
        it.next();
    }
    drop(it);
    if rows.is_empty() {
        return Fault {
            what: format!("nothing in {k:?}"),
            may_be_unseen: false,
        };
    }
    let (key, mut value) = rows.swap_remove(rng.usize(..rows.len()));
    let mut writes = engine.writes();
    let named = String::from_utf8_lossy(&key).escape_debug().to_string();
    let fault = if value.is_empty() || rng.bool() {
        writes.delete(k, &key);
        let is_upload = k == Keyspace::Meta && key[0] == b'u';
        Fault {
            what: format!("{k:?} {named} removed"),
            may_be_unseen: k == Keyspace::Local || is_upload,
        }
    } else {
        let at = rng.usize(..value.len());
        let may_be_unseen = is_said_nowhere_else(k, &key, &value, at);
        value[at] ^= 1 << rng.u8(..8);
        writes.put(k, &key, &value);
        Fault {
            what: format!("{k:?} {named} changed at {at} of {}", value.len()),
            may_be_unseen,
        }
    };
    writes.commit(true).unwrap();
    drop(snapshot);
    fault
}

/// The text of bodies, the ids of old revisions, and records of databases and purges are stored
/// only once.
fn is_said_nowhere_else(k: Keyspace, key: &[u8], value: &[u8], at: usize) -> bool {
    match k {
        Keyspace::Bodies | Keyspace::Local | Keyspace::Purges | Keyspace::ById => true,
        Keyspace::BySeq => {
            let seq = u64::from_be_bytes(key[4..].try_into().unwrap());
            let row = Row::decode(seq, value).unwrap();
            let is_in_body =
                matches!(row.body, Body::Inline(body) if at >= value.len() - body.len());
            // The replaced change, and its branch, matter only while the summary is younger.
            is_in_body || row.winner_seq != seq || at < 4
        }
        // An index that claims to be behind is updated again.
        Keyspace::Meta => matches!(key[0], b'd' | b'm'),
        // Reductions of custom functions.
        Keyspace::IndexBlocks => true,
        _ => false,
    }
}

/// SETTEE_FAULTS is another number of faults, SETTEE_SEED the first seed.
#[test]
fn a_fault_is_found_or_every_read_is_as_before() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |n| n.parse().unwrap());
    let first = number("SETTEE_SEED", 1);
    let faults = number("SETTEE_FAULTS", rounds(20, 60));
    let name = crate::golden::CURRENT;
    let store = unpacked(name);
    let expected = expected(name);
    let (mut found, mut harmless, mut unseen) = (0, 0, 0);
    for seed in first..first + faults {
        let mut rng = Rng::with_seed(seed);
        let dir = harmed_copy(store.path());
        let fault = match rng.bool() {
            true => flip_in_file(dir.path(), &mut rng),
            false => change_row(dir.path(), &mut rng),
        };
        println!("seed {seed}: {}", fault.what);
        match looked_at(dir.path()) {
            Err(_) => {
                found += 1;
                continue;
            }
            Ok(report) if !report.is_sound() => {
                found += 1;
                continue;
            }
            Ok(_) if fault.may_be_unseen => {
                unseen += 1;
                continue;
            }
            Ok(_) => {}
        }
        println!("seed {seed}: harmless");
        let databases = write::open(dir.path(), true);
        let read = runtime().block_on(describe::describe(&databases));
        databases.close();
        assert_same(&read, &expected, &format!("seed {seed}, {}: ", fault.what));
        harmless += 1;
    }
    println!("{found} found, {harmless} harmless, {unseen} of what is said nowhere else");
    assert!(found > faults / 3, "{found} of {faults} faults were found");
}

fn repaired(from: &Path, to: &Path) -> (Vec<RepairedDatabase>, Vec<String>) {
    let mut lost = vec![];
    let hooks = RepairHooks {
        lost: &mut |loss| {
            lost.push(format!(
                "{:?} {:?} {}",
                loss.database, loss.document, loss.what
            ))
        },
        progress: &|_, _| {},
        note: &mut |_| {},
    };
    let saved = repair(from, to, &to.with_extension("scratch"), hooks).unwrap();
    (saved, lost)
}

/// The part of a description that a repair keeps: without seqs, which are assigned again, and
/// without purges, which depend on them.
fn kept_by_repair(described: &Value) -> Value {
    let mut all = described.clone();
    for database in all.as_object_mut().unwrap().values_mut() {
        let database = database.as_object_mut().unwrap();
        database.retain(|name, _| {
            ["info", "documents", "local_docs", "all_docs"].contains(&name.as_str())
        });
        let info = database["info"].as_object_mut().unwrap();
        info.retain(|name, _| !["update_seq", "purge_seq", "time_seq"].contains(&name.as_str()));
        for listing in ["local_docs", "all_docs"] {
            database[listing]
                .as_object_mut()
                .unwrap()
                .remove("update_seq");
        }
        for document in database["documents"].as_object_mut().unwrap().values_mut() {
            if let Some(winner) = document["winner"].as_object_mut() {
                winner.remove("_local_seq");
            }
        }
        // Purged, and so of a change that is not copied.
        let documents = database["documents"].as_object_mut().unwrap();
        documents.retain(|_, document| document["leaves"] != serde_json::json!([]));
    }
    all
}

#[test]
fn a_repair_of_a_sound_store_loses_nothing() {
    for name in kept() {
        let dir = unpacked(&name);
        let new = tempfile::tempdir().unwrap();
        let before = listing(dir.path());
        let (saved, lost) = repaired(dir.path(), &new.path().join("store"));
        assert_eq!(lost, Vec::<String>::new(), "{name}");
        assert_eq!(listing(dir.path()), before, "{name}");
        assert_eq!(saved.len(), expected(&name).as_object().unwrap().len());
        let report = looked_at(&new.path().join("store")).unwrap();
        assert_eq!(said(&report), Vec::<String>::new(), "{name}, repaired");
        let databases = write::open(&new.path().join("store"), true);
        let read = runtime().block_on(describe::describe(&databases));
        databases.close();
        assert_same(
            &kept_by_repair(&read),
            &kept_by_repair(&expected(&name)),
            &format!("{name}: "),
        );
    }
}
