//! Continuous replications of requests in a cluster of two nodes, which share databases and a map of
//! requests.
use crate::support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use replicator::{
    BoxFuture, DocRef, Environment, Error, KeptRequest, KeptRequests, LocalDb, Placement,
    ReplicateResult, Replicator, RolesOf, Selection, Settings, User,
};
use serde_json::{Map, Value, json};
use support::{Surroundings, admin, leaves, options, until, write};
use tokio::sync::watch;

/// The state that the nodes share.
struct Shared {
    kept: Mutex<BTreeMap<String, KeptRequest>>,
    /// The node that runs all jobs; `None` while they move.
    owner: Mutex<Option<usize>>,
    /// Users with their roles.
    accounts: Mutex<BTreeMap<String, Vec<String>>>,
    changes: watch::Sender<u64>,
}

impl Shared {
    fn new() -> Shared {
        let account = |(name, role): (&str, &str)| (name.to_owned(), vec![role.to_owned()]);
        let accounts = [("admin", "_admin"), ("anna", "reader")].map(account);
        Shared {
            kept: Mutex::default(),
            owner: Mutex::default(),
            accounts: Mutex::new(BTreeMap::from(accounts)),
            changes: watch::Sender::new(0),
        }
    }

    fn set_owner(&self, owner: Option<usize>) {
        *self.owner.lock() = owner;
        self.notify();
    }

    fn notify(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// The shared state as a node sees it.
#[derive(Clone)]
struct View {
    shared: Arc<Shared>,
    me: usize,
}

impl Placement for View {
    fn runs(&self, _: &DocRef) -> bool {
        false
    }

    fn runs_request(&self, _: &str) -> bool {
        *self.shared.owner.lock() == Some(self.me)
    }

    fn end_time(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }
}

impl KeptRequests for View {
    fn fresh(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn all(&self) -> Vec<(String, KeptRequest)> {
        let kept = self.shared.kept.lock();
        let all = kept.iter().map(|(id, kept)| (id.clone(), kept.clone()));
        all.collect()
    }

    fn get(&self, id: &str) -> Option<KeptRequest> {
        self.shared.kept.lock().get(id).cloned()
    }

    fn keep<'a>(
        &'a self,
        id: &'a str,
        user: &'a User,
        request: Arc<str>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let name = user.name.clone();
            let kept = KeptRequest {
                user: User {
                    name,
                    roles: vec![],
                },
                roles: RolesOf::Account,
                request,
            };
            self.shared.kept.lock().insert(id.to_owned(), kept);
            self.shared.notify();
            Ok(())
        })
    }

    fn end<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let ended = self.shared.kept.lock().remove(id);
            self.shared.notify();
            Ok(ended.is_some())
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }
}

struct NodeEnvironment {
    base: Surroundings,
    view: View,
}

impl Environment for NodeEnvironment {
    fn settings(&self) -> Settings {
        Settings {
            max_jobs_per_user: 2,
            ..self.base.settings()
        }
    }

    fn uuid(&self) -> String {
        self.base.uuid()
    }

    fn is_admin(&self, name: &str) -> bool {
        self.base.is_admin(name)
    }

    fn placement(&self) -> Option<Arc<dyn Placement>> {
        Some(Arc::new(self.view.clone()))
    }

    fn kept(&self) -> Option<Arc<dyn KeptRequests>> {
        Some(Arc::new(self.view.clone()))
    }

    fn account(&self, name: &str) -> Result<Option<User>, Error> {
        let accounts = self.view.shared.accounts.lock();
        Ok(accounts.get(name).map(|roles| User {
            name: Some(name.to_owned()),
            roles: roles.clone(),
        }))
    }

    fn node(&self) -> String {
        format!("node{}@test", self.view.me)
    }

    fn open<'a>(
        &'a self,
        db: &'a str,
        user: &'a User,
        selection: Option<&'a Selection>,
    ) -> BoxFuture<'a, Result<LocalDb, Error>> {
        self.base.open(db, user, selection)
    }

    fn create<'a>(
        &'a self,
        db: &'a str,
        user: &'a User,
        params: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.base.create(db, user, params)
    }
}

struct TwoNodes {
    shared: Arc<Shared>,
    nodes: [Arc<Replicator>; 2],
    databases: Arc<database::Databases>,
    _folder: tempfile::TempDir,
}

impl TwoNodes {
    fn new() -> TwoNodes {
        let folder = tempfile::tempdir().unwrap();
        let base = Surroundings::new(folder.path());
        let shared = Arc::new(Shared::new());
        let nodes = [0, 1].map(|me| {
            let environment = NodeEnvironment {
                base: Surroundings {
                    databases: base.databases.clone(),
                    settings: base.settings.clone(),
                },
                view: View {
                    shared: shared.clone(),
                    me,
                },
            };
            let replicator = Replicator::new(base.databases.clone(), Arc::new(environment));
            replicator.start();
            replicator
        });
        TwoNodes {
            shared,
            nodes,
            databases: base.databases,
            _folder: folder,
        }
    }

    async fn replicate(
        &self,
        at: usize,
        user: &User,
        body: Value,
    ) -> Result<ReplicateResult, Error> {
        let Value::Object(body) = body else {
            panic!("an object")
        };
        self.nodes[at].replicate(body, user.clone(), ()).await
    }

    /// Starts a continuous replication, and returns its id.
    async fn start(&self, at: usize, user: &User, target: &str) -> Result<String, Error> {
        let body = json!({"source": "one", "target": target, "continuous": true});
        match self.replicate(at, user, body).await? {
            ReplicateResult::Continuous(id) => Ok(id),
            other => panic!("{other:?}"),
        }
    }

    async fn cancel(&self, at: usize, user: &User, id: &str) -> Result<ReplicateResult, Error> {
        let body = json!({"cancel": true, "id": id});
        self.replicate(at, user, body).await
    }

    fn jobs(&self) -> [usize; 2] {
        [0, 1].map(|at| self.nodes[at].job_counts().total())
    }
}

fn anna() -> User {
    User {
        name: Some("anna".into()),
        roles: vec!["reader".into()],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_continuous_replication_moves_until_any_node_cancels_it() {
    let cluster = TwoNodes::new();
    let one = cluster.databases.create("one", options()).await.unwrap();
    let two = cluster.databases.create("two", options()).await.unwrap();
    cluster.shared.set_owner(Some(0));
    let id = cluster.start(1, &anna(), "two").await.unwrap();
    until("it runs", || cluster.nodes[0].job_counts().running == 1).await;
    assert_eq!(cluster.jobs(), [1, 0]);
    let shown = cluster.nodes[0].job(&id).unwrap();
    assert_eq!(
        (&shown["user"], &shown["doc_id"]),
        (&json!("anna"), &Value::Null)
    );
    write(&one, &[r#"{"_id":"first"}"#]).await;
    until("it copies", || leaves(&two).len() == 1).await;
    // The same request again, at another node, changes nothing.
    let again = cluster.start(0, &anna(), "two").await.unwrap();
    assert_eq!((again, cluster.jobs()), (id.clone(), [1, 0]));
    let events = cluster.nodes[0].job(&id).unwrap()["history"].clone();
    assert_eq!(events, shown["history"], "it was not restarted");
    cluster.shared.set_owner(None);
    until("it ends", || cluster.jobs() == [0, 0]).await;
    cluster.shared.set_owner(Some(1));
    until("it runs elsewhere", || {
        cluster.nodes[1].job_counts().running == 1
    })
    .await;
    write(&one, &[r#"{"_id":"second"}"#]).await;
    until("it copies on", || leaves(&two).len() == 2).await;
    assert_eq!(cluster.jobs(), [0, 1]);
    let mut other = anna();
    other.name = Some("bert".into());
    let refused = cluster.cancel(0, &other, &id).await;
    assert!(matches!(refused, Err(Error::NotAdmin)));
    let refused = cluster.start(0, &other, "two").await;
    assert!(matches!(refused, Err(Error::NotAdmin)));
    let cancelled = cluster.cancel(0, &anna(), &id).await.unwrap();
    assert!(matches!(cancelled, ReplicateResult::Cancelled(of) if of == id));
    until("it has ended", || cluster.jobs() == [0, 0]).await;
    let missing = cluster.cancel(0, &admin(), &id).await;
    assert!(matches!(missing, Err(Error::NoJob)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_has_the_rights_that_its_user_has_when_it_starts() {
    let cluster = TwoNodes::new();
    cluster.databases.create("one", options()).await.unwrap();
    cluster.databases.create("two", options()).await.unwrap();
    let id = cluster.start(0, &anna(), "two").await.unwrap();
    cluster.shared.accounts.lock().remove("anna");
    cluster.shared.set_owner(Some(1));
    // It is retried until it is cancelled.
    until("it fails", || cluster.nodes[1].job_counts().crashing == 1).await;
    let reason = cluster.nodes[1].job(&id).unwrap()["info"]["error"].clone();
    let reason = reason.as_str().unwrap();
    assert!(reason.contains("the user anna does not exist"), "{reason}");
    assert_eq!(cluster.shared.kept.lock().len(), 1);
    cluster.cancel(1, &admin(), &id).await.unwrap();
    assert_eq!(cluster.jobs(), [0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_of_a_user_are_counted_over_all_nodes() {
    let cluster = TwoNodes::new();
    cluster.databases.create("one", options()).await.unwrap();
    let first = cluster.start(0, &anna(), "a").await.unwrap();
    cluster.start(1, &anna(), "b").await.unwrap();
    for at in [0, 1] {
        let refused = cluster.start(at, &anna(), "c").await;
        assert!(matches!(refused, Err(Error::TooManyJobs(2))));
    }
    // One that is kept is no new one, and admins are not limited.
    cluster.start(1, &anna(), "a").await.unwrap();
    cluster.start(1, &admin(), "c").await.unwrap();
    cluster.cancel(1, &anna(), &first).await.unwrap();
    cluster.start(0, &anna(), "d").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_one_off_replication_is_not_kept() {
    let cluster = TwoNodes::new();
    cluster.databases.create("one", options()).await.unwrap();
    cluster.databases.create("two", options()).await.unwrap();
    let body = json!({"source": "one", "target": "two"});
    let done = cluster.replicate(1, &anna(), body).await.unwrap();
    assert!(matches!(done, ReplicateResult::Completed(_)));
    assert!(cluster.shared.kept.lock().is_empty());
}
