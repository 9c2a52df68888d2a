//! Settings, users, replications, backups.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use auth::PasswordHash;
use doctor::facts::{Certificate, Expiring, Operation, Password, Replication};
use replicator::without_user_info;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::app::App;
use crate::browsers::cors::Cors;

/// Documents of users, and of each replicator database, that are read.
const DOCUMENTS_MAX: usize = 1_000;
/// Most bytes of a message that are reported.
const MESSAGE_BYTES_MAX: usize = 300;
/// Longer members of documents are not read: clients may have written anything there.
const MEMBER_BYTES_MAX: usize = 64 << 10;

/// Collects all facts; examines documents only until `until`.
pub fn look(app: &App, until: Instant) -> Operation {
    let settings = app.node.settings();
    let now = SystemTime::now();
    let (mut plain, mut secured) = (vec![], vec![]);
    for (address, is_secured) in app.stats.sockets() {
        if is_secured { &mut secured } else { &mut plain }.push(address);
    }
    let mut not_looked_at = vec![];
    let passwords = passwords(app, until, &mut not_looked_at);
    let replications = replications(app, until, &mut not_looked_at);
    let backups = app.node.backups.history();
    let last_backup = app.node.databases.store().last_backup();
    Operation {
        plain,
        secured,
        cors_trusts_all: app
            .settings()
            .cors
            .as_ref()
            .is_some_and(Cors::trusts_all_with_credentials),
        is_in_maintenance: settings.couchdb.maintenance_mode
            != config::settings::MaintenanceMode::Off,
        needs_no_login: app.settings().dev.is_some(),
        compacts_itself: settings.compaction.enable,
        unused_index_time: settings.doctor.unused_index_time,
        certificates: certificates(&settings.ssl),
        passwords,
        replications,
        not_looked_at,
        auto_purge_failures: auto_purge_failures(app),
        auto_purge_is_dry: settings.couch_auto_purge_plugin.dry_run,
        expiring: expiring(app, unix_s(now)),
        backup_age: last_backup.map(|at| now.duration_since(at).unwrap_or_default()),
        backup_failure: backups.failed_since_success().and_then(|failed| {
            // The client of a requested backup gets its error.
            if !failed.is_scheduled {
                return None;
            }
            let reason = failed.result.as_ref().err()?;
            let reason: String = reason.chars().take(MESSAGE_BYTES_MAX).collect();
            Some((failed.target.clone(), reason))
        }),
        backup_age_max: settings.doctor.backup_age_max,
        now_unix_s: unix_s(now),
        process_id: std::process::id(),
    }
}

fn auto_purge_failures(app: &App) -> Vec<(String, String)> {
    let failures = app.node.auto_purge.failures().into_iter();
    failures
        .map(|(db, reason)| {
            let reason = reason.chars().take(MESSAGE_BYTES_MAX).collect();
            (db.to_string(), reason)
        })
        .collect()
}

fn expiring(app: &App, now_unix_s: u64) -> Vec<Expiring> {
    let facts = app.node.expirer.facts().into_iter();
    let mut all: Vec<Expiring> = facts
        .map(|(db, facts)| Expiring {
            database: db.to_string(),
            invalid: facts.invalid,
            overdue_s: facts
                .overdue_unix_s
                .map_or(0, |at| now_unix_s.saturating_sub(at)),
            failure: facts
                .failure
                .map(|reason| reason.chars().take(MESSAGE_BYTES_MAX).collect()),
        })
        .collect();
    all.sort_by(|a, b| a.database.cmp(&b.database));
    all
}

fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// The certificates of `[ssl]` in their files.
fn certificates(ssl: &config::settings::Ssl) -> Vec<Certificate> {
    let Some(path) = ssl.cert_file.as_ref().filter(|_| ssl.enable) else {
        return vec![];
    };
    let name = format!("[ssl] cert_file {path}");
    let unreadable = |why: String| {
        vec![Certificate {
            name: name.clone(),
            times: Err(why),
        }]
    };
    let pem = match std::fs::read(path) {
        Ok(pem) => pem,
        Err(error) => return unreadable(error.to_string()),
    };
    let chain: Result<Vec<CertificateDer<'_>>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = match chain {
        Ok(chain) if !chain.is_empty() => chain,
        Ok(_) => return unreadable("there is no certificate in it".to_owned()),
        Err(error) => return unreadable(error.to_string()),
    };
    let certificate = |(n, der): (usize, &CertificateDer<'_>)| Certificate {
        name: match n {
            0 => name.clone(),
            n => format!("{name}, number {} of the chain", n + 1),
        },
        times: peers::times_of(der)
            .map(|(begins, ends)| (unix_s(begins), unix_s(ends)))
            .map_err(|error| error.to_string()),
    };
    chain.iter().enumerate().map(certificate).collect()
}

/// How passwords of admins and of users are hashed.
fn passwords(app: &App, until: Instant, left: &mut Vec<String>) -> Vec<Password> {
    let password = |name: &str, is_admin, hash: &PasswordHash| Password {
        name: name.to_owned(),
        is_admin,
        pbkdf2: hash
            .pbkdf2()
            .map(|(hash, iterations)| (hash.name(), iterations)),
    };
    let settings = app.node.settings();
    let admins = settings.admins.all.iter();
    let admins =
        admins.filter_map(|(name, value)| Some(password(name, true, &PasswordHash::parse(value)?)));
    let mut all: Vec<Password> = admins.collect();
    let users = app
        .node
        .databases
        .get(&settings.chttpd_auth.authentication_db);
    let Ok(users) = users else {
        return all;
    };
    let visited = users.visit_documents(USERS, DOCUMENTS_MAX, until, &mut |id, json| {
        let name = id.as_str().strip_prefix(USERS);
        let user = name.zip(auth::hash_of_user(json));
        all.extend(user.map(|(name, hash)| password(name, false, &hash)));
    });
    if let Ok(visited) = visited
        && visited.has_more
    {
        left.push(format!("users beyond the first {}", visited.documents));
    }
    all
}

/// The prefix of the ids of user documents.
const USERS: &str = "org.couchdb.user:";

/// Replications that fail.
fn replications(app: &App, until: Instant, left: &mut Vec<String>) -> Vec<Replication> {
    let replicator = &app.node.replicator;
    let mut all: Vec<Replication> = replicator.jobs().iter().filter_map(failing_job).collect();
    for name in replicator.databases() {
        let Ok(db) = app.node.databases.get(&name) else {
            continue;
        };
        let visited = db.visit_documents("", DOCUMENTS_MAX, until, &mut |id, json| {
            all.extend(given_up(&name, id.as_str(), json));
        });
        if let Ok(visited) = visited
            && visited.has_more
        {
            let n = visited.documents;
            left.push(format!("documents of {name} beyond the first {n}"));
        }
    }
    all
}

/// A job, as `_scheduler/jobs` lists it, that waits to be tried again.
fn failing_job(job: &Value) -> Option<Replication> {
    let text = |name: &str| job.get(name).and_then(Value::as_str);
    let error = job.get("info")?.get("error")?;
    let history = job.get("history")?.as_array()?;
    let crashes = history.iter().filter(|event| event["type"] == "crashed");
    let document = text("database").zip(text("doc_id"));
    Some(Replication {
        name: match document {
            Some((db, id)) => format!("{db}/{id}"),
            None => text("id").unwrap_or_default().to_owned(),
        },
        document: document.map(|(db, id)| (db.to_owned(), id.to_owned())),
        is_given_up: false,
        crashes: crashes.count() as u64,
        error: message(error),
    })
}

/// The members of a replicator document that are examined.
#[derive(Deserialize)]
struct ReplicationResult<'a> {
    #[serde(borrow, rename = "_replication_state")]
    state: &'a RawValue,
    #[serde(borrow, default, rename = "_replication_state_reason")]
    reason: Option<&'a RawValue>,
}

/// A document whose replication was given up.
fn given_up(db: &str, id: &str, json: &[u8]) -> Option<Replication> {
    let result: ReplicationResult<'_> = serde_json::from_slice(json).ok()?;
    if result.state.get() != "\"failed\"" {
        return None;
    }
    let reason: Value = match result.reason.map_or("null", RawValue::get) {
        long if long.len() > MEMBER_BYTES_MAX => format!("{} bytes", long.len()).into(),
        reason => serde_json::from_str(reason).ok()?,
    };
    Some(Replication {
        name: format!("{db}/{id}"),
        document: Some((db.to_owned(), id.to_owned())),
        is_given_up: true,
        crashes: 0,
        error: message(&reason),
    })
}

/// A message without the names and passwords of URLs in it.
fn message(error: &Value) -> String {
    let text = error
        .as_str()
        .map_or_else(|| error.to_string(), str::to_owned);
    // Before it is cut: a URL whose end is missing may be a password.
    let words: Vec<String> = text
        .split_whitespace()
        .take(MESSAGE_BYTES_MAX)
        .map(without_user_info)
        .collect();
    let text = words.join(" ");
    text[..text.floor_char_boundary(MESSAGE_BYTES_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reasons_are_told_without_passwords() {
        let url = "http://user:hidden@host:5984/db";
        let told = |reason: Value| {
            let doc = json!({"_id": "r", "_replication_state": "failed", "_replication_state_reason": reason});
            given_up("_replicator", "r", doc.to_string().as_bytes())
                .unwrap()
                .error
        };
        assert_eq!(
            told(json!(format!("db_not_found: could not open {url}"))),
            "db_not_found: could not open http://host:5984/db"
        );
        assert_eq!(told(json!("no URL, anna@home")), "no URL, anna@home");
        let long = "x".repeat(MESSAGE_BYTES_MAX - 19);
        for reason in [
            json!({"reason": url}),
            json!(format!("\"{url}\"")),
            json!(format!("{long} {url}")),
        ] {
            let error = told(reason);
            assert!(!error.contains("hidden"), "{error}");
        }
        let long = json!("secret ".repeat(MEMBER_BYTES_MAX));
        assert_eq!(told(long), "458754 bytes");
        let list = json!(vec![1; MEMBER_BYTES_MAX]);
        assert!(told(list).ends_with("bytes"));
        assert_eq!(told(Value::Null), "null");
        let running = r#"{"_replication_state": "triggered", "deep": [[[]]]}"#;
        assert!(given_up("_replicator", "r", running.as_bytes()).is_none());
        assert!(given_up("_replicator", "r", b"{}").is_none());
        let job = json!({"id": "j", "info": {"error": url}, "history": [{"type": "crashed"}]});
        assert_eq!(failing_job(&job).unwrap().error, "http://host:5984/db");
    }
}
