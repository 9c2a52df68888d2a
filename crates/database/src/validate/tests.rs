use serde_json::{Value, json};

use functions::{
    Admission, Designs, Lane, Languages, MapGroup, Mapper, NoLanguages, Places, Reducer, Requester,
    Share,
};

use super::*;
use crate::{CreateOptions, Databases, Durability, Options};

/// A database whose validators are these selectors.
async fn with_selectors(dir: &std::path::Path, selectors: &[Value]) -> Arc<Database> {
    let databases = Databases::open(dir, Options::default()).unwrap();
    let db = databases
        .create("db", CreateOptions::default())
        .await
        .unwrap();
    for (n, selector) in selectors.iter().enumerate() {
        add_selector(&db, &n.to_string(), selector).await;
    }
    // Open until the test ends.
    std::mem::forget(databases);
    db
}

async fn add_selector(db: &Arc<Database>, name: &str, selector: &Value) {
    let design = json!({"_id": format!("_design/{name}"), "language": "query", "validate_doc_update": selector});
    let design = document::parse_document(design.to_string().as_bytes()).unwrap();
    let written = db.update(vec![design], EditMode::Interactive, Durability::Synced);
    written.await.unwrap();
}

fn nothing() -> Held {
    Held {
        what: Need::Nothing,
        place: Place::uncounted(),
    }
}

fn held(place: Place) -> Held {
    Held {
        what: Need::Place,
        place,
    }
}

fn turn(place: Place) -> Held {
    Held {
        what: Need::Turn,
        place,
    }
}

fn edits(docs: &[Value]) -> Vec<EditDoc> {
    let docs = docs.iter().map(Value::to_string);
    let edits = docs.map(|doc| document::parse_document(doc.as_bytes()).unwrap());
    edits.collect()
}

fn validation(db: &Arc<Database>, docs: &[Value], waits: &Arc<()>) -> Validation {
    drop(db.validators().unwrap());
    let (caller, edits) = (Caller::default(), edits(docs));
    let needs = Needs {
        turns: db.slow_writes_for(&caller.requester, &edits).is_some(),
        place: db.needs_place(&edits),
    };
    let (mode, waits) = (EditMode::Interactive, Arc::downgrade(waits));
    Validation::new(db.clone(), caller, edits, mode, needs, waits).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_work_of_selectors_needs_a_place_and_ends_with_its_caller() {
    let dir = tempfile::tempdir().unwrap();
    let light = json!({"$and": vec![json!({"newDoc.s": {"$gt": "x"}}); 40]});
    let db = with_selectors(dir.path(), &[light]).await;
    let long = json!({"_id": "long", "s": "y".repeat(100_000)});
    let docs = [
        json!({"_id": "a", "s": "y"}),
        json!({"_id": "b", "s": "a"}),
        long,
    ];
    let waits = Arc::new(());
    let mut work = validation(&db, &docs, &waits);
    assert_eq!(work.need(), Some(Need::Nothing));
    assert_eq!(
        work.go_on(&nothing()).unwrap(),
        Some(Need::Place),
        "the long document was judged"
    );
    let queue = fair_queue::Queue::new(fair_queue::Limits::new(1));
    let held = held(queue.try_place(&"db".into()).unwrap());
    assert_eq!(work.go_on(&held).unwrap(), None);
    let checked = work.into_checked();
    assert!(matches!(
        checked.as_slice(),
        [Ok(_), Err(Outcome::Refused(..)), Ok(_)]
    ));
    let mut work = validation(&db, &docs, &waits);
    drop(waits);
    assert!(work.go_on(&held).is_err(), "the caller has gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_of_selectors_leaves_its_place_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let slow = json!({"newDoc.l": {"$elemMatch": {"$regex": "^z"}}});
    let db = with_selectors(dir.path(), &[slow]).await;
    let docs = [0, 1, 2].map(|n| json!({"_id": n.to_string(), "l": ["a", "z"]}));
    let waits = Arc::new(());
    let mut work = validation(&db, &docs, &waits);
    assert_eq!(work.need(), Some(Need::Place));
    let queue = fair_queue::Queue::new(fair_queue::Limits {
        slice: std::time::Duration::ZERO,
        ..fair_queue::Limits::new(1)
    });
    let held = held(queue.try_place(&"db".into()).unwrap());
    let mut other = std::pin::pin!(queue.admission(&"other".into()));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(other.as_mut().poll(&mut context).is_pending());
    let mut turns = 1;
    while work.go_on(&held).unwrap().is_some() {
        turns += 1;
    }
    assert!(turns >= docs.len(), "{turns} turns");
    assert!(work.into_checked().iter().all(Result::is_ok));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_that_take_long_to_read_are_examined_in_short_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let db = with_selectors(dir.path(), &[json!({"newDoc.s": "y"})]).await;
    let docs = ["a", "b", "c"].map(|id| json!({"_id": id, "s": "y"}));
    let waits = Arc::new(());
    let mut work = validation(&db, &docs, &waits);
    work.gather(&nothing(), Turn::over()).unwrap();
    assert_eq!((work.inputs.len(), work.todo.len()), (1, 2));
    assert_eq!(work.go_on(&nothing()).unwrap(), None);
    let checked = work.into_checked();
    assert_eq!(checked.len(), docs.len());
    assert!(checked.iter().all(Result::is_ok));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_selector_is_compiled_once_for_all_requests_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let values: Vec<String> = (0..60_000).map(|n| format!("x{n}")).collect();
    let long = json!({"newDoc.a": {"$in": values}});
    let db = with_selectors(dir.path(), &[long.clone(), long.clone(), long]).await;
    let validators = db.validators().unwrap();
    let is_long = |v: &&Validator| matches!(v.check, Check::LongSelector(_));
    let validator = validators.iter().find(is_long).expect("one is too long");
    let of = |kept: &mut LongSelectors| {
        kept.of(validator, || db.validating_design(validator))
            .unwrap()
            .unwrap()
    };
    let (mut one, mut other) = (LongSelectors::default(), LongSelectors::default());
    let (first, again, shared) = (of(&mut one), of(&mut one), of(&mut other));
    assert!(Arc::ptr_eq(&first, &again) && Arc::ptr_eq(&first, &shared));
}

#[test]
fn a_verdict_that_is_none_is_cut() {
    let verdict = format!("\"{}\"", "é".repeat(1 << 20)).into_bytes();
    let refused = allowed(Ok(verdict)).expect_err("it is not a verdict");
    assert_eq!(refused.name(), "unknown_error");
    assert!(refused.reason().len() <= functions::ERROR_BYTES_MAX);
    assert_eq!(allowed(Ok(b"1".to_vec())), Ok(()));
}

/// Rules for which each edit is slow.
struct SlowRules {
    edits_max: Option<(usize, &'static str)>,
}

impl SystemRules for SlowRules {
    fn concerns(&self, db: &str) -> bool {
        db == "ruled"
    }

    fn before_write(
        &self,
        _: &CallerContext<'_>,
        _: rules::PriorDocument<'_>,
        edit: EditDoc,
    ) -> Result<EditDoc, rules::Refusal> {
        Ok(edit)
    }

    fn is_slow(&self, _: &EditDoc) -> bool {
        true
    }

    fn slow_edits_max(&self, _: &CallerContext<'_>) -> Option<(usize, &'static str)> {
        self.edits_max
    }

    fn shows_all(&self, _: &CallerContext<'_>) -> bool {
        true
    }

    fn after_read(&self, _: &CallerContext<'_>, _: &str, _: &[u8]) -> rules::Visibility {
        rules::Visibility::Whole
    }
}

async fn with_rules(dir: &std::path::Path, rules: SlowRules) -> Arc<Database> {
    open_with_rules(dir, rules, Options::default()).await
}

async fn open_with_rules(
    dir: &std::path::Path,
    rules: SlowRules,
    options: Options,
) -> Arc<Database> {
    let databases = Databases::open(dir, options).unwrap();
    databases.add_rules(Arc::new(rules));
    let created = databases.create("ruled", CreateOptions::default()).await;
    std::mem::forget(databases);
    created.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_gives_its_turn_to_others_between_slow_edits() {
    let dir = tempfile::tempdir().unwrap();
    let db = with_rules(dir.path(), SlowRules { edits_max: None }).await;
    let docs = ["a", "b", "c"].map(|id| json!({"_id": id}));
    let waits = Arc::new(());
    let mut work = validation(&db, &docs, &waits);
    let queue = fair_queue::Queue::new(fair_queue::Limits {
        slice: std::time::Duration::ZERO,
        ..fair_queue::Limits::new(1)
    });
    let held = turn(queue.try_place(&"many".into()).unwrap());
    let mut other = std::pin::pin!(queue.admission(&"other".into()));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(other.as_mut().poll(&mut context).is_pending());
    let mut turns = 1;
    while work.go_on(&held).unwrap().is_some() {
        turns += 1;
    }
    assert!(turns >= docs.len(), "{turns} turns");
    assert!(work.into_checked().iter().all(Result::is_ok));
    // Nor does it continue for a client that has gone.
    let mut work = validation(&db, &docs, &waits);
    assert_eq!(work.go_on(&held).unwrap(), Some(Need::Turn));
    drop(waits);
    assert!(work.go_on(&held).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_has_a_limited_number_of_slow_edits() {
    let dir = tempfile::tempdir().unwrap();
    let edits_max = Some((2, "too many"));
    let db = with_rules(dir.path(), SlowRules { edits_max }).await;
    let docs = ["a", "b", "c", "d"].map(|id| json!({"_id": id}));
    let waits = Arc::new(());
    let mut work = validation(&db, &docs, &waits);
    assert_eq!(work.go_on(&turn(Place::uncounted())).unwrap(), None);
    let checked = work.into_checked();
    let is_refused = |edit: &Result<EditDoc, Outcome>| {
        matches!(edit, Err(Outcome::Refused(error, reason))
            if error == "forbidden" && reason == "too many")
    };
    assert!(checked[..2].iter().all(Result::is_ok));
    assert!(checked[2..].iter().all(is_refused));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_edits_and_validators_need_one_thing_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let db = with_rules(dir.path(), SlowRules { edits_max: None }).await;
    let slow = json!({"newDoc.l": {"$elemMatch": {"$regex": "^z"}}});
    add_selector(&db, "slow", &slow).await;
    let docs = ["a", "_design/d", "b"].map(|id| json!({"_id": id, "l": ["z"]}));
    let waits = Arc::new(());
    let mut work = validation(&db, &docs, &waits);
    let mut needs = vec![];
    while let Some(what) = work.need() {
        needs.push(what);
        let place = Place::uncounted();
        let next = work.go_on(&Held { what, place }).unwrap();
        assert_eq!(next, work.need());
    }
    // Each document, and after each its validators; design documents have none.
    let (turn, place) = (Need::Turn, Need::Place);
    assert_eq!(needs, [turn, place, turn, place]);
    assert!(work.into_checked().iter().all(Result::is_ok));
}

/// No language, and places for one.
#[derive(Debug)]
struct OnlyPlaces(Arc<Places>);

impl Languages for OnlyPlaces {
    fn admission(&self, lane: Lane, share: &Share) -> Admission {
        self.0.admission(lane, share)
    }

    fn mapper(&self, group: &MapGroup) -> Result<Box<dyn Mapper>, FunctionError> {
        NoLanguages.mapper(group)
    }

    fn reducer(
        &self,
        database: &Arc<str>,
        language: &str,
        source: &str,
        lib: Option<&str>,
    ) -> Result<Box<dyn Reducer>, FunctionError> {
        NoLanguages.reducer(database, language, source, lib)
    }

    fn designs(&self, place: &Place, language: &str) -> Result<Box<dyn Designs>, FunctionError> {
        NoLanguages.designs(place, language)
    }

    fn check(
        &self,
        place: &Place,
        language: &str,
        source: &str,
        lib: Option<&str>,
    ) -> Result<(), FunctionError> {
        NoLanguages.check(place, language, source, lib)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_wait_for_a_place_leave_their_turns_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let places = Places::new(2, 100);
    let options = Options {
        languages: Arc::new(OnlyPlaces(places.clone())),
        ..Options::default()
    };
    let rules = SlowRules { edits_max: None };
    let db = open_with_rules(dir.path(), rules, options).await;
    add_selector(&db, "slow", &json!({"newDoc.n": {"$regex": "z"}})).await;
    // Slow validators of a database of their own have all places that `many` may hold.
    let many = Requester::user("many");
    let mut busy = vec![];
    for _ in 0..2 {
        let share = many.share(&"own".into());
        busy.push(places.admission(Lane::Writes, &share).await.unwrap());
    }
    let write = |requester: &Requester, id: &str| {
        let caller = Caller {
            requester: requester.clone(),
            ..Caller::default()
        };
        let (db, edits) = (db.clone(), edits(&[json!({"_id": id, "n": "z"})]));
        async move {
            let done = db.update_as(caller, edits, EditMode::Interactive, Durability::Delayed);
            done.await.unwrap().0
        }
    };
    // Other users have all turns but one.
    let one = edits(&[json!({"_id": "one"})]);
    let turns = db.slow_writes_for(&many, &one).unwrap();
    let others = ["third", "fourth"].map(|user| turns.try_place(&user.into()).unwrap());
    let mut waiting = vec![];
    for id in ["a", "b"] {
        let mut write = Box::pin(write(&many, id));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(write.as_mut().poll(&mut context).is_pending());
        waiting.push(tokio::spawn(write));
    }
    let done = write(&Requester::user("other"), "c").await;
    assert!(matches!(done[..], [Outcome::Ok { .. }]), "{done:?}");
    drop((busy, others));
    for done in waiting {
        let done = done.await.unwrap();
        assert!(matches!(done[..], [Outcome::Ok { .. }]), "{done:?}");
    }
}
