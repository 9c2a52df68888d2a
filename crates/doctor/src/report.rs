//! The report of all checks as JSON, which the server returns and `settee doctor` prints.

use serde_json::{Value, json};

use crate::check::Check;
use crate::checks::CHECKS;
use crate::facts::Facts;
use crate::finding::{Finding, Severity};

/// Most findings of one check that are listed.
const FINDINGS_MAX: usize = 20;

/// A check with its outcome.
struct Done {
    check: &'static Check,
    outcome: Result<Vec<Finding>, String>,
}

/// Runs all checks. The report lists their findings and outcomes, and the objects that were not
/// examined.
pub fn report(facts: &Facts) -> Value {
    let done = run(facts);
    let mut findings: Vec<(&Check, &Finding)> = vec![];
    for one in &done {
        let found = one.outcome.iter().flatten();
        findings.extend(found.take(FINDINGS_MAX).map(|finding| (one.check, finding)));
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
        "findings": findings.iter().map(|(check, finding)| finding_json(check, finding)).collect::<Vec<_>>(),
        "checks": done.iter().map(Done::to_json).collect::<Vec<_>>(),
        "databases": {
            "all": facts.databases.count,
            "looked_at": looked_at,
            "not_looked_at": facts.databases.count.saturating_sub(looked_at),
            "failed": facts.databases.failed,
            "out_of_time": facts.databases.out_of_time,
        },
        "not_looked_at": facts.not_looked_at(),
    })
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

fn finding_json(check: &Check, finding: &Finding) -> Value {
    json!({
        "id": check.id,
        "area": check.area.name(),
        "severity": finding.severity.name(),
        "subject": finding.subject,
        "says": finding.says,
        "evidence": finding.evidence,
        "why": check.why,
        "do": finding.act,
    })
}

impl Done {
    fn to_json(&self) -> Value {
        let check = self.check;
        let mut json = json!({
            "id": check.id,
            "area": check.area.name(),
            "title": check.title,
            "looks_at": check.looks_at,
            "finds": (check.finds)(),
        });
        match &self.outcome {
            Err(why) => {
                json["outcome"] = "skipped".into();
                json["why"] = why.as_str().into();
            }
            Ok(found) => {
                let worst = found.iter().map(|finding| finding.severity).max();
                json["outcome"] = worst.map_or("ok", Severity::name).into();
                if found.len() > FINDINGS_MAX {
                    json["not_told"] = (found.len() - FINDINGS_MAX).into();
                }
            }
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Database, Databases, Operation};

    #[test]
    fn objects_that_were_not_examined_are_reported() {
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
        let report = report(&facts);
        assert_eq!(report["databases"]["not_looked_at"], 1);
        let designs = "design documents of many beyond the first 0 with views or text indexes";
        assert_eq!(
            report["not_looked_at"],
            json!(["users beyond the first 7", designs])
        );
    }

    #[test]
    fn an_ignored_check_is_skipped_with_its_reason() {
        let facts = Facts {
            ignored: vec!["dev".to_owned()],
            operation: Operation {
                needs_no_login: true,
                ..Operation::default()
            },
            ..Facts::default()
        };
        let report = report(&facts);
        assert_eq!(report["worst"], "ok");
        let checks = report["checks"].as_array().unwrap();
        let dev = checks.iter().find(|check| check["id"] == "dev").unwrap();
        assert_eq!(
            (&dev["outcome"], &dev["why"]),
            (&json!("skipped"), &json!("[doctor] ignore names it"))
        );
    }
}
