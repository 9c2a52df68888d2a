//! Backups of directories that change at random, some abandoned midway, some concurrent with
//! prunes: every listed backup can be restored.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use backup::{BackupSelection, Copy, Error, Progress, Retention, S3Options, Target, TargetName};
use chrono::{DateTime, TimeDelta, Utc};

/// Names and contents.
type Files = BTreeMap<String, Vec<u8>>;

struct Server {
    /// Holds everything; removed when it is dropped.
    root: tempfile::TempDir,
    files: Files,
    next: u32,
    clock: DateTime<Utc>,
}

impl Server {
    fn new() -> Server {
        Server {
            root: tempfile::tempdir().unwrap(),
            files: Files::new(),
            next: 1,
            clock: backup::parse_time("2026-11-24T00:00:00Z").unwrap(),
        }
    }

    fn target_path(&self) -> PathBuf {
        self.root.path().join("target")
    }

    async fn target(&self) -> Target {
        let name = TargetName::Directory(self.target_path());
        let s3 = S3Options::default();
        Target::open_or_create(&name, &s3, "server").await.unwrap()
    }

    /// As compactions do: some files go, others come, and one is rewritten under its name.
    fn change(&mut self, random: &mut fastrand::Rng) {
        let gone: Vec<String> = self
            .files
            .keys()
            .filter(|_| random.u8(..) < 60)
            .cloned()
            .collect();
        gone.iter().for_each(|name| drop(self.files.remove(name)));
        for _ in 0..random.u32(1..6) {
            // Equal files too, and empty ones.
            let bytes = [0, 1, 1_000, 100_000][random.usize(..4)];
            let seed = random.u8(..4);
            let name = format!("{:06}.sst", self.next);
            self.files.insert(name, vec![seed; bytes]);
            self.next += 1;
        }
        let manifest = format!("{} {}", self.next, random.u64(..));
        self.files
            .insert("CURRENT".to_owned(), manifest.into_bytes());
    }

    /// Returns the copy to back up.
    fn copy(&mut self) -> Copy {
        let directory = self.root.path().join("checkpoint");
        let _ = std::fs::remove_dir_all(&directory);
        write(&directory, &self.files);
        self.clock += TimeDelta::hours(7);
        Copy {
            directory,
            hashes: self.root.path().join("hashes.json"),
            server: "server".to_owned(),
            version: "0".to_owned(),
            begun: self.clock,
            time: self.clock,
        }
    }
}

fn write(directory: &Path, files: &Files) {
    std::fs::create_dir_all(directory).unwrap();
    for (name, content) in files {
        std::fs::write(directory.join(name), content).unwrap();
    }
}

/// Changes of a server, each with a backup.
const ROUNDS: u32 = 10;

/// Returns a number of random cases or rounds: `full` in `make soak-units`, `short` in other runs.
fn rounds<T>(short: T, full: T) -> T {
    match std::env::var("NEXTEST_PROFILE").as_deref() {
        Ok("soak") => full,
        _ => short,
    }
}

fn read(directory: &Path) -> Files {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let read = entries.map(|e| {
        (
            e.file_name().into_string().unwrap(),
            std::fs::read(e.path()).unwrap(),
        )
    });
    read.collect()
}

async fn restored(target: &Target, which: &BackupSelection) -> Result<Files, Error> {
    let directory = tempfile::tempdir().unwrap();
    let found = backup::find(target, which).await?;
    backup::restore(target, &found, directory.path(), &Progress::default()).await?;
    Ok(read(directory.path()))
}

/// Every backup that is listed is of a round, and is restored as the server was then, by its name
/// and by its time.
async fn check(target: &Target, rounds: &BTreeMap<DateTime<Utc>, Files>) {
    let (backups, broken) = target.backups().await.unwrap();
    assert!(broken.is_empty(), "{broken:?}");
    for backup in backups {
        let (name, files) = (backup.name, &rounds[&backup.time]);
        let by_name = restored(target, &BackupSelection::Named(name.clone()))
            .await
            .unwrap();
        let by_time = restored(target, &BackupSelection::At(backup.time))
            .await
            .unwrap();
        assert!(by_name == *files && by_time == *files, "{name}");
    }
    let verified = backup::verify(target, None).await.unwrap();
    assert!(verified.faults.is_empty(), "{:?}", verified.faults);
}

#[expect(
    clippy::too_many_lines,
    reason = "one step of a random life after another"
)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_listed_can_be_restored_whatever_happens() {
    for seed in 0..rounds(2, 8) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut server = Server::new();
        let target = server.target().await;
        // The server's state at each started backup. A backup that was given up may still be made,
        // and be listed late: a started write continues in a separate thread.
        let mut rounds = BTreeMap::new();
        for round in 0..ROUNDS {
            server.change(&mut random);
            let copy = server.copy();
            let progress = Progress::default();
            // A concurrent prune removes no file that the backup needs, or has just copied.
            let keep = Retention {
                last: random.u64(1..4),
                daily: random.u64(..3),
                ..Retention::default()
            };
            let pruner = target.clone();
            let beside = random.u8(..) < 100;
            let pruning = tokio::spawn(async move {
                if beside {
                    backup::prune(&pruner, &keep, false).await.unwrap();
                }
            });
            let making = backup::back_up(&target, &copy, 0, &progress);
            // Given up like by a process that ends: at any place, without a word.
            let given_up = random.u8(..) < 80 && round < ROUNDS - 1;
            let limit = match given_up {
                true => Duration::from_micros(random.u64(..20_000)),
                false => Duration::from_secs(60),
            };
            let ended = tokio::time::timeout(limit, making).await;
            pruning.await.unwrap();
            rounds.insert(copy.time, server.files.clone());
            if let Ok(ended) = ended {
                let ended = ended.unwrap();
                let (backups, _) = target.backups().await.unwrap();
                let is_listed = backups.iter().any(|backup| backup.name == ended.name);
                assert!(is_listed, "seed {seed}");
            }
            let verified = backup::verify(&target, None).await.unwrap();
            assert!(
                verified.faults.is_empty(),
                "seed {seed}: {:?}",
                verified.faults
            );
            if round % 3 == 2 {
                check(&target, &rounds).await;
            }
            // Leases of those that were given up would hold others up for an hour.
            for lease in std::fs::read_dir(server.target_path().join("leases"))
                .into_iter()
                .flatten()
            {
                // One that is still being written gets another name.
                let _ = std::fs::remove_file(lease.unwrap().path());
            }
        }
        let pruned = backup::prune(
            &target,
            &Retention {
                last: 1,
                ..Retention::default()
            },
            false,
        )
        .await
        .unwrap();
        assert_eq!(pruned.kept, 1, "seed {seed}");
        let (backups, _) = target.backups().await.unwrap();
        let (last, files) = rounds.last_key_value().unwrap();
        let times: Vec<_> = backups.iter().map(|backup| backup.time).collect();
        assert_eq!(times, [*last], "seed {seed}");
        check(&target, &rounds).await;
        // Nothing is left but what the last one needs.
        let needed = files.values();
        let needed: std::collections::HashSet<_> = needed
            .map(|c| blake3::hash(c).to_hex().to_string())
            .collect();
        let folders = std::fs::read_dir(server.target_path().join("files")).unwrap();
        let there = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
        let there = there.map(|file| file.unwrap().file_name().into_string().unwrap());
        // Lists do not show files of a write that was given up.
        let there: std::collections::HashSet<_> =
            there.filter(|name| !name.contains('#')).collect();
        assert_eq!(there, needed, "seed {seed}");
    }
}

#[tokio::test]
async fn only_what_changed_is_copied_and_large_files_in_parts() {
    let mut server = Server::new();
    let target = server.target().await;
    server.files.insert(
        "000001.sst".to_owned(),
        (0..20_000_000u32).map(|n| n as u8).collect(),
    );
    server.files.insert("CURRENT".to_owned(), b"1".to_vec());
    let progress = Progress::default();
    let first = backup::back_up(&target, &server.copy(), 0, &progress)
        .await
        .unwrap();
    assert_eq!((first.copied_files, first.copied_bytes), (2, 20_000_001));
    assert_eq!(progress.done_bytes(), progress.bytes());
    server.files.insert("CURRENT".to_owned(), b"23".to_vec());
    let second = backup::back_up(&target, &server.copy(), 0, &Progress::default())
        .await
        .unwrap();
    assert_eq!((second.copied_files, second.copied_bytes), (1, 2));
    assert_eq!(
        restored(&target, &BackupSelection::Last).await.unwrap(),
        server.files
    );
    let early = BackupSelection::At(first.time - TimeDelta::seconds(1));
    let none = restored(&target, &early).await.unwrap_err();
    assert!(matches!(none, Error::NoneBefore { .. }), "{none}");
}

#[tokio::test]
async fn two_backups_of_one_second_have_two_names() {
    let mut server = Server::new();
    let target = server.target().await;
    let mut names = std::collections::HashSet::new();
    for n in 0..3 {
        server.files.insert("CURRENT".to_owned(), vec![n]);
        let mut copy = server.copy();
        copy.time = backup::parse_time("2026-11-24T00:00:00Z").unwrap()
            + TimeDelta::milliseconds(i64::from(n));
        let made = backup::back_up(&target, &copy, 0, &Progress::default())
            .await
            .unwrap();
        names.insert(made.name);
    }
    assert_eq!(names.len(), 3);
    assert_eq!(
        restored(&target, &BackupSelection::Last).await.unwrap(),
        server.files
    );
}
