//! This server as the replicator sees it: settings, databases by their names, filters.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use auth::UserCtx;
use config::settings::Replicator;
use database::{CreateOptions, Filter};
use document::EditDoc;
use http::HeaderMap;
use member::{Jobs, KeepError, KeptReplication, Member};
use replicator::{
    AllowedAddresses, BoxFuture, ConnectTo, DocRef, Environment, Error, KeptRequest, KeptRequests,
    LocalDb, Placement, RolesOf, Selection, Settings, Settle, SharedReads, User,
};
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::access::{Access, caller};
use crate::descriptors::DescriptorPlan;
use crate::documents::check_document;
use crate::filters::{NamedFilter, selector_filter};
use crate::internal::open_for_replication;
use crate::node::Node;
use crate::query::{Query, encode_into};
use crate::request_object::{RequestPart, request_json};
use crate::settings::new_database;

/// The server behind a replicator.
pub struct Surroundings(pub Weak<Node>);

impl Surroundings {
    fn alive(&self) -> Result<Arc<Node>, Error> {
        self.0.upgrade().ok_or(Error::Stopped)
    }

    fn open_known(
        &self,
        node: &Arc<Node>,
        db: &str,
        user: &User,
        selection: Option<&Selection>,
    ) -> Result<LocalDb, Error> {
        let found = node.databases.get(db);
        let found = found.map_err(|_| Error::NoDatabase(db.to_owned()))?;
        let context = context(user);
        let access = open_for_replication(&node.auth, found, &context).map_err(|e| told(e, db))?;
        let filter = selection.map(|s| filter(node, &access, &context, s));
        let filter = filter.transpose().map_err(|e| {
            let reason = for_users(&e);
            Error::FilterFetch(format!("Couldn't open the filter on `{db}`: {reason}"))
        })?;
        let check = {
            let node = self.0.clone();
            let db = access.db.clone();
            move |doc: &EditDoc| -> Result<(), (String, String)> {
                let Some(node) = node.upgrade() else {
                    return Ok(());
                };
                let no = |e: crate::Error| (e.of_document().to_owned(), e.to_string());
                check_document(doc, &node.settings().couchdb).map_err(no)?;
                match &doc.id {
                    Some(id) => db.check_id(id).map_err(|e| no(e.into())),
                    None => Ok(()),
                }
            }
        };
        let shared = node.member().map(|_| {
            let db = access.db.name().to_string();
            Arc::new(MemberReads {
                node: self.0.clone(),
                db,
            }) as Arc<dyn SharedReads>
        });
        Ok(LocalDb {
            caller: caller(&context),
            is_admin: access.is_admin,
            db: access.db,
            filter: filter.flatten(),
            check: Arc::new(check),
            attachment_bytes_max: node.settings().couchdb.max_attachment_size,
            attachments_max: node.settings().couchdb.max_attachments_per_document,
            shared,
        })
    }
}

fn context(user: &User) -> UserCtx {
    UserCtx {
        name: user.name.clone(),
        roles: user.roles.clone(),
    }
}

/// Why a database of this server cannot be replicated with.
fn told(e: crate::Error, db: &str) -> Error {
    use crate::Error as E;
    match e {
        E::AnonymousNoMember | E::NoServerAdmin => Error::Unauthorized(db.to_owned()),
        E::NoMember => Error::NoAccess(db.to_owned()),
        E::Database(database::Error::NoDatabase) => Error::NoDatabase(db.to_owned()),
        E::Database(e) => e.into(),
        e => Error::Request(e.to_string()),
    }
}

/// Returns the text of an error for users. The cause of a failure of the storage names files of the server.
fn for_users(e: &crate::Error) -> String {
    match e {
        crate::Error::Database(database::Error::Storage(_) | database::Error::Internal(_)) => {
            tracing::error!(error = %e, "a local database failed in a replication");
            "The storage failed. The log of the server has the cause.".to_owned()
        }
        e => e.to_string(),
    }
}

/// The jobs of a node of a cluster.
struct MemberJobs(Arc<Jobs>);

impl Placement for MemberJobs {
    fn runs(&self, doc: &DocRef) -> bool {
        self.0.runs(&format!("{}/{}", doc.db, doc.id))
    }

    fn runs_request(&self, id: &str) -> bool {
        // The name of no replicator database.
        self.0.runs(&format!("_replicate/{id}"))
    }

    fn end_time(&self) -> Duration {
        self.0.end_time()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes()
    }
}

/// The continuous replications of `_replicate` of a cluster.
struct MemberRequests {
    node: Weak<Node>,
    member: Arc<Member>,
}

impl MemberRequests {
    /// Returns a request as the cluster keeps it.
    fn kept(&self, user: &User, request: Arc<str>) -> Result<KeptReplication, Error> {
        let node = self.node.upgrade().ok_or(Error::Stopped)?;
        let account = match &user.name {
            Some(name) => account(&node, name)?,
            None => None,
        };
        let is_admin = user.is_admin();
        Ok(KeptReplication {
            user: user.name.clone(),
            is_admin,
            roles: kept_roles(user, account.as_ref()),
            request,
        })
    }
}

/// Returns the roles to keep with a request; `None` for those that the account of this name has whenever
/// the job starts, as they may be taken away. Those of the request are kept if they lack one of the
/// account's: a token or a proxy may give a client the name of a user, or of a server admin, without the
/// roles.
fn kept_roles(user: &User, account: Option<&User>) -> Option<Vec<String>> {
    let has = |role: &String| user.roles.contains(role);
    let has_all = account.is_some_and(|account| account.roles.iter().all(has));
    (!has_all).then(|| user.roles.clone())
}

fn to_request(kept: KeptReplication) -> KeptRequest {
    KeptRequest {
        roles: match kept.roles {
            Some(_) => RolesOf::Request,
            None => RolesOf::Account,
        },
        user: User {
            name: kept.user,
            roles: kept.roles.unwrap_or_default(),
        },
        request: kept.request,
    }
}

impl KeptRequests for MemberRequests {
    fn fresh(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let fresh = self.member.requested().fresh().await;
            fresh.map_err(unavailable)
        })
    }

    fn all(&self) -> Vec<(String, KeptRequest)> {
        let all = self.member.requested().all().into_iter();
        all.map(|(id, kept)| (id, to_request(kept))).collect()
    }

    fn get(&self, id: &str) -> Option<KeptRequest> {
        self.member.requested().get(id).map(to_request)
    }

    fn keep<'a>(
        &'a self,
        id: &'a str,
        user: &'a User,
        request: Arc<str>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let kept = self.kept(user, request)?;
            let done = self.member.requested().keep(id, kept).await;
            done.map_err(|e| match e {
                KeepError::Taken => Error::NotAdmin,
                KeepError::TooLong(max) => Error::TooLong(max),
                KeepError::NoRoom => database::Error::Unavailable(e.to_string()).into(),
                KeepError::Cluster(e) => unavailable(e),
            })
        })
    }

    fn end<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let ended = self.member.requested().end(id).await;
            ended.map_err(unavailable)
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.member.requested().changes()
    }
}

/// Returns the user of this name with the current roles.
fn account(node: &Node, name: &str) -> Result<Option<User>, Error> {
    let user = node.auth.current_user(name);
    let user = user.map_err(|e| database::Error::Unavailable(e.to_string()))?;
    Ok(user.map(|user| User {
        name: user.name.clone(),
        roles: user.roles.clone(),
    }))
}

/// The reads of a database of a cluster.
struct MemberReads {
    node: Weak<Node>,
    db: String,
}

impl SharedReads for MemberReads {
    fn current(&self) -> BoxFuture<'_, Result<Settle, Error>> {
        Box::pin(async move {
            let (gateway, slots) = {
                let node = self.node.upgrade().ok_or(Error::Stopped)?;
                let gateway = node.member().ok_or(Error::Stopped)?.gateway().clone();
                let db = node.databases.get(&self.db);
                let db = db.map_err(|_| Error::NoDatabase(self.db.clone()))?;
                let slots = gateway.slots(&db);
                (gateway, slots)
            };
            let seen = gateway.fresh_slots(slots).await;
            let seen = Arc::new(seen.map_err(unavailable)?);
            Ok(Box::new(move || {
                let (gateway, seen) = (gateway.clone(), seen.clone());
                Box::pin(async move { gateway.settle(&seen).await.map_err(unavailable) })
                    as BoxFuture<'static, _>
            }) as Settle)
        })
    }
}

fn unavailable(e: member::Error) -> Error {
    database::Error::Unavailable(e.to_string()).into()
}

impl Environment for Surroundings {
    fn settings(&self) -> Settings {
        let node = self.0.upgrade();
        node.map_or_else(Settings::default, |node| {
            let current = node.settings();
            let selection_bytes_max = node.memory.replications as u64;
            let descriptors = DescriptorPlan::new(node.member().is_some());
            Settings {
                selection_bytes_max,
                row_bytes_max: replicator::row_bytes_max(
                    selection_bytes_max,
                    current.couchdb.max_document_size,
                ),
                ..settings(&current.replicator, &descriptors)
            }
        })
    }

    fn uuid(&self) -> String {
        let Some(node) = self.0.upgrade() else {
            return String::new();
        };
        // The replication that another node continues has the same id.
        match node.member() {
            Some(member) => member.cluster_id().to_owned(),
            None => node.uuid.clone(),
        }
    }

    fn is_admin(&self, name: &str) -> bool {
        self.0
            .upgrade()
            .is_some_and(|node| node.auth.is_admin(name))
    }

    fn listening(&self) -> Vec<SocketAddr> {
        let node = self.0.upgrade();
        node.map(|node| node.listening()).unwrap_or_default()
    }

    fn token(&self, owner: &str) -> Option<String> {
        Some(self.0.upgrade()?.auth.token_of_replication(owner))
    }

    fn placement(&self) -> Option<Arc<dyn Placement>> {
        let node = self.0.upgrade()?;
        Some(Arc::new(MemberJobs(node.member()?.jobs().clone())))
    }

    fn kept(&self) -> Option<Arc<dyn KeptRequests>> {
        let node = self.0.upgrade()?;
        Some(Arc::new(MemberRequests {
            member: node.member()?.clone(),
            node: self.0.clone(),
        }))
    }

    fn account(&self, name: &str) -> Result<Option<User>, Error> {
        let node = self.alive()?;
        account(&node, name)
    }

    fn node(&self) -> String {
        let node = self.0.upgrade();
        node.map(|node| node.name.clone()).unwrap_or_default()
    }

    fn open<'a>(
        &'a self,
        db: &'a str,
        user: &'a User,
        selection: Option<&'a Selection>,
    ) -> BoxFuture<'a, Result<LocalDb, Error>> {
        Box::pin(async move {
            let node = self.alive()?;
            if let (Some(member), false) = (node.member(), node.databases.exists(db)) {
                // Another node may have created it.
                let fresh = member.gateway().fresh_control().await;
                fresh.map_err(unavailable)?;
            }
            self.open_known(&node, db, user, selection)
        })
    }

    fn create<'a>(
        &'a self,
        db: &'a str,
        user: &'a User,
        params: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let node = self.alive()?;
            if node.databases.get(db).is_ok() {
                return Ok(());
            }
            if !user.is_admin() {
                return Err(Error::Unauthorized(db.to_owned()));
            }
            let options = create_options(&node, params)?;
            match node.databases.create(db, options).await {
                Ok(_) | Err(database::Error::DatabaseExists) => Ok(()),
                Err(e) => Err(e.into()),
            }
        })
    }
}

fn create_options(node: &Node, params: &Map<String, Value>) -> Result<CreateOptions, Error> {
    let text = |name: &str| match params.get(name) {
        Some(Value::String(text)) => Some(text.clone()),
        other => other.map(Value::to_string),
    };
    let bad =
        |name: &str| Error::BadRequest(format!("`{name}` in create_target_params is not valid"));
    let q = text("q")
        .map(|q| q.parse::<u32>().map_err(|_| bad("q")))
        .transpose()?;
    let flag = |name: &str| match text(name).as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(bad(name)),
    };
    let (partitioned, spread) = (flag("partitioned")?, flag("spread")?);
    Ok(CreateOptions {
        spread,
        ..new_database(&node.settings(), q, partitioned)
    })
}

/// The filter that a feed over HTTP with these parameters would have; `None` for filters that the
/// replicator applies.
fn filter(
    node: &Node,
    access: &Access,
    user: &UserCtx,
    selection: &Selection,
) -> Result<Option<Filter>, crate::Error> {
    match selection {
        Selection::All | Selection::Ids(_) => Ok(None),
        Selection::Selector(selector) => {
            let selector = mango::Selector::parse(&Value::Object((**selector).clone()));
            selector_filter(selector, None).map(Some)
        }
        Selection::Filter { name, params } => {
            let mut raw_query = String::from("filter=");
            encode_into(name, &mut raw_query);
            for (name, value) in params {
                let text = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                raw_query.push('&');
                encode_into(name, &mut raw_query);
                raw_query.push('=');
                encode_into(&text, &mut raw_query);
            }
            let query = Query::parse(Some(&raw_query));
            let (path, headers) = (format!("/{}/_changes", access.db.name()), HeaderMap::new());
            let segments = [access.db.name().as_bytes().to_vec(), b"_changes".to_vec()];
            let part = RequestPart {
                method: "GET",
                path: &path,
                raw_query: Some(&raw_query),
                requested_path: None,
                segments: &segments,
                query: &query,
                headers: &headers,
                credentials: &[],
                client_address: None,
                user,
                body: None,
            };
            let request = || request_json(node, &part, access, None);
            match NamedFilter::parse(&query, name)? {
                NamedFilter::Design => Ok(Some(Filter::Design)),
                NamedFilter::Function(function) => {
                    let ddoc = access.db.design_doc_here(&function.design)?;
                    function.open(access, ddoc, request).map(Some)
                }
            }
        }
    }
}

fn settings(section: &Replicator, descriptors: &DescriptorPlan) -> Settings {
    let (allowed_addresses, unknown) = AllowedAddresses::parse(&section.allowed_addresses);
    for word in unknown {
        // Read again and again.
        tracing::debug!("[replicator] allowed_addresses: {word} is not a network");
    }
    let (connect_to, invalid) = ConnectTo::parse(section.connect_to.as_deref().unwrap_or_default());
    for entry in invalid {
        tracing::debug!(
            "[replicator] connect_to: {entry} is not host:port:target_host:target_port"
        );
    }
    // Both ends of all jobs of a user, within what there is for replications; for few jobs what is configured, as long as one job
    // leaves others of the user some.
    let users = section.max_jobs_per_user.max(1);
    let connections_max = (descriptors.outgoing / 2 / users)
        .max(section.http_connections)
        .min(descriptors.outgoing / 8)
        .max(2);
    Settings {
        max_jobs: section.max_jobs.min(descriptors.jobs()),
        max_jobs_per_user: section.max_jobs_per_user,
        max_churn: section.max_churn,
        selection_bytes_max: Settings::default().selection_bytes_max,
        row_bytes_max: Settings::default().row_bytes_max,
        max_history: section.max_history,
        interval: section.interval,
        startup_jitter: section.startup_jitter,
        health_threshold: section.health_threshold,
        update_docs: section.update_docs,
        worker_processes: section.worker_processes.max(1),
        worker_batch_size: section.worker_batch_size.max(1),
        http_connections: section.http_connections.clamp(2, connections_max),
        http_connections_max: connections_max,
        sockets_max: descriptors.outgoing,
        connection_timeout: section.connection_timeout.max(Duration::from_millis(1)),
        retries_per_request: section.retries_per_request.min(10_000) as u32,
        use_checkpoints: section.use_checkpoints,
        use_bulk_get: section.use_bulk_get,
        checkpoint_interval: section.checkpoint_interval,
        auth_session: section
            .auth_plugins
            .iter()
            .any(|plugin| plugin == "couch_replicator_auth_session"),
        verify_ssl_certificates: section.verify_ssl_certificates,
        ssl_trusted_certificates_file: section.ssl_trusted_certificates_file.clone(),
        cert_file: section.cert_file.clone(),
        key_file: section.key_file.clone(),
        allowed_addresses,
        connect_to,
        valid_endpoint_protocols: section.valid_endpoint_protocols.clone(),
        valid_proxy_protocols: section.valid_proxy_protocols.clone(),
        ..Settings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(roles: &[&str]) -> User {
        User {
            name: Some("anna".into()),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        }
    }

    #[test]
    fn a_kept_replication_has_no_roles_that_its_request_had_not() {
        let kept = |request: &[&str], account: Option<&[&str]>| {
            let account = account.map(user);
            kept_roles(&user(request), account.as_ref())
        };
        let roles_of_the_account: [(&[&str], &[&str]); 4] = [
            (&[], &[]),
            (&["reader"], &["reader"]),
            (&["_admin"], &["_admin"]),
            // One that was taken away since.
            (&["reader", "writer"], &["reader"]),
        ];
        for (request, account) in roles_of_the_account {
            assert_eq!(kept(request, Some(account)), None, "{request:?}");
        }
        // Those of tokens, for a name that an account may have too.
        let roles_of_the_request: [(&[&str], Option<&[&str]>); 4] = [
            (&["reader"], None),
            (&[], Some(&["_admin"])),
            (&["reader"], Some(&["reader", "_admin"])),
            (&["writer"], Some(&["reader"])),
        ];
        for (request, account) in roles_of_the_request {
            assert_eq!(
                kept(request, account),
                Some(user(request).roles),
                "{account:?}"
            );
        }
    }

    #[test]
    fn defaults_are_those_of_the_replicator() {
        let configured = config::Settings::default().replicator;
        let expected = Settings {
            http_connections_max: 40,
            sockets_max: 8192,
            ..Settings::default()
        };
        let plan = DescriptorPlan::of(65_536, false);
        assert_eq!(settings(&configured, &plan), expected);
        let few = settings(&configured, &DescriptorPlan::of(1024, false));
        assert_eq!((few.max_jobs, few.http_connections_max), (32, 16));
        assert_eq!((few.http_connections, few.sockets_max), (16, 128));
        let many = config::settings::Replicator {
            http_connections: 9000,
            ..configured
        };
        let few = settings(&many, &DescriptorPlan::of(1024, false));
        assert_eq!((few.http_connections, few.http_connections_max), (16, 16));
    }
}
