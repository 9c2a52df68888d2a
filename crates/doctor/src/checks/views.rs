//! Views and indexes.

use std::collections::BTreeMap;

use database::{DesignFacts, FunctionFacts, ViewFacts};
use functions::Effect;
use serde_json::json;

use super::index::{BUILDS_FAILED_MIN, FAILED_MIN, FAILED_PERCENT, failing_function, path};
use super::texts;
use crate::check::{Area, Check};
use crate::facts::{Database, Facts};
use crate::finding::{Finding, Severity, bytes, counted, curl, percent};

/// Indexes of smaller databases cost too little to report.
const DOCUMENTS_MIN: u64 = 1_000;

/// The design documents of databases of some size.
pub fn designs(facts: &Facts) -> impl Iterator<Item = (&Database, &DesignFacts)> {
    let large = facts
        .databases
        .all
        .iter()
        .filter(|db| db.documents >= DOCUMENTS_MIN);
    large.flat_map(|db| db.designs.iter().map(move |design| (db, design)))
}

fn is_mango(design: &DesignFacts) -> bool {
    design.language == "query"
}

/// The command that removes a Mango index, and nothing else of its design document.
fn remove_index(db: &Database, design: &DesignFacts, view: &ViewFacts) -> String {
    let path = [&db.name, "_index", &design.id, "json", &view.name];
    curl("DELETE", &path, None)
}

/// Commands that remove the views of a design document. Its other members, such as a validation
/// function, must stay.
fn remove(db: &Database, design: &DesignFacts) -> Vec<String> {
    if is_mango(design) {
        let views = design.views.iter();
        return views.map(|view| remove_index(db, design, view)).collect();
    }
    vec![
        format!(
            "{}   # remove \"views\" from it, and save it; delete it only if it has nothing else",
            curl("GET", &[&db.name, &design.id], None)
        ),
        curl("POST", &[&db.name, "_view_cleanup"], None),
    ]
}

pub const UNUSED_INDEXES: Check = Check {
    id: "unused-indexes",
    area: Area::Queries,
    title: "unused indexes",
    looks_at: "design documents with a built view index that no query, of a view or of `_find`, used since the start; built text indexes that no search and no `_find` used",
    finds: || {
        format!(
            "warning in databases of {DOCUMENTS_MIN} and more documents, once the server has run for `[doctor] unused_index_time` (a week)"
        )
    },
    why: "each write is mapped and indexed for it, and it takes space on disk",
    look: |facts| {
        let wanted = facts.operation.unused_index_time;
        if facts.uptime < wanted {
            return Err(format!(
                "the server has run for {} s, [doctor] unused_index_time requires {}",
                facts.uptime.as_secs(),
                wanted.as_secs()
            ));
        }
        let unused =
            designs(facts).filter(|(_, design)| design.is_built && design.was_used == Some(false));
        let found = unused.map(|(db, design)| {
            let says = format!(
                "it was not queried in the {} since the start; it indexes {}",
                counted(facts.uptime.as_secs() / 86_400, "days"),
                counted(db.documents, "documents")
            );
            let finding = Finding::new(Severity::Warning, path(db, design), says)
                .evidence(json!({"uptime_s": facts.uptime.as_secs(), "documents": db.documents, "views": design.views.len()}));
            remove(db, design).into_iter().fold(finding, Finding::act)
        });
        let texts = designs(facts).flat_map(|(db, design)| texts::unused(db, design, facts.uptime));
        Ok(found.chain(texts).collect())
    },
};

pub const DUPLICATE_INDEXES: Check = Check {
    id: "duplicate-indexes",
    area: Area::Queries,
    title: "duplicate indexes",
    looks_at: "views of one database with the same map function in separate indexes; Mango indexes whose fields are a prefix of another's",
    finds: || {
        format!(
            "in databases of {DOCUMENTS_MIN} and more documents: warning of the same rows, note of an index whose queries another one can serve"
        )
    },
    why: "the same rows are computed, stored and updated twice. (Equal design documents share one index)",
    look: |facts| {
        let large = facts
            .databases
            .all
            .iter()
            .filter(|db| db.documents >= DOCUMENTS_MIN);
        Ok(large
            .flat_map(|db| same_rows(db).into_iter().chain(beginnings(db)))
            .collect())
    },
};

fn same_rows(db: &Database) -> Vec<Finding> {
    let mut by_rows: BTreeMap<u64, Vec<(&DesignFacts, &ViewFacts)>> = BTreeMap::new();
    for design in db.designs.iter().filter(|design| design.is_built) {
        for view in &design.views {
            by_rows
                .entry(view.rows_hash)
                .or_default()
                .push((design, view));
        }
    }
    let found = by_rows.into_values().filter_map(|same| {
        let (first, rest) = same.split_first()?;
        let (other, view) = rest
            .iter()
            .find(|(design, _)| design.signature != first.0.signature)?;
        let says = format!(
            "it has the rows of {}, view {}, over {}",
            first.0.id,
            first.1.name,
            counted(db.documents, "documents")
        );
        Some(
            Finding::new(
                Severity::Warning,
                format!("{}, view {}", path(db, other), view.name),
                says,
            )
            .evidence(json!({"documents": db.documents, "same": [first.0.id, other.id]}))
            .act(format!(
                "# query {}/_view/{} instead, and remove {} from {}",
                first.0.id, first.1.name, view.name, other.id
            )),
        )
    });
    found.collect()
}

/// An index of `a` can be replaced by one of `a` and `b` only if all documents have `b` too: so it
/// is only a note.
fn beginnings(db: &Database) -> Vec<Finding> {
    let indexes = db
        .designs
        .iter()
        .filter(|design| is_mango(design))
        .flat_map(|design| {
            let views = design.views.iter();
            views.filter_map(move |view| Some((design, view, view.fields.as_ref()?)))
        });
    let indexes: Vec<_> = indexes.collect();
    let found = indexes.iter().filter_map(|(design, view, fields)| {
        let (longer, its_view, _) = indexes.iter().find(|(other, _, its)| {
            other.id != design.id && its.len() > fields.len() && its.starts_with(fields)
        })?;
        let says = format!(
            "its fields ({}) are a prefix of those of {}, index {}, which serves the same queries if documents have all of its fields",
            fields.join(", "),
            longer.id,
            its_view.name
        );
        Some(
            Finding::new(Severity::Note, format!("{}, index {}", path(db, design), view.name), says)
                .evidence(json!({"fields": fields, "documents": db.documents}))
                .act(remove_index(db, design, view)),
        )
    });
    found.collect()
}

const WHOLE_BYTES_MIN: u64 = 1024;
const COPIED_BYTES_MIN: u64 = 10 << 20;
const COPIED_PERCENT: u64 = 50;

pub const WHOLE_DOCUMENTS: Check = Check {
    id: "whole-documents",
    area: Area::Queries,
    title: "maps that read whole documents",
    looks_at: "JavaScript map functions whose accesses to members could not be determined, and the size of their index while it is open",
    finds: || {
        format!(
            "in databases of {DOCUMENTS_MIN} and more documents of {} and more each: note; warning when the index has {} and more, {COPIED_PERCENT} % of the documents' size",
            bytes(WHOLE_BYTES_MIN),
            bytes(COPIED_BYTES_MIN)
        )
    },
    why: "the function gets every member of every document, which takes most of a build's time; emit(key, doc) also stores each document a second time",
    look: |facts| {
        Ok(designs(facts)
            .filter_map(|(db, design)| whole_documents(db, design))
            .collect())
    },
};

fn whole_documents(db: &Database, design: &DesignFacts) -> Option<Finding> {
    let whole = design
        .views
        .iter()
        .filter_map(|view| Some((view, view.takes_whole.as_ref()?)));
    let whole: Vec<_> = whole.collect();
    let (first, why) = whole.first()?;
    if db.external_bytes < WHOLE_BYTES_MIN * db.documents {
        return None;
    }
    let index_bytes = design.open.as_ref().map_or(0, |open| open.external_bytes);
    let is_copy = index_bytes >= COPIED_BYTES_MIN
        && percent(index_bytes, db.external_bytes) >= COPIED_PERCENT;
    let mut says = format!(
        "{} of {} map functions read whole documents, of {} on average; view {}: {why}",
        whole.len(),
        design.views.len(),
        bytes(db.external_bytes / db.documents.max(1)),
        first.name
    );
    if is_copy {
        says.push_str(&format!(
            ". Its index takes {}, the documents {}",
            bytes(index_bytes),
            bytes(db.external_bytes)
        ));
    }
    let severity = if is_copy {
        Severity::Warning
    } else {
        Severity::Note
    };
    let info = curl("GET", &[&db.name, &design.id, "_info"], None);
    let info = info.strip_suffix('"').unwrap_or(&info);
    Some(
        Finding::new(severity, path(db, design), says)
            .evidence(json!({
                "views": whole.iter().map(|(view, why)| json!({"view": view.name, "why": why})).collect::<Vec<_>>(),
                "documents": db.documents,
                "document_bytes": db.external_bytes,
                "index_bytes": index_bytes,
            }))
            .act("# emit(key, null) and query with include_docs=true, or emit only the members that you need; read members by name (doc.a.b)")
            .act(format!("{info}?projections=true\"   # the members that each function gets")),
    )
}

pub const FAILING_MAPS: Check = Check {
    id: "failing-maps",
    area: Area::Queries,
    title: "functions that always fail",
    looks_at: "documents that JavaScript map functions and index functions threw for, and documents that views leave out because a map function exceeded a limit, since their index was opened",
    finds: || {
        format!(
            "of {FAILED_MIN} and more documents: warning when all failed, note at {FAILED_PERCENT} %; warning of a design document whose views leave documents out"
        )
    },
    why: "a document for which the function throws or exceeds a limit is not in the index, and only the log reports that",
    look: |facts| {
        let all = facts.databases.all.iter();
        let designs = all.flat_map(|db| db.designs.iter().map(move |design| (db, design)));
        let found = designs.flat_map(|(db, design)| {
            let mapped = design.open.as_ref().map_or(0, |open| open.mapped);
            let views = design.views.iter().filter_map(move |view| {
                let subject = format!("{}, view {}", path(db, design), view.name);
                failing_function(subject, "map function", (view.failed, mapped))
            });
            let left_out = lacking(db, design).into_iter();
            views
                .chain(left_out)
                .chain(texts::failing_functions(db, design))
        });
        Ok(found.collect())
    },
};

/// A design document whose views leave documents out.
fn lacking(db: &Database, design: &DesignFacts) -> Option<Finding> {
    let open = design.open.as_ref()?;
    let (left_out, mapped) = (open.left_out, open.mapped);
    if left_out == 0 {
        return None;
    }
    let says = format!(
        "its views leave out {}: a function exceeded a limit",
        counted(left_out, "documents")
    );
    Some(
        Finding::new(Severity::Warning, path(db, design), says)
            .evidence(json!({"left_out": left_out, "mapped": mapped}))
            .act("# the log has a document and the limit, at \"a view leaves documents out\""),
    )
}

pub const FAILING_BUILDS: Check = Check {
    id: "failing-builds",
    area: Area::Queries,
    title: "index builds that fail",
    looks_at: "index builds that failed, of indexes that are open; definitions of text indexes",
    finds: || {
        format!(
            "error of {BUILDS_FAILED_MIN} and more failures since the last build that succeeded; warning of a text index that can never be built"
        )
    },
    why: "queries of its views and searches return an error, or old results",
    look: |facts| {
        let all = facts.databases.all.iter();
        let designs = all.flat_map(|db| db.designs.iter().map(move |design| (db, design)));
        let found = designs.filter_map(|(db, design)| {
            let open = design
                .open
                .as_ref()
                .filter(|open| open.failures >= BUILDS_FAILED_MIN)?;
            let why = open.failure.as_deref().unwrap_or("unknown");
            let why = &why[..why.floor_char_boundary(200)];
            let says = format!(
                "the last {} failed: {why}",
                counted(open.failures, "builds")
            );
            Some(
                Finding::new(Severity::Error, path(db, design), says)
                    .evidence(json!({"failures": open.failures, "why": why}))
                    .act(format!(
                        "{}   # and correct it",
                        curl("GET", &[&db.name, &design.id], None)
                    ))
                    .act("# the log has more, at \"an index build failed\""),
            )
        });
        let all = facts.databases.all.iter();
        let designs = all.flat_map(|db| db.designs.iter().map(move |design| (db, design)));
        let texts = designs.flat_map(|(db, design)| texts::failing(db, design));
        Ok(found.chain(texts).collect())
    },
};

pub const FUNCTIONS: Check = Check {
    id: "functions",
    area: Area::Queries,
    title: "functions for CouchDB's engine",
    looks_at: "sources of JavaScript functions, and of the modules that they require",
    finds: || {
        "warning of a function that only works in CouchDB's engine; note of one whose results may differ from CouchDB's"
            .to_owned()
    },
    why: "CouchDB runs functions in SpiderMonkey, Settee in QuickJS: a function that was written for the other may throw, or return something else, without an error in a response",
    look: |facts| {
        let all = facts.databases.all.iter();
        let found = all.flat_map(|db| db.functions.iter().map(|function| dependent(db, function)));
        Ok(found.collect())
    },
};

fn dependent(db: &Database, function: &FunctionFacts) -> Finding {
    let fails = |effect| effect == Effect::Fails;
    let mut places: Vec<_> = function.differences.iter().collect();
    // What fails matters most.
    places.sort_by_key(|place| !fails(place.kind.effect));
    let severity = match places.first() {
        Some(first) if fails(first.kind.effect) => Severity::Warning,
        _ => Severity::Note,
    };
    let says: Vec<String> = places
        .iter()
        .map(|place| format!("line {}: {} ({})", place.line, place.code, place.kind.id))
        .collect();
    let evidence: Vec<_> = places
        .iter()
        .map(|place| {
            json!({"line": place.line, "column": place.column, "kind": place.kind.id, "differs": place.kind.differs})
        })
        .collect();
    let subject = format!("{}/{}, {}", db.name, function.design, function.function);
    let mut finding =
        Finding::new(severity, subject, says.join("; ")).evidence(json!({"places": evidence}));
    let mut kinds = vec![];
    for place in places {
        if !kinds.contains(&place.kind.id) {
            kinds.push(place.kind.id);
            finding = finding.act(format!("# {}: {}", place.kind.id, place.kind.instead));
        }
    }
    finding.act(curl("GET", &[&db.name, &function.design], None))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use database::OpenIndexFacts;
    use functions::{Form, differences};

    use super::*;
    use crate::checks::planted::{design, facts, severities};

    fn view(name: &str, rows_hash: u64) -> ViewFacts {
        ViewFacts {
            name: name.to_owned(),
            rows_hash,
            fields: None,
            takes_whole: None,
            failed: 0,
        }
    }

    #[test]
    fn unused_indexes_are_found_after_a_while() {
        let mut unused = design("d", "javascript", vec![view("v", 1)]);
        unused.was_used = Some(false);
        let mut facts = facts(
            5_000,
            vec![unused, design("e", "javascript", vec![view("v", 2)])],
        );
        assert_eq!(
            severities(&UNUSED_INDEXES, facts.clone()),
            [Severity::Warning]
        );
        facts.databases.all[0].designs[0].is_built = false;
        assert_eq!(severities(&UNUSED_INDEXES, facts.clone()), []);
        facts.uptime = Duration::from_secs(60);
        assert!(UNUSED_INDEXES.run(&facts).is_err());
    }

    #[test]
    fn the_same_rows_twice_are_found_unless_the_index_is_shared() {
        let twice = |hashes: [u64; 2]| {
            vec![
                design("a", "javascript", vec![view("v", hashes[0])]),
                design("b", "javascript", vec![view("w", hashes[1])]),
            ]
        };
        assert_eq!(
            severities(&DUPLICATE_INDEXES, facts(5_000, twice([1, 1]))),
            [Severity::Warning]
        );
        assert_eq!(
            severities(&DUPLICATE_INDEXES, facts(5_000, twice([1, 2]))),
            []
        );
        assert_eq!(severities(&DUPLICATE_INDEXES, facts(50, twice([1, 1]))), []);
        let mut shared = twice([1, 1]);
        shared[1].signature = shared[0].signature.clone();
        assert_eq!(severities(&DUPLICATE_INDEXES, facts(5_000, shared)), []);
        let index = |id: &str, fields: &[&str], hash| {
            let mut view = view(id, hash);
            view.fields = Some(fields.iter().map(|f| (*f).to_owned()).collect());
            design(id, "query", vec![view])
        };
        let begins = vec![
            index("a", &["x"], 1),
            index("ab", &["x", "y"], 2),
            index("b", &["y"], 3),
        ];
        assert_eq!(
            severities(&DUPLICATE_INDEXES, facts(5_000, begins)),
            [Severity::Note]
        );
    }

    #[test]
    fn whole_documents_are_noted_and_copies_are_warned_of() {
        let of = |takes_whole: bool, external_bytes| {
            let mut one = view("v", 1);
            one.takes_whole = takes_whole.then(|| "doc is passed to a function".to_owned());
            let mut design = design("d", "javascript", vec![one]);
            design.open = Some(OpenIndexFacts {
                external_bytes,
                ..OpenIndexFacts::default()
            });
            severities(&WHOLE_DOCUMENTS, facts(5_000, vec![design]))
        };
        assert_eq!(of(false, 0), []);
        assert_eq!(of(true, 0), [Severity::Note]);
        assert_eq!(of(true, 15 << 20), [Severity::Warning]);
        assert_eq!(of(false, 15 << 20), []);
    }

    #[test]
    fn maps_that_fail_for_all_are_told_from_those_that_fail_for_some() {
        let of = |failed, mapped| {
            let mut one = view("v", 1);
            one.failed = failed;
            let mut design = design("d", "javascript", vec![one]);
            design.open = Some(OpenIndexFacts {
                mapped,
                ..OpenIndexFacts::default()
            });
            severities(&FAILING_MAPS, facts(500, vec![design]))
        };
        assert_eq!(of(500, 500), [Severity::Warning]);
        assert_eq!(of(200, 500), [Severity::Note]);
        assert_eq!(of(3, 500), []);
        assert_eq!(of(150, 50_000), []);
        let mut design = design("d", "javascript", vec![view("v", 1)]);
        design.open = Some(OpenIndexFacts {
            left_out: 1,
            ..OpenIndexFacts::default()
        });
        let found = severities(&FAILING_MAPS, facts(500, vec![design]));
        assert_eq!(found, [Severity::Warning]);
    }

    #[test]
    fn builds_that_fail_again_are_errors() {
        let of = |failures| {
            let mut design = design("d", "javascript", vec![view("v", 1)]);
            design.open = Some(OpenIndexFacts {
                failures,
                failure: Some("out of it".into()),
                ..OpenIndexFacts::default()
            });
            severities(&FAILING_BUILDS, facts(500, vec![design]))
        };
        assert_eq!(
            (of(0), of(1), of(3)),
            (vec![], vec![], vec![Severity::Error])
        );
    }

    fn with_function(source: &str) -> Database {
        let function = FunctionFacts {
            design: "_design/d".into(),
            function: "views/v/map".into(),
            differences: differences(source, Form::Function).unwrap(),
        };
        let functions = match function.differences.is_empty() {
            true => vec![],
            false => vec![function],
        };
        Database {
            functions,
            ..Database::default()
        }
    }

    #[test]
    fn functions_that_fail_are_warnings_and_those_that_differ_are_notes() {
        let of = |source| severities(&FUNCTIONS, with_function(source));
        let fails = "function (doc) { Array.forEach(doc.tags, function (tag) { emit(tag) }) }";
        assert_eq!(of(fails), [Severity::Warning]);
        let differs = "function (doc) { if (doc.tags instanceof Array) emit(doc._id) }";
        assert_eq!(of(differs), [Severity::Note]);
        assert_eq!(of("function (doc) { emit(doc._id) }"), []);
    }
}
