//! Builds of indexes: on demand immediately, and in the background after writes (CouchDB's `ken`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use telemetry::State;
use telemetry::trace::{Value, export_background};

use parking_lot::{Condvar, Mutex};

use functions::{Cause, Requester};
use index::Progress;
use tokio::sync::watch;

use super::Updates;
use crate::database::Database;
use crate::design_cache::DesignSummary;
use crate::maintenance::about_database;
use crate::open_databases::OpenDatabases;
use crate::turn::Turn;
use crate::update::blocking;
use crate::{Error, Task, unix_seconds};

/// Most concurrent builds; others wait.
const RUNNING_MAX: usize = 64;
/// Most concurrent builds of one user, and of one database: slow functions do not delay the builds of
/// other databases, nor those of other users of the same one.
const RUNNING_OF_USER_MAX: usize = 24;
const RUNNING_OF_DATABASE_MAX: usize = 40;
/// Delay after a write until the background checks a database's indexes; more writes may come until
/// then.
const LOOK_EVERY: Duration = Duration::from_millis(1000);

/// An index over all shards of a database, that is kept up to date.
pub(crate) trait DatabaseIndex: Send + Sync {
    /// The database's name.
    fn database(&self) -> &Arc<str>;
    /// The design document's id, or the name of an index without one.
    fn design(&self) -> &str;
    /// Whether a design document defines it.
    fn has_design(&self) -> bool {
        true
    }
    /// Its name among those of its design document, if it has one of its own.
    fn index(&self) -> Option<&str> {
        None
    }
    /// The type of its update in `/_active_tasks`.
    fn kind(&self) -> &'static str;
    /// The state of its updates.
    fn updates(&self) -> &watch::Sender<Updates>;
    /// Applies all changes of the database. Blocks.
    fn update(&self) -> Result<(), Error>;
    /// Reorganises the index for faster reads, after readers have their results. Blocks.
    fn tidy(&self) -> Result<(), Error>;
    /// Whether `tidy` must run even while callers wait.
    fn must_tidy(&self) -> bool {
        false
    }
    /// Stops a running update, and refuses others.
    fn ask_to_stop(&self);
    /// Allows updates again, if they were stopped because nothing named the index.
    fn resume(&self) {}
    /// How far an update is, by shard.
    fn progress(&self) -> Vec<&Progress>;
    /// Whether it holds everything that the database does.
    fn is_current(&self, db: &Database) -> bool;
}

/// Settings of background indexing.
#[derive(Clone, Debug)]
pub struct KenOptions {
    /// Whether indexes are built before they are queried.
    pub enabled: bool,
    /// Most concurrent background builds.
    pub limit: usize,
}

impl Default for KenOptions {
    fn default() -> Self {
        KenOptions {
            enabled: true,
            limit: 20,
        }
    }
}

/// Builds of one database that the background begins before it is another's turn.
const BUILDS_IN_TURN: usize = 4;

/// An update of an index, and its cause.
#[derive(Clone)]
struct Build {
    index: Arc<dyn DatabaseIndex>,
    cause: Arc<Cause>,
}

impl Build {
    fn is_of(&self, index: &Arc<dyn DatabaseIndex>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.index), Arc::as_ptr(index))
    }
}

#[derive(Default)]
struct Work {
    /// Builds that wait for a place.
    waiting: VecDeque<Build>,
    running: Vec<Build>,
    /// Databases whose indexes are to be checked, and when they were written.
    written: VecDeque<(Instant, Arc<str>)>,
    stopping: bool,
}

impl Work {
    fn may_run(&self, build: &Build) -> bool {
        let database = build.index.database();
        let requester = build.cause.requester();
        let user = requester.share(database);
        let is_of_database = |other: &&Build| other.index.database() == database;
        let is_of_user = |other: &&Build| {
            let of_other = other.cause.requester().share(other.index.database());
            of_other.user() == user.user()
        };
        // The background has a limit of its own.
        let is_in_background = requester == Requester::Background;
        self.running.iter().filter(is_of_database).count() < RUNNING_OF_DATABASE_MAX
            && (is_in_background
                || self.running.iter().filter(is_of_user).count() < RUNNING_OF_USER_MAX)
    }

    /// The number of builds in the background.
    fn background(&self) -> usize {
        let running = self.running.iter();
        running
            .filter(|build| build.cause.requester() == Requester::Background)
            .count()
    }
}

struct Shared {
    work: Mutex<Work>,
    wake: Condvar,
    /// Whether the background builds indexes.
    enabled: AtomicBool,
    /// Maximum number of its concurrent builds.
    limit: AtomicUsize,
    started: AtomicBool,
    /// The thread that checks written databases, once it was started.
    ken: Mutex<Option<JoinHandle<()>>>,
    databases: OnceLock<Weak<OpenDatabases>>,
}

pub(crate) struct Indexer(Arc<Shared>);

impl Indexer {
    pub fn new(options: KenOptions) -> Indexer {
        Indexer(Arc::new(Shared {
            work: Mutex::default(),
            wake: Condvar::new(),
            enabled: AtomicBool::new(options.enabled),
            limit: AtomicUsize::new(options.limit),
            started: AtomicBool::new(false),
            ken: Mutex::default(),
            databases: OnceLock::new(),
        }))
    }

    /// Sets how the background builds indexes from now on.
    pub fn set_options(&self, options: &KenOptions) {
        self.0.enabled.store(options.enabled, Relaxed);
        self.0.limit.store(options.limit, Relaxed);
        // More may run now.
        let _work = self.0.work.lock();
        self.0.wake.notify_all();
    }

    /// Sets where databases are found by their names.
    pub fn find_by(&self, databases: Weak<OpenDatabases>) {
        // It is set once.
        let _ = self.0.databases.set(databases);
    }

    /// Updates an index for a requester; starts nothing if a future update will see all changes. A
    /// build in the background is the requester's from now on.
    pub fn request(&self, index: Arc<dyn DatabaseIndex>, requester: &Requester) {
        index.resume();
        let mut start = false;
        index.updates().send_if_modified(|u| {
            if u.running {
                u.again = true;
            } else {
                u.running = true;
                start = true;
            }
            false
        });
        match start {
            true => self.0.start(index, requester),
            false => self.0.join(&index, requester),
        }
    }

    /// Notes a write to a database: its indexes are checked soon.
    pub fn note_written(&self, db: Arc<str>) {
        let mut work = self.0.work.lock();
        work.written.push_back((Instant::now(), db));
        if !self.0.started.swap(true, Relaxed) {
            let shared = self.0.clone();
            let thread = std::thread::Builder::new()
                .name("ken".into())
                .spawn(move || shared.look_around());
            match thread {
                Ok(t) => *self.0.ken.lock() = Some(t),
                Err(e) => tracing::error!(error = %e, "no thread for background indexing"),
            }
        }
        self.0.wake.notify_all();
    }

    /// Whether this database was written, and the background has not checked its indexes yet. False
    /// during the check.
    pub fn will_look_at(&self, db: &Database) -> bool {
        self.0.enabled.load(Relaxed) && db.views.written.load(Relaxed)
    }

    /// Databases that were written and whose indexes are not checked yet.
    pub fn waiting(&self) -> usize {
        self.0.work.lock().written.len()
    }

    /// Index builds that wait for one of the threads.
    pub fn builds_waiting(&self) -> usize {
        self.0.work.lock().waiting.len()
    }

    /// The builds that run, for `/_active_tasks`.
    pub fn tasks(&self) -> Vec<Task> {
        let running = self.0.work.lock().running.clone();
        let now = unix_seconds();
        running
            .iter()
            .flat_map(|Build { index, .. }| {
                let all = index.progress().into_iter();
                let running = all.filter(|p| p.running.load(Relaxed));
                running.map(|p| Task {
                    kind: index.kind(),
                    database: index.database().to_string(),
                    design_document: index.has_design().then(|| index.design().to_owned()),
                    index: index.index().map(str::to_owned),
                    done: p.done.load(Relaxed),
                    total: p.total.load(Relaxed),
                    started_unix_s: p.started_unix_s.load(Relaxed),
                    updated_unix_s: now,
                })
            })
            .collect()
    }

    /// Stops running builds, and waits a moment for them. Builds that have ended hold nothing of a
    /// database.
    pub fn stop(&self) {
        let deadline = Instant::now() + Duration::from_secs(3);
        let mut work = self.0.work.lock();
        work.stopping = true;
        work.waiting.clear();
        for build in &work.running {
            build.index.ask_to_stop();
        }
        self.0.wake.notify_all();
        while !work.running.is_empty() {
            if self.0.wake.wait_until(&mut work, deadline).timed_out() {
                tracing::warn!("an index build did not end in time");
                break;
            }
        }
        drop(work);
        let ken = self.0.ken.lock().take();
        if let Some(t) = ken
            && t.join().is_err()
        {
            tracing::error!("the thread of background indexing had panicked");
        }
    }
}

/// Tidies an index. No caller waits for this: a failure is only logged.
fn tidy(index: &dyn DatabaseIndex) {
    let tidied = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| index.tidy()));
    match tidied {
        Ok(Ok(()) | Err(Error::ShuttingDown | Error::Missing(_) | Error::NoDatabase)) => {}
        // Readers get this error.
        Ok(Err(e @ Error::Function(_))) => {
            tracing::debug!(db = %index.database(), design = %index.design(), error = %e, "an index is left untidy");
        }
        Ok(Err(e)) => {
            tracing::warn!(db = %index.database(), design = %index.design(), error = %e, "an index is left untidy");
        }
        Err(_) => {
            tracing::error!(db = %index.database(), design = %index.design(), "tidying an index panicked");
        }
    }
}

/// Changes the number of tidying tasks, without a notification, since no caller waits for it.
fn note_tidying(index: &dyn DatabaseIndex, change: impl FnOnce(usize) -> usize) {
    index.updates().send_if_modified(|u| {
        u.tidying = change(u.tidying);
        false
    });
}

impl Shared {
    /// Lets a build that has started be for a requester, unless it is for one already.
    fn join(&self, index: &Arc<dyn DatabaseIndex>, requester: &Requester) {
        let work = self.work.lock();
        let mut builds = work.running.iter().chain(&work.waiting);
        if let Some(build) = builds.find(|build| build.is_of(index)) {
            build.cause.join(requester);
        }
    }

    fn start(self: &Arc<Self>, index: Arc<dyn DatabaseIndex>, requester: &Requester) {
        let mut work = self.work.lock();
        if work.stopping {
            drop(work);
            finish(&*index, Some(Error::ShuttingDown));
            return;
        }
        let cause = Arc::new(Cause::from(requester.clone()));
        let build = Build { index, cause };
        if work.running.len() >= RUNNING_MAX || !work.may_run(&build) {
            work.waiting.push_back(build);
            return;
        }
        work.running.push(build.clone());
        drop(work);
        let shared = self.clone();
        let builder = std::thread::Builder::new().name("index".into());
        let for_thread = build.clone();
        if let Err(e) = builder.spawn(move || shared.run(for_thread)) {
            tracing::error!(error = %e, "no thread for an index build");
            let failure = Error::Internal(format!("no thread for the index build: {e}"));
            finish(&*build.index, Some(failure));
            self.done(build);
        }
    }

    fn run(self: Arc<Self>, first: Build) {
        telemetry::give_way(telemetry::BACKGROUND_NICE);
        let mut next = Some(first);
        while let Some(build) = next {
            let index = &build.index;
            let _cause = build.cause.clone().enter();
            let _indexes = telemetry::enter(State::Index);
            // Limits stop user code; a panic in this program must not leave waiting clients behind.
            let began = Instant::now();
            let built = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| index.update()));
            let failure = match built {
                Ok(result) => result.err(),
                Err(_) => Some(Error::Internal("the index build panicked".into())),
            };
            // Ending with the server is no failure.
            if let Some(e) = failure
                .as_ref()
                .filter(|e| !matches!(e, Error::ShuttingDown))
            {
                tracing::warn!(db = %index.database(), design = %index.design(), reason = %e, "an index build failed");
            }
            let reason = failure.as_ref().map(|e| name_of(e).to_owned());
            export_background("index update", began, || about(&**index), reason);
            note_tidying(&**index, |n| n + 1);
            let again = finish(&**index, failure);
            // Readers have what they waited for; what they would compute on demand is kept for the next ones.
            if !again || index.must_tidy() {
                tidy(&**index);
            }
            note_tidying(&**index, |n| n - 1);
            if again {
                next = Some(build);
                continue;
            }
            self.done(build);
            let mut work = self.work.lock();
            let may_run = work.waiting.iter().position(|build| work.may_run(build));
            next = may_run.and_then(|at| work.waiting.remove(at));
            work.running.extend(next.clone());
        }
    }

    /// Ends a build. The index is released before it is removed from the list: if the list is
    /// empty, no build holds the store.
    fn done(&self, build: Build) {
        let at = Arc::as_ptr(&build.index).cast::<()>();
        drop(build);
        let mut work = self.work.lock();
        if let Some(i) = work
            .running
            .iter()
            .position(|r| Arc::as_ptr(&r.index).cast::<()>() == at)
        {
            work.running.swap_remove(i);
        }
        self.wake.notify_all();
    }

    /// Checks the indexes of written databases one after the other, in the order in which they were
    /// written.
    fn look_around(self: Arc<Self>) {
        telemetry::give_way(telemetry::BACKGROUND_NICE);
        while let Some(name) = self.next_written() {
            let databases = self.databases.get().and_then(Weak::upgrade);
            // It may have been closed meanwhile, or deleted.
            let found = databases.and_then(|d| match self.enabled.load(Relaxed) {
                true => d.get(&name).ok(),
                false => d.get_open(&name),
            });
            let Some(db) = found else {
                continue;
            };
            db.views.written.store(false, Relaxed);
            match db.pause_unused_builds(Turn::begin()) {
                Ok(true) => {}
                Ok(false) => {
                    self.look_again(&db);
                    continue;
                }
                Err(e) => {
                    tracing::debug!(db = %name, error = %e, "design documents cannot be read");
                }
            }
            if !self.enabled.load(Relaxed) {
                continue;
            }
            match self.look_at(&db) {
                Ok(true) => {}
                Ok(false) => self.look_again(&db),
                Err(e) => {
                    tracing::debug!(db = %name, error = %e, "design documents cannot be read");
                }
            }
        }
    }

    /// Waits for a database whose turn it is, and for leave to begin a build; `None` when the server stops.
    fn next_written(&self) -> Option<Arc<str>> {
        let mut work = self.work.lock();
        loop {
            if work.stopping {
                return None;
            }
            let may_run = work.background() < self.limit.load(Relaxed).max(1);
            match work
                .written
                .front()
                .map(|(written, _)| *written + LOOK_EVERY)
            {
                // Writes of the next moment are processed together with it.
                Some(due) if may_run && due > Instant::now() => {
                    self.wake.wait_until(&mut work, due);
                }
                Some(_) if may_run => return work.written.pop_front().map(|(_, name)| name),
                _ => self.wake.wait(&mut work),
            }
        }
    }

    /// Its turn is over, and there is more to do: it comes again after the others.
    fn look_again(&self, db: &Database) {
        if !db.views.written.swap(true, Relaxed) {
            let mut work = self.work.lock();
            // Due immediately.
            let written = Instant::now() - LOOK_EVERY;
            work.written.push_back((written, db.name().clone()));
        }
    }

    /// Begins builds of its indexes; false when there are more to begin than its turn allows.
    fn look_at(self: &Arc<Self>, db: &Arc<Database>) -> Result<bool, Error> {
        let Some(designs) = db.all_designs_in(Turn::begin())? else {
            return Ok(false);
        };
        let mut begun = 0;
        for design in designs.iter().filter(|d| d.autoupdate) {
            for index in indexes_of(db, design)? {
                if index.is_current(db) || index.updates().borrow().is_backing_off() {
                    continue;
                }
                if begun == BUILDS_IN_TURN
                    || self.work.lock().background() >= self.limit.load(Relaxed)
                {
                    return Ok(false);
                }
                begun += usize::from(!index.updates().borrow().running);
                Indexer(self.clone()).request(index, &Requester::Background);
            }
        }
        Ok(true)
    }
}

impl Database {
    /// Has the indexes updated that are kept current in the background, and waits for them. One that cannot be updated is left
    /// as it is.
    ///
    /// # Errors
    /// The design documents cannot be read.
    pub async fn catch_up_indexes(self: &Arc<Self>) -> Result<(), Error> {
        let designs = self.all_designs_async().await?;
        for design in designs.into_iter().filter(|design| design.autoupdate) {
            let db = self.clone();
            let indexes = match open_indexes_of(&db, &design) {
                Some(open) => open,
                None => blocking(move || indexes_of(&db, &design)).await?,
            };
            for index in indexes {
                self.catch_up(index).await;
            }
        }
        Ok(())
    }

    async fn catch_up(self: &Arc<Self>, index: Arc<dyn DatabaseIndex>) {
        let before = {
            let updates = index.updates().borrow();
            if updates.is_backing_off() {
                return;
            }
            updates.ended
        };
        // The second update from here on begins after this.
        let reached = || index.is_current(self) || index.updates().borrow().ended > before + 1;
        let background = &Requester::Background;
        let updated = self.wait_for_update(index.clone(), background, reached);
        if let Err(e) = updated.await {
            tracing::debug!(db = %self.name(), design = %index.design(), error = %e, "an index is not current");
        }
    }
}

/// The indexes of a design document that can be opened, if all of them are open.
fn open_indexes_of(db: &Database, of: &DesignSummary) -> Option<Vec<Arc<dyn DatabaseIndex>>> {
    let mut all: Vec<Arc<dyn DatabaseIndex>> = vec![];
    if of.has_views() {
        all.push(db.known_view_index(&of.signature)?);
    }
    for text in of.text_indexes().filter(|text| text.has_analyzers) {
        all.push(db.known_text_index(&text.signature())?);
    }
    Some(all)
}

/// The indexes of a design document that can be opened. It is read only when one of them is not open.
fn indexes_of(
    db: &Arc<Database>,
    of: &DesignSummary,
) -> Result<Vec<Arc<dyn DatabaseIndex>>, Error> {
    if let Some(open) = open_indexes_of(db, of) {
        return Ok(open);
    }
    let design = match db.design_now(&of.id) {
        Ok(design) => design,
        Err(Error::Missing(_)) => return Ok(vec![]),
        Err(e) => return Err(e),
    };
    let mut all: Vec<Arc<dyn DatabaseIndex>> = vec![];
    if design.has_views()
        && let Ok(index) = db.view_index(&design)
    {
        all.push(index);
    }
    for spec in design.text_indexes() {
        if let Ok(index) = db.text_index_now(&design.id, spec) {
            all.push(index);
        }
    }
    Ok(all)
}

/// A word for the kind of an error; for a function's failure CouchDB's `error`.
fn name_of(error: &Error) -> &str {
    match error {
        Error::Function(e) => e.name(),
        Error::Storage(_) | Error::InsufficientStorage(_) => "storage",
        Error::ShuttingDown => "stopped",
        Error::Missing(_) | Error::NoDatabase => "dropped",
        _ => "invalid",
    }
}

/// Attributes of an index in spans: without the reason of a failure, which may contain parts of a
/// document.
fn about(index: &dyn DatabaseIndex) -> Vec<(&'static str, Value)> {
    let progress = index.progress();
    let done = progress.iter().map(|p| p.done.load(Relaxed));
    vec![
        about_database(index.database()),
        ("settee.design_document", index.design().to_owned().into()),
        ("settee.changes", done.sum::<u64>().into()),
    ]
}

/// Notifies the waiting callers; returns whether another update was requested meanwhile.
fn finish(index: &dyn DatabaseIndex, failure: Option<Error>) -> bool {
    let mut again = false;
    index.updates().send_modify(|u| {
        again = u.again;
        u.ended += 1;
        u.again = false;
        u.running = again;
        if failure.is_some() {
            u.failures = u.failures.saturating_add(1);
            u.failed_at = Some(Instant::now());
        } else {
            (u.failures, u.failed_at) = (0, None);
        }
        u.failure = failure;
    });
    again
}

#[cfg(test)]
mod tests {
    use super::*;

    struct IdleIndex {
        database: Arc<str>,
        updates: watch::Sender<Updates>,
    }

    impl DatabaseIndex for IdleIndex {
        fn database(&self) -> &Arc<str> {
            &self.database
        }

        fn design(&self) -> &str {
            "_design/d"
        }

        fn kind(&self) -> &'static str {
            "indexer"
        }

        fn updates(&self) -> &watch::Sender<Updates> {
            &self.updates
        }

        fn update(&self) -> Result<(), Error> {
            Ok(())
        }

        fn tidy(&self) -> Result<(), Error> {
            Ok(())
        }

        fn ask_to_stop(&self) {}

        fn progress(&self) -> Vec<&Progress> {
            vec![]
        }

        fn is_current(&self, _: &Database) -> bool {
            true
        }
    }

    fn build(requester: Requester, database: usize) -> Build {
        let index = Arc::new(IdleIndex {
            database: database.to_string().into(),
            updates: watch::Sender::new(Updates::default()),
        });
        let cause = Arc::new(Cause::from(requester));
        Build { index, cause }
    }

    #[test]
    fn a_user_with_many_databases_leaves_builds_to_others() {
        let mut work = Work::default();
        for database in 0..RUNNING_MAX {
            let of_many = build(Requester::user("many"), database);
            if work.may_run(&of_many) {
                work.running.push(of_many);
            }
        }
        assert_eq!(work.running.len(), RUNNING_OF_USER_MAX);
        for other in [
            Requester::user("other"),
            Requester::Admin,
            Requester::Background,
        ] {
            assert!(work.may_run(&build(other.clone(), 0)), "{other:?}");
        }
        // Nor do they keep the background from its own.
        assert_eq!(work.background(), 0);
    }

    #[test]
    fn a_user_leaves_builds_to_other_users_of_its_database() {
        let mut work = Work::default();
        let mut begin = |requester: Requester, database: usize| {
            let build = build(requester, database);
            let may_run = work.may_run(&build);
            if may_run {
                work.running.push(build);
            }
            may_run
        };
        let user = Requester::user;
        let begun = (0..RUNNING_MAX).filter(|_| begin(user("many"), 0)).count();
        assert_eq!(begun, RUNNING_OF_USER_MAX);
        assert!(begin(user("other"), 0) && begin(Requester::Admin, 0));
        let all = (0..RUNNING_MAX).filter(|n| begin(user(&n.to_string()), 0));
        assert_eq!(all.count(), RUNNING_OF_DATABASE_MAX - begun - 2);
        assert!(begin(user("other"), 1));
    }
}
