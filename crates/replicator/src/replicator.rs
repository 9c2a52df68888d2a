//! The replicator of a server: jobs of `_replicate`, jobs of documents, and their states.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use database::{
    Databases, Listing, Read, ReadOptions, RowsQuery, SystemRules, WorkOwner, run_low_priority,
};
use document::DocId;
use document::json::{member, string_text};
use serde_json::{Map, Value};

use crate::docs::Docs;
use crate::environment::Environment;
use crate::error::Error;
use crate::finished;
use crate::kept::{KeptRequests, parse_text};
use crate::options::{CONTINUOUS, DocRef, Replication, Request, User};
use crate::requested::Requested;
use crate::rules::{ReplicatorRules, is_replicator_db};
use crate::scheduler::{JobCounts, Outcome, Scheduler};

/// The result of a `_replicate` request.
#[derive(Debug)]
pub enum ReplicateResult {
    /// A continuous replication was started: its id.
    Continuous(String),
    /// The job with this id was stopped.
    Cancelled(String),
    /// Finished: the members of the response besides `ok`.
    Completed(Map<String, Value>),
    /// Cancelled by another request.
    Stopped,
}

/// Returns whose turn the slow requests of a user have. Server admins have one together.
fn owner(user: &User) -> WorkOwner {
    let mut hasher = DefaultHasher::new();
    if !user.is_admin() {
        user.name.hash(&mut hasher);
    }
    WorkOwner {
        user: hasher.finish(),
        database: 0,
    }
}

/// Returns the number of requests of a user that the cluster keeps.
fn kept_of(kept: &dyn KeptRequests, user: &User) -> usize {
    let all = kept.all().into_iter();
    all.filter(|(_, request)| request.user.name == user.name)
        .count()
}

/// The replications of a server.
pub struct Replicator {
    databases: Arc<Databases>,
    environment: Arc<dyn Environment>,
    scheduler: Arc<Scheduler>,
    docs: Arc<Docs>,
    requested: Arc<Requested>,
}

/// A request, and its text with the memory of its body if a cluster is to keep it.
type ParsedRequest<R> = (Request, Option<(Arc<str>, R)>);

impl Replicator {
    /// Registers the rules of replicator databases. Nothing runs before [`Replicator::start`].
    pub fn new(databases: Arc<Databases>, environment: Arc<dyn Environment>) -> Arc<Replicator> {
        let scheduler = Scheduler::new(environment.clone());
        let docs = Docs::new(databases.clone(), environment.clone(), scheduler.clone());
        let requested = Requested::new(environment.clone(), scheduler.clone());
        let told = Arc::downgrade(&docs);
        let rules: Arc<dyn SystemRules> = Arc::new(ReplicatorRules {
            environment: environment.clone(),
            changed: Arc::new(move |db: &str| {
                if let Some(docs) = told.upgrade() {
                    docs.changed(db);
                }
            }),
        });
        databases.add_rules(rules);
        Arc::new(Replicator {
            databases,
            environment,
            scheduler,
            docs,
            requested,
        })
    }

    /// Runs jobs on a runtime of their own, so that they do not delay this one. Must be called
    /// before `start`.
    pub fn run_jobs_on(&self, runtime: tokio::runtime::Handle) {
        self.scheduler.run_jobs_on(runtime);
    }

    /// Returns the runtime of the jobs, which yields to requests.
    pub fn runtime(&self) -> tokio::runtime::Handle {
        self.scheduler.runtime()
    }

    /// Starts to follow documents and run jobs, on the current tokio runtime.
    pub fn start(&self) {
        tokio::spawn(self.scheduler.clone().run());
        tokio::spawn(self.docs.clone().run());
        tokio::spawn(self.requested.clone().run());
    }

    /// Stops all jobs, and waits until they have recorded their progress.
    pub async fn stop(&self) {
        self.docs.stop();
        self.requested.stop();
        self.scheduler.stop().await;
    }

    /// Executes a `_replicate` request. Waits for the end of a one-off replication; of the body
    /// nothing is kept meanwhile. `room` is the memory of the body, until the body is dropped.
    ///
    /// # Errors
    /// The reason why it was refused, or failed.
    pub async fn replicate(
        &self,
        body: Map<String, Value>,
        user: User,
        room: impl Send + 'static,
    ) -> Result<ReplicateResult, Error> {
        let (request, text) = self.parse_request((body, room), user.clone()).await?;
        if let (Request::Start(replication), Some((text, _room))) = (&request, text) {
            return self.keep(replication, text, &user).await;
        }
        match request {
            Request::CancelId(id) => self.cancel(id, &user).await,
            Request::Cancel(replication) => {
                let _room = self.scheduler.room_for(&replication)?;
                let id = self.scheduler.id_of(&replication).await?;
                self.cancel(id, &user).await
            }
            Request::Start(replication) => self.begin(*replication, &user).await,
        }
    }

    /// Parses a request. One that may be slow is parsed on a thread with a lower priority, in the
    /// user's turn: a selector is compiled, ids are sorted.
    async fn parse_request<R: Send + 'static>(
        &self,
        (body, room): (Map<String, Value>, R),
        user: User,
    ) -> Result<ParsedRequest<R>, Error> {
        let is_slow = ["selector", "doc_ids"]
            .iter()
            .any(|name| body.contains_key(*name));
        let settings = self.environment.settings();
        let owner = owner(&user);
        let keeps = self.environment.kept().is_some();
        let parse = move || -> Result<ParsedRequest<R>, Error> {
            let request = Request::parse(&body, user, &settings)?;
            let text = match &request {
                Request::Start(replication) if keeps && replication.continuous => {
                    let text = Value::Object(body).to_string();
                    // Other nodes parse it.
                    parse_text(&text)?;
                    Some((text.into(), room))
                }
                _ => None,
            };
            Ok((request, text))
        };
        match is_slow {
            true => run_low_priority(owner, parse)
                .await
                .map_err(|_| Error::Stopped)?,
            false => parse(),
        }
    }

    async fn cancel(&self, id: String, user: &User) -> Result<ReplicateResult, Error> {
        if let Some(kept) = self.environment.kept().filter(|_| id.contains(CONTINUOUS)) {
            kept.fresh().await?;
            if let Some(request) = kept.get(&id) {
                request.authorize(user)?;
                kept.end(&id).await?;
                self.requested.end(&id).await;
                return Ok(ReplicateResult::Cancelled(id));
            }
            if self.is_kept(&id) {
                // Another node has cancelled it.
                self.requested.end(&id).await;
                return Err(Error::NoJob);
            }
        }
        self.scheduler.authorize(&id, user)?;
        match self.scheduler.remove_and_wait(&id).await {
            true => Ok(ReplicateResult::Cancelled(id)),
            false => Err(Error::NoJob),
        }
    }

    async fn begin(&self, replication: Replication, user: &User) -> Result<ReplicateResult, Error> {
        // Taken first: the id may have to be read from the source.
        let room = self.scheduler.room_for(&replication)?;
        let id = self.scheduler.id_of(&replication).await?;
        self.check_start(&id, user)?;
        let continuous = replication.continuous;
        let awaited = (self.scheduler).add(&id, Arc::new(replication), None, room);
        if continuous {
            return Ok(ReplicateResult::Continuous(id));
        }
        match awaited.outcome().await {
            Outcome::Completed(result) => Ok(ReplicateResult::Completed(result)),
            Outcome::Failed(e) => Err(e),
            Outcome::Cancelled => Ok(ReplicateResult::Stopped),
        }
    }

    /// Has the cluster keep a continuous replication: the node that is to run it starts it.
    async fn keep(
        &self,
        replication: &Replication,
        text: Arc<str>,
        user: &User,
    ) -> Result<ReplicateResult, Error> {
        let Some(kept) = self.environment.kept() else {
            return Err(Error::Stopped);
        };
        let id = {
            let _room = self.scheduler.room_for(replication)?;
            self.scheduler.id_of(replication).await?
        };
        kept.fresh().await?;
        match kept.get(&id) {
            Some(request) => request.authorize(user)?,
            None => self.check_start(&id, user)?,
        }
        kept.keep(&id, user, text).await?;
        Ok(ReplicateResult::Continuous(id))
    }

    /// Returns whether the job with this id was started for a request that the cluster keeps, or
    /// kept a moment ago.
    fn is_kept(&self, id: &str) -> bool {
        let running = self.scheduler.replication(id);
        running.is_some_and(|running| running.kept.is_some())
    }

    /// Checks that a user may start the job with this id.
    fn check_start(&self, id: &str, user: &User) -> Result<(), Error> {
        if self.scheduler.replication(id).is_some() && !self.is_kept(id) {
            self.scheduler.authorize(id, user)?;
            return self.scheduler.refuse_document(id);
        }
        if user.is_admin() {
            return Ok(());
        }
        let max = self.environment.settings().max_jobs_per_user;
        let kept = self.environment.kept();
        let kept = kept.map_or(0, |kept| kept_of(&*kept, user));
        match self.scheduler.requested_by(user) + kept >= max {
            true => Err(Error::TooManyJobs(max)),
            false => Ok(()),
        }
    }

    /// Memory of the ids and selectors, and of the batches, of all jobs, now and at most, in bytes.
    pub fn memory_bytes(&self) -> (u64, u64) {
        self.scheduler.memory_bytes()
    }

    /// Jobs as `_scheduler/jobs` lists them.
    pub fn jobs(&self) -> Vec<Value> {
        self.scheduler.jobs_json()
    }

    /// Returns a job, as in `_scheduler/jobs`.
    pub fn job(&self, id: &str) -> Option<Value> {
        self.scheduler.job_json(&id.replace(' ', "+"))
    }

    /// Returns the running jobs, as in `_active_tasks`.
    pub fn tasks(&self) -> Vec<Value> {
        self.scheduler.tasks()
    }

    /// Returns the number of jobs by state.
    pub fn job_counts(&self) -> JobCounts {
        self.scheduler.counts()
    }

    /// Returns the names of the replicator databases, in order.
    pub fn databases(&self) -> Vec<String> {
        let names = self.databases.names(&database::NameRange::default());
        let names = names.iter().filter(|name| is_replicator_db(name));
        names.map(|name| name.to_string()).collect()
    }

    /// Returns the ids of a database's replication documents, in order. Blocks: there may be many.
    ///
    /// # Errors
    /// Errors of the listing.
    pub fn doc_ids(&self, db: &str) -> Result<Vec<String>, Error> {
        let db = self.databases.get(db)?;
        let mut rows = db.rows(RowsQuery {
            listing: Listing::AllDocs,
            start: None,
            end: None,
            inclusive_end: true,
            keys: None,
            limit: None,
            skip: 0,
            descending: false,
            include_docs: false,
            conflicts: false,
            attachments: database::ShownAttachments::default(),
            update_seq: false,
        })?;
        let (mut ids, mut out, mut more) = (vec![], vec![], true);
        while more {
            out.clear();
            more = rows.next_chunk(&mut out, 64 << 10)?;
            // No row has a line break, and each has a line.
            for row in out.split(|&byte| byte == b'\n') {
                let id = member(row, "id").and_then(string_text);
                if let Some(id) = id.filter(|id| !id.starts_with("_design/")) {
                    ids.push(id.into_owned());
                }
            }
        }
        Ok(ids)
    }

    /// Returns the `_scheduler/docs` entries of a database's documents whose jobs are this server's.
    pub fn own_docs(&self, db: &str) -> Vec<Value> {
        self.docs.docs_json(db)
    }

    /// Returns the `_scheduler/docs` entry of a document whose job is this server's.
    pub fn own_doc(&self, db: &str, id: &str) -> Option<Value> {
        let (db, id) = (db.to_owned(), id.to_owned());
        self.docs.doc_json(&DocRef { db, id })
    }

    /// Returns the `_scheduler/docs` entry of a document; `None` if it does not exist.
    ///
    /// # Errors
    /// Errors of the read.
    pub fn doc(&self, db: &str, id: &str) -> Result<Option<Value>, Error> {
        let at = DocRef {
            db: db.to_owned(),
            id: id.to_owned(),
        };
        if let Some(known) = self.docs.doc_json(&at) {
            return Ok(Some(known));
        }
        let db = self.databases.get(db)?;
        let Ok(id) = DocId::new(id) else {
            return Ok(None);
        };
        let Read::Found(doc) = db.read(&id, &ReadOptions::default())? else {
            return Ok(None);
        };
        Ok(Some(finished::entry(&at, &doc.json)))
    }
}
