//! A server without HTTP: databases in a temporary folder, and a replicator over them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use database::{
    Caller, ChangesQuery, CreateOptions, Database, Databases, Durability, EditMode, Filter,
    Framing, Options, Since, StoreOptions, Style,
};
use document::{DocId, EditDoc, parse_document};
use replicator::{
    BoxFuture, Environment, Error, LocalDb, ReplicateResult, Replicator, Selection, Settings, User,
};
use serde_json::{Map, Value};

pub struct Node {
    pub databases: Arc<Databases>,
    pub replicator: Arc<Replicator>,
    _folder: tempfile::TempDir,
}

pub struct Surroundings {
    pub databases: Arc<Databases>,
    pub settings: Settings,
}

impl Surroundings {
    /// Opens the databases of a folder.
    pub fn new(folder: &Path) -> Surroundings {
        let store = StoreOptions {
            block_cache_bytes: 8 << 20,
            ..StoreOptions::default()
        };
        let open = Options {
            store,
            ..Options::default()
        };
        Surroundings {
            databases: Databases::open(folder, open).unwrap(),
            settings: Settings {
                startup_jitter: Duration::ZERO,
                checkpoint_interval: Duration::from_millis(50),
                filter_check_min: Duration::ZERO,
                ..Settings::default()
            },
        }
    }
}

impl Environment for Surroundings {
    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn uuid(&self) -> String {
        "0".repeat(32)
    }

    fn is_admin(&self, name: &str) -> bool {
        name == "admin"
    }

    fn node(&self) -> String {
        "node@test".to_owned()
    }

    fn open<'a>(
        &'a self,
        db: &'a str,
        user: &'a User,
        _: Option<&'a Selection>,
    ) -> BoxFuture<'a, Result<LocalDb, Error>> {
        Box::pin(async move {
            let caller = Caller {
                name: user.name.clone(),
                roles: user.roles.clone(),
                ..Caller::default()
            };
            let found = self
                .databases
                .get(db)
                .map_err(|_| Error::NoDatabase(db.to_owned()))?;
            Ok(LocalDb {
                db: found.seen_by(|| caller.clone()),
                caller,
                is_admin: user.is_admin(),
                filter: None,
                check: Arc::new(|doc| match doc.body.len() > 10_000 {
                    true => Err(("document_too_large".into(), "too large".into())),
                    false => Ok(()),
                }),
                attachment_bytes_max: 1 << 30,
                attachments_max: 10_000,
                shared: None,
            })
        })
    }

    fn create<'a>(
        &'a self,
        db: &'a str,
        _: &'a User,
        _: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            if self.databases.get(db).is_err() {
                self.databases.create(db, options()).await?;
            }
            Ok(())
        })
    }
}

pub fn options() -> CreateOptions {
    CreateOptions {
        q: Some(2),
        ..CreateOptions::default()
    }
}

impl Node {
    pub fn new() -> Node {
        let folder = tempfile::tempdir().unwrap();
        let environment = Surroundings::new(folder.path());
        let databases = environment.databases.clone();
        let replicator = Replicator::new(databases.clone(), Arc::new(environment));
        replicator.start();
        Node {
            databases,
            replicator,
            _folder: folder,
        }
    }

    pub async fn create(&self, name: &str) -> Arc<Database> {
        self.databases.create(name, options()).await.unwrap()
    }

    pub async fn replicate(&self, body: Value) -> Result<ReplicateResult, Error> {
        let Value::Object(body) = body else {
            panic!("an object")
        };
        self.replicator.replicate(body, admin(), ()).await
    }

    /// Runs a one-off replication to its end; returns its response.
    pub async fn completed(&self, body: Value) -> Value {
        match self.replicate(body).await.unwrap() {
            ReplicateResult::Completed(answer) => Value::Object(answer),
            other => panic!("{other:?}"),
        }
    }
}

pub fn admin() -> User {
    User {
        name: Some("admin".into()),
        roles: vec!["_admin".into()],
    }
}

pub async fn write(db: &Arc<Database>, docs: &[&str]) {
    let edits: Vec<EditDoc> = docs
        .iter()
        .map(|d| parse_document(d.as_bytes()).unwrap())
        .collect();
    let mode = match edits
        .iter()
        .any(|e| e.rev.is_some() || e.revisions.is_some())
    {
        true => EditMode::Replicated,
        false => EditMode::Interactive,
    };
    db.update(edits, mode, Durability::Synced).await.unwrap();
}

/// Returns all leaves, with ancestors.
pub fn leaves(db: &Arc<Database>) -> BTreeMap<String, Vec<EditDoc>> {
    let query = ChangesQuery {
        since: Since::Start,
        descending: false,
        limit: None,
        style: Style::AllDocs,
        include_docs: false,
        conflicts: false,
        attachments: database::ShownAttachments::default(),
        filter: Filter::None,
        seq_interval: None,
    };
    let mut changes = db.changes(query).unwrap();
    let mut out = vec![];
    while changes
        .next_chunk(Framing::Lines, &mut out, 1 << 20)
        .unwrap()
    {}
    let mut all = BTreeMap::new();
    for line in out.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        let row: Value = serde_json::from_slice(line).unwrap();
        let id = row["id"].as_str().unwrap();
        let revs: Vec<_> = row["changes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| document::Rev::parse(c["rev"].as_str().unwrap()).unwrap())
            .collect();
        let edits = db.replicas(&DocId::new(id).unwrap(), &revs).unwrap();
        assert_eq!(edits.len(), revs.len(), "{id}");
        all.insert(id.to_owned(), edits);
    }
    all
}

/// Waits until the condition holds.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert!(waited.is_ok(), "{what}");
}
