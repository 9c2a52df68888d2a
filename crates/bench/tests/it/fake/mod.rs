//! A server just large enough for the load client: databases of documents in memory, on a free port.

// Each test program uses its own part of this module.
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

type Documents = BTreeMap<String, Value>;

/// The server's contents, for tests to examine.
#[derive(Default)]
pub struct Contents {
    pub databases: BTreeMap<String, Documents>,
    /// Design documents by database and name.
    pub designs: BTreeMap<(String, String), Value>,
    /// How often a view was queried.
    pub view_queries: u64,
    /// Documents that came with `new_edits=false`.
    pub replicated: Vec<String>,
    /// Every n-th PUT of a document is refused.
    pub refuse_every: Option<u64>,
    /// Settings by SECTION/KEY.
    pub settings: BTreeMap<String, String>,
    /// Every value that a setting was given, and none when it was deleted.
    pub settings_set: Vec<Option<String>>,
    /// The answer of `_settee/top`, where the server has one.
    pub top: Option<Value>,
    /// The table of `_settee/settings`, where the server has one.
    pub setting_table: Option<Value>,
    /// Whether `?q=` has no effect.
    pub ignores_q: bool,
    /// Name and shards of each database that was created, in this order.
    pub created: Vec<(String, u64)>,
    /// Number of documents, and bytes, of each `_bulk_docs`, in this order.
    pub bulks: Vec<(usize, usize)>,
    /// How long a compaction takes.
    pub compaction: Duration,
    compacting_until: Option<Instant>,
    puts: u64,
}

pub struct Fake {
    pub url: String,
    pub contents: Arc<Mutex<Contents>>,
    /// Methods, with the query behind them, that came to this node.
    pub asked: Arc<Mutex<BTreeSet<String>>>,
    /// How many connections came to this node.
    pub connections: Arc<AtomicUsize>,
}

impl Fake {
    pub async fn start() -> Self {
        Self::serving(Arc::default()).await
    }

    /// Another node that has the same databases.
    pub async fn node(&self) -> Self {
        Self::serving(Arc::clone(&self.contents)).await
    }

    async fn serving(contents: Arc<Mutex<Contents>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://admin:secret@{}", listener.local_addr().unwrap());
        let served = Arc::clone(&contents);
        let asked = Arc::new(Mutex::new(BTreeSet::new()));
        let noted = Arc::clone(&asked);
        let connections = Arc::new(AtomicUsize::new(0));
        let accepted = Arc::clone(&connections);
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                accepted.fetch_add(1, Ordering::Relaxed);
                let (contents, noted) = (Arc::clone(&served), Arc::clone(&noted));
                tokio::spawn(async move {
                    let service = service_fn(move |request: Request<Incoming>| {
                        let query = request.uri().query().unwrap_or_default();
                        let kind = format!("{} {query}", request.method());
                        noted.lock().unwrap().insert(kind.trim_end().to_owned());
                        answer(request, Arc::clone(&contents))
                    });
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), service)
                        .await;
                });
            }
        });
        Self {
            url,
            contents,
            asked,
            connections,
        }
    }

    pub fn documents(&self, database: &str) -> Documents {
        self.contents.lock().unwrap().databases[database].clone()
    }
}

type Reply = (u16, Vec<u8>);

async fn answer(
    request: Request<Incoming>,
    contents: Arc<Mutex<Contents>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let method = request.method().clone();
    let path = request.uri().path().trim_matches('/').to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let authorized = request.headers().contains_key("authorization");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let (status, body) = if authorized {
        reply(&method, &path, &query, &body, &mut contents.lock().unwrap())
    } else {
        error(401, "unauthorized", "no credentials")
    };
    Ok(Response::builder()
        .status(status)
        .body(Full::new(Bytes::from(body)))
        .unwrap())
}

fn error(status: u16, error: &str, reason: &str) -> Reply {
    (
        status,
        json!({ "error": error, "reason": reason })
            .to_string()
            .into_bytes(),
    )
}

fn ok(body: Value) -> Reply {
    (200, body.to_string().into_bytes())
}

fn reply(method: &Method, path: &str, query: &str, body: &[u8], contents: &mut Contents) -> Reply {
    let parts: Vec<&str> = path.split('/').collect();
    match (method.as_str(), parts.as_slice()) {
        ("GET", [""]) => {
            ok(json!({"couchdb": "Welcome", "version": "3.5", "vendor": {"name": "Fake"}}))
        }
        ("GET", ["_all_dbs"]) => ok(json!(contents.databases.keys().collect::<Vec<_>>())),
        ("GET", ["_active_tasks"]) => ok(json!([])),
        (_, ["_node", "_local", "_config", section, key]) => {
            setting(method, format!("{section}/{key}"), body, contents)
        }
        ("GET", ["_node", "_local", "_settee", "settings"]) if contents.setting_table.is_some() => {
            ok(json!(contents.setting_table))
        }
        ("GET", ["_node", ..]) | ("GET", ["_dbs_info"]) => ok(json!({})),
        ("GET", ["_settee", "top"]) if contents.top.is_some() => ok(json!(contents.top)),
        ("GET", ["_settee", "constant"]) => (200, vec![b'x'; 300]),
        ("GET", ["files", "lines.jsonl"]) => (200, b"{\"_id\":\"a\"}\n{\"_id\":\"b\"}\n".to_vec()),
        ("POST", ["_replicate"]) => replicate(body, contents),
        ("PUT", [database]) => create(database, query, contents),
        (_, [database]) => database_reply(method, database, contents),
        (_, [database, rest @ ..]) => match contents.databases.get(*database) {
            None => error(404, "not_found", "Database does not exist."),
            Some(_) => inside(method, database, rest, query, body, contents),
        },
        _ => error(404, "not_found", "missing"),
    }
}

/// The value `refused` is refused.
fn setting(method: &Method, name: String, body: &[u8], contents: &mut Contents) -> Reply {
    let before = contents.settings.get(&name).cloned();
    match (method.as_str(), before) {
        ("PUT", before) => {
            let value: String = serde_json::from_slice(body).unwrap();
            if value == "refused" {
                return error(400, "bad_request", "this value is refused");
            }
            contents.settings_set.push(Some(value.clone()));
            contents.settings.insert(name, value);
            ok(json!(before.unwrap_or_default()))
        }
        ("GET", Some(value)) => ok(json!(value)),
        ("DELETE", Some(value)) => {
            contents.settings_set.push(None);
            contents.settings.remove(&name);
            ok(json!(value))
        }
        _ => error(404, "not_found", "unknown_config_value"),
    }
}

/// Both databases are of this server, whatever the URLs say.
fn replicate(body: &[u8], contents: &mut Contents) -> Reply {
    let request: Value = serde_json::from_slice(body).unwrap();
    let name = |end: &str| {
        let url = request[end].as_str().or(request[end]["url"].as_str());
        let url = url.unwrap();
        url.rsplit('/').next().unwrap().to_owned()
    };
    let documents = contents.databases[&name("source")].clone();
    let written = documents.len();
    contents.databases.insert(name("target"), documents);
    ok(json!({"ok": true, "history": [{"docs_written": written}]}))
}

/// Creates a database with the shards of the query, or else of the setting `cluster/q`.
fn create(name: &str, query: &str, contents: &mut Contents) -> Reply {
    if contents.databases.contains_key(name) {
        return error(412, "file_exists", "The database could not be created.");
    }
    let usual = contents.settings.get("cluster/q").map(String::as_str);
    let wanted = query.strip_prefix("q=").filter(|_| !contents.ignores_q);
    let q = wanted.or(usual).unwrap_or("2").parse().unwrap();
    contents.created.push((name.to_owned(), q));
    contents.databases.insert(name.to_owned(), Documents::new());
    (201, b"{\"ok\":true}".to_vec())
}

fn database_reply(method: &Method, name: &str, contents: &mut Contents) -> Reply {
    let count = contents.databases.get(name).map(BTreeMap::len);
    let mut created = contents.created.iter().rev();
    let q = created.find(|(known, _)| known == name).map(|(_, q)| *q);
    match (method.as_str(), count) {
        ("GET", Some(count)) => ok(json!({
            "db_name": name, "doc_count": count, "cluster": {"q": q},
            "compact_running": contents.compacting_until.is_some_and(|end| Instant::now() < end),
            "sizes": {"file": count * 100, "active": count * 50},
        })),
        ("DELETE", Some(_)) => {
            contents.databases.remove(name);
            contents.designs.retain(|(database, _), _| database != name);
            ok(json!({"ok": true}))
        }
        _ => error(404, "not_found", "Database does not exist."),
    }
}

fn inside(
    method: &Method,
    database: &str,
    rest: &[&str],
    query: &str,
    body: &[u8],
    contents: &mut Contents,
) -> Reply {
    if let Some(reply) = views::reply(method, database, rest, query, body, contents) {
        return reply;
    }
    match (method.as_str(), rest) {
        ("POST" | "DELETE", ["_index", ..]) => ok(json!({"ok": true})),
        ("POST", ["_find"]) => find(&contents.databases[database], body),
        ("POST", ["_all_docs"]) => by_keys(&contents.databases[database], body),
        ("POST", ["_bulk_docs"]) => bulk(database, body, contents),
        ("POST", ["_ensure_full_commit"]) => (201, b"{\"ok\":true}".to_vec()),
        ("POST", ["_compact"]) => {
            contents.compacting_until = Some(Instant::now() + contents.compaction);
            (202, b"{\"ok\":true}".to_vec())
        }
        ("GET", ["_all_docs"]) => all_docs(&contents.databases[database], query),
        ("GET", ["_changes"]) => {
            let rows: Vec<Value> = contents.databases[database]
                .keys()
                .map(|id| json!({"seq": 1, "id": id, "changes": [{"rev": "1-a"}]}))
                .collect();
            ok(json!({ "results": rows, "last_seq": 1 }))
        }
        ("PUT", [id]) => {
            contents.puts += 1;
            if contents
                .refuse_every
                .is_some_and(|every| contents.puts.is_multiple_of(every))
            {
                return error(500, "unlucky", "every now and then");
            }
            let document = serde_json::from_slice(body).unwrap();
            let documents = contents.databases.get_mut(database).unwrap();
            documents.insert((*id).to_owned(), document);
            (201, b"{\"ok\":true}".to_vec())
        }
        ("PUT", [_, "bytes"]) => (201, b"{\"ok\":true}".to_vec()),
        ("GET", [_, "bytes"]) => (200, vec![0; 10]),
        ("GET", [id]) => match contents.databases[database].get(*id) {
            Some(document) => ok(document.clone()),
            None => error(404, "not_found", "missing"),
        },
        _ => error(404, "not_found", "missing"),
    }
}

fn all_docs(documents: &Documents, query: &str) -> Reply {
    let parameters: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    let number = |name: &str| {
        parameters
            .get(name)
            .map(|value| value.parse::<usize>().unwrap())
    };
    let start: String = parameters
        .get("startkey")
        .map(|key| serde_json::from_str(key).unwrap())
        .unwrap_or_default();
    let with_docs = parameters.contains_key("include_docs");
    let rows: Vec<Value> = documents
        .range(start..)
        .skip(number("skip").unwrap_or(0))
        .take(number("limit").unwrap_or(usize::MAX))
        .map(|(id, document)| {
            let mut row = json!({"id": id, "key": id, "value": {"rev": "1-a"}});
            if with_docs {
                let mut document = document.clone();
                document["_id"] = json!(id);
                document["_rev"] = json!("1-abc");
                row["doc"] = document;
            }
            row
        })
        .collect();
    ok(json!({"total_rows": documents.len(), "offset": 0, "rows": rows}))
}

fn by_keys(documents: &Documents, body: &[u8]) -> Reply {
    let request: Value = serde_json::from_slice(body).unwrap();
    let keys = request["keys"].as_array().unwrap().iter();
    let known = keys.filter(|key| documents.contains_key(key.as_str().unwrap()));
    let rows: Vec<Value> = known
        .map(|key| json!({"id": key, "key": key, "value": {"rev": "1-a"}}))
        .collect();
    ok(json!({"total_rows": documents.len(), "offset": null, "rows": rows}))
}

fn find(documents: &Documents, body: &[u8]) -> Reply {
    let request: Value = serde_json::from_slice(body).unwrap();
    let limit = request["limit"].as_u64().unwrap_or(25) as usize;
    let matching = documents
        .values()
        .filter(|document| fits(&request["selector"], document));
    ok(json!({"docs": matching.take(limit).collect::<Vec<_>>(), "bookmark": "nil"}))
}

/// Whether a document fits a selector of the few operators that the workloads use.
fn fits(selector: &Value, document: &Value) -> bool {
    selector.as_object().unwrap().iter().all(|(name, wanted)| {
        if name == "$or" {
            let mut either = wanted.as_array().unwrap().iter();
            return either.any(|selector| fits(selector, document));
        }
        let value = &document[name];
        let Some(operators) = wanted.as_object() else {
            return value == wanted;
        };
        operators
            .iter()
            .all(|(operator, operand)| match operator.as_str() {
                "$gt" if operand.is_null() => !value.is_null(),
                "$gte" => value.as_f64() >= operand.as_f64(),
                "$lt" => value
                    .as_f64()
                    .is_some_and(|n| n < operand.as_f64().unwrap()),
                "$size" => value.as_array().is_some_and(|a| json!(a.len()) == *operand),
                "$beginsWith" => value
                    .as_str()
                    .is_some_and(|text| text.starts_with(operand.as_str().unwrap())),
                other => panic!("the fake server does not know {other}"),
            })
    })
}

/// Ids that begin with `conflict` are refused each, and one named `poison` refuses the whole request.
fn bulk(database: &str, body: &[u8], contents: &mut Contents) -> Reply {
    let Ok(mut request) = serde_json::from_slice::<Value>(body) else {
        return error(400, "bad_request", "invalid UTF-8 JSON");
    };
    let new_edits = request["new_edits"] != json!(false);
    let documents = request["docs"].as_array_mut().unwrap();
    contents.bulks.push((documents.len(), body.len()));
    if documents.iter().any(|document| document["_id"] == "poison") {
        return error(400, "bad_request", "poisoned");
    }
    let mut rows = Vec::new();
    for document in documents {
        let target = contents.databases.get_mut(database).unwrap();
        let id = match document["_id"].as_str() {
            Some(id) => id.to_owned(),
            None => format!("uuid-{}", target.len()),
        };
        if id.starts_with("conflict") {
            rows.push(
                json!({"id": id, "error": "conflict", "reason": "Document update conflict."}),
            );
            continue;
        }
        target.insert(id.clone(), document.take());
        if new_edits {
            rows.push(json!({"ok": true, "id": id, "rev": "1-a"}));
        } else {
            contents.replicated.push(id);
        }
    }
    (201, json!(rows).to_string().into_bytes())
}
