//! Parses a replication document, or the body of `_replicate`.

use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use crate::db::peer_values::check_seq;
use crate::endpoint::{self, Endpoint};
use crate::error::Error;
use crate::settings::Settings;

/// The user who requested the replication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// `None` for an anonymous user.
    pub name: Option<String>,
    /// Contains `_admin` for a server admin.
    pub roles: Vec<String>,
}

impl User {
    /// Returns whether this is a server admin.
    pub fn is_admin(&self) -> bool {
        self.roles.iter().any(|role| role == "_admin")
    }
}

/// Whose roles a kept replication has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolesOf {
    /// Those of the user's account, looked up whenever the job starts.
    Account,
    /// Those of the request: the user has no account.
    Request,
}

/// A replication document.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DocRef {
    /// Name of the `_replicator` database.
    pub db: String,
    /// Id of the document.
    pub id: String,
}

/// The documents to copy.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// All of them.
    All,
    /// Sorted, without duplicates.
    Ids(Arc<[String]>),
    /// A filter of the source: `design/name`, or a built-in one beginning with an underscore.
    Filter {
        /// Name of the filter.
        name: String,
        /// `query_params`: further parameters of the feed's query.
        params: Map<String, Value>,
    },
    /// Documents that match a Mango selector.
    Selector(Arc<Map<String, Value>>),
}

/// A replication: source, target and options.
#[derive(Clone, Debug, PartialEq)]
pub struct Replication {
    /// The source.
    pub source: Endpoint,
    /// The target.
    pub target: Endpoint,
    /// The user who requested it.
    pub user: User,
    /// The owner of the document: the replication runs with that user's rights.
    pub owner: Option<String>,
    /// `None` for a replication started by `_replicate`.
    pub doc: Option<DocRef>,
    /// Whose roles it has if a cluster keeps it until it is cancelled; `None` if it ends with its
    /// node, or belongs to a document.
    pub kept: Option<RolesOf>,
    /// Whether it waits for further changes after all are copied.
    pub continuous: bool,
    /// Whether a missing target is created.
    pub create_target: bool,
    /// Parameters of its creation: `q`, `partitioned`.
    pub create_target_params: Map<String, Value>,
    /// Whether conflicts are left out.
    pub winning_revs_only: bool,
    /// The documents to copy.
    pub selection: Selection,
    /// About how much memory the compiled selector takes, in bytes; 0 without one.
    pub selector_bytes: usize,
    /// The seq to start after, instead of the last checkpoint.
    pub since_seq: Option<Value>,
    /// Whether checkpoints are recorded on both sides.
    pub use_checkpoints: bool,
    /// Whether revisions are read in bulk.
    pub use_bulk_get: bool,
    /// Minimum time between two checkpoints.
    pub checkpoint_interval: Duration,
    /// Maximum number of changes in a batch.
    pub worker_batch_size: usize,
    /// Number of batches in flight.
    pub worker_processes: usize,
    /// Maximum number of connections to a database behind HTTP.
    pub http_connections: usize,
    /// Time limit of a response.
    pub connection_timeout: Duration,
    /// Number of retries of a failed request.
    pub retries_per_request: u32,
}

/// A part of the ids of continuous jobs.
pub const CONTINUOUS: &str = "+continuous";

/// A request of `_replicate`.
#[derive(Debug)]
pub enum Request {
    /// Starts the replication, unless it already runs.
    Start(Box<Replication>),
    /// Stops the job that the same request started.
    Cancel(Box<Replication>),
    /// Stops the job with this id.
    CancelId(String),
}

/// Upper limit of the numbers of workers, connections and changes in a document: greater numbers
/// count as this.
const COUNT_MAX: u64 = 10_000;
/// Maximum number of workers of a replication, unless the setting is higher: each has a batch.
const WORKERS_MAX: usize = 32;

impl Request {
    /// Parses the body of `_replicate`.
    ///
    /// # Errors
    /// [`Error::BadRequest`] and those of endpoints.
    pub fn parse(
        body: &Map<String, Value>,
        user: User,
        settings: &Settings,
    ) -> Result<Request, Error> {
        let cancel = boolean(body, "cancel")?.unwrap_or(false);
        if cancel {
            let id = ["_local_id", "replication_id", "id"];
            if let Some(id) = id
                .iter()
                .find_map(|name| body.get(*name))
                .and_then(Value::as_str)
            {
                // A plus sign in a URL's query may have been decoded as a space.
                return Ok(Request::CancelId(id.replace(' ', "+")));
            }
        }
        let replication = Box::new(Replication::parse(body, user, None, settings)?);
        Ok(match cancel {
            true => Request::Cancel(replication),
            false => Request::Start(replication),
        })
    }
}

impl Replication {
    /// Parses a replication's members; unknown ones are ignored.
    ///
    /// # Errors
    /// [`Error::BadRequest`] and those of endpoints. Names of local databases are refused in
    /// documents, as in CouchDB.
    pub fn parse(
        body: &Map<String, Value>,
        user: User,
        doc: Option<DocRef>,
        settings: &Settings,
    ) -> Result<Replication, Error> {
        let (source_proxy, target_proxy) = proxies(body)?;
        let (selection, selector_bytes) = selection(body)?;
        let create_target_params = object(body, "create_target_params", "a JSON object")?;
        let ms = |name, default| -> Result<Duration, Error> {
            Ok(number(body, name)?.map_or(default, Duration::from_millis))
        };
        let count = |name, default| -> Result<usize, Error> {
            Ok(number(body, name)?.map_or(default, |n| n.clamp(1, COUNT_MAX) as usize))
        };
        let replication = Replication {
            source: Endpoint::parse(body.get("source"), source_proxy, settings)?,
            target: Endpoint::parse(body.get("target"), target_proxy, settings)?,
            user,
            owner: match doc {
                Some(_) => body.get("owner").and_then(Value::as_str).map(str::to_owned),
                None => None,
            },
            continuous: boolean(body, "continuous")?.unwrap_or(false),
            create_target: boolean(body, "create_target")?.unwrap_or(false),
            create_target_params: create_target_params.unwrap_or_default(),
            winning_revs_only: boolean(body, "winning_revs_only")?.unwrap_or(false),
            selection,
            selector_bytes,
            since_seq: since_seq(body)?,
            use_checkpoints: boolean(body, "use_checkpoints")?.unwrap_or(settings.use_checkpoints),
            use_bulk_get: boolean(body, "use_bulk_get")?.unwrap_or(settings.use_bulk_get),
            checkpoint_interval: ms("checkpoint_interval", settings.checkpoint_interval)?,
            worker_batch_size: count("worker_batch_size", settings.worker_batch_size)?,
            worker_processes: count("worker_processes", settings.worker_processes)?
                .min(settings.worker_processes.max(WORKERS_MAX)),
            http_connections: count("http_connections", settings.http_connections)?
                .min(settings.http_connections_max),
            connection_timeout: ms("connection_timeout", settings.connection_timeout)?
                .max(Duration::from_millis(1)),
            retries_per_request: number(body, "retries_per_request")?
                .map_or(settings.retries_per_request, |n| n.min(COUNT_MAX) as u32),
            doc,
            kept: None,
        };
        if replication.doc.is_some() {
            require_remote(&replication.source, body.get("source"))?;
            require_remote(&replication.target, body.get("target"))?;
        }
        Ok(replication)
    }

    /// Returns the user whose rights it has: who requested it, or the owner of its document.
    pub fn owner(&self) -> Option<&str> {
        match &self.doc {
            None => self.user.name.as_deref(),
            Some(_) => self.owner.as_deref(),
        }
    }

    /// Returns whether the user's roles are known: those of the request.
    pub fn has_roles(&self) -> bool {
        self.doc.is_none() && self.kept != Some(RolesOf::Account)
    }

    /// Returns the suffix of the job's id.
    pub fn id_suffix(&self) -> String {
        let mut suffix = String::new();
        if self.continuous {
            suffix.push_str(CONTINUOUS);
        }
        if self.create_target {
            suffix.push_str("+create_target");
        }
        suffix
    }
}

/// Refuses a local database, in CouchDB's words for its spelling.
fn require_remote(endpoint: &Endpoint, given: Option<&Value>) -> Result<(), Error> {
    match (endpoint, given) {
        (Endpoint::Remote(_), _) => Ok(()),
        (Endpoint::Local(_), Some(Value::Object(_))) => Err(endpoint::invalid("endpoint")),
        (Endpoint::Local(_), _) => Err(Error::LocalEndpoint),
    }
}

fn proxies(body: &Map<String, Value>) -> Result<(Option<&str>, Option<&str>), Error> {
    let text = |name| {
        body.get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    let (both, source, target) = (text("proxy"), text("source_proxy"), text("target_proxy"));
    for (name, given) in [("source_proxy", source), ("target_proxy", target)] {
        if both.is_some() && given.is_some() {
            return Err(Error::BadRequest(format!(
                "`proxy` is mutually exclusive with `{name}`"
            )));
        }
    }
    Ok((both.or(source), both.or(target)))
}

/// Parses the selection of documents; also returns the memory of its selector, in bytes.
fn selection(body: &Map<String, Value>) -> Result<(Selection, usize), Error> {
    let ids = match body.get("doc_ids") {
        None | Some(Value::Null) => None,
        Some(Value::Array(ids)) => Some(parse_ids(ids)?),
        Some(_) => return Err(bad("doc_ids", "an array")),
    };
    let selector = object(body, "selector", "a JSON object")?;
    let params = object(body, "query_params", "an object")?.unwrap_or_default();
    let filter = match body.get("filter") {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) => Some(name.clone()),
        Some(_) => return Err(bad("filter", "a string")),
    };
    let given = [ids.is_some(), selector.is_some(), filter.is_some()];
    if given.iter().filter(|given| **given).count() > 1 {
        return Err(Error::BadRequest(
            "`doc_ids`,`filter`,`selector` are mutually exclusive".into(),
        ));
    }
    if let Some(ids) = ids {
        return Ok((Selection::Ids(ids.into()), 0));
    }
    if let Some(selector) = selector {
        let value = Value::Object(selector);
        let parsed = mango::Selector::parse(&value);
        let parsed = parsed.map_err(|e| Error::BadRequest(e.to_string()))?;
        return match value {
            Value::Object(selector) => {
                Ok((Selection::Selector(selector.into()), parsed.memory_bytes()))
            }
            _ => Ok((Selection::All, 0)),
        };
    }
    match filter {
        None => Ok((Selection::All, 0)),
        Some(name) => {
            check_filter(&name, &params)?;
            Ok((Selection::Filter { name, params }, 0))
        }
    }
}

/// Parses a seq: a number, a string, or a short list like those of BigCouch.
fn since_seq(body: &Map<String, Value>) -> Result<Option<Value>, Error> {
    match body.get("since_seq") {
        None | Some(Value::Null) => Ok(None),
        Some(seq @ (Value::Number(_) | Value::String(_) | Value::Array(_))) => {
            let checked = check_seq(seq);
            checked.map_err(|told| Error::BadRequest(format!("parameter `since_seq`: {told}")))?;
            Ok(Some(seq.clone()))
        }
        Some(_) => Err(bad("since_seq", "a number, a string or an array")),
    }
}

fn check_filter(name: &str, params: &Map<String, Value>) -> Result<(), Error> {
    if name == "_view" {
        let view = params
            .get("view")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if view.split('/').count() != 2 {
            return Err(Error::BadRequest("Invalid `view` parameter.".into()));
        }
    }
    if !name.starts_with('_') && !name.contains('/') {
        return Err(Error::BadRequest(
            "Invalid filter. Must match `ddocname/filtername`.".into(),
        ));
    }
    Ok(())
}

/// Ids may be percent-encoded, as by old clients.
fn parse_ids(ids: &[Value]) -> Result<Vec<String>, Error> {
    let mut ids = ids
        .iter()
        .map(|id| {
            let id = id
                .as_str()
                .ok_or_else(|| bad("doc_ids", "an array of strings"))?;
            Ok(percent_decode_str(id).decode_utf8_lossy().into_owned())
        })
        .collect::<Result<Vec<_>, Error>>()?;
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

fn bad(name: &str, what: &str) -> Error {
    Error::BadRequest(format!("parameter `{name}` must be {what}"))
}

fn boolean(body: &Map<String, Value>, name: &str) -> Result<Option<bool>, Error> {
    match body.get(name) {
        None => Ok(None),
        Some(Value::Bool(b)) => Ok(Some(*b)),
        Some(_) => Err(bad(name, "a boolean")),
    }
}

/// Parses a natural number, or one in a string.
fn number(body: &Map<String, Value>, name: &str) -> Result<Option<u64>, Error> {
    match body.get(name) {
        None => Ok(None),
        Some(Value::Number(n)) => n.as_u64().map(Some).ok_or_else(|| bad(name, "an integer")),
        Some(Value::String(text)) => text.parse().map(Some).map_err(|_| bad(name, "an integer")),
        Some(_) => Err(bad(name, "an integer")),
    }
}

fn object(
    body: &Map<String, Value>,
    name: &str,
    what: &str,
) -> Result<Option<Map<String, Value>>, Error> {
    match body.get(name) {
        None => Ok(None),
        Some(Value::Object(members)) => Ok(Some(members.clone())),
        Some(_) => Err(bad(name, what)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(body: Value) -> Result<Replication, Error> {
        let Value::Object(body) = body else {
            panic!("an object")
        };
        Replication::parse(&body, User::default(), None, &Settings::default())
    }

    fn with(member: &str, value: Value) -> Result<Replication, Error> {
        let mut body = json!({"source": "http://h/a", "target": "http://h/b"});
        body[member] = value;
        parse(body)
    }

    #[test]
    fn members_of_the_wrong_type_are_refused_in_couchdbs_words() {
        for (member, value, reason) in [
            ("cancel", json!(1), ""),
            (
                "continuous",
                json!("true"),
                "parameter `continuous` must be a boolean",
            ),
            (
                "create_target",
                json!("true"),
                "parameter `create_target` must be a boolean",
            ),
            (
                "create_target_params",
                json!("x"),
                "parameter `create_target_params` must be a JSON object",
            ),
            (
                "winning_revs_only",
                json!("foo"),
                "parameter `winning_revs_only` must be a boolean",
            ),
            (
                "doc_ids",
                json!("a"),
                "parameter `doc_ids` must be an array",
            ),
            (
                "selector",
                json!([]),
                "parameter `selector` must be a JSON object",
            ),
            (
                "query_params",
                json!(3),
                "parameter `query_params` must be an object",
            ),
            (
                "use_bulk_get",
                json!(0),
                "parameter `use_bulk_get` must be a boolean",
            ),
        ] {
            match with(member, value) {
                Err(Error::BadRequest(told)) => assert_eq!(told, reason),
                Ok(_) => assert_eq!(member, "cancel"),
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn seqs_of_all_servers_are_accepted_and_no_other_values() {
        for seq in [
            json!(5),
            json!("5-g1AAAACbeJzLYWBgYM"),
            json!([5, "g1AAAACbeJzLYWBgYM"]),
        ] {
            assert_eq!(with("since_seq", seq.clone()).unwrap().since_seq, Some(seq));
        }
        assert_eq!(with("since_seq", Value::Null).unwrap().since_seq, None);
        for odd in [
            json!(true),
            json!({"seq": 5}),
            json!("5".repeat(100_000)),
            json!(vec![[0]; 1000]),
        ] {
            assert!(matches!(with("since_seq", odd), Err(Error::BadRequest(_))));
        }
    }

    #[test]
    fn a_document_has_a_limited_number_of_workers() {
        let workers = |number: u64| with("worker_processes", json!(number)).unwrap();
        assert_eq!(workers(20).worker_processes, 20);
        assert_eq!(workers(10_000).worker_processes, WORKERS_MAX);
        let settings = Settings {
            worker_processes: 50,
            ..Settings::default()
        };
        let Value::Object(body) = json!({
            "source": "http://h/a", "target": "http://h/b", "worker_processes": 10_000
        }) else {
            panic!("an object")
        };
        let parsed = Replication::parse(&body, User::default(), None, &settings);
        assert_eq!(parsed.unwrap().worker_processes, 50);
    }

    #[test]
    fn only_one_way_to_choose_documents_may_be_given() {
        let both = parse(json!({
            "source": "http://h/a", "target": "http://h/b", "doc_ids": ["a"], "selector": {}
        }));
        assert!(matches!(both, Err(Error::BadRequest(_))));
        assert_eq!(
            with("doc_ids", json!(["b%2Fc", "a", "a"]))
                .unwrap()
                .selection,
            Selection::Ids(["a".into(), "b/c".into()].into())
        );
        assert_eq!(
            with("doc_ids", Value::Null).unwrap().selection,
            Selection::All
        );
        assert!(with("filter", json!("noslash")).is_err());
        assert!(with("filter", json!("_view")).is_err());
    }

    #[test]
    fn numbers_may_be_strings_and_are_bounded() {
        assert_eq!(
            with("worker_batch_size", json!("7"))
                .unwrap()
                .worker_batch_size,
            7
        );
        assert_eq!(
            with("worker_processes", json!(0)).unwrap().worker_processes,
            1
        );
        assert_eq!(
            with("http_connections", json!(9_000_000))
                .unwrap()
                .http_connections,
            COUNT_MAX as usize
        );
        assert!(with("worker_processes", json!(-1)).is_err());
    }

    #[test]
    fn proxies_exclude_each_other() {
        let both = parse(json!({
            "source": "http://h/a", "target": "http://h/b",
            "proxy": "http://p:1", "source_proxy": "http://p:2"
        }));
        assert!(matches!(both, Err(Error::BadRequest(_))));
    }

    #[test]
    fn documents_may_not_name_local_databases() {
        let Value::Object(body) = json!({"source": "x", "target": "y"}) else {
            panic!("an object")
        };
        let doc = Some(DocRef {
            db: "_replicator".into(),
            id: "a".into(),
        });
        let settings = Settings::default();
        let refused = Replication::parse(&body, User::default(), doc, &settings);
        assert!(matches!(refused, Err(Error::LocalEndpoint)));
        assert!(Replication::parse(&body, User::default(), None, &settings).is_ok());
    }

    #[test]
    fn a_cancellation_names_its_job_or_describes_it() {
        let settings = Settings::default();
        let parse = |body: Value| {
            let Value::Object(body) = body else {
                panic!("an object")
            };
            Request::parse(&body, User::default(), &settings)
        };
        match parse(json!({"cancel": true, "_local_id": "abc continuous"})) {
            Ok(Request::CancelId(id)) => assert_eq!(id, "abc+continuous"),
            other => panic!("{other:?}"),
        }
        let same = json!({"source": "http://h/a", "target": "http://h/b", "cancel": true});
        assert!(matches!(parse(same), Ok(Request::Cancel(_))));
    }
}
