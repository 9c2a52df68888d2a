//! `_global_changes`: a database with a document for each database's last events, `created:name`,
//! `updated:name` and `deleted:name`, as CouchDB keeps it. Its changes feed is what `_db_updates`
//! shows.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use document::{DocId, EditDoc, parse_document};
use tokio::time::{Instant, sleep, sleep_until};

use crate::events::{DbEventKind, PendingEvent};
use crate::{
    ChangesQuery, Database, Databases, Durability, EditMode, Error, Filter, Framing, NameRange,
    Outcome, Read, ReadOptions, Since, Style,
};

/// The database of events of databases.
pub const GLOBAL_CHANGES: &str = "_global_changes";

/// Events in one write.
const BATCH_EVENTS_MAX: usize = 1000;
/// Old revisions of events have no use.
const REVS_LIMIT: u64 = 10;

/// Interval at which a server of a cluster checks whether it writes.
const WRITER_CHECKED_EVERY: Duration = Duration::from_secs(1);
/// How long a server keeps events that another one writes: longer than it takes to notice that this one has gone.
const LEFT_TIME: Duration = Duration::from_secs(60);

/// The seq of events that a comparison found: these happened before all that were noted here.
const FOUND: u64 = 0;

/// Which events a server of a cluster writes to `_global_changes` now.
pub struct EventWriter {
    /// Returns whether it writes those of databases without a writer of their own.
    pub writes: Box<dyn Fn() -> bool + Send + Sync>,
    /// Returns whether it writes those of a database, of which not all servers see the events;
    /// `None` if all of them do.
    pub writes_of: Box<WritesOf>,
}

/// Whether this server writes the events of the database with a name.
pub type WritesOf = dyn Fn(&str) -> Option<bool> + Send + Sync;

/// The events that this server writes at a moment: all of them without a cluster.
#[derive(Clone, Copy)]
struct Own<'a> {
    writer: Option<&'a EventWriter>,
    writes: bool,
}

impl<'a> Own<'a> {
    fn now(writer: Option<&'a EventWriter>) -> Own<'a> {
        let writes = writer.is_none_or(|writer| (writer.writes)());
        Own { writer, writes }
    }

    /// Returns whether this server writes an event.
    fn has(self, event: &PendingEvent) -> bool {
        // The one that writes the other events compares for all databases.
        if event.seq == FOUND || &*event.db == GLOBAL_CHANGES {
            return self.writes;
        }
        let of_database = self.writer.and_then(|writer| (writer.writes_of)(&event.db));
        of_database.unwrap_or(self.writes)
    }
}

/// Recent events that another server of the cluster writes.
#[derive(Default)]
struct LeftToOthers(VecDeque<(Instant, Vec<PendingEvent>)>);

impl LeftToOthers {
    fn add(&mut self, events: Vec<PendingEvent>) {
        let now = Instant::now();
        while self.0.front().is_some_and(|(at, _)| now - *at > LEFT_TIME) {
            self.0.pop_front();
        }
        if !events.is_empty() {
            self.0.push_back((now, events));
        }
    }

    /// Removes and returns those that this server writes.
    fn take(&mut self, own: Own<'_>) -> Vec<PendingEvent> {
        let mut taken = vec![];
        // Of equal ones the newest counts.
        for (_, events) in self.0.iter_mut().rev() {
            let all = std::mem::take(events).into_iter();
            let (mine, others): (Vec<_>, Vec<_>) = all.partition(|event| own.has(event));
            taken.extend(mine);
            *events = others;
        }
        self.0.retain(|(_, events)| !events.is_empty());
        taken
    }
}

/// How long events may be held back, so that a busy server writes few of these documents.
#[derive(Clone, Copy, Debug)]
pub struct GlobalChangesOptions {
    /// How long events are gathered after a quiet time.
    pub event_delay: Duration,
    /// Shortest time between two writes.
    pub write_delay: Duration,
}

impl Databases {
    /// Keeps `_global_changes`, while it exists, until `stop` resolves; then writes what is left. `options` is called before
    /// each write. Events of the last
    /// moments before a crash are lost, except for databases created and deleted, which are found out here.
    ///
    /// In a cluster several servers see an event, and one of them writes it. A new writer also
    /// writes those that its predecessor may not have written.
    pub async fn keep_global_changes(
        self: Arc<Self>,
        options: impl Fn() -> GlobalChangesOptions + Send,
        writer: Option<EventWriter>,
        stop: impl Future<Output = ()>,
    ) {
        self.events().keep_pending();
        let mut changed = self.watch_events();
        let mut left = LeftToOthers::default();
        let mut writes = false;
        tokio::pin!(stop);
        loop {
            let own = Own::now(writer.as_ref());
            let wrote = std::mem::replace(&mut writes, own.writes);
            match writes && !wrote {
                true => self.take_over(own, &mut left).await,
                false => self.events().put_back(left.take(own)),
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = sleep(WRITER_CHECKED_EVERY), if writer.is_some() => continue,
                () = &mut stop => break,
            }
            let options = options();
            sleep(options.event_delay).await;
            changed.mark_unchanged();
            let next = Instant::now() + options.write_delay;
            if !self.flush(own, &mut left).await && writes {
                continue;
            }
            tokio::select! {
                () = sleep_until(next) => {}
                () = &mut stop => break,
            }
        }
        self.flush(Own::now(writer.as_ref()), &mut left).await;
    }

    /// Makes everything pending that the previous writer may not have written.
    async fn take_over(self: &Arc<Self>, own: Own<'_>, left: &mut LeftToOthers) {
        // Before the comparison, which does not know when its events happened: those that were seen
        // keep their places.
        self.events().put_back(left.take(own));
        self.recover().await;
    }

    /// Writes the pending events that are this server's; returns false when there were none.
    async fn flush(self: &Arc<Self>, own: Own<'_>, left: &mut LeftToOthers) -> bool {
        let all = self.events().take_pending();
        let created = last_creation(&all);
        let all = all.into_iter();
        let (mut pending, others): (Vec<_>, Vec<_>) = all.partition(|event| own.has(event));
        left.add(others);
        drop_older(&mut pending, created);
        if created.is_some() && own.writes {
            self.limit_revisions().await;
        }
        if pending.is_empty() {
            return false;
        }
        let db = match self.get(GLOBAL_CHANGES) {
            Ok(db) => db,
            // Without the database events are not recorded.
            Err(Error::NoDatabase) => return false,
            Err(e) => {
                tracing::warn!(error = %e, "_global_changes cannot be opened");
                self.events().put_back(pending);
                return true;
            }
        };
        for batch in pending.chunks(BATCH_EVENTS_MAX) {
            match write(&db, batch).await {
                Ok(again) => self.events().put_back(again),
                Err(Error::NoDatabase | Error::ShuttingDown) => return false,
                Err(e) => {
                    tracing::warn!(error = %e, "_global_changes is not written");
                    self.events().put_back(batch.to_vec());
                }
            }
        }
        true
    }

    async fn limit_revisions(&self) {
        if let Ok(db) = self.get(GLOBAL_CHANGES)
            && db.revs_limit() != REVS_LIMIT
            && let Err(e) = db.set_revs_limit(REVS_LIMIT).await
        {
            tracing::warn!(error = %e, "_global_changes keeps its limit of revisions");
        }
    }

    /// Compares `_global_changes` with the existing databases, and notes missed events.
    async fn recover(self: &Arc<Self>) {
        self.limit_revisions().await;
        let Ok(db) = self.get(GLOBAL_CHANGES) else {
            return;
        };
        let databases = self.clone();
        let missed = tokio::task::spawn_blocking(move || databases.missed(&db)).await;
        match missed {
            Ok(Ok(missed)) => self.events().put_back(missed),
            Ok(Err(e)) => tracing::warn!(error = %e, "_global_changes cannot be compared"),
            // The runtime is going down.
            Err(_) => {}
        }
    }

    fn missed(&self, db: &Arc<Database>) -> Result<Vec<PendingEvent>, Error> {
        let known = last_kinds(db)?;
        let mut missed = vec![];
        let mut note = |db: Arc<str>, kind| {
            let seq = FOUND;
            missed.push(PendingEvent { db, kind, seq });
        };
        for (name, kind) in &known {
            if *kind == DbEventKind::Created && !self.exists(name) {
                note(Arc::from(name.as_str()), DbEventKind::Deleted);
            }
        }
        for name in self.names(&NameRange::default()) {
            let there = known.get(&*name) == Some(&DbEventKind::Created);
            if !there && &*name != GLOBAL_CHANGES {
                note(name, DbEventKind::Created);
            }
        }
        Ok(missed)
    }
}

/// Returns the seq of the creation of `_global_changes`, if that is among these events.
fn last_creation(events: &[PendingEvent]) -> Option<u64> {
    let is_creation =
        |p: &&PendingEvent| &*p.db == GLOBAL_CHANGES && p.kind == DbEventKind::Created;
    events.iter().find(is_creation).map(|p| p.seq)
}

/// Removes the events of `_global_changes` itself, and those from before it was `created`: a new
/// one begins with the events after its creation. A comparison only finds what an existing one
/// lacks, so these events stay.
fn drop_older(pending: &mut Vec<PendingEvent>, created: Option<u64>) {
    let is_own = |p: &PendingEvent| &*p.db == GLOBAL_CHANGES;
    let is_older = |p: &PendingEvent| p.seq != FOUND && created.is_some_and(|at| p.seq < at);
    pending.retain(|p| !is_own(p) && !is_older(p));
}

/// For each database whether it was created or deleted last. (With several shards the order is that
/// of the shards: a recreated database may be noted once more.)
fn last_kinds(db: &Arc<Database>) -> Result<HashMap<String, DbEventKind>, Error> {
    let mut feed = db.changes(ChangesQuery {
        since: Since::Start,
        descending: false,
        limit: None,
        style: Style::MainOnly,
        include_docs: false,
        conflicts: false,
        attachments: crate::ShownAttachments::default(),
        filter: Filter::None,
        seq_interval: None,
    })?;
    let mut kinds = HashMap::new();
    let mut out = vec![];
    loop {
        let more = feed.next_chunk(Framing::Lines, &mut out, 1 << 16)?;
        for line in out.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            #[derive(serde::Deserialize)]
            struct Row {
                id: String,
            }
            let row: Row = serde_json::from_slice(line)
                .map_err(|_| Error::Storage(storage::Error::Corrupt("change row")))?;
            match row.id.split_once(':') {
                Some(("created", name)) => kinds.insert(name.to_owned(), DbEventKind::Created),
                Some(("deleted", name)) => kinds.insert(name.to_owned(), DbEventKind::Deleted),
                _ => None,
            };
        }
        out.clear();
        if !more {
            return Ok(kinds);
        }
    }
}

/// Writes a new revision of each event's document; returns those with a concurrent edit by another
/// writer.
async fn write(db: &Arc<Database>, events: &[PendingEvent]) -> Result<Vec<PendingEvent>, Error> {
    let edits = events
        .iter()
        .map(|event| edit(db, event))
        .collect::<Result<Vec<_>, _>>()?;
    let (outcomes, _) = db
        .update(edits, EditMode::Interactive, Durability::Delayed)
        .await?;
    let again = events.iter().zip(outcomes);
    Ok(again
        .filter(|(_, outcome)| matches!(outcome, Outcome::Conflict))
        .map(|(event, _)| event.clone())
        .collect())
}

fn edit(db: &Arc<Database>, event: &PendingEvent) -> Result<EditDoc, Error> {
    let invalid = |e: String| Error::Internal(format!("_global_changes: {e}"));
    let id = DocId::new(&format!("{}:{}", event.kind.name(), event.db))
        .map_err(|e| invalid(e.to_string()))?;
    let mut edit = parse_document(b"{}").map_err(|e| invalid(e.to_string()))?;
    if let Read::Found(doc) = db.read(&id, &ReadOptions::default())? {
        edit.rev = Some(doc.rev);
    }
    edit.id = Some(id);
    Ok(edit)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{CreateOptions, Options};

    /// A server of a cluster, and what it left to the one that writes.
    struct Server {
        databases: Arc<Databases>,
        left: LeftToOthers,
        /// The other server still writes.
        other_lives: bool,
    }

    impl Server {
        fn open(folder: &std::path::Path) -> Server {
            let databases = Databases::open(folder, Options::default()).unwrap();
            databases.events().keep_pending();
            Server {
                databases,
                left: LeftToOthers::default(),
                other_lives: true,
            }
        }

        async fn create(&self, name: &str) {
            let options = CreateOptions {
                q: Some(1),
                ..CreateOptions::default()
            };
            self.databases.create(name, options).await.unwrap();
        }

        /// Leaves the new events to the other server, which writes the same ones while it lives.
        async fn leave(&mut self) {
            let events = self.databases.events().take_pending();
            if self.other_lives {
                self.databases.events().put_back(events.clone());
                self.write_all().await;
                // The writes are an event of `_global_changes`.
                self.databases.events().take_pending();
            }
            self.left.add(events);
        }

        async fn take_over(&mut self) {
            let own = Own::now(None);
            self.databases.take_over(own, &mut self.left).await;
            self.write_all().await;
        }

        async fn write_all(&self) {
            let left = &mut LeftToOthers::default();
            self.databases.flush(Own::now(None), left).await;
        }

        fn last_kinds(&self) -> HashMap<String, DbEventKind> {
            last_kinds(&self.databases.get(GLOBAL_CHANGES).unwrap()).unwrap()
        }

        fn has(&self, name: &str, kind: DbEventKind) -> bool {
            let db = self.databases.get(GLOBAL_CHANGES).unwrap();
            let id = DocId::new(&format!("{}:{name}", kind.name())).unwrap();
            let read = db.read(&id, &ReadOptions::default()).unwrap();
            matches!(read, Read::Found(_))
        }
    }

    /// The new writer finds by comparison that a database was created, and it has also seen that
    /// `_global_changes` was created a moment ago.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_writer_that_saw_the_creation_of_global_changes_loses_no_event() {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::open(folder.path());
        server.create("before").await;
        server.create(GLOBAL_CHANGES).await;
        server.leave().await;
        // It dies.
        server.other_lives = false;
        server.create("after").await;
        server.leave().await;
        // Longer ago than events are kept.
        server.create("long-ago").await;
        server.databases.events().take_pending();
        server.take_over().await;
        for name in ["after", "long-ago"] {
            assert!(server.has(name, DbEventKind::Created), "{name}");
        }
        // A new `_global_changes` begins with what happens after its creation.
        assert!(!server.has("before", DbEventKind::Created));
        server.databases.close();
    }

    /// Compared with a naive list: each event is written at least once, and the last one of a
    /// database shows whether it exists.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_event_is_written_whenever_the_writer_dies() {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::open(folder.path());
        for seed in 0..30 {
            let mut rng = fastrand::Rng::with_seed(seed);
            server.other_lives = true;
            let mut live = BTreeSet::<String>::new();
            // Names, and whether they were created or deleted.
            let mut expected = BTreeSet::<(String, bool)>::new();
            let (begins_at, dies_at) = (rng.usize(..4), rng.usize(4..12));
            for step in 0..12 {
                if step == begins_at {
                    server.create(GLOBAL_CHANGES).await;
                    expected.clear();
                }
                let name = format!("{}-{seed}", rng.choice(["a", "b", "c"]).unwrap());
                let is_new = !live.remove(&name);
                match is_new {
                    true => {
                        server.create(&name).await;
                        live.insert(name.clone());
                    }
                    false => server.databases.delete(&name).await.unwrap(),
                }
                expected.insert((name, is_new));
                server.other_lives &= step != dies_at;
                if rng.bool() {
                    server.leave().await;
                }
            }
            server.take_over().await;
            let last = server.last_kinds();
            for (name, is_new) in &expected {
                let kind = match is_new {
                    true => DbEventKind::Created,
                    false => DbEventKind::Deleted,
                };
                assert!(server.has(name, kind), "seed {seed}: {name} {kind:?}");
                let exists = last[name] == DbEventKind::Created;
                assert_eq!(exists, live.contains(name), "seed {seed}: {name}");
            }
            for name in live.iter().map(String::as_str).chain([GLOBAL_CHANGES]) {
                server.databases.delete(name).await.unwrap();
            }
            server.databases.events().take_pending();
            server.left.take(Own::now(None));
        }
        server.databases.close();
    }

    fn event(db: &str, kind: DbEventKind) -> PendingEvent {
        let db = Arc::from(db);
        PendingEvent { db, kind, seq: 1 }
    }

    #[test]
    fn a_server_takes_the_events_of_its_databases() {
        let writer = EventWriter {
            writes: Box::new(|| false),
            writes_of: Box::new(|db| (db != "shared").then_some(db == "mine")),
        };
        let mut left = LeftToOthers::default();
        left.add(vec![
            event("mine", DbEventKind::Created),
            event("shared", DbEventKind::Created),
        ]);
        left.add(vec![
            event("mine", DbEventKind::Updated),
            event("other", DbEventKind::Updated),
        ]);
        let taken = left.take(Own::now(Some(&writer)));
        let kinds: Vec<DbEventKind> = taken.iter().map(|event| event.kind).collect();
        assert!(taken.iter().all(|event| &*event.db == "mine"));
        assert!(kinds == [DbEventKind::Updated, DbEventKind::Created]);
        assert!(left.take(Own::now(Some(&writer))).is_empty());
        let writer = EventWriter {
            writes: Box::new(|| true),
            ..writer
        };
        let taken = left.take(Own::now(Some(&writer)));
        assert!(taken.len() == 1 && &*taken[0].db == "shared");
        assert_eq!(left.take(Own::now(None)).len(), 1);
    }

    #[test]
    fn one_server_writes_what_it_found_whichever_writes_the_other_events_of_a_database() {
        for writes in [false, true] {
            let writer = EventWriter {
                writes: Box::new(move || writes),
                writes_of: Box::new(|_| Some(false)),
            };
            let own = Own::now(Some(&writer));
            let noted = event("a", DbEventKind::Created);
            let found = PendingEvent {
                seq: FOUND,
                ..noted.clone()
            };
            assert!(!own.has(&noted));
            assert_eq!(own.has(&found), writes);
            let of_all = event(GLOBAL_CHANGES, DbEventKind::Created);
            assert_eq!(own.has(&of_all), writes);
        }
    }
}
