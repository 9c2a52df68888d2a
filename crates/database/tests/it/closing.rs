//! Unused databases are closed and opened again, without any client noticing.

use crate::support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use database::{Database, Databases, Error, Since};
use proptest::prelude::*;
use support::{
    all_docs, changes_of, doc, feed, open, rounds, rows_of, runtime, with_shards, write,
};

const DESIGN: &str = r#"{"_id":"_design/d","language":"query",
    "views":{"v":{"map":{"fields":{"n":"asc"}},"reduce":"_count"}}}"#;

#[derive(Clone, Copy, Debug)]
enum Step {
    Create,
    Delete,
    Write,
    Read,
    Query,
    Hold,
    LetGo,
    Watch,
    CloseIdle,
}

fn step() -> impl Strategy<Value = (Step, usize)> {
    let step = prop_oneof![
        2 => Just(Step::Create),
        1 => Just(Step::Delete),
        6 => Just(Step::Write),
        4 => Just(Step::Read),
        3 => Just(Step::Query),
        1 => Just(Step::Hold),
        1 => Just(Step::LetGo),
        1 => Just(Step::Watch),
        5 => Just(Step::CloseIdle),
    ];
    (step, 0..4usize)
}

/// Expected contents: documents of each database.
#[derive(Default)]
struct Model {
    written: BTreeMap<usize, u64>,
    held: BTreeMap<usize, Arc<Database>>,
    watched: Vec<(usize, tokio::sync::watch::Receiver<u64>)>,
}

/// Seqs that the index has come to, and changes that it has yet to see.
async fn query(db: &Arc<Database>) -> (u64, u64) {
    let design = db.design("_design/d").unwrap();
    let index = db.view_index(&design).unwrap();
    db.update_view(&index, &database::Requester::Background)
        .await
        .unwrap();
    let info = db.view_info(&design, &index).unwrap();
    (info.update_seq, info.updates_pending)
}

async fn take(databases: &Arc<Databases>, model: &mut Model, step: Step, n: usize) {
    let name = format!("db{n}");
    match (step, model.written.get(&n).copied()) {
        (Step::Create, None) => {
            let db = databases.create(&name, with_shards(2)).await.unwrap();
            write(&db, vec![doc(DESIGN)]).await;
            model.written.insert(n, 0);
        }
        (Step::Create, Some(_)) => {
            let again = databases.create(&name, with_shards(2)).await;
            assert!(matches!(again, Err(Error::DatabaseExists)));
        }
        (Step::Delete, Some(_)) => {
            databases.delete(&name).await.unwrap();
            model.written.remove(&n);
            model.held.remove(&n);
            model.watched.retain(|(of, _)| *of != n);
        }
        (Step::LetGo, _) => {
            model.held.remove(&n);
            model.watched.retain(|(of, _)| *of != n);
        }
        (Step::CloseIdle, _) => {
            databases.close_idle();
            let open = databases.open_memory().databases as usize;
            let kept = |n: &&usize| {
                model.held.contains_key(n) || model.watched.iter().any(|(of, _)| of == *n)
            };
            // The background may still be at some.
            assert!(open >= model.written.keys().filter(kept).count());
        }
        (_, None) => assert!(matches!(databases.get(&name), Err(Error::NoDatabase))),
        (_, Some(written)) => {
            let db = databases.get(&name).unwrap();
            if let Some(held) = model.held.get(&n) {
                assert!(Arc::ptr_eq(held, &db), "there are two of one database");
            }
            use_one(db, model, step, (n, written)).await;
        }
    }
}

/// A step with database number `n`, which has `written` documents in addition to its design
/// document.
async fn use_one(db: Arc<Database>, model: &mut Model, step: Step, (n, written): (usize, u64)) {
    match step {
        Step::Write => {
            let new = doc(&format!(r#"{{"_id":"d{written}","n":{written}}}"#));
            write(&db, vec![new]).await;
            model.written.insert(n, written + 1);
            for (of, receiver) in &mut model.watched {
                assert_eq!(receiver.has_changed().unwrap(), *of == n, "a feed of {of}");
                receiver.borrow_and_update();
            }
        }
        Step::Read => {
            let rows = rows_of(&mut db.rows(all_docs()).unwrap(), 100);
            assert_eq!(rows.len() as u64, written + 1);
            let mut changes = db.changes(feed(Since::Start)).unwrap();
            assert_eq!(changes_of(&mut changes, 100).len() as u64, written + 1);
            assert_eq!(db.info().unwrap().doc_count, written + 1);
        }
        Step::Query => assert_eq!(query(&db).await, (written + 1, 0)),
        Step::Hold => drop(model.held.insert(n, db)),
        Step::Watch => model.watched.push((n, db.watch())),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(10, 48), ..ProptestConfig::default() })]

    #[test]
    fn what_is_closed_is_as_it_was_when_it_is_opened_again(
        steps in proptest::collection::vec(step(), 1..120)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let databases = open(dir.path());
        runtime().block_on(async {
            let mut model = Model::default();
            for (step, n) in steps {
                take(&databases, &mut model, step, n).await;
            }
        });
        databases.close();
    }
}

const NAMES: u64 = 6;

/// Reads, queries and writes of one client; counts what it wrote to each database.
async fn work(databases: Arc<Databases>, seed: u64, written: &[AtomicU64]) {
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..rounds(100, 400) {
        let n = random.u64(..NAMES);
        let db = databases.get(&format!("db{n}")).unwrap();
        match random.u8(..4) {
            0 => {
                query(&db).await;
            }
            1 => {
                db.info().unwrap();
            }
            2 => drop(rows_of(&mut db.rows(all_docs()).unwrap(), 10_000)),
            _ => {
                let new = format!(r#"{{"_id":"d-{seed}-{round}","n":1}}"#);
                write(&db, vec![doc(&new)]).await;
                written[n as usize].fetch_add(1, Relaxed);
            }
        }
        drop(db);
        if random.bool() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn closing_goes_on_beside_everything_else() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .build()
        .unwrap();
    runtime.block_on(async {
        for n in 0..NAMES {
            let db = databases.create(&format!("db{n}"), with_shards(2)).await;
            write(&db.unwrap(), vec![doc(DESIGN)]).await;
        }
    });
    let (stop, closed) = (AtomicBool::new(false), AtomicU64::new(0));
    let written: Vec<AtomicU64> = (0..NAMES).map(|_| AtomicU64::new(1)).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                closed.fetch_add(databases.close_idle() as u64, Relaxed);
            }
        });
        let start = |seed| {
            let (runtime, work) = (&runtime, work(databases.clone(), seed, &written));
            scope.spawn(move || runtime.block_on(work))
        };
        let workers: Vec<_> = (0..4).map(start).collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    assert!(closed.load(Relaxed) > 0);
    for (n, written) in written.iter().enumerate() {
        let db = databases.get(&format!("db{n}")).unwrap();
        let info = db.info().unwrap();
        assert_eq!(info.doc_count, written.load(Relaxed));
        let rows = rows_of(&mut db.rows(all_docs()).unwrap(), 10_000);
        assert_eq!(rows.len() as u64, info.doc_count);
    }
    databases.close();
}

const WRITTEN: u64 = 20;

/// Background work releases the store before `close` returns.
#[test]
fn a_directory_may_be_opened_again_right_after_it_was_closed() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let databases = open(dir.path());
        runtime().block_on(async {
            for n in 0..WRITTEN {
                let name = format!("db{n}");
                let db = match round {
                    0 => databases.create(&name, with_shards(1)).await,
                    _ => databases.get(&name),
                };
                let design = DESIGN.replace("_design/d", &format!("_design/d{round}"));
                write(&db.unwrap(), vec![doc(&design)]).await;
            }
        });
        // Background indexing is in the middle of them.
        let started = Instant::now();
        while databases.waiting_for_indexing() as u64 > WRITTEN / 2 {
            assert!(started.elapsed() < Duration::from_secs(60));
            // Indexing has a lower priority than a loop.
            std::thread::sleep(Duration::from_millis(1));
        }
        databases.close();
    }
}
