//! A store with indexes in a language of the tests' own, and what their rows must be.
pub mod language;
pub mod model;

use std::path::Path;
use std::sync::Arc;

use document::{DocId, Rev, RevHash, RevPath, body_term, revision_id};
use index::check::{IndexCheck, Remap};
use index::reduce::Builtin;
use index::{BuildLimits, Index, ReduceSpec, RowCache, Spec, ViewSpec};
use language::Native;
use storage::check::{Findings, Watch};
use storage::{
    Change, Edit, Limits, Outcome, Shard, ShardEdit, ShardNumber, ShardPurge, Store, StoreOptions,
};

/// How long a compaction waits for a build: longer than any of these.
pub const BUILD_WAIT: std::time::Duration = std::time::Duration::from_secs(600);

/// Returns a number of random cases or rounds: `full` in `make soak-units`, `short` in other runs.
pub fn rounds<T>(short: T, full: T) -> T {
    match std::env::var("NEXTEST_PROFILE").as_deref() {
        Ok("soak") => full,
        _ => short,
    }
}

/// Numbers that look random and are the same for the same seed.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

/// A store with one shard, and an index of it for each specification.
pub struct World {
    pub store: Arc<Store>,
    pub shard: Arc<Shard>,
    pub indexes: Vec<Arc<Index>>,
    pub language: Native,
    pub row_cache: Arc<RowCache>,
}

const SHARD: ShardNumber = 1;
const FIRST_INDEX: ShardNumber = 100;
/// Enough for some blocks of rows, not for all.
const ROW_CACHE_BYTES: usize = 256 << 10;

impl World {
    pub fn open(path: &Path, specs: &[Spec], limits: BuildLimits, language: Native) -> World {
        let options = StoreOptions {
            block_cache_bytes: 8 << 20,
            ..StoreOptions::default()
        };
        let store = Arc::new(Store::open(path, &options, Box::new(|_| {})).unwrap());
        let shard = Arc::new(store.shard(SHARD).unwrap());
        let mut world = World {
            store,
            shard,
            indexes: vec![],
            language,
            row_cache: Arc::new(RowCache::new(ROW_CACHE_BYTES)),
        };
        for (n, spec) in specs.iter().enumerate() {
            world.add_index(FIRST_INDEX + n as u32, spec, limits);
        }
        world
    }

    pub fn add_index(&mut self, number: ShardNumber, spec: &Spec, limits: BuildLimits) {
        self.indexes.push(self.open_index(number, spec, limits));
    }

    pub fn open_index(&self, number: ShardNumber, spec: &Spec, limits: BuildLimits) -> Arc<Index> {
        let index = Index::open(
            self.store.clone(),
            self.shard.clone(),
            number,
            Arc::new(spec.clone()),
            Arc::new(self.language.clone()),
            None,
            functions::Owner::default(),
        );
        let index = index.unwrap().with_limits(limits);
        Arc::new(index.with_row_cache(self.row_cache.clone()))
    }

    pub fn submit(&self, edits: Vec<Edit>) -> Vec<Outcome> {
        let edits = edits.into_iter().map(|edit| ShardEdit {
            shard: self.shard.clone(),
            edit,
        });
        let done = self
            .store
            .committer
            .edit(edits.collect(), Limits::default(), false);
        done.blocking_recv().unwrap().unwrap().0
    }

    /// Edits the winning revision, or makes the document.
    pub fn put(&self, id: &str, body: Option<String>) -> Edit {
        let parent = self.shard.record(id).unwrap().and_then(|r| {
            let winner = r.tree.winner()?;
            (!winner.revision.deleted).then(|| winner.rev.to_rev())
        });
        let deleted = body.is_none();
        let body = body.unwrap_or_else(|| "{}".into()).into_bytes();
        let term = body_term(&body).unwrap();
        Edit {
            id: DocId::new(id).unwrap(),
            files: vec![],
            home: 0,
            access: None,
            deleted,
            change: Change::Interactive {
                rev: revision_id(deleted, parent.as_ref(), &term, &[]),
                parent,
                body_term: None,
            },
            body,
        }
    }

    /// A revision from elsewhere, on a branch of its own.
    pub fn replicated(id: &str, generation: u64, branch: u8, body: Option<String>) -> Edit {
        let ids = (1..=generation).rev();
        let ids = ids.map(|g| RevHash::parse(&format!("b{branch}g{g}")));
        Edit {
            id: DocId::new(id).unwrap(),
            files: vec![],
            home: 0,
            access: None,
            deleted: body.is_none(),
            change: Change::Replicated {
                path: RevPath {
                    start: generation,
                    ids: ids.collect(),
                },
            },
            body: body.unwrap_or_else(|| "{}".into()).into_bytes(),
        }
    }

    /// Purges the winning leaf of a document, or all leaves.
    pub fn purge(&self, id: &str, all: bool, remembered: u64) {
        let Some(record) = self.shard.record(id).unwrap() else {
            return;
        };
        let leaves = record.tree.leaves();
        let take = if all { leaves.len() } else { 1 };
        let revs: Vec<Rev> = leaves.iter().take(take).map(|l| l.rev.to_rev()).collect();
        let purge = ShardPurge {
            shard: self.shard.clone(),
            id: DocId::new(id).unwrap(),
            revs,
            uuid: [7; 16],
        };
        let limits = Limits {
            purged_infos_limit: remembered,
            ..Limits::default()
        };
        let done = self.store.committer.purge(vec![purge], limits);
        done.blocking_recv().unwrap().unwrap();
    }

    /// Checks an index as `settee check` does, its rows too.
    pub fn check(&self, index: &Index) -> Findings {
        let view = self.shard.view().unwrap();
        let check = IndexCheck {
            number: index.number,
            spec: Some(index.spec()),
            owner: SHARD,
            meta: &view.meta,
        };
        let (watch, mut findings) = (Watch::default(), Findings::default());
        let totals = check.run(&view.snapshot, &watch, &mut findings).unwrap();
        let again = Remap {
            languages: &self.language,
            owner: functions::Owner::default(),
            shard: &self.shard,
            view: &view,
        };
        check.remap(&again, &totals, &watch, &mut findings).unwrap();
        findings
    }

    /// Ends everything as a server does.
    pub fn close(self) {
        for index in &self.indexes {
            index.close();
        }
        self.store.close();
    }
}

fn view(map: &str, raw: bool, reduces: Vec<ReduceSpec>) -> ViewSpec {
    ViewSpec {
        map: map.into(),
        raw,
        reduces,
    }
}

/// Views of all kinds: both collations, many rows of one document, equal keys, all reduce
/// functions.
pub fn specs() -> [Spec; 2] {
    use Builtin::*;
    let builtin = |all: &[Builtin]| all.iter().copied().map(ReduceSpec::Builtin).collect();
    let chain = || ReduceSpec::Custom("chain".into());
    let plain = Spec {
        language: "native".into(),
        lib: None,
        views: vec![
            view("tags", false, builtin(&[Sum, Count, Stats])),
            view("tags", true, builtin(&[First, Last, Top(3), Bottom(3)])),
            view("pairs", false, vec![ReduceSpec::Builtin(Count), chain()]),
            view("revs", false, vec![]),
            view("same", false, builtin(&[Last, ApproxCountDistinct])),
        ],
        include_design: false,
        local_seq: false,
        partitioned: false,
        dialect: None,
        by_access: false,
    };
    let partitioned = Spec {
        views: vec![
            view("pairs", true, vec![chain(), ReduceSpec::Builtin(First)]),
            view("seqs", false, vec![]),
        ],
        include_design: true,
        local_seq: true,
        partitioned: true,
        dialect: None,
        by_access: false,
        ..plain.clone()
    };
    [plain, partitioned]
}

/// A document's body; `rows` is how many rows `tags` has of it.
pub fn body(key: u32, rows: u32, value: i32) -> String {
    format!(r#"{{"k":{key},"rows":{rows},"v":{value}}}"#)
}
