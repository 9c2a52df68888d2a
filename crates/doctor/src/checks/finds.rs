//! Queries of `_find`, and the indexes that answer them.

use serde_json::json;

use crate::check::{Area, Check};
use crate::facts::Find;
use crate::finding::{Finding, Severity, curl, times};

const QUERIES_MIN: u64 = 10;
const EXAMINED_EACH: u64 = 1_000;
const EXAMINED_TIMES: u64 = 10;

/// Whether queries examine too many documents for their results, so that an administrator should
/// act.
fn is_costly(find: &Find) -> bool {
    let of = &find.queries;
    of.queries >= QUERIES_MIN
        && of.examined >= of.queries * EXAMINED_EACH
        && of.examined >= EXAMINED_TIMES * of.returned.max(1)
}

fn costly() -> String {
    format!(
        "warning of {QUERIES_MIN} and more queries that examined {EXAMINED_EACH} and more documents each, {EXAMINED_TIMES} times as many as they returned"
    )
}

/// `which` describes the queries.
fn costly_finding(find: &Find, subject: &str, which: &str) -> Finding {
    let of = &find.queries;
    let fields = match of.fields.is_empty() {
        true => "no field that an index narrows".to_owned(),
        false => of.fields.join(", "),
    };
    let says = format!(
        "{} {which} examined {} documents and returned {}: {} for each. The most expensive one selected by {fields}",
        of.queries,
        of.examined,
        of.returned,
        times(of.examined, of.returned)
    );
    Finding::new(Severity::Warning, subject, says).evidence(json!({
        "queries": of.queries,
        "examined": of.examined,
        "returned": of.returned,
        "fields": of.fields,
    }))
}

/// The command that makes an index for the costliest query; `None` when no index narrows it.
fn make_index(find: &Find) -> Option<String> {
    let fields = match &*find.queries.fields {
        // All documents are in this order already.
        [first, rest @ ..] if first == "_id" => rest,
        all => all,
    };
    let body = json!({"index": {"fields": fields}});
    (!fields.is_empty()).then(|| curl("POST", &[&find.database, "_index"], Some(&body)))
}

pub const SCANS: Check = Check {
    id: "scans",
    area: Area::Queries,
    title: "queries without an index",
    looks_at: "`_find` queries of the last 30 to 60 minutes that no index but that of all documents served; aggregates aside",
    finds: costly,
    why: "such a query reads every document of the database until it has enough results",
    look: |facts| {
        let scans = facts
            .finds
            .iter()
            .filter(|find| find.index.is_none() && is_costly(find));
        let found = scans.map(|find| {
            let finding = costly_finding(find, &find.database, "queries without an index");
            match make_index(find) {
                None => finding.act("# use _all_docs, or name a field in the selector with $eq, $gt or $lt, not as one alternative of $or"),
                Some(command) => finding
                    .act(command)
                    .act("# fields that equal a value first, then those that are sorted by, then ranges; leave out those with $regex"),
            }
        });
        Ok(found.collect())
    },
};

pub const EXAMINED: Check = Check {
    id: "examined",
    area: Area::Queries,
    title: "indexes that narrow too little",
    looks_at: "documents that `_find` queries with an index examined and returned in the last 30 to 60 minutes, without aggregates",
    finds: costly,
    why: "the index serves only a part of the selector: the rest requires reading the documents",
    look: |facts| {
        let costly = facts.finds.iter().filter(|find| is_costly(find));
        let found = costly.filter_map(|find| {
            let (ddoc, name) = find.index.as_ref()?;
            let subject = format!("{}/{ddoc}, index {name}", find.database);
            let finding = costly_finding(find, &subject, "queries");
            let finding = match make_index(find) {
                None => finding,
                Some(command) => finding.act(format!(
                    "{command}   # an index of all the fields that narrow"
                )),
            };
            let explain = curl("POST", &[&find.database, "_explain"], None);
            Some(finding.act(format!("# {explain} shows which index a query uses")))
        });
        Ok(found.collect())
    },
};

#[cfg(test)]
mod tests {
    use database::FindUse;

    use super::*;
    use crate::checks::planted::severities;
    use crate::facts::Facts;

    fn facts(index: Option<(String, String)>, queries: FindUse) -> Facts {
        let find = Find {
            database: "db".into(),
            index,
            queries,
        };
        Facts {
            finds: vec![find],
            ..Facts::default()
        }
    }

    fn index() -> Option<(String, String)> {
        Some(("_design/i".to_owned(), "i".to_owned()))
    }

    #[test]
    fn queries_that_look_at_much_for_little_are_found() {
        let of = |index: Option<(String, String)>, queries, examined, returned| {
            let queries = FindUse {
                queries,
                examined,
                returned,
                examined_most: examined,
                fields: vec!["a".into()],
            };
            let facts = facts(index, queries);
            (
                severities(&SCANS, facts.clone()).len(),
                severities(&EXAMINED, facts).len(),
            )
        };
        assert_eq!(of(None, 20, 100_000, 20), (1, 0));
        assert_eq!(of(index(), 20, 100_000, 20), (0, 1));
        // For few documents, of which most match, or only once: not worth acting.
        assert_eq!(of(None, 20, 4_000, 20), (0, 0));
        assert_eq!(of(None, 20, 100_000, 50_000), (0, 0));
        assert_eq!(of(None, 1, 100_000, 1), (0, 0));
    }

    #[test]
    fn an_index_is_advised_only_of_fields_that_narrow() {
        let of = |check: &Check, index, fields: &[&str]| {
            let queries = FindUse {
                queries: 20,
                examined: 100_000,
                returned: 20,
                examined_most: 5_000,
                fields: fields.iter().map(|f| (*f).to_owned()).collect(),
            };
            let found = check.run(&facts(index, queries)).unwrap();
            let made = found[0].act.iter().find(|act| act.contains("_index\""));
            made.map(|act| act.contains(r#"{"index":{"fields":["z","a"]}}"#))
        };
        for (check, index) in [(&SCANS, None), (&EXAMINED, index())] {
            assert_eq!(of(check, index.clone(), &["z", "a"]), Some(true));
            assert_eq!(of(check, index.clone(), &["_id", "z", "a"]), Some(true));
            assert_eq!(of(check, index, &[]), None);
        }
    }
}
