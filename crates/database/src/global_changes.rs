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

/// Which events a server of a cluster writes to `_global_changes` now.
pub struct EventWriter {
    /// Returns whether it writes those of databases without a writer of their own.
    pub writes: Box<dyn Fn() -> bool + Send + Sync>,
    /// Returns whether it writes those of a database, of which not all servers see the events; `None`
    /// if all of them do.
    pub writes_of: Box<dyn Fn(&str) -> Option<bool> + Send + Sync>,
}

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

    /// Returns whether this server writes the events of a database.
    fn has(self, db: &str) -> bool {
        let of_database = self.writer.and_then(|writer| (writer.writes_of)(db));
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
            let (mine, others): (Vec<_>, Vec<_>) = all.partition(|event| own.has(&event.db));
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
    /// In a cluster several servers see an event, and one of them writes it. A new writer also writes those that its predecessor
    /// may not have written.
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
            if writes && !wrote {
                self.recover().await;
            }
            self.events().put_back(left.take(own));
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

    /// Writes the pending events that are this server's; returns false when there were none. A
    /// `_global_changes` that was created meanwhile begins with the events after that.
    async fn flush(self: &Arc<Self>, own: Own<'_>, left: &mut LeftToOthers) -> bool {
        let all = self.events().take_pending().into_iter();
        let (mut pending, others): (Vec<_>, Vec<_>) = all.partition(|event| own.has(&event.db));
        left.add(others);
        let began = pending
            .iter()
            .position(|p| &*p.db == GLOBAL_CHANGES && p.kind == DbEventKind::Created);
        if let Some(began) = began {
            pending.drain(..began);
            self.limit_revisions().await;
        }
        pending.retain(|p| &*p.db != GLOBAL_CHANGES);
        if pending.is_empty() {
            return false;
        }
        // Without the database events are not recorded.
        let Ok(db) = self.get(GLOBAL_CHANGES) else {
            return false;
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
        let mut note = |db: Arc<str>, kind| missed.push(PendingEvent { db, kind, seq: 0 });
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
    use super::*;

    fn event(db: &str, kind: DbEventKind) -> PendingEvent {
        let db = Arc::from(db);
        PendingEvent { db, kind, seq: 0 }
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
}
