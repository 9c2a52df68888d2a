//! `/_settee/doctor`: problems of this server, with evidence, reason and suggested actions.
//!
//! [`gather`] collects [`facts`], within a budget of time. [`checks`] is the table of checks: each
//! is a function from facts to [`finding`]s, without any other input.

mod checks;
mod facts;
mod finding;
mod gather;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::checks::{CHECKS, Check};
use self::facts::Facts;
use self::finding::{Finding, Severity};
use crate::app::App;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::server_routes::this_node;

/// Time for collecting facts: a response takes at most 5 s, whatever the server's size.
const GATHERING_TIME_MAX: Duration = Duration::from_secs(3);
/// Most findings of one check that are listed.
const TOLD_MAX: usize = 20;

/// One at a time: it reads.
static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Answers a server admin.
pub async fn route(app: &App) -> Result<Reply, ApiError> {
    let Ok(one) = ONE.try_lock() else {
        return Err(ApiError::busy(
            "the server is being examined already".into(),
        ));
    };
    let app = app.shared()?;
    let told = this_node::off_thread(move || {
        // Held until it ends, whether or not a client waits for it.
        let _one = one;
        let began = Instant::now();
        let facts = gather::facts(&app, began, began + GATHERING_TIME_MAX);
        told(&facts, began)
    });
    Ok(Reply::json(200, &told.await?))
}

/// The result of a check.
struct Done {
    check: &'static Check,
    outcome: Result<Vec<Finding>, String>,
}

fn run(facts: &Facts) -> Vec<Done> {
    let all = CHECKS.iter().map(|check| Done {
        check,
        outcome: match facts.ignored.iter().any(|id| id == check.id) {
            true => Err("[doctor] ignore names it".to_owned()),
            false => check.run(facts),
        },
    });
    all.collect()
}

fn told(facts: &Facts, began: Instant) -> Value {
    let done = run(facts);
    let mut findings: Vec<(&Check, &Finding)> = vec![];
    for one in &done {
        let found = one.outcome.iter().flatten();
        findings.extend(found.take(TOLD_MAX).map(|finding| (one.check, finding)));
    }
    // The worst first; those alike in the order of the table.
    findings.sort_by_key(|(_, finding)| std::cmp::Reverse(finding.severity));
    let worst = findings
        .first()
        .map_or("ok", |(_, finding)| finding.severity.name());
    let looked_at = facts.databases.all.len();
    json!({
        "node": facts.node,
        "version": env!("CARGO_PKG_VERSION"),
        "worst": worst,
        "findings": findings.iter().map(|(check, finding)| finding.to_json(check)).collect::<Vec<_>>(),
        "checks": done.iter().map(Done::to_json).collect::<Vec<_>>(),
        "databases": {
            "all": facts.databases.count,
            "looked_at": looked_at,
            "not_looked_at": facts.databases.count.saturating_sub(looked_at),
            "failed": facts.databases.failed,
            "out_of_time": facts.databases.out_of_time,
        },
        "not_looked_at": facts.not_looked_at(),
        "took_ms": began.elapsed().as_millis() as u64,
    })
}

impl Done {
    fn to_json(&self) -> Value {
        let check = self.check;
        let mut told = json!({
            "id": check.id,
            "area": check.area.name(),
            "title": check.title,
            "looks_at": check.looks_at,
            "finds": (check.finds)(),
        });
        match &self.outcome {
            Err(why) => {
                told["outcome"] = "skipped".into();
                told["why"] = why.as_str().into();
            }
            Ok(found) => {
                let worst = found.iter().map(|finding| finding.severity).max();
                told["outcome"] = worst.map_or("ok", Severity::name).into();
                if found.len() > TOLD_MAX {
                    told["not_told"] = (found.len() - TOLD_MAX).into();
                }
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_routes::doctor::facts::{Database, Databases, Operation};

    #[test]
    fn what_was_left_out_is_told() {
        let database = |name: &str, has_more_designs| Database {
            name: name.to_owned(),
            has_more_designs,
            ..Database::default()
        };
        let facts = Facts {
            databases: Databases {
                count: 3,
                all: vec![database("few", false), database("many", true)],
                ..Databases::default()
            },
            operation: Operation {
                not_looked_at: vec!["users beyond the first 7".to_owned()],
                ..Operation::default()
            },
            ..Facts::default()
        };
        let told = told(&facts, Instant::now());
        assert_eq!(told["databases"]["not_looked_at"], 1);
        let designs = "design documents of many beyond the first 0 with views or text indexes";
        assert_eq!(
            told["not_looked_at"],
            json!(["users beyond the first 7", designs])
        );
    }
}
