//! Random histories of one database against a naive model in memory: every read, listing and feed must agree with it,
//! also after compaction, reopening and in a copy taken while the database is open.

use crate::support;
use crate::support::agreement;
use crate::support::naive;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use agreement::{FeedQuery, ListQuery, check_all, check_feed, check_listing};
use database::{Database, Databases, Durability, EditMode, Outcome, Read, ReadOptions};
use document::{DocId, EditDoc, Rev, RevHash, RevPath};
use naive::{Model, Wrote};
use proptest::prelude::*;
use proptest::sample::Index;
use support::{compact, doc, open, rounds, runtime, with_shards};

/// Ids of documents; short ones that are prefixes of others, and ones that sort around every letter.
const IDS: [&str; 14] = [
    "A",
    "a",
    "aa",
    "a\u{0}b",
    "b",
    "doc-00000001",
    "doc-00000002",
    "doc-00000003",
    "z",
    "~",
    "é",
    "日本",
    "_design/a",
    "_design/z",
];
/// Further places that a listing can start and end at.
const PLACES: [&str; 6] = [
    "0",
    "ab",
    "doc-0000000",
    "_design/",
    "_design0",
    "\u{10ffff}",
];

#[derive(Clone, Debug)]
enum WhichRev {
    None,
    Winner,
    Leaf(Index),
    /// Any known revision, mostly an ancestor.
    Any(Index),
    Unknown,
}

#[derive(Clone, Debug)]
struct Interactive {
    id: Index,
    rev: WhichRev,
    deleted: bool,
    body: u8,
}

/// A revision made elsewhere: some steps from a known revision, or from nothing.
#[derive(Clone, Debug)]
struct Replicated {
    id: Index,
    from: Option<Index>,
    steps: Vec<u8>,
    /// How much of its ancestry comes with it.
    path_length: usize,
    deleted: bool,
    body: u8,
}

#[derive(Clone, Debug)]
enum Op {
    Interactive(Vec<Interactive>),
    Replicated(Vec<Replicated>),
    Local { id: u8, on_top: bool, deleted: bool },
    Purge { id: Index, revs: Vec<WhichRev> },
    Compact,
    RevsLimit(u64),
    Reopen,
    List(ListQuery),
    Feed(FeedQuery, Index),
}

fn which_rev() -> impl Strategy<Value = WhichRev> {
    prop_oneof![
        3 => Just(WhichRev::None),
        6 => Just(WhichRev::Winner),
        2 => any::<Index>().prop_map(WhichRev::Leaf),
        2 => any::<Index>().prop_map(WhichRev::Any),
        1 => Just(WhichRev::Unknown),
    ]
}

fn interactive() -> impl Strategy<Value = Interactive> {
    (
        any::<Index>(),
        which_rev(),
        prop::bool::weighted(0.25),
        0u8..40,
    )
        .prop_map(|(id, rev, deleted, body)| Interactive {
            id,
            rev,
            deleted,
            body,
        })
}

fn replicated() -> impl Strategy<Value = Replicated> {
    (
        any::<Index>(),
        prop::option::of(any::<Index>()),
        prop::collection::vec(0u8..2, 1..5),
        1usize..8,
        prop::bool::weighted(0.25),
        0u8..40,
    )
        .prop_map(|(id, from, steps, path_length, deleted, body)| Replicated {
            id,
            from,
            steps,
            path_length,
            deleted,
            body,
        })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => prop::collection::vec(interactive(), 1..8).prop_map(Op::Interactive),
        8 => prop::collection::vec(replicated(), 1..8).prop_map(Op::Replicated),
        2 => (0u8..4, any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(id, on_top, deleted)| Op::Local { id, on_top, deleted }),
        4 => (any::<Index>(), prop::collection::vec(which_rev(), 1..4))
            .prop_map(|(id, revs)| Op::Purge { id, revs }),
        2 => Just(Op::Compact),
        2 => prop_oneof![1u64..5, Just(1000u64)].prop_map(Op::RevsLimit),
        1 => Just(Op::Reopen),
        6 => agreement::list_query(IDS.len() + PLACES.len()).prop_map(Op::List),
        6 => (agreement::feed_query(IDS.len()), any::<Index>()).prop_map(|(q, at)| Op::Feed(q, at)),
    ]
}

fn place(i: usize) -> &'static str {
    IDS.get(i).unwrap_or_else(|| &PLACES[i - IDS.len()])
}

fn body_members(n: u8) -> String {
    match n {
        0 => String::new(),
        // Longer than bodies that are stored in a change row.
        1..3 => format!(r#","v":{n},"pad":"{}""#, "x".repeat(5000)),
        _ => format!(r#","v":{n}"#),
    }
}

fn edit_of(id: &str, deleted: bool, body: u8) -> EditDoc {
    let mut text = br#"{"_id":"#.to_vec();
    document::write_json_string(id, &mut text);
    let text = String::from_utf8(text).unwrap();
    let deleted = if deleted { r#","_deleted":true"# } else { "" };
    doc(&format!("{text}{deleted}{}}}", body_members(body)))
}

/// The revision that a step from `parent` makes: its id determines its ancestry.
fn child(parent: Option<&Rev>, step: u8) -> Rev {
    let hash = match parent {
        None => format!("r{step}"),
        Some(p) => {
            let mut hasher = DefaultHasher::new();
            p.to_string().hash(&mut hasher);
            format!("r{:016x}c{step}", hasher.finish())
        }
    };
    Rev {
        generation: parent.map_or(1, |p| p.generation + 1),
        hash: RevHash::parse(&hash),
    }
}

struct World {
    runtime: tokio::runtime::Runtime,
    databases: Arc<Databases>,
    db: Arc<Database>,
    model: Model,
    /// Update seqs, and the model's count of changes then.
    seqs: Vec<(String, u64)>,
    /// Removed last.
    dir: tempfile::TempDir,
}

impl World {
    fn new(q: u32) -> World {
        let dir = tempfile::tempdir().unwrap();
        let runtime = runtime();
        let databases = open(&dir.path().join("data"));
        let db = runtime
            .block_on(databases.create("db", with_shards(q)))
            .unwrap();
        World {
            dir,
            runtime,
            databases,
            db,
            model: Model::new(),
            seqs: vec![("0".into(), 0)],
        }
    }

    fn pick(&self, id: &str, which: &WhichRev) -> Option<Rev> {
        let known = self.model.docs.get(id);
        let sorted = |mut revs: Vec<Rev>, at: &Index| {
            revs.sort();
            (!revs.is_empty()).then(|| revs.swap_remove(at.index(revs.len())))
        };
        match which {
            WhichRev::None => None,
            WhichRev::Winner => known.map(|d| d.winner()),
            WhichRev::Leaf(at) => known.and_then(|d| sorted(d.leaves(), at)),
            WhichRev::Any(at) => known.and_then(|d| sorted(d.nodes.keys().cloned().collect(), at)),
            WhichRev::Unknown => Some(Rev::parse("2-unknown").unwrap()),
        }
    }

    fn update(&self, edits: Vec<EditDoc>, mode: EditMode) -> Vec<Wrote> {
        let done = self.db.update(edits, mode, Durability::Delayed);
        let (outcomes, _) = self.runtime.block_on(done).unwrap();
        let wrote = outcomes.into_iter().map(|o| match o {
            Outcome::Ok { rev } => Wrote::Ok(rev.to_string()),
            Outcome::Conflict => Wrote::Conflict,
            Outcome::Refused(error, reason) => panic!("refused: {error}: {reason}"),
        });
        wrote.collect()
    }

    fn interactive(&mut self, edits: &[Interactive]) -> Result<(), TestCaseError> {
        let docs: Vec<EditDoc> = edits
            .iter()
            .map(|e| {
                let id = IDS[e.id.index(IDS.len())];
                let mut doc = edit_of(id, e.deleted, e.body);
                doc.rev = self.pick(id, &e.rev);
                doc
            })
            .collect();
        let expected: Vec<Wrote> = docs.iter().map(|d| self.model.edit(d)).collect();
        prop_assert_eq!(self.update(docs, EditMode::Interactive), expected);
        Ok(())
    }

    fn replicated(&mut self, edits: &[Replicated]) -> Result<(), TestCaseError> {
        let (mut docs, mut expected) = (vec![], vec![]);
        let mut ids = std::collections::HashSet::new();
        for e in edits {
            let id = IDS[e.id.index(IDS.len())];
            if !ids.insert(id) {
                continue;
            }
            let from = e.from.and_then(|at| self.pick(id, &WhichRev::Any(at)));
            let mut path = from.map_or(vec![], |rev| self.model.docs[id].lineage(&rev));
            for step in &e.steps {
                path.insert(0, child(path.first(), *step));
            }
            path.truncate(e.path_length);
            let mut doc = edit_of(id, e.deleted, e.body);
            doc.revisions = Some(RevPath {
                start: path[0].generation,
                ids: path.iter().map(|r| r.hash.clone()).collect(),
            });
            expected.push(self.model.replicate(&path, &doc));
            docs.push(doc);
        }
        prop_assert_eq!(self.update(docs, EditMode::Replicated), expected);
        Ok(())
    }

    fn local(&mut self, n: u8, on_top: bool, deleted: bool) -> Result<(), TestCaseError> {
        let id = format!("_local/l{n}");
        let mut edit = edit_of(&id, deleted, 10 + n);
        let old = self.model.locals.get(&id).map_or(0, |(rev, _)| *rev);
        if on_top && old > 0 {
            edit.rev = Some(storage_rev(old));
        }
        let rev = if on_top { old + 1 } else { 1 };
        let body = String::from_utf8(edit.body.clone()).unwrap();
        let wrote = self.update(vec![edit], EditMode::Interactive);
        if deleted {
            self.model.locals.remove(&id);
        } else {
            prop_assert_eq!(&wrote[0], &Wrote::Ok(format!("0-{rev}")));
            self.model.locals.insert(id.clone(), (rev, body));
        }
        let read = self
            .db
            .read(&DocId::new(&id).unwrap(), &ReadOptions::default());
        prop_assert_eq!(matches!(read.unwrap(), Read::Found(_)), !deleted);
        Ok(())
    }

    fn purge(&mut self, id: &str, revs: &[WhichRev]) -> Result<(), TestCaseError> {
        let revs: Vec<Rev> = revs.iter().filter_map(|r| self.pick(id, r)).collect();
        let request = vec![(DocId::new(id).unwrap(), revs.clone())];
        let answer = self.runtime.block_on(self.db.purge(request)).unwrap();
        prop_assert_eq!(&answer.removed[0].1, &self.model.purge(id, &revs));
        Ok(())
    }

    fn reopen(&mut self) {
        self.databases.close();
        let path = self.dir.path().join("data");
        // The store's lock goes with the last reference.
        let nothing = tempfile::tempdir().unwrap();
        let placeholder = open(nothing.path());
        let created = placeholder.create("none", with_shards(1));
        self.db = self.runtime.block_on(created).unwrap();
        self.databases = placeholder;
        self.databases = open(&path);
        self.db = self.databases.get("db").unwrap();
    }

    fn apply(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match op {
            Op::Interactive(edits) => self.interactive(edits)?,
            Op::Replicated(edits) => self.replicated(edits)?,
            Op::Local {
                id,
                on_top,
                deleted,
            } => self.local(*id, *on_top, *deleted)?,
            Op::Purge { id, revs } => self.purge(IDS[id.index(IDS.len())], revs)?,
            Op::Compact => {
                compact(&self.db);
                self.model.compact();
            }
            Op::RevsLimit(limit) => {
                self.runtime
                    .block_on(self.db.set_revs_limit(*limit))
                    .unwrap();
                self.model.revs_limit = *limit as usize;
            }
            Op::Reopen => self.reopen(),
            Op::List(query) => check_listing(&self.db, &self.model, query, place)?,
            Op::Feed(query, at) => {
                let (since, then) = &self.seqs[at.index(self.seqs.len())];
                check_feed(&self.db, &self.model, query, since, *then, &IDS)?;
            }
        }
        let now = self.db.info().unwrap().update_seq;
        self.seqs.push((now, self.model.changes));
        Ok(())
    }
}

fn storage_rev(n: u64) -> Rev {
    Rev::parse(&format!("0-{n}")).unwrap()
}

/// `PROPTEST_CASES` can set more.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: match std::env::var_os("PROPTEST_CASES") {
            Some(_) => default.cases,
            None => rounds(16, 64),
        },
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..default
    }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn a_database_agrees_with_a_naive_model_over_random_histories(
        q in prop_oneof![Just(1u32), Just(2), Just(8)],
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut world = World::new(q);
        for op in &ops {
            world.apply(op)?;
            check_all(&world.db, &world.model, &IDS)?;
        }
        let copy = world.dir.path().join("copy");
        world.databases.backup(&copy).unwrap();
        let copied = open(&copy);
        check_all(&copied.get("db").unwrap(), &world.model, &IDS)?;
        world.reopen();
        check_all(&world.db, &world.model, &IDS)?;
    }
}
