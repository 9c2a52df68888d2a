//! Contents of databases: ids, conflicts, tombstones, garbage, expired documents.

use database::IdOrder;
use serde_json::json;

use crate::check::{Area, Check};
use crate::facts::{Database, Expiring};
use crate::finding::{Finding, Severity, bytes, counted, curl, percent, set, times};

const RANDOM_DOCUMENTS_MIN: u64 = 100_000;
const PAIRS_MIN: u64 = 200;
const IN_ORDER_PERCENT: std::ops::RangeInclusive<u64> = 35..=65;
/// Bytes per document, measured: docs/src/reference/performance.md.
const RANDOM_ID_BYTES: u64 = 46;

pub const RANDOM_IDS: Check = Check {
    id: "random-ids",
    area: Area::Data,
    title: "random ids",
    looks_at: "ids of the latest new documents, those of 16 and more hexadecimal digits, also behind a prefix",
    finds: || {
        format!(
            "note of {RANDOM_DOCUMENTS_MIN} and more documents whose ids follow no order: {} to {} % of {PAIRS_MIN} and more pairs with the same prefix do",
            IN_ORDER_PERCENT.start(),
            IN_ORDER_PERCENT.end()
        )
    },
    why: "measured, a load of documents takes 1.5 times as long as with ids in order (in CouchDB 4 times), load and compaction take 1.7 times the processor time, and random ids do not compress: about 46 bytes a document more on disk",
    look: |facts| Ok(facts.databases.all.iter().filter_map(random_ids).collect()),
};

/// Characters of a prefix that are shown.
const PREFIX_CHARS_MAX: usize = 64;

fn random_ids(db: &Database) -> Option<Finding> {
    let in_order = |order: &IdOrder| percent(order.in_order, order.pairs);
    let is_random =
        |order: &IdOrder| order.pairs >= PAIRS_MIN && IN_ORDER_PERCENT.contains(&in_order(order));
    let orders = &db.sample.id_orders;
    let random = orders.iter().filter(|(_, order)| is_random(order));
    // Of several prefixes, the most frequent one.
    let (prefix, order) = random.max_by_key(|(_, order)| order.pairs)?;
    if db.documents < RANDOM_DOCUMENTS_MIN {
        return None;
    }
    let all: u64 = orders.values().map(|order| order.pairs).sum();
    let documents =
        (u128::from(db.documents) * u128::from(order.pairs) / u128::from(all.max(1))) as u64;
    let (behind, query) = match prefix.as_str() {
        "" => (String::new(), ""),
        _ => {
            let shown: String = prefix.chars().take(PREFIX_CHARS_MAX).collect();
            (format!(" behind the prefix {shown}"), "?prefix=PREFIX")
        }
    };
    let says = format!(
        "of the latest {} new documents{behind} {} % have an id above that of the one before: no order. With {documents} documents that is about {} of disk",
        order.pairs + 1,
        in_order(order),
        bytes(documents * RANDOM_ID_BYTES)
    );
    Some(
        Finding::new(Severity::Note, &*db.name, says)
            .evidence(json!({"documents": db.documents, "pairs": order.pairs, "in_order": order.in_order}))
            .act(format!("# POST documents without _id, or take ids from GET $S/_uuids{query}: [uuids] algorithm = uuid_v7 or sequential makes them in order"))
            .act("# the packages for Python and Node make such ids without a request: settee.ids.sequential(\"PREFIX\")"),
    )
}

const LONG_ID_BYTES: u64 = 64;
const LONG_ID_DOCUMENTS_MIN: u64 = 100_000;
const LONG_ID_SAMPLE_MIN: u64 = 200;

pub const LONG_IDS: Check = Check {
    id: "long-ids",
    area: Area::Data,
    title: "long ids",
    looks_at: "the length of the ids of the latest changed documents",
    finds: || {
        format!(
            "note of {LONG_ID_DOCUMENTS_MIN} and more documents whose ids have {LONG_ID_BYTES} bytes and more on average, of {LONG_ID_SAMPLE_MIN} and more examined"
        )
    },
    why: "an id is stored with the document, in the feed of changes, and in each row of each view; what does not compress in it takes its room that many times",
    look: |facts| Ok(facts.databases.all.iter().filter_map(long_ids).collect()),
};

fn long_ids(db: &Database) -> Option<Finding> {
    let sample = &db.sample;
    let average = sample.id_bytes / sample.documents.max(1);
    let is_long = average >= LONG_ID_BYTES && sample.documents >= LONG_ID_SAMPLE_MIN;
    if !is_long || db.documents < LONG_ID_DOCUMENTS_MIN {
        return None;
    }
    let says = format!(
        "the ids of the latest {} documents have {average} bytes on average; there are {} documents",
        sample.documents, db.documents
    );
    Some(
        Finding::new(Severity::Note, &*db.name, says)
            .evidence(json!({"documents": db.documents, "looked_at": sample.documents, "average_bytes": average}))
            .act("# have new documents take shorter ids, and what the ids say as members of the documents, with an index")
            .act("# an id cannot be changed later: copy documents to a new database, and write them with other ids"),
    )
}

const BULKS_MIN: u64 = 1_000;
const TINY_BULK: u64 = 2;

pub const TINY_BULKS: Check = Check {
    id: "tiny-bulks",
    area: Area::Data,
    title: "tiny bulks",
    looks_at: "documents in `_bulk_docs` requests since the start",
    finds: || {
        format!(
            "note of {BULKS_MIN} and more requests of which half have {TINY_BULK} documents at most"
        )
    },
    why: "most of such a request's time is the request, and the wait for the disk: measured, one client writes 100 times as many documents a second by bulks of 1,000 as one by one, 32 clients 13 times",
    look: |facts| {
        let bulks = facts.bulks;
        if bulks.count < BULKS_MIN {
            return Err(format!(
                "written so far: {}, the check needs {BULKS_MIN}",
                counted(bulks.count, "bulks")
            ));
        }
        if bulks.median > TINY_BULK {
            return Ok(vec![]);
        }
        let says = format!(
            "half of {} _bulk_docs requests had at most {}, on average {}",
            bulks.count,
            counted(bulks.median, "documents"),
            times(bulks.documents, bulks.count)
        );
        Ok(vec![
            Finding::new(Severity::Note, "_bulk_docs", says)
                .evidence(json!({"bulks": bulks.count, "median": bulks.median, "documents": bulks.documents}))
                .act("# let writers collect 100 to 1,000 documents for each _bulk_docs. CouchDB's replicator: worker_batch_size"),
        ])
    },
};

const CONFLICTS_WIDE: u64 = 10;
const CONFLICTED_MIN: u64 = 50;
const CONFLICTED_PERCENT: u64 = 5;

pub const CONFLICTS: Check = Check {
    id: "conflicts",
    area: Area::Data,
    title: "wide conflicts",
    looks_at: "revisions besides the winning one, of the latest changed documents",
    finds: || {
        format!(
            "warning of a document with {CONFLICTS_WIDE} and more conflicts; note when {CONFLICTED_MIN} and more documents have any, {CONFLICTED_PERCENT} % of the examined documents"
        )
    },
    why: "conflicts stay until a client resolves them: each update of such a document, and each read of its conflicts, handles all of them, and data in losing revisions is not visible",
    look: |facts| Ok(facts.databases.all.iter().filter_map(conflicts).collect()),
};

fn conflicts(db: &Database) -> Option<Finding> {
    let sample = &db.sample;
    let (id, most) = sample.widest.as_ref()?;
    let share = percent(sample.conflicted, sample.documents);
    let severity = match () {
        () if *most >= CONFLICTS_WIDE => Severity::Warning,
        () if sample.conflicted >= CONFLICTED_MIN && share >= CONFLICTED_PERCENT => Severity::Note,
        () => return None,
    };
    let says = format!(
        "{} of the latest {} documents have conflicts, {id} the most: {most}",
        sample.conflicted, sample.documents
    );
    let read = curl("GET", &[&db.name, id], None);
    let read = read.strip_suffix('"').unwrap_or(&read);
    Some(
        Finding::new(severity, &*db.name, says)
            .evidence(json!({"looked_at": sample.documents, "conflicted": sample.conflicted, "widest": id, "conflicts": most}))
            .act(format!("{read}?conflicts=true\"   # then merge their data, and delete each of _conflicts"))
            .act("# find the writer that writes with new_edits=false, or two databases that replicate and are both written"),
    )
}

const DELETED_MIN: u64 = 100_000;
const DELETED_TIMES: u64 = 10;
const DELETED_TIMES_NOTE: u64 = 2;

pub const TOMBSTONES: Check = Check {
    id: "tombstones",
    area: Area::Data,
    title: "many deleted documents",
    looks_at: "deleted documents against those that are not",
    finds: || {
        format!(
            "of {DELETED_MIN} and more deleted documents: warning when they are {DELETED_TIMES} times as many as the others, note at {DELETED_TIMES_NOTE} times"
        )
    },
    why: "a deleted document stays as a tombstone: it takes space, and new replications, feeds from the beginning and index builds read all of them",
    look: |facts| Ok(facts.databases.all.iter().filter_map(tombstones).collect()),
};

fn tombstones(db: &Database) -> Option<Finding> {
    let (alive, deleted) = (db.documents, db.deleted);
    let is_times = |n: u64| deleted >= DELETED_MIN && deleted >= n * alive.max(1);
    let severity = match () {
        () if is_times(DELETED_TIMES) => Severity::Warning,
        () if is_times(DELETED_TIMES_NOTE) => Severity::Note,
        () => return None,
    };
    let body = json!({
        "source": db.name,
        "target": format!("{}-new", db.name),
        "create_target": true,
        "selector": {"_deleted": {"$exists": false}},
    });
    let says = format!(
        "deleted: {}, others: {alive}",
        counted(deleted, "documents")
    );
    Some(
        Finding::new(severity, &*db.name, says)
            .evidence(json!({"deleted": deleted, "alive": alive}))
            .act(format!("{}   # a new database without them", curl("POST", &["_replicate"], Some(&body))))
            .act("# or remove them permanently with _purge; for data that expires, use a database per period and delete it whole"),
    )
}

/// With more garbage than this multiple of the amount that makes a compaction due, compactions fall
/// behind.
const BEHIND_TIMES: u64 = 5;
const BEHIND_ROWS_MIN: u64 = 200_000;

pub const COMPACTION: Check = Check {
    id: "compaction-due",
    area: Area::Data,
    title: "compaction due",
    looks_at: "superseded revisions, and attachments that no document names",
    finds: || {
        format!(
            "warning when `[compaction] enable` is false and more is superseded than kept (20,000 revisions, or 128 MiB of attachments, at least), or when compactions fall behind: {BEHIND_ROWS_MIN} superseded revisions, {BEHIND_TIMES} times as many as documents, and none under way"
        )
    },
    why: "they take space on disk, and feeds of changes read them",
    look: |facts| {
        let itself = facts.operation.compacts_itself;
        Ok(facts
            .databases
            .all
            .iter()
            .filter_map(|db| garbage(db, itself))
            .collect())
    },
};

fn garbage(db: &Database, compacts_itself: bool) -> Option<Finding> {
    let garbage = db.garbage;
    let documents = db.documents + db.deleted;
    let is_behind = garbage.rows >= BEHIND_ROWS_MIN && garbage.rows >= BEHIND_TIMES * documents;
    if garbage.is_compacting || !garbage.is_due || (compacts_itself && !is_behind) {
        return None;
    }
    let says = format!(
        "superseded: {}, with {}; attachments of {} are unreferenced",
        counted(garbage.rows, "revisions"),
        counted(documents, "documents"),
        bytes(garbage.attachment_bytes)
    );
    let finding = Finding::new(Severity::Warning, &*db.name, says)
        .evidence(json!({"superseded": garbage.rows, "documents": documents, "attachment_bytes": garbage.attachment_bytes}))
        .act(curl("POST", &[&db.name, "_compact"], None));
    Some(match compacts_itself {
        true => finding.act("# search for \"compaction failed\" in the log"),
        false => finding.act(format!(
            "{}   # compact automatically",
            set("compaction", "enable", "true")
        )),
    })
}

/// An expired document that is still there after this is overdue.
const OVERDUE_S: u64 = 60;

pub const EXPIRY: Check = Check {
    id: "expiry",
    area: Area::Data,
    title: "documents that expire",
    looks_at: "databases with `expires_at` in `_auto_purge`: expired documents that are still there, and documents with an invalid time",
    finds: || {
        format!(
            "warning when a document expired more than {OVERDUE_S} s ago, with the reason if removing it failed; note of documents with an invalid time"
        )
    },
    why: "expired documents are found in views and feeds; those with an invalid time stay forever",
    look: |facts| {
        let expiring = &facts.operation.expiring;
        Ok(expiring.iter().flat_map(of_expiring).collect())
    },
};

fn of_expiring(of: &Expiring) -> Vec<Finding> {
    let db = of.database.as_str();
    let mut findings = vec![];
    if of.overdue_s > OVERDUE_S {
        let reason = of.failure.as_deref();
        let says = match reason {
            Some(reason) => format!("expired documents are not removed: {reason}"),
            None => "expired documents are removed late".to_owned(),
        };
        findings.push(
            Finding::new(Severity::Warning, db, says)
                .evidence(json!({"overdue_s": of.overdue_s, "reason": reason}))
                .act("# the server tries again every few seconds; its log has each failure"),
        );
    }
    if of.invalid > 0 {
        let says = format!(
            "with an invalid time, which never expire: {}, replicated or older than the property",
            counted(of.invalid, "documents")
        );
        findings.push(
            Finding::new(Severity::Note, db, says)
                .evidence(json!({"documents": of.invalid}))
                .act("# correct the member that `_auto_purge` names as expires_at, or delete them"),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use database::{Garbage, Sample};

    use super::*;
    use crate::checks::planted::severities;
    use crate::facts::{Bulks, Databases, Facts, Operation};

    #[test]
    fn documents_that_should_be_gone_or_never_expire_are_found() {
        let of = |overdue_s, invalid, failure: Option<&str>| {
            let expiring = Expiring {
                database: "db".into(),
                invalid,
                overdue_s,
                failure: failure.map(str::to_owned),
            };
            severities(
                &EXPIRY,
                Operation {
                    expiring: vec![expiring],
                    ..Operation::default()
                },
            )
        };
        assert_eq!(of(OVERDUE_S, 0, Some("no majority")), []);
        assert_eq!(of(OVERDUE_S + 1, 0, None), [Severity::Warning]);
        assert_eq!(of(0, 1, None), [Severity::Note]);
        let both = [Severity::Warning, Severity::Note];
        assert_eq!(of(OVERDUE_S + 1, 7, Some("no majority")), both);
    }

    #[test]
    fn ids_in_order_either_way_are_not_random() {
        let of = |documents, in_order| {
            let order = IdOrder {
                pairs: 499,
                in_order,
            };
            let sample = Sample {
                documents: 500,
                id_orders: [(String::new(), order)].into(),
                ..Sample::default()
            };
            severities(
                &RANDOM_IDS,
                Database {
                    documents,
                    sample,
                    ..Database::default()
                },
            )
        };
        // What was measured: docs/src/guide/ids.md.
        for measured in ["1.5 times", "1.7 times the processor time", "46 bytes"] {
            assert!(RANDOM_IDS.why.contains(measured), "{}", RANDOM_IDS.why);
        }
        assert_eq!(of(200_000, 250), [Severity::Note]);
        assert_eq!(of(200_000, 499), []);
        assert_eq!(of(200_000, 0), []);
        assert_eq!(of(5_000, 250), []);
    }

    #[test]
    fn random_ids_behind_one_of_several_prefixes_are_found() {
        let of = |orders: &[(&str, u64, u64)]| {
            let order = |&(prefix, pairs, in_order): &(&str, u64, u64)| {
                (prefix.to_owned(), IdOrder { pairs, in_order })
            };
            let sample = Sample {
                documents: 2_000,
                id_orders: orders.iter().map(order).collect(),
                ..Sample::default()
            };
            let db = Database {
                documents: 300_000,
                sample,
                ..Database::default()
            };
            random_ids(&db).map(|finding| finding.says)
        };
        let ordered = ("a/", 800, 799);
        assert_eq!(of(&[ordered]), None);
        assert_eq!(of(&[ordered, ("b/", 150, 75)]), None, "too few");
        let says = of(&[ordered, ("b/", 400, 200)]).unwrap();
        assert!(says.contains("behind the prefix b/ 50 %"), "{says}");
        assert!(says.contains("With 100000 documents"), "{says}");
    }

    #[test]
    fn long_ids_are_found_in_large_databases() {
        let of = |documents, average: u64| {
            let sample = Sample {
                documents: 500,
                id_bytes: 500 * average,
                ..Sample::default()
            };
            severities(
                &LONG_IDS,
                Database {
                    documents,
                    sample,
                    ..Database::default()
                },
            )
        };
        assert_eq!(of(100_000, 64), [Severity::Note]);
        assert_eq!(of(100_000, 63), []);
        assert_eq!(of(99_999, 500), []);
    }

    #[test]
    fn bulks_of_one_are_tiny() {
        let of = |count, median| {
            TINY_BULKS.run(&Facts {
                bulks: Bulks {
                    count,
                    median,
                    documents: count * median,
                },
                ..Facts::default()
            })
        };
        assert!(of(10, 1).is_err());
        assert_eq!(of(5_000, 500), Ok(vec![]));
        assert_eq!(of(5_000, 1).unwrap().len(), 1);
    }

    #[test]
    fn one_wide_conflict_is_worse_than_some_narrow_ones() {
        let of = |conflicted, most| {
            let widest = (conflicted > 0).then(|| ("it".to_owned(), most));
            let sample = Sample {
                documents: 1000,
                conflicted,
                widest,
                ..Sample::default()
            };
            severities(
                &CONFLICTS,
                Database {
                    sample,
                    ..Database::default()
                },
            )
        };
        assert_eq!(of(0, 0), []);
        assert_eq!(of(5, 2), []);
        assert_eq!(of(80, 2), [Severity::Note]);
        assert_eq!(of(1, 10), [Severity::Warning]);
    }

    #[test]
    fn tombstones_count_when_they_are_many() {
        let of = |documents, deleted| {
            severities(
                &TOMBSTONES,
                Database {
                    documents,
                    deleted,
                    ..Database::default()
                },
            )
        };
        assert_eq!(of(0, 50_000), []);
        assert_eq!(of(200_000, 100_000), []);
        assert_eq!(of(50_000, 100_000), [Severity::Note]);
        assert_eq!(of(10, 100_000), [Severity::Warning]);
    }

    #[test]
    fn a_compaction_that_comes_by_itself_is_not_due() {
        let of = |rows, is_compacting, compacts_itself| {
            let garbage = Garbage {
                rows,
                is_due: rows > 20_000,
                is_compacting,
                ..Garbage::default()
            };
            let db = Database {
                documents: 10,
                garbage,
                ..Database::default()
            };
            let facts = Facts {
                databases: Databases {
                    all: vec![db],
                    ..Databases::default()
                },
                operation: Operation {
                    compacts_itself,
                    ..Operation::default()
                },
                ..Facts::default()
            };
            COMPACTION.run(&facts).unwrap().len()
        };
        assert_eq!(of(30_000, false, true), 0);
        assert_eq!(of(30_000, false, false), 1);
        assert_eq!(of(30_000, true, false), 0);
        assert_eq!(of(300_000, false, true), 1);
        assert_eq!(of(10_000, false, false), 0);
    }
}
