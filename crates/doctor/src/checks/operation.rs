//! Operation of the server: replications, passwords, access, backups.

use serde_json::json;

use crate::check::{Area, Check};
use crate::facts::{Certificate, Facts, Operation, Password};
use crate::finding::{Finding, Severity, counted, curl, set};

const CRASHES: u64 = 3;

pub const REPLICATIONS: Check = Check {
    id: "replications",
    area: Area::Operation,
    title: "crashing replications",
    looks_at: "replications that run or wait for a retry, and documents in `_replicator` databases, 1,000 of each at most",
    finds: || {
        format!(
            "warning of one that recently failed {CRASHES} times and waits for a retry, or that was given up; note of one that failed before"
        )
    },
    why: "changes do not reach the target",
    look: |facts| {
        let operation = &facts.operation;
        let failing = operation.replications.iter();
        let found = failing.map(|replication| {
            let how = match replication.is_given_up {
                true => "it was given up".to_owned(),
                false => format!("it failed {} lately", counted(replication.crashes, "times")),
            };
            let says = format!("{how}: {}", replication.error);
            let is_lasting = replication.is_given_up || replication.crashes >= CRASHES;
            let severity = if is_lasting { Severity::Warning } else { Severity::Note };
            let finding = Finding::new(severity, &*replication.name, says)
                .evidence(json!({"crashes": replication.crashes, "given_up": replication.is_given_up}));
            match &replication.document {
                Some((db, id)) => finding
                    .act(format!("{}   # its state", curl("GET", &["_scheduler", "docs", db, id], None)))
                    .act("# correct source, target or credentials in the document, or delete it"),
                None => finding
                    .act(format!("{}   # its state", curl("GET", &["_scheduler", "jobs"], None)))
                    .act("# POST it to _replicate again with \"cancel\": true, and correct its parameters"),
            }
        });
        Ok(found.collect())
    },
};

const ITERATIONS: u32 = 10_000;
const ITERATIONS_NOTE: u32 = 100_000;

/// The severity of a password's hash, and its description.
fn weakness(password: &Password) -> Option<(Severity, String)> {
    let (severity, what) = match password.pbkdf2 {
        None => (Severity::Warning, "SHA-1, once".to_owned()),
        Some((hash, n)) if n < ITERATIONS => {
            (Severity::Warning, format!("PBKDF2 with {hash}, {n} times"))
        }
        Some((hash, n)) if n < ITERATIONS_NOTE => {
            (Severity::Note, format!("PBKDF2 with {hash}, {n} times"))
        }
        Some(_) => return None,
    };
    Some((severity, what))
}

pub const WEAK_HASHES: Check = Check {
    id: "weak-hashes",
    area: Area::Operation,
    title: "weak password hashes",
    looks_at: "hashes in `[admins]`, and in 1,000 documents of the users database",
    finds: || {
        format!(
            "warning of SHA-1 without PBKDF2, or fewer than {ITERATIONS} iterations; note below {ITERATIONS_NOTE}"
        )
    },
    why: "an attacker with a copy of the hashes, or with a backup, can guess passwords as fast as the hash is computed",
    look: |facts| {
        let mut found = vec![];
        let all = &facts.operation.passwords;
        for password in all.iter().filter(|password| password.is_admin) {
            if let Some((severity, what)) = weakness(password) {
                found.push(
                    Finding::new(severity, format!("admin {}", password.name), format!("the password is hashed by {what}"))
                        .evidence(json!({"pbkdf2": password.pbkdf2.map(|(hash, n)| json!({"hash": hash, "iterations": n}))}))
                        .act(format!("{}   # set the password again; the default is 600,000 iterations", set("admins", &password.name, "PASSWORD"))),
                );
            }
        }
        found.extend(weak_users(all));
        Ok(found)
    },
};

/// One finding for all users: a server may have many.
fn weak_users(all: &[Password]) -> Option<Finding> {
    let users: Vec<&Password> = all.iter().filter(|password| !password.is_admin).collect();
    let weak: Vec<_> = users
        .iter()
        .filter_map(|password| Some((password, weakness(password)?)))
        .collect();
    let (first, (_, what)) = weak.iter().max_by_key(|(_, (severity, _))| *severity)?;
    let severity = weak.iter().map(|(_, (severity, _))| *severity).max()?;
    let says = format!(
        "of {} examined users {} have weak hashes, as {}: {what}",
        users.len(),
        weak.len(),
        first.name
    );
    Some(
        Finding::new(severity, "users", says)
            .evidence(json!({"looked_at": users.len(), "weak": weak.len()}))
            .act("# with [chttpd_auth] upgrade_hash_on_auth = true, which is the default, a hash is upgraded when its user logs in")
            .act("# for users who do not log in: set a new password in the user's document, or delete it"),
    )
}

pub const PLAIN_HTTP: Check = Check {
    id: "plain-http",
    area: Area::Operation,
    title: "admin over plain HTTP",
    looks_at: "the addresses on which the server listens, with and without TLS",
    finds: || {
        "warning when it listens without TLS at more than loopback addresses, and nowhere with TLS; note when it listens with TLS too".to_owned()
    },
    why: "names, passwords and session cookies, also those of admins, cross the network unencrypted",
    look: |facts| {
        let operation = &facts.operation;
        let open: Vec<String> = operation
            .plain
            .iter()
            .filter(|a| !a.ip().is_loopback())
            .map(ToString::to_string)
            .collect();
        if open.is_empty() {
            return Ok(vec![]);
        }
        let (severity, tls) = match operation.secured.is_empty() {
            true => (Severity::Warning, "and nowhere with TLS"),
            false => (Severity::Note, "besides the port with TLS"),
        };
        let says = format!("it listens without TLS at {}, {tls}", open.join(", "));
        Ok(vec![
            Finding::new(severity, "the HTTP port", says)
                .evidence(json!({"plain": open, "secured": operation.secured.iter().map(ToString::to_string).collect::<Vec<_>>()}))
                .act("# in local.ini, then restart: [ssl] enable = true, cert_file = …, key_file = …")
                .act("# or [chttpd] bind_address = 127.0.0.1, behind a proxy that has TLS. If a proxy, or the network, does that already: [doctor] ignore = plain-http"),
        ])
    },
};

pub const CORS: Check = Check {
    id: "cors",
    area: Area::Operation,
    title: "CORS with * and credentials",
    looks_at: "`[cors] origins` and `credentials`, with `[chttpd] enable_cors`",
    finds: || "warning of `origins = *` with `credentials = true`".to_owned(),
    why: "every web page may read and write with the session of its visitor",
    look: |facts| {
        if !facts.operation.cors_trusts_all {
            return Ok(vec![]);
        }
        Ok(vec![
            Finding::new(
                Severity::Warning,
                "[cors]",
                "origins = * and credentials = true",
            )
            .evidence(json!({"origins": "*", "credentials": true}))
            .act(set("cors", "origins", "https://app.example.com"))
            .act(format!(
                "{}   # if pages need no login, and none uses PouchDB",
                set("cors", "credentials", "false")
            )),
        ])
    },
};

pub const DEV: Check = Check {
    id: "dev",
    area: Area::Operation,
    title: "no login",
    looks_at: "whether the server was started with `--dev`",
    finds: || "warning when it was".to_owned(),
    why: "every program and every user of the machine is a server admin",
    look: |facts| {
        if !facts.operation.needs_no_login {
            return Ok(vec![]);
        }
        Ok(vec![
            Finding::new(Severity::Warning, "the server", "it runs with --dev: it needs no login")
                .act("# for anything but development, start it without --dev: settee serve --admin-file FILE"),
        ])
    },
};

const DAY_S: i64 = 86_400;
const LEFT_DAYS: i64 = 30;
const LEFT_OF: i64 = 4;
const LEFT_DAYS_ANY: i64 = 2;
const NODE_LEFT_DAYS: i64 = 7;

pub const CERTIFICATES: Check = Check {
    id: "certificates",
    area: Area::Operation,
    title: "expiring certificates",
    looks_at: "the certificates of `[ssl] cert_file`, and this node's in the cluster",
    finds: || {
        format!(
            "error of one that has expired, or cannot be read; warning when less than {LEFT_DAYS} days and a quarter of its validity are left, or {LEFT_DAYS_ANY} days, in the cluster {NODE_LEFT_DAYS}"
        )
    },
    why: "clients refuse a server whose certificate has expired",
    look: |facts| {
        let mut found: Vec<Finding> = facts
            .operation
            .certificates
            .iter()
            .filter_map(|certificate| expiring(certificate, &facts.operation))
            .collect();
        found.extend(of_node(facts));
        Ok(found)
    },
};

fn expiring(certificate: &Certificate, operation: &Operation) -> Option<Finding> {
    let name = &*certificate.name;
    let (begins, ends) = match &certificate.times {
        Ok(times) => *times,
        Err(why) => {
            return Some(
                Finding::new(Severity::Error, name, format!("it cannot be read: {why}"))
                    .act("# the current one is used until the server ends"),
            );
        }
    };
    let left = ends as i64 - operation.now_unix_s as i64;
    let whole = ends as i64 - begins as i64;
    let is_near = left < (LEFT_DAYS * DAY_S).min(whole / LEFT_OF) || left < LEFT_DAYS_ANY * DAY_S;
    let (severity, says) = match () {
        () if left <= 0 => (Severity::Error, format!("it expired {}", span(-left))),
        () if is_near => (
            Severity::Warning,
            format!("it expires in {}", span(left).trim_end_matches(" ago")),
        ),
        () => return None,
    };
    Some(
        Finding::new(severity, name, says)
            .evidence(json!({"left_s": left, "ends_unix_s": ends}))
            .act("# replace the certificate and its key by new ones")
            .act(format!(
                "kill -HUP {}   # on the server's machine: it reloads them, and keeps all connections",
                operation.process_id
            )),
    )
}

fn span(seconds: i64) -> String {
    match seconds / DAY_S {
        0 => format!("{} ago", counted(seconds / 3600, "hours")),
        days => format!("{} ago", counted(days, "days")),
    }
}

fn of_node(facts: &Facts) -> Option<Finding> {
    let left = facts.cluster.as_ref()?.certificate_left_s;
    if left >= NODE_LEFT_DAYS * DAY_S {
        return None;
    }
    let severity = if left <= 0 {
        Severity::Error
    } else {
        Severity::Warning
    };
    let says = format!(
        "it expires in {}, and should have been renewed when a third of its validity was left",
        counted(left / 3600, "hours")
    );
    Some(
        Finding::new(severity, "this node's certificate in the cluster", says)
            .evidence(json!({"left_s": left}))
            .act("# see the log for the cause: search for \"certificate\". Is the data directory writable, and the clock right?"),
    )
}

pub const AUTO_PURGE: Check = Check {
    id: "auto-purge",
    area: Area::Operation,
    title: "automatic purges",
    looks_at: "the last round of automatic purges, and `[couch_auto_purge_plugin] dry_run`",
    finds: || "warning of a database whose purges failed; note of `dry_run = true`".to_owned(),
    why: "deleted documents are kept for longer than their time to live",
    look: |facts| {
        let operation = &facts.operation;
        let failed = operation.auto_purge_failures.iter();
        let mut found: Vec<Finding> = failed
            .map(|(db, reason)| {
                let says = format!("its deleted documents were not purged: {reason}");
                Finding::new(Severity::Warning, db.as_str(), says)
                    .evidence(json!({"reason": reason}))
                    .act("# the next round retries; the log has each failure")
            })
            .collect();
        if operation.auto_purge_is_dry {
            let says = "dry_run is true: deleted documents are found, but not purged";
            found.push(
                Finding::new(Severity::Note, "[couch_auto_purge_plugin]", says).act(set(
                    "couch_auto_purge_plugin",
                    "dry_run",
                    "false",
                )),
            );
        }
        Ok(found)
    },
};

/// Younger data may not have had its first backup yet.
const YOUNG_S: u64 = 7 * 86_400;
const DOCUMENTS_MIN: u64 = 1_000;

pub const BACKUP: Check = Check {
    id: "backup",
    area: Area::Operation,
    title: "no recent backup",
    looks_at: "the age of the last backup, and whether backups by `[backup]` fail",
    finds: || {
        format!(
            "warning when it is older than `[doctor] backup_age_max` (a week), or when the last one by `[backup]` failed; note when there was none, and a database with {DOCUMENTS_MIN} and more documents is older than {} days or `backup_age_max`, whichever is shorter: backups by other programs are not known",
            YOUNG_S / 86_400
        )
    },
    why: "replication and a cluster's copies also copy mistakes",
    look: |facts| {
        let mut findings = backup_age(facts);
        findings.extend(
            facts
                .operation
                .backup_failure
                .as_ref()
                .map(|(target, reason)| {
                    let says = format!("the last backup to {target} failed: {reason}");
                    Finding::new(Severity::Warning, "the store", says)
                        .evidence(json!({"target": target}))
                        .act("# it is retried automatically; to retry now: settee backup $S TARGET")
                }),
        );
        Ok(findings)
    },
};

fn backup_age(facts: &Facts) -> Vec<Finding> {
    let operation = &facts.operation;
    let max = operation.backup_age_max;
    // With a directory for each day, each backup would be a full one.
    let command = "settee backup $S /backups # always this directory: it gets only what changed";
    let days = |s: u64| counted(s / 86_400, "days");
    match operation.backup_age {
        Some(age) if age <= max => vec![],
        Some(age) => {
            let says = format!("the last one was made {} ago", days(age.as_secs()));
            vec![
                    Finding::new(Severity::Warning, "the store", says)
                        .evidence(json!({"age_s": age.as_secs(), "age_max_s": max.as_secs()}))
                        .act(command)
                        .act("# check the job that makes them; its errors are in the log, at /_settee/backup"),
                ]
        }
        None => {
            let oldest = facts
                .databases
                .all
                .iter()
                .filter(|db| db.documents >= DOCUMENTS_MIN)
                .map(|db| db.created_unix_s)
                .min();
            let age = oldest.map_or(0, |created| operation.now_unix_s.saturating_sub(created));
            if oldest.is_none() || age < YOUNG_S.min(max.as_secs()) {
                return vec![];
            }
            let says = format!(
                "there are data of {}, and no backup by settee backup is known",
                days(age)
            );
            vec![
                Finding::new(Severity::Note, "the store", says)
                    .evidence(json!({"data_age_s": age}))
                    .act(command)
                    .act("# if it is backed up in another way: [doctor] ignore = backup"),
            ]
        }
    }
}

pub const MAINTENANCE: Check = Check {
    id: "maintenance-mode",
    area: Area::Operation,
    title: "maintenance mode",
    looks_at: "`[couchdb] maintenance_mode`",
    finds: || "note when it is on".to_owned(),
    why: "load balancers that check /_up send no requests to this server",
    look: |facts| {
        if !facts.operation.is_in_maintenance {
            return Ok(vec![]);
        }
        Ok(vec![
            Finding::new(Severity::Note, "the server", "it is in maintenance mode").act(set(
                "couchdb",
                "maintenance_mode",
                "false",
            )),
        ])
    },
};

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::checks::planted::severities;
    use crate::facts::{Cluster, Database, Databases, Operation, Replication};

    #[test]
    fn replications_that_fail_again_and_again_are_found() {
        let of = |crashes, is_given_up| {
            let replication = Replication {
                name: "r".into(),
                crashes,
                is_given_up,
                ..Replication::default()
            };
            severities(
                &REPLICATIONS,
                Operation {
                    replications: vec![replication],
                    ..Operation::default()
                },
            )
        };
        assert_eq!(
            (of(1, false), of(3, false), of(0, true)),
            (
                vec![Severity::Note],
                vec![Severity::Warning],
                vec![Severity::Warning]
            )
        );
    }

    #[test]
    fn automatic_purges_that_fail_or_purge_nothing_are_found() {
        let of = |failed: &[&str], auto_purge_is_dry| {
            let failures = failed.iter();
            let auto_purge_failures = failures
                .map(|db| ((*db).to_owned(), "the disk is full".to_owned()))
                .collect();
            severities(
                &AUTO_PURGE,
                Operation {
                    auto_purge_failures,
                    auto_purge_is_dry,
                    ..Operation::default()
                },
            )
        };
        assert_eq!(of(&[], false), []);
        let expected = [Severity::Warning, Severity::Warning, Severity::Note];
        assert_eq!(of(&["a", "b"], true), expected);
    }

    #[test]
    fn weak_hashes_of_admins_and_users_are_found() {
        let of = |is_admin, pbkdf2| {
            let password = Password {
                name: "it".into(),
                is_admin,
                pbkdf2,
            };
            severities(
                &WEAK_HASHES,
                Operation {
                    passwords: vec![password],
                    ..Operation::default()
                },
            )
        };
        for is_admin in [true, false] {
            assert_eq!(of(is_admin, None), [Severity::Warning]);
            assert_eq!(of(is_admin, Some(("sha", 10))), [Severity::Warning]);
            assert_eq!(of(is_admin, Some(("sha256", 50_000))), [Severity::Note]);
            assert_eq!(of(is_admin, Some(("sha256", 600_000))), []);
        }
    }

    #[test]
    fn what_the_network_can_read_is_found() {
        let of = |plain: &str, secured: &[&str]| {
            let secured = secured.iter().map(|a| a.parse().unwrap()).collect();
            severities(
                &PLAIN_HTTP,
                Operation {
                    plain: vec![plain.parse().unwrap()],
                    secured,
                    ..Operation::default()
                },
            )
        };
        assert_eq!(of("127.0.0.1:5984", &[]), []);
        assert_eq!(of("[::1]:5984", &[]), []);
        assert_eq!(of("0.0.0.0:5984", &[]), [Severity::Warning]);
        assert_eq!(of("0.0.0.0:5984", &["0.0.0.0:6984"]), [Severity::Note]);
        let cors = |cors_trusts_all| {
            severities(
                &CORS,
                Operation {
                    cors_trusts_all,
                    ..Operation::default()
                },
            )
        };
        assert_eq!((cors(false), cors(true)), (vec![], vec![Severity::Warning]));
    }

    #[test]
    fn a_server_without_logins_is_found() {
        let of = |needs_no_login| {
            severities(
                &DEV,
                Operation {
                    needs_no_login,
                    ..Operation::default()
                },
            )
        };
        assert_eq!((of(false), of(true)), (vec![], vec![Severity::Warning]));
    }

    #[test]
    fn maintenance_mode_is_noted() {
        let of = |is_in_maintenance| {
            severities(
                &MAINTENANCE,
                Operation {
                    is_in_maintenance,
                    ..Operation::default()
                },
            )
        };
        assert_eq!((of(false), of(true)), (vec![], vec![Severity::Note]));
    }

    #[test]
    fn certificates_are_renewed_in_time_or_told_of() {
        let of = |days_whole: u64, days_left: i64| {
            let now = 1_000 * 86_400;
            let ends = now + days_left * DAY_S;
            let times = Ok((ends as u64 - days_whole * 86_400, ends as u64));
            let certificate = Certificate {
                name: "it".into(),
                times,
            };
            severities(
                &CERTIFICATES,
                Operation {
                    certificates: vec![certificate],
                    now_unix_s: now as u64,
                    ..Operation::default()
                },
            )
        };
        assert_eq!(of(365, 31), []);
        assert_eq!(of(365, 29), [Severity::Warning]);
        // Made for 90 days, and renewed when 30 are left.
        assert_eq!(of(90, 29), []);
        assert_eq!(of(90, 20), [Severity::Warning]);
        assert_eq!(of(1, 1), [Severity::Warning]);
        assert_eq!(of(365, -1), [Severity::Error]);
        let broken = Certificate {
            name: "it".into(),
            times: Err("no PEM".into()),
        };
        assert_eq!(
            severities(
                &CERTIFICATES,
                Operation {
                    certificates: vec![broken],
                    ..Operation::default()
                }
            ),
            [Severity::Error]
        );
        let node = |certificate_left_s| {
            let cluster = Some(Cluster {
                certificate_left_s,
                ..Cluster::default()
            });
            CERTIFICATES
                .run(&Facts {
                    cluster,
                    ..Facts::default()
                })
                .unwrap()
                .len()
        };
        assert_eq!((node(20 * DAY_S), node(DAY_S)), (0, 1));
    }

    #[test]
    fn backups_that_stopped_are_worse_than_none_that_is_known_of() {
        let of = |backup_age: Option<u64>, data_days: u64, documents| {
            let now_unix_s = 1_000 * 86_400;
            let db = Database {
                documents,
                created_unix_s: now_unix_s - data_days * 86_400,
                ..Database::default()
            };
            let operation = Operation {
                backup_age: backup_age.map(|days| Duration::from_secs(days * 86_400)),
                backup_age_max: Duration::from_secs(7 * 86_400),
                now_unix_s,
                ..Operation::default()
            };
            let databases = Databases {
                all: vec![db],
                ..Databases::default()
            };
            let facts = Facts {
                operation,
                databases,
                ..Facts::default()
            };
            severities(&BACKUP, facts)
        };
        let operation = Operation {
            backup_age: Some(Duration::from_secs(60)),
            backup_age_max: Duration::from_secs(7 * 86_400),
            backup_failure: Some(("s3://bucket".to_owned(), "no bucket".to_owned())),
            ..Operation::default()
        };
        let facts = Facts {
            operation,
            ..Facts::default()
        };
        assert_eq!(severities(&BACKUP, facts), [Severity::Warning]);
        assert_eq!(of(Some(1), 100, 5_000), []);
        assert_eq!(of(Some(9), 100, 5_000), [Severity::Warning]);
        assert_eq!(of(None, 100, 5_000), [Severity::Note]);
        assert_eq!(of(None, 100, 3), []);
        assert_eq!(of(None, 1, 5_000), []);
    }
}
