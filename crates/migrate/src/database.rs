//! One database: created, filled by a replication that the target runs, given its properties, and
//! compared.

use std::time::Duration;

use serde_json::{Value, json};

use crate::progress::Progress;
use crate::server::Server;
use crate::{Error, Options, compare, locals, names, replications};

/// How often a failed replication is restarted, and the first delay.
const TRIES_MAX: u32 = 8;
const FIRST_WAIT: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Interval of a replication's checkpoints. Changes after the last checkpoint are read again after
/// a crash.
const CHECKPOINT_EVERY_MS: u64 = 5000;

/// A property that servers before CouchDB 3.6 do not have.
const AUTO_PURGE: &str = "_auto_purge";
/// The setting that turns CouchDB's automatic purges on.
const PURGE_PLUGIN: [&str; 5] = [
    "_node",
    "_local",
    "_config",
    "couch_scanner_plugins",
    "couch_auto_purge_plugin",
];
/// The vendor of servers that purge without such a setting.
const VENDOR: &str = "Settee";

/// Result of migrating a database.
#[derive(Debug, Default)]
pub struct Outcome {
    pub documents: u64,
    /// One each, in words.
    pub differences: Vec<String>,
    /// Notes for the user that are not differences.
    pub notes: Vec<String>,
}

/// A database on its way.
pub struct Migration<'a> {
    pub source: &'a Server,
    pub target: &'a Server,
    pub db: &'a str,
    pub options: &'a Options,
    pub progress: &'a Progress,
}

impl Migration<'_> {
    /// Copies the database, unless it is only to be compared, and compares it.
    ///
    /// # Errors
    /// Why it was not copied.
    pub async fn run(&self) -> Result<Outcome, Error> {
        let there = self.source.get(&[self.db], &[]).await?;
        let write = !self.options.verify_only;
        let mut outcome = Outcome::default();
        let Some(here) = self.open(&there, write).await? else {
            outcome
                .differences
                .push("it is missing at the target".into());
            return Ok(outcome);
        };
        self.compare_shape(&there, &here, &mut outcome);
        self.properties(write, &mut outcome).await?;
        if names::is_replicator(self.db) {
            let pause = self.options.pause_replications;
            let copied =
                replications::copy(self.source, self.target, self.db, pause, write).await?;
            outcome.documents = copied.documents;
            outcome.differences.extend(copied.differences);
            self.progress.copied(self.db);
            return Ok(outcome);
        }
        if write {
            self.replicate(&mut outcome).await?;
            let copied = locals::copy(self.source, self.target, self.db).await?;
            if copied > 0 {
                outcome
                    .notes
                    .push(format!("{copied} local documents were copied"));
            }
        }
        self.progress.copied(self.db);
        let compared =
            compare::documents(self.source, self.target, self.db, self.options.sample).await?;
        outcome.documents = compared.documents;
        outcome.differences.extend(compared.differences);
        Ok(outcome)
    }

    /// Returns the target's database, created when it does not exist and `write` allows it.
    async fn open(&self, there: &Value, write: bool) -> Result<Option<Value>, Error> {
        match self.target.get(&[self.db], &[]).await {
            Ok(here) => {
                let count = |member: &str| here[member].as_u64().unwrap_or(0);
                let empty = count("doc_count") + count("doc_del_count") == 0;
                let expected = empty || self.options.resume || self.db.starts_with('_');
                if write && !expected && !names::is_replicator(self.db) {
                    return Err(Error::Cannot(
                        "it holds documents at the target already; with --continue they are kept and missing documents are added"
                            .into(),
                    ));
                }
                return Ok(Some(here));
            }
            Err(e) if !e.is_status(404) => return Err(e),
            Err(_) if !write => return Ok(None),
            Err(_) => {}
        }
        let q = there["cluster"]["q"].as_u64().map(|q| q.to_string());
        let mut query = vec![];
        if let Some(q) = &q {
            query.push(("q", q.as_str()));
        }
        if is_partitioned(there) {
            query.push(("partitioned", "true"));
        }
        match self.target.put(&[self.db], &query, &Value::Null).await {
            // A concurrent creator was faster.
            Err(e) if !e.is_status(412) => return Err(e),
            _ => {}
        }
        self.target.get(&[self.db], &[]).await.map(Some)
    }

    fn compare_shape(&self, there: &Value, here: &Value, outcome: &mut Outcome) {
        if is_partitioned(there) != is_partitioned(here) {
            outcome
                .differences
                .push("it is partitioned on one side only".into());
        }
        let q = |info: &Value| info["cluster"]["q"].as_u64();
        if let (Some(a), Some(b)) = (q(there), q(here))
            && a != b
            && !self.db.starts_with('_')
        {
            outcome.notes.push(format!(
                "it has {} at the source, {b} at the target",
                command_line::counted(a, "shards")
            ));
        }
    }

    /// Returns whether the source purges old deleted documents. A CouchDB does so only with its plugin
    /// on; otherwise a copied time to live would purge documents that the source keeps.
    async fn source_purges(&self) -> Result<bool, Error> {
        match self.source.get(&PURGE_PLUGIN, &[]).await {
            Ok(value) => Ok(value == "true"),
            Err(e) if e.is_status(404) => {
                let welcome = self.source.get(&[], &[]).await?;
                Ok(welcome["vendor"]["name"] == VENDOR)
            }
            Err(e) => Err(e),
        }
    }

    /// The security object, the limit of revisions, and how long deleted documents are kept.
    async fn properties(&self, write: bool, outcome: &mut Outcome) -> Result<(), Error> {
        for property in ["_security", "_revs_limit", AUTO_PURGE] {
            let path = [self.db, property];
            let there = property_of(self.source, &path).await?;
            let here = property_of(self.target, &path).await?;
            if there == here || property == AUTO_PURGE && !self.source_purges().await? {
                continue;
            }
            if !write {
                outcome.differences.push(format!(
                    "{property} is {there} at the source, {here} at the target"
                ));
                continue;
            }
            match self.target.put(&path, &[], &there).await {
                Ok(_) => {}
                Err(e @ Error::Refused { .. }) => {
                    outcome
                        .differences
                        .push(format!("{property} {there} was not taken: {e}"));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Makes the target fetch the missing revisions. Checkpoints are stored on both sides, so that
    /// a new run continues there.
    async fn replicate(&self, outcome: &mut Outcome) -> Result<(), Error> {
        let body = json!({
            "source": self.source.endpoint(self.db),
            "target": self.db,
            "checkpoint_interval": CHECKPOINT_EVERY_MS,
        });
        let mut wait = FIRST_WAIT;
        let mut tries = 1;
        let done = loop {
            match self.target.post_and_wait(&["_replicate"], &body).await {
                Ok(done) => break done,
                Err(e) if tries < TRIES_MAX && may_pass(&e) => {
                    self.progress.say(&format!(
                        "{}: {e}; it is tried again in {}s",
                        self.db,
                        wait.as_secs()
                    ));
                }
                Err(e) => return Err(e),
            }
            tries += 1;
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(WAIT_MAX);
        };
        let failures = done["history"][0]["doc_write_failures"].as_u64();
        if let Some(failures) = failures.filter(|n| *n > 0) {
            outcome.notes.push(format!(
                "refused, by limits or by validate_doc_update functions: {}",
                command_line::counted(failures, "revisions")
            ));
        }
        Ok(())
    }
}

fn is_partitioned(info: &Value) -> bool {
    info["props"]["partitioned"].as_bool() == Some(true)
}

/// Returns whether an error may be transient: an unreachable server, or a replication that a server
/// broke off; not a refused one.
fn may_pass(e: &Error) -> bool {
    match e {
        Error::Refused { status, .. } => *status >= 500 && *status != 501,
        e => e.is_passing(),
    }
}

/// Reads a property of a database. A server without `_auto_purge` has no time to live.
async fn property_of(server: &Server, path: &[&str; 2]) -> Result<Value, Error> {
    match server.get(path, &[]).await {
        Err(e) if path[1] == AUTO_PURGE && e.is_status(404) => Ok(json!({})),
        read => read,
    }
}
