//! Readers of cached documents, with concurrent writers that commit themselves or through the
//! queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use document::{DocId, Rev, body_term, revision_id};
use storage::{
    Change, Edit, Limits, Outcome, Shard, ShardEdit, Store, StoreOptions, commit_on_this_thread,
};

fn update(shard: &Arc<Shard>, id: &str, parent: Option<Rev>, n: u64) -> ShardEdit {
    let body = format!("{{\"n\":{n}}}");
    let term = body_term(body.as_bytes()).unwrap();
    ShardEdit {
        shard: shard.clone(),
        edit: Edit {
            id: DocId::new(id).unwrap(),
            files: vec![],
            home: 0,
            access: None,
            deleted: false,
            change: Change::Interactive {
                rev: revision_id(false, parent.as_ref(), &term, &[]),
                parent,
                body_term: None,
            },
            body: body.into_bytes(),
        },
    }
}

/// Returns the number in the document's body.
fn read(shard: &Shard, id: &str) -> u64 {
    let number = |body: &[u8]| {
        let digits = body.iter().filter(|b| b.is_ascii_digit());
        digits.fold(0, |n, digit| n * 10 + u64::from(digit - b'0'))
    };
    let found = shard.winner(id, |_, body| number(body)).unwrap();
    found.unwrap_or(0)
}

fn whoever_writes_is_read(options: &StoreOptions) {
    const DOCUMENTS: usize = 4;
    const UPDATES: u64 = 300;
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options, Box::new(|_| {})).unwrap();
    let shard = Arc::new(store.shard(1).unwrap());
    let acknowledged: [AtomicU64; DOCUMENTS] = Default::default();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = acknowledged
            .iter()
            .enumerate()
            .map(|(at, acknowledged)| {
                let (store, shard) = (&store, &shard);
                scope.spawn(move || {
                    if at % 2 == 0 {
                        commit_on_this_thread();
                    }
                    let id = format!("doc-{at}");
                    let mut parent = None;
                    for n in 1..=UPDATES {
                        let edit = update(shard, &id, parent, n);
                        let done = store.committer.edit(vec![edit], Limits::default(), true);
                        let (outcomes, _) = done.blocking_recv().unwrap().unwrap();
                        let Some(Outcome::Written(rev)) = outcomes.into_iter().next() else {
                            panic!("the edit is taken");
                        };
                        acknowledged.store(n, SeqCst);
                        assert_eq!(read(shard, &id), n, "a write is read by its writer");
                        parent = Some(rev);
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    for (at, acknowledged) in acknowledged.iter().enumerate() {
                        let before = acknowledged.load(SeqCst);
                        let found = read(&shard, &format!("doc-{at}"));
                        assert!(
                            found >= before,
                            "{found} is read, {before} was acknowledged"
                        );
                    }
                }
            });
        }
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, SeqCst);
        for done in written {
            done.unwrap();
        }
    });
    let documents: Vec<u64> = (0..DOCUMENTS)
        .map(|at| read(&shard, &format!("doc-{at}")))
        .collect();
    assert_eq!(documents, [UPDATES; DOCUMENTS]);
    assert_eq!(store.documents_bytes() > 0, options.documents_bytes > 0);
}

#[test]
fn what_is_acknowledged_is_read() {
    whoever_writes_is_read(&StoreOptions::default());
}

#[test]
fn also_where_nothing_is_kept_in_memory() {
    whoever_writes_is_read(&StoreOptions {
        documents_bytes: 0,
        ..StoreOptions::default()
    });
}
