//! The indexes by principal agree with the access of the documents, whatever was edited, purged and
//! opened again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use document::{AccessSet, DocId, Principals, Rev, RevHash, RevPath};
use storage::check::{Findings, StoreCheck};
use storage::{
    Change, Edit, EditAccess, GrantedIds, GrantedSeqs, Keyspace, Limits, Outcome, Shard, ShardEdit,
    ShardPurge, Store, StoreOptions, View,
};

const LIMITS: Limits = Limits {
    revs_limit: 3,
    purged_infos_limit: 10,
    leaves_max: Some(u64::MAX),
};

const IDS: [&str; 4] = ["a", "aa", "b", "z"];

fn open(path: &Path) -> (Store, Arc<Shard>) {
    let options = StoreOptions {
        block_cache_bytes: 8 << 20,
        ..StoreOptions::default()
    };
    let store = Store::open(path, &options, Box::new(|_| {})).unwrap();
    let shard = Arc::new(store.shard(1).unwrap());
    shard.keep_access();
    (store, shard)
}

fn users() -> [Principals; 3] {
    [
        Principals::of(Some("alice"), []),
        Principals::of(Some("al"), ["nurse"]),
        Principals::of(None, []),
    ]
}

fn random_set(random: &mut fastrand::Rng) -> AccessSet {
    let names = [r#""al""#, r#""alice""#, r#""role:nurse""#, r#""*""#];
    let chosen: Vec<&str> = names.into_iter().filter(|_| random.u8(..3) == 0).collect();
    let body = format!(r#"{{"_access":[{}]}}"#, chosen.join(","));
    AccessSet::of_body(body.as_bytes()).unwrap()
}

fn leaves(view: &View, shard: &Shard, id: &str) -> Vec<Rev> {
    let record = view.record(shard, id).unwrap().unwrap_or_default();
    let leaves = record.tree.leaves();
    leaves.iter().map(|leaf| leaf.rev.to_rev()).collect()
}

fn random_edit(shard: &Arc<Shard>, random: &mut fastrand::Rng) -> ShardEdit {
    let id = IDS[random.usize(..IDS.len())];
    let hash = RevHash::parse(&format!("{:032x}", random.u128(..)));
    let known = leaves(&shard.view().unwrap(), shard, id);
    let path = match known.len() {
        many if many > 0 && random.u8(..4) > 0 => {
            let leaf = &known[random.usize(..many)];
            RevPath {
                start: leaf.generation + 1,
                ids: vec![hash, leaf.hash.clone()],
            }
        }
        _ => RevPath {
            start: random.u64(1..4),
            ids: vec![hash],
        },
    };
    let writer = random.bool().then(|| {
        let [user, ..] = users();
        Arc::new(user)
    });
    ShardEdit {
        shard: shard.clone(),
        edit: Edit {
            id: DocId::new(id).unwrap(),
            files: vec![],
            home: 1,
            access: Some(Box::new(EditAccess {
                set: random_set(random),
                writer,
            })),
            deleted: random.u8(..6) == 0,
            body: b"{}".to_vec(),
            change: Change::Replicated { path },
        },
    }
}

fn random_purge(shard: &Arc<Shard>, random: &mut fastrand::Rng) -> ShardPurge {
    let id = IDS[random.usize(..IDS.len())];
    ShardPurge {
        shard: shard.clone(),
        id: DocId::new(id).unwrap(),
        revs: leaves(&shard.view().unwrap(), shard, id)
            .into_iter()
            .take(1)
            .collect(),
        uuid: [0; 16],
    }
}

/// Compares the indexes with the access of all documents.
fn check(shard: &Shard) {
    let view = shard.view().unwrap();
    let all: BTreeMap<&str, _> = IDS
        .iter()
        .map(|id| (*id, view.access(shard, id).unwrap()))
        .collect();
    for (id, access) in &all {
        let of_access: Vec<Rev> = access.leaves.iter().map(|leaf| leaf.rev.clone()).collect();
        assert_eq!(of_access, leaves(&view, shard, id));
    }
    for user in users() {
        let mut expected = BTreeMap::new();
        let mut listed = BTreeSet::new();
        for (id, access) in &all {
            expected.extend(access.grants_of(&user).map(|grant| (grant.seq, *id)));
            if access.leaves.iter().any(|leaf| leaf.set.may_read(&user)) {
                listed.insert(*id);
            }
        }
        for after in [0, 1, view.meta.update_seq / 2, view.meta.update_seq] {
            let mut rows = GrantedSeqs::after(&view.snapshot, shard, &user, after);
            let mut found = vec![];
            while let Some((seq, id)) = rows.entry() {
                found.push((seq, String::from_utf8(id.to_vec()).unwrap()));
                rows.next();
            }
            rows.status().unwrap();
            let rest = expected.range(after + 1..);
            let rest: Vec<_> = rest.map(|(seq, id)| (*seq, (*id).to_owned())).collect();
            assert_eq!(found, rest);
        }
        for descending in [false, true] {
            let mut ids = GrantedIds::new(&view.snapshot, shard, &user, descending);
            ids.seek(None);
            let mut found = vec![];
            while let Some(id) = ids.entry() {
                found.push(String::from_utf8(id.to_vec()).unwrap());
                ids.next();
            }
            ids.status().unwrap();
            let mut expected: Vec<&str> = listed.iter().copied().collect();
            if descending {
                expected.reverse();
            }
            assert_eq!(found, expected);
        }
    }
}

/// Returns whether a check finds damage in the access of documents.
fn is_damaged(path: &Path) -> bool {
    let temporary = tempfile::tempdir().unwrap();
    let mut findings = Findings::default();
    let check = StoreCheck::open(path, temporary.path(), &mut findings).unwrap();
    check.access(1, &mut findings).unwrap();
    findings.has_damage()
}

#[test]
fn a_check_finds_access_that_does_not_agree() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let (store, shard) = open(dir.path());
    for _ in 0..60 {
        let edit = random_edit(&shard, &mut random);
        let done = store.committer.edit(vec![edit], LIMITS, true);
        done.blocking_recv().unwrap().unwrap();
    }
    drop((shard, store));
    assert!(!is_damaged(dir.path()));
    for keyspace in [Keyspace::IndexRows, Keyspace::IndexBack] {
        let (store, shard) = open(dir.path());
        let snapshot = store.snapshot();
        let mut rows = snapshot.iter(keyspace, shard.number);
        rows.seek_to_first();
        let (key, value) = rows.item().unwrap();
        let (key, value) = (key.to_vec(), value.to_vec());
        drop(rows);
        drop(snapshot);
        let mut writes = store.engine().writes();
        writes.delete(keyspace, &key);
        writes.commit(true).unwrap();
        drop((shard, store));
        assert!(is_damaged(dir.path()), "{keyspace:?}");
        let (store, shard) = open(dir.path());
        let mut writes = store.engine().writes();
        writes.put(keyspace, &key, &value);
        writes.commit(true).unwrap();
        drop((shard, store));
        assert!(!is_damaged(dir.path()), "{keyspace:?}");
    }
}

#[test]
fn indexes_by_principal_agree_with_the_documents() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(53);
    let (mut store, mut shard) = open(dir.path());
    let mut refused = 0;
    for round in 0..150 {
        match random.u8(..10) {
            0 => {
                let purge = random_purge(&shard, &mut random);
                let done = store.committer.purge(vec![purge], LIMITS);
                done.blocking_recv().unwrap().unwrap();
            }
            _ => {
                let count = random.usize(1..6);
                let edits = (0..count).map(|_| random_edit(&shard, &mut random));
                let done = store.committer.edit(edits.collect(), LIMITS, true);
                let outcomes = done.blocking_recv().unwrap().unwrap().0;
                let denied = outcomes.iter().filter(|o| **o == Outcome::NotPermitted);
                refused += denied.count();
            }
        }
        if round % 50 == 49 {
            drop(shard);
            drop(store);
            (store, shard) = open(dir.path());
        }
        check(&shard);
    }
    assert!(refused > 0);
}

#[test]
fn a_shard_without_access_has_no_rows_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions::default();
    let store = Store::open(dir.path(), &options, Box::new(|_| {})).unwrap();
    let shard = Arc::new(store.shard(1).unwrap());
    let mut random = fastrand::Rng::with_seed(1);
    let edits = (0..20).map(|_| random_edit(&shard, &mut random)).collect();
    let done = store.committer.edit(edits, LIMITS, true);
    let outcomes = done.blocking_recv().unwrap().unwrap().0;
    assert!(!outcomes.contains(&Outcome::NotPermitted));
    let snapshot = store.snapshot();
    for keyspace in [Keyspace::IndexRows, Keyspace::IndexBack] {
        let mut rows = snapshot.iter(keyspace, 1);
        rows.seek_to_first();
        assert!(!rows.valid());
    }
}

#[test]
fn a_store_of_a_later_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (store, shard) = open(dir.path());
    let mut writes = store.engine().writes();
    writes.put(Keyspace::Meta, b"f", b"settee 3");
    writes.commit(true).unwrap();
    drop((shard, store));
    let options = StoreOptions::default();
    let opened = Store::open(dir.path(), &options, Box::new(|_| {}));
    let refusal = opened.map(drop).unwrap_err().to_string();
    assert!(refusal.contains("'settee 3'"), "{refusal}");
}
