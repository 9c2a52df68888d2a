//! Random logs: requests depend on what is stored, so that most are possible.

use std::sync::Arc;

use document::{Rev, RevHash};
use proptest::prelude::*;
use storage::{Edit, Limits, Session, Shard, ShardEdit, SlotNumber, SlotRequest, SlotWork};

use crate::slots::model::Model;
use crate::slots::world;

pub const SLOTS: usize = 2;
/// Number of shards of each slot.
pub const SHARDS: usize = 2;
const DOCS: u8 = 4;

/// The revision that an edit follows, or a purge removes.
#[derive(Clone, Debug)]
pub enum Which {
    Nothing,
    Winner,
    Leaf(u8),
    Wrong,
}

#[derive(Clone, Debug)]
pub enum EditSpec {
    Interactive {
        parent: Which,
        body: u16,
        deleted: bool,
    },
    /// A number of revisions on top of another one, with hashes from a small set.
    Replicated {
        base: Which,
        hashes: Vec<u8>,
        body: u16,
        deleted: bool,
    },
    Local {
        rev: Option<u64>,
        body: u16,
    },
}

#[derive(Clone, Debug)]
pub enum WorkSpec {
    /// Shard, document, edit.
    Edits(Vec<(u8, u8, EditSpec)>, u8),
    Purges(Vec<(u8, u8, Which)>, u8),
    Refused(u8),
}

/// The counter of a request.
#[derive(Clone, Debug)]
pub enum Counter {
    Next,
    Ahead(u64),
    /// This far below the highest.
    Below(u64),
}

#[derive(Clone, Debug)]
pub struct RequestSpec {
    gateway: u64,
    counter: Counter,
    work: Vec<WorkSpec>,
}

/// One record, and concurrent events at each of the two stores.
#[derive(Clone, Debug)]
pub struct Record {
    pub slot: usize,
    pub requests: Vec<RequestSpec>,
    pub state: Vec<(u8, Option<u8>)>,
    pub beside: [Beside; 2],
    /// The second store takes it together with the slot's record before.
    pub merged: bool,
    /// The second store then waits for everything that it queued.
    pub awaited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Beside {
    Nothing,
    Compact(usize),
    Restart,
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![
        1 => Just(Which::Nothing),
        5 => Just(Which::Winner),
        3 => any::<u8>().prop_map(Which::Leaf),
        1 => Just(Which::Wrong),
    ]
}

fn body() -> impl Strategy<Value = u16> {
    prop_oneof![9 => 0u16..200, 1 => 4080u16..4110, 1 => 5000u16..9000]
}

fn edit() -> impl Strategy<Value = EditSpec> {
    let deleted = || prop::bool::weighted(0.25);
    let hashes = prop::collection::vec(0u8..6, 1..4);
    prop_oneof![
        5 => (which(), body(), deleted()).prop_map(|(parent, body, deleted)| {
            EditSpec::Interactive { parent, body, deleted }
        }),
        4 => (which(), hashes, body(), deleted()).prop_map(|(base, hashes, body, deleted)| {
            EditSpec::Replicated { base, hashes, body, deleted }
        }),
        2 => (prop::option::weighted(0.8, 1u64..1 << 60), body()).prop_map(|(rev, body)| {
            EditSpec::Local { rev, body }
        }),
    ]
}

fn work() -> impl Strategy<Value = WorkSpec> {
    let shard = || 0..SHARDS as u8;
    let edits = prop::collection::vec((shard(), 0..DOCS, edit()), 0..6);
    let purges = prop::collection::vec((shard(), 0..DOCS, which()), 1..3);
    prop_oneof![
        6 => (edits, any::<u8>()).prop_map(|(edits, limits)| WorkSpec::Edits(edits, limits)),
        1 => (purges, any::<u8>()).prop_map(|(purges, limits)| WorkSpec::Purges(purges, limits)),
        1 => any::<u8>().prop_map(WorkSpec::Refused),
    ]
}

fn request() -> impl Strategy<Value = RequestSpec> {
    let counter = prop_oneof![
        10 => Just(Counter::Next),
        1 => (2u64..5).prop_map(Counter::Ahead),
        1 => (1000u64..1100).prop_map(Counter::Ahead),
        3 => (0u64..6).prop_map(Counter::Below),
        1 => (1020u64..1030).prop_map(Counter::Below),
    ];
    let work = prop::collection::vec(work(), 0..4);
    (0u64..3, counter, work).prop_map(|(gateway, counter, work)| RequestSpec {
        gateway,
        counter,
        work,
    })
}

fn beside() -> impl Strategy<Value = Beside> {
    prop_oneof![
        20 => Just(Beside::Nothing),
        2 => (0..SLOTS * SHARDS).prop_map(Beside::Compact),
        1 => Just(Beside::Restart),
    ]
}

pub fn record() -> impl Strategy<Value = Record> {
    (
        0..SLOTS,
        prop::collection::vec(request(), 0..4),
        prop::collection::vec((0u8..5, any::<Option<u8>>()), 0..3),
        [beside(), beside()],
        any::<bool>(),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(slot, requests, state, beside, merged, awaited)| Record {
            slot,
            requests,
            state,
            beside,
            merged,
            awaited,
        })
}

fn limits(n: u8) -> Limits {
    match n % 4 {
        0 => Limits {
            revs_limit: u64::from(n / 4 % 4) + 1,
            purged_infos_limit: u64::from(n / 16 % 3) + 1,
            leaves_max: Some(u64::from(n / 48) + 1),
        },
        _ => Limits::default(),
    }
}

fn text(len: u16) -> String {
    format!(r#"{{"p":"{}"}}"#, "x".repeat(len.into()))
}

fn found(shard: &Shard, id: &str, which: &Which) -> Option<Rev> {
    let record = shard.record(id).unwrap();
    let tree = record.map(|r| r.tree).unwrap_or_default();
    match which {
        Which::Nothing => None,
        Which::Winner => tree.winner().map(|w| w.rev.to_rev()),
        Which::Leaf(n) => {
            let leaves = tree.leaves();
            let leaf = leaves.get(usize::from(*n) % leaves.len().max(1));
            leaf.map(|l| l.rev.to_rev())
        }
        Which::Wrong => Rev::parse("1-wrong").ok(),
    }
}

/// A request as in a record, without shards: those are specific to each store.
pub struct Logged {
    pub session: Session,
    work: Vec<LoggedWork>,
}

enum LoggedWork {
    Edits(Vec<(usize, Edit)>, Limits),
    Purges(Vec<(usize, Purge)>, Limits),
    Refused(u8),
}

struct Purge {
    id: String,
    revs: Vec<Rev>,
    uuid: u128,
}

/// Creates a request from the stored state of the shards.
pub fn logged(
    spec: &RequestSpec,
    slot: usize,
    shards: &[Arc<Shard>],
    model: &Model,
    uuid: &mut u128,
) -> Logged {
    let place = |shard: u8| slot * SHARDS + usize::from(shard);
    let mut work = vec![];
    for part in &spec.work {
        work.push(match part {
            WorkSpec::Edits(edits, n) => {
                let edits = edits.iter().map(|(shard, doc, spec)| {
                    let place = place(*shard);
                    let edit = edit_of(spec, &shards[place], &format!("doc{doc}"));
                    (place, edit.edit)
                });
                LoggedWork::Edits(edits.collect(), limits(*n))
            }
            WorkSpec::Purges(purges, n) => {
                let purges = purges.iter().map(|(shard, doc, which)| {
                    *uuid += 1;
                    let (place, id) = (place(*shard), format!("doc{doc}"));
                    let revs = found(&shards[place], &id, which).into_iter().collect();
                    let uuid = *uuid;
                    (place, Purge { id, revs, uuid })
                });
                LoggedWork::Purges(purges.collect(), limits(*n))
            }
            WorkSpec::Refused(code) => LoggedWork::Refused(*code),
        });
    }
    let highest = model.highest(spec.gateway).unwrap_or(10);
    let counter = match spec.counter {
        Counter::Next => highest + 1,
        Counter::Ahead(n) => highest + n,
        Counter::Below(n) => highest.saturating_sub(n),
    };
    let gateway = spec.gateway;
    Logged {
        session: Session { gateway, counter },
        work,
    }
}

fn edit_of(spec: &EditSpec, shard: &Arc<Shard>, id: &str) -> ShardEdit {
    match spec {
        EditSpec::Interactive {
            parent,
            body,
            deleted,
        } => {
            let parent = found(shard, id, parent);
            world::interactive(shard, id, parent, &text(*body), *deleted)
        }
        EditSpec::Replicated {
            base,
            hashes,
            body,
            deleted,
        } => {
            let base = found(shard, id, base);
            let mut ids: Vec<RevHash> = hashes
                .iter()
                .map(|h| RevHash::parse(&format!("h{h}")))
                .collect();
            let start = ids.len() as u64 + base.as_ref().map_or(0, |b| b.generation);
            ids.extend(base.map(|b| b.hash));
            world::replicated(shard, id, (start, ids), &text(*body), *deleted)
        }
        EditSpec::Local { rev, body } => world::local(shard, id, *rev, &text(*body)),
    }
}

/// Returns the request over the shards of one store.
pub fn over(logged: &Logged, shards: &[Arc<Shard>]) -> SlotRequest {
    let work = logged.work.iter().map(|work| match work {
        LoggedWork::Edits(edits, limits) => SlotWork::Edits {
            edits: edits
                .iter()
                .map(|(i, e)| ShardEdit {
                    shard: shards[*i].clone(),
                    edit: e.clone(),
                })
                .collect(),
            limits: *limits,
        },
        LoggedWork::Purges(purges, limits) => SlotWork::Purges {
            purges: purges
                .iter()
                .map(|(i, p)| world::purge(&shards[*i], &p.id, p.revs.clone(), p.uuid))
                .collect(),
            limits: *limits,
        },
        LoggedWork::Refused(code) => SlotWork::Refused(*code),
    });
    SlotRequest {
        session: logged.session,
        work: work.collect(),
    }
}

pub fn number(slot: usize) -> SlotNumber {
    [3, 0xffff][slot]
}
