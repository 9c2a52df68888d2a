//! Text indexes.

use std::time::Duration;

use database::{DesignFacts, TextFacts, TextFlavour};
use serde_json::json;

use super::index::{BUILDS_FAILED_MIN, failing_function, path};
use crate::check::{Area, Check};
use crate::facts::Database;
use crate::finding::{Finding, Severity, counted, curl};

/// The member of a design document that has a text index, and the route that removes the files of those that are gone.
fn places(text: &TextFacts) -> (&'static str, &'static str) {
    match text.flavour {
        TextFlavour::Clouseau => ("indexes", "_search_cleanup"),
        TextFlavour::Nouveau => ("nouveau", "_nouveau_cleanup"),
    }
}

fn subject(db: &Database, design: &DesignFacts, text: &TextFacts) -> String {
    format!("{}, text index {}", path(db, design), text.name)
}

/// Commands that remove a text index, and nothing else of its design document.
fn remove(db: &Database, design: &DesignFacts, text: &TextFacts) -> Vec<String> {
    if text.is_mango {
        let kind = match text.flavour {
            TextFlavour::Clouseau => "text",
            TextFlavour::Nouveau => "nouveau",
        };
        let path = [&db.name, "_index", &design.id, kind, &text.name];
        return vec![curl("DELETE", &path, None)];
    }
    let (member, cleanup) = places(text);
    vec![
        format!(
            "{}   # remove \"{}\" from its \"{member}\", and save it",
            curl("GET", &[&db.name, &design.id], None),
            text.name
        ),
        curl("POST", &[&db.name, cleanup], None),
    ]
}

/// Indexes without a query.
pub fn unused(db: &Database, design: &DesignFacts, uptime: Duration) -> Vec<Finding> {
    let texts = design.text_indexes.iter();
    // One that fails may have been queried without a search: another check reports it.
    let fails = |text: &TextFacts| text.open.as_ref().is_some_and(|open| open.failures > 0);
    let unused = texts.filter(|text| text.is_built && text.was_used == Some(false) && !fails(text));
    let found = unused.map(|text| {
        let says = format!(
            "it was not searched in the {} since the start; it indexes the words of {}",
            counted(uptime.as_secs() / 86_400, "days"),
            counted(db.documents, "documents")
        );
        let finding = Finding::new(Severity::Warning, subject(db, design, text), says)
            .evidence(json!({"uptime_s": uptime.as_secs(), "documents": db.documents}));
        remove(db, design, text)
            .into_iter()
            .fold(finding, Finding::act)
    });
    found.collect()
}

/// Indexes whose builds fail.
pub fn failing(db: &Database, design: &DesignFacts) -> Vec<Finding> {
    let wrong = design.text_indexes.iter().filter_map(|text| {
        let why = text.refused.as_deref()?;
        let why = &why[..why.floor_char_boundary(200)];
        let says = format!("it can never be built: {why}");
        Some(
            Finding::new(Severity::Warning, subject(db, design, text), says)
                .evidence(json!({"why": why}))
                .act(format!(
                    "{}   # and correct it",
                    curl("GET", &[&db.name, &design.id], None)
                )),
        )
    });
    let texts = design.text_indexes.iter();
    let found = texts.filter_map(|text| {
        let open = text.open.as_ref()?;
        let fails = open.failures >= BUILDS_FAILED_MIN;
        let why = open.failure.as_deref().filter(|_| fails)?;
        let why = &why[..why.floor_char_boundary(200)];
        let says = format!(
            "the last {} failed: {why}",
            counted(open.failures, "builds")
        );
        Some(
            Finding::new(Severity::Error, subject(db, design, text), says)
                .evidence(json!({"failures": open.failures, "why": why}))
                .act(format!(
                    "{}   # and correct it",
                    curl("GET", &[&db.name, &design.id], None)
                ))
                .act("# the log has more, at \"an index build failed\""),
        )
    });
    wrong.chain(found).collect()
}

/// Indexes whose functions throw.
pub fn failing_functions(db: &Database, design: &DesignFacts) -> Vec<Finding> {
    let open = |text: &TextFacts| text.open.as_ref().map_or((0, 0), |o| (o.failed, o.mapped));
    let found = design.text_indexes.iter().filter_map(|text| {
        failing_function(subject(db, design, text), "index function", open(text))
    });
    found.collect()
}

const PENDING_MIN: u64 = 10_000;
const SEGMENTS_MIN: usize = 64;

pub const TEXT_INDEXES: Check = Check {
    id: "text-indexes",
    area: Area::Queries,
    title: "text indexes that are behind, in pieces, or lack documents",
    looks_at: "changes that open text indexes lack while no update runs or is due, their segments while no merge runs, and documents that they leave out",
    finds: || {
        format!(
            "note of one that is {PENDING_MIN} and more changes behind; warning of one that has {SEGMENTS_MIN} and more segments in a shard, and of one that leaves documents out"
        )
    },
    why: "the next search waits until the index has seen all changes, or does not find them if it does not wait; each search reads every segment. Segments are merged after an update, unless merges fail. Documents are left out, and not found, when the index cannot hold the function's results for them",
    look: |facts| {
        let all = facts.databases.all.iter();
        let designs = all.flat_map(|db| db.designs.iter().map(move |design| (db, design)));
        let texts = designs.flat_map(|(db, design)| {
            let texts = design.text_indexes.iter();
            texts.map(move |text| (db, design, text))
        });
        let found = texts.flat_map(|(db, design, text)| {
            let of = [behind, in_pieces, lacking];
            of.map(|check| check(db, design, text))
        });
        Ok(found.flatten().collect())
    },
};

fn behind(db: &Database, design: &DesignFacts, text: &TextFacts) -> Option<Finding> {
    let open = text.open.as_ref()?;
    let is_looked_after = open.is_updating || open.is_update_due;
    // Another check reports failing ones.
    if open.pending < PENDING_MIN || is_looked_after || open.failures > 0 {
        return None;
    }
    let says = format!(
        "it lacks {}, and no update runs or is due",
        counted(open.pending, "changes")
    );
    Some(
        Finding::new(Severity::Note, subject(db, design, text), says)
            .evidence(json!({"pending": open.pending, "documents": db.documents}))
            .act("# with \"autoupdate\": false in its design document, or [ken] enable = false, only searches update it")
            .act("# a search that does not wait (stale=ok, update=false) does not update it"),
    )
}

fn in_pieces(db: &Database, design: &DesignFacts, text: &TextFacts) -> Option<Finding> {
    let open = text.open.as_ref()?;
    if open.segments_most < SEGMENTS_MIN || open.is_updating || open.is_tidying {
        return None;
    }
    let says = format!(
        "one of its shards has {}",
        counted(open.segments_most, "segments")
    );
    Some(
        Finding::new(Severity::Warning, subject(db, design, text), says)
            .evidence(json!({"segments": open.segments_most, "documents": db.documents}))
            .act("# merges fail: the cause is in the log at \"an index is left untidy\"; often the disk is too full for them"),
    )
}

fn lacking(db: &Database, design: &DesignFacts, text: &TextFacts) -> Option<Finding> {
    let left_out = text.open.as_ref()?.left_out;
    if left_out == 0 {
        return None;
    }
    let says = format!(
        "it leaves out {left_out} of {} documents: it cannot hold the results of its function for them",
        db.documents
    );
    Some(
        Finding::new(Severity::Warning, subject(db, design, text), says)
            .evidence(json!({"left_out": left_out, "documents": db.documents}))
            .act(
                "# the log has a document and the reason, at \"a text index leaves documents out\"",
            ),
    )
}

#[cfg(test)]
mod tests {
    use database::OpenTextFacts;

    use crate::checks::planted::{design, facts, severities};

    use super::*;
    use crate::checks::views::{FAILING_BUILDS, FAILING_MAPS, UNUSED_INDEXES};
    use crate::facts::Facts;

    fn text(open: Option<OpenTextFacts>) -> TextFacts {
        TextFacts {
            name: "words".into(),
            flavour: TextFlavour::Nouveau,
            is_mango: false,
            refused: None,
            is_built: true,
            was_used: Some(true),
            open,
        }
    }

    fn planted(text: TextFacts) -> Facts {
        let mut design = design("d", "javascript", vec![]);
        design.is_built = false;
        design.text_indexes.push(text);
        facts(5_000, vec![design])
    }

    #[test]
    fn a_text_index_that_nobody_asks_is_found_and_its_removal_is_told() {
        let of = |is_mango, was_used| {
            let facts = planted(TextFacts {
                is_mango,
                was_used,
                ..text(None)
            });
            UNUSED_INDEXES.run(&facts).unwrap()
        };
        assert_eq!(of(false, Some(true)), []);
        assert_eq!(of(false, None), []);
        let found = of(false, Some(false));
        assert_eq!(found[0].severity, Severity::Warning);
        assert_eq!(found[0].subject, "db/_design/d, text index words");
        let acts = format!("{:?}", found[0].act);
        assert!(acts.contains("_nouveau_cleanup"), "{acts}");
        let acts = format!("{:?}", of(true, Some(false))[0].act);
        assert!(
            acts.contains("/db/_index/_design/d/nouveau/words"),
            "{acts}"
        );
        let facts = planted(TextFacts {
            is_built: false,
            was_used: Some(false),
            ..text(None)
        });
        assert_eq!(severities(&UNUSED_INDEXES, facts), []);
    }

    #[test]
    fn text_indexes_that_fail_again_are_errors() {
        let of = |failures| {
            let open = OpenTextFacts {
                failures,
                failure: Some("out of it".into()),
                ..OpenTextFacts::default()
            };
            severities(&FAILING_BUILDS, planted(text(Some(open))))
        };
        assert_eq!([of(0), of(1)], [vec![], vec![]]);
        assert_eq!(of(2), [Severity::Error]);
    }

    #[test]
    fn index_functions_that_throw_are_found_and_so_is_what_can_never_be_built() {
        let of = |failed, mapped| {
            let open = OpenTextFacts {
                failed,
                mapped,
                ..OpenTextFacts::default()
            };
            severities(&FAILING_MAPS, planted(text(Some(open))))
        };
        assert_eq!(of(500, 500), [Severity::Warning]);
        assert_eq!(of(100, 1_000), [Severity::Note]);
        assert_eq!([of(99, 99), of(100, 1_100)], [vec![], vec![]]);
        let misspelled = TextFacts {
            refused: Some("no such analyzer".into()),
            ..text(None)
        };
        let found = FAILING_BUILDS.run(&planted(misspelled)).unwrap();
        assert_eq!(found[0].severity, Severity::Warning);
        assert!(found[0].says.contains("no such analyzer"));
    }

    #[test]
    fn text_indexes_that_are_behind_are_notes_and_those_in_pieces_warnings() {
        let of = |open: OpenTextFacts| severities(&TEXT_INDEXES, planted(text(Some(open))));
        let behind = OpenTextFacts {
            pending: 10_000,
            ..OpenTextFacts::default()
        };
        assert_eq!(of(behind.clone()), [Severity::Note]);
        let few = OpenTextFacts {
            pending: 9_999,
            segments_most: 63,
            ..behind.clone()
        };
        assert_eq!(of(few), []);
        let updating = OpenTextFacts {
            is_updating: true,
            segments_most: 80,
            ..behind.clone()
        };
        assert_eq!(of(updating), []);
        let due = OpenTextFacts {
            is_update_due: true,
            ..behind.clone()
        };
        assert_eq!(of(due), []);
        let pieces = OpenTextFacts {
            pending: 0,
            segments_most: 64,
            ..behind
        };
        assert_eq!(of(pieces.clone()), [Severity::Warning]);
        let merging = OpenTextFacts {
            is_tidying: true,
            ..pieces
        };
        assert_eq!(of(merging.clone()), []);
        let lacking = OpenTextFacts {
            left_out: 1,
            ..merging
        };
        assert_eq!(of(lacking), [Severity::Warning]);
    }
}
