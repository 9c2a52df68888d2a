//! Helpers shared by the tests of query servers.
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use procfs::process::{Process, Stat};
use query_server::language::{DesignDoc, Doc, Emits, Error, Indexes, MapGroup, Owner};
use query_server::{Pools, Settings};
use tempfile::TempDir;

/// Returns a number of random cases or rounds: `full` in `make soak-units`, `short` in other runs.
pub fn rounds<T>(short: T, full: T) -> T {
    match std::env::var("NEXTEST_PROFILE").as_deref() {
        Ok("soak") => full,
        _ => short,
    }
}

/// A query server in Python whose functions are words: what it does in place of mapping a document.
pub struct Fake {
    dir: TempDir,
}

impl Fake {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let mut file = std::fs::File::create(dir.path().join("fake.py")).expect("a file");
        file.write_all(include_bytes!("fake.py")).expect("a file");
        Self { dir }
    }

    /// Returns settings with this server for `fake`. Tests that do not concern time give it plenty,
    /// as machines may be busy.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings {
            timeout: Duration::from_secs(30),
            ..Settings::default()
        };
        let command = format!(
            "python3 -S '{}' '{}'",
            self.path("fake.py").display(),
            self.dir.path().display()
        );
        settings.commands.insert("fake".to_owned(), command);
        settings
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Ids of all processes that were started, and of their children.
    pub fn pids(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(self.path("pids")).unwrap_or_default();
        text.lines()
            .map(|line| line.parse().expect("a number"))
            .collect()
    }

    /// Returns the events in the servers, in order.
    pub fn events(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("events")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Fails unless all processes that were ever started are gone, and waited for.
    pub fn assert_nothing_left(&self) {
        let pids = self.pids();
        assert!(!pids.is_empty(), "no process was started at all");
        // A thread of the pool that was just looking around may hold it a moment longer than its
        // owner.
        pids.into_iter().for_each(wait_until_gone);
    }
}

/// Returns whether a process is gone. One that was killed as a child of a killed process may still
/// be a zombie that init has not reaped: it does not run any more.
pub fn is_gone(pid: u32) -> bool {
    match stat(pid) {
        None => true,
        Some(stat) => stat.state == 'Z' && stat.ppid != std::process::id().cast_signed(),
    }
}

fn stat(pid: u32) -> Option<Stat> {
    Process::new(pid.cast_signed()).ok()?.stat().ok()
}

/// Waits until a process is gone, within the time limit of a test.
pub fn wait_until_gone(pid: u32) {
    let started = std::time::Instant::now();
    while !is_gone(pid) {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "process {pid} is left: {:?}",
            stat(pid)
        );
        std::thread::yield_now();
    }
}

pub fn group(language: &str, maps: &[&str]) -> MapGroup {
    MapGroup {
        language: language.to_owned(),
        maps: maps.iter().map(|map| (*map).to_owned()).collect(),
        lib: None,
        owner: Owner {
            views: vec![],
            database: "db".into(),
            design: "_design/d".to_owned(),
        },
        records: false,
        tells: false,
        leaves_out: false,
        indexes: Indexes::No,
    }
}

/// A row as text: document, view, key, value.
pub type Row = (u32, u32, String, String);

pub fn row(doc: u32, view: u32, key: &str, value: &str) -> Row {
    (doc, view, key.to_owned(), value.to_owned())
}

/// Maps documents given as bodies; their ids are `d0`, `d1`, ….
pub fn map(pools: &Pools, group: &MapGroup, bodies: &[&str]) -> Result<Vec<Row>, Error> {
    map_with(&mut *pools.mapper(group)?, bodies)
}

pub fn map_with(
    mapper: &mut dyn query_server::language::Mapper,
    bodies: &[&str],
) -> Result<Vec<Row>, Error> {
    let members: Vec<String> = (0..bodies.len())
        .map(|n| format!(r#""_id":"d{n}","_rev":"1-967a00dff5e02add41819138abb3284d""#))
        .collect();
    let docs: Vec<Doc<'_>> = members
        .iter()
        .zip(bodies)
        .map(|(members, body)| Doc {
            members: members.as_bytes(),
            body: body.as_bytes(),
        })
        .collect();
    let mut out = Emits::default();
    mapper.map(&docs, &mut out)?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    Ok(out
        .rows
        .iter()
        .map(|row| (row.doc, row.view, text(out.key(row)), text(out.value(row))))
        .collect())
}

/// Returns the path where `scripts/setup.sh test` installs Python's query server.
pub fn couchpy() -> PathBuf {
    let cache = std::env::var_os("SETTEE_CACHE").map_or_else(
        || Path::new(&std::env::var_os("HOME").expect("HOME is not set")).join(".cache/settee"),
        PathBuf::from,
    );
    let path = cache.join("couchpy/bin/couchpy");
    assert!(
        path.is_file(),
        "{} is missing: run scripts/setup.sh test",
        path.display()
    );
    path
}

/// All servers of other languages; fails when one is not installed.
pub fn real_servers() -> Settings {
    let mut settings = Settings::default();
    for language in ["erlang", "node", "python3"] {
        let command = query_server::builtin_command(language);
        let command = command.unwrap_or_else(|| {
            panic!("the program for {language} is not installed: run scripts/setup.sh test")
        });
        settings.commands.insert(language.to_owned(), command);
    }
    let couchpy = format!("'{}'", couchpy().display());
    settings.commands.insert("python".to_owned(), couchpy);
    // Not what is tested: machines may be busy.
    settings.timeout = Duration::from_secs(60);
    settings
}

/// A design document of the fake language.
pub fn ddoc(id: &str, rev: &str, json: &str) -> DesignDoc {
    DesignDoc {
        id: id.to_owned(),
        rev: rev.to_owned(),
        language: "fake".to_owned(),
        json: Arc::from(json.as_bytes()),
    }
}
