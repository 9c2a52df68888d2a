//! Everything that can be read of a store, as JSON.

use std::sync::Arc;

use database::{
    Database, Databases, Design, FindLimits, GroupLevel, Grouping, Listing, NameRange, PurgeInfo,
    PurgePlace, Read, ReadDoc, ReadOptions, RevSelection, Since, Style, Update, ViewAt, ViewIndex,
    ViewQuery,
};
use document::{Attachment, DocId};
use mango::{AggregateLimits, Defaults, Find, Limits};
use serde_json::{Map, Value, json};

use crate::golden::support::{all_docs, changes_of, feed, ids_of, rows_of};

/// Asserts that no index would have to be built.
pub fn assert_indexed(databases: &Databases) {
    let stale = stale(databases);
    assert!(
        stale.is_empty(),
        "{stale:?} are not used as they were stored"
    );
}

/// Databases and design documents whose indexes would have to be built.
pub fn stale(databases: &Databases) -> Vec<(String, String)> {
    let mut stale = vec![];
    for_each_view_index(databases, |db, design, index| {
        if !db.view_is_current(index) {
            stale.push((db.name().to_string(), design.to_owned()));
        }
    });
    for (db, index) in expiry_indexes(databases) {
        if !db.view_is_current(&index) {
            stale.push((db.name().to_string(), "expiry".to_owned()));
        }
    }
    stale
}

/// Waits until all indexes are built.
pub async fn index(databases: &Databases) {
    let mut all = vec![];
    for_each_view_index(databases, |db, _, index| {
        all.push((db.clone(), index.clone()))
    });
    all.extend(expiry_indexes(databases));
    for (db, index) in all {
        db.update_view(&index, &database::Requester::Background)
            .await
            .unwrap();
    }
}

fn expiry_indexes(databases: &Databases) -> Vec<(Arc<Database>, Arc<ViewIndex>)> {
    let all = databases.with_expiry().unwrap().into_iter();
    all.map(|name| {
        let db = databases.get(&name).unwrap();
        let index = db.expiry_index(&db.expiry().unwrap()).unwrap();
        (db, index)
    })
    .collect()
}

pub fn for_each_view_index(
    databases: &Databases,
    mut f: impl FnMut(&Arc<Database>, &str, &Arc<ViewIndex>),
) {
    for name in databases.names(&NameRange::default()) {
        let db = databases.get(&name).unwrap();
        for id in designs(&db) {
            let design = db.design(&id).unwrap();
            f(&db, &id, &db.view_index(&design).unwrap());
        }
    }
}

fn designs(db: &Database) -> Vec<String> {
    let mut query = all_docs();
    query.listing = Listing::DesignDocs;
    ids_of(&rows_of(&mut db.rows(query).unwrap(), 1000))
}

/// By database.
pub async fn describe(databases: &Databases) -> Value {
    let mut all = Map::new();
    for name in databases.names(&NameRange::default()) {
        let db = databases.get(&name).unwrap();
        all.insert(name.to_string(), database(&db).await);
    }
    all.into()
}

async fn database(db: &Arc<Database>) -> Value {
    let mut described = described(db).await;
    // Older stores have none.
    if let Some(expiry) = db.expiry() {
        let index = db.expiry_index(&expiry).unwrap();
        let due = db.due(&index, u64::MAX, 10_000).unwrap();
        let documents = due.documents.into_iter();
        let documents: Vec<Value> = documents
            .map(|of| json!([of.at_unix_s, of.id.as_str(), of.rev.to_string()]))
            .collect();
        described["expiring"] = json!({ "documents": documents, "invalid": due.invalid });
    }
    described
}

async fn described(db: &Arc<Database>) -> Value {
    json!({
        "info": info(db),
        "changes": changes(db),
        "documents": documents(db),
        "all_docs": listing(db, Listing::AllDocs, false),
        "local_docs": listing(db, Listing::LocalDocs, true),
        "purges": purges(db),
        "views": views(db),
        "found": match designs(db).iter().any(|id| id == "_design/by-n") {
            true => found(db).await,
            false => Value::Null,
        },
    })
}

/// Properties that do not depend on files and caches.
fn info(db: &Database) -> Value {
    let info = db.info().unwrap();
    let mut described = json!({
        "instance_start_time": info.instance_start_time,
        "update_seq": info.update_seq,
        "purge_seq": info.purge_seq,
        "external_bytes": info.external_bytes,
        "partitioned": info.partitioned,
        "doc_count": info.doc_count,
        "doc_del_count": info.doc_del_count,
        "q": info.q,
        "n": info.n,
        "security": serde_json::from_str::<Value>(&db.security()).unwrap(),
        "revs_limit": db.revs_limit(),
        "purged_infos_limit": db.purged_infos_limit(),
    });
    // Older stores have none.
    if let Some(ttl) = db.deleted_document_ttl() {
        described["deleted_document_ttl"] = ttl.as_str().into();
    }
    if let Some(expiry) = db.expiry() {
        described["expiry"] = json!([expiry.member(), expiry.then().as_str()]);
    }
    let bins = db.time_seq().unwrap().into_iter();
    let bins = bins.filter(|(_, bins)| !bins.is_empty());
    let bins: Map<String, Value> = bins
        .map(|(shard, bins)| {
            let bins: Vec<Value> = bins
                .into_iter()
                .map(|bin| json!([bin.start, bin.changes]))
                .collect();
            (shard.range, bins.into())
        })
        .collect();
    if !bins.is_empty() {
        described["time_seq"] = bins.into();
    }
    described
}

fn changes(db: &Arc<Database>) -> Vec<Value> {
    let mut query = feed(Since::Start);
    query.style = Style::AllDocs;
    changes_of(&mut db.changes(query).unwrap(), 100_000)
}

/// Every document that there is a change of, by id, with all its leaves and their attachments.
fn documents(db: &Arc<Database>) -> Map<String, Value> {
    let options = ReadOptions {
        revs: true,
        revs_info: true,
        conflicts: true,
        deleted_conflicts: true,
        local_seq: true,
        att_encoding_info: true,
        ..ReadOptions::default()
    };
    let leaf_options = ReadOptions {
        revs: true,
        att_encoding_info: true,
        ..ReadOptions::default()
    };
    let one = |id: String| {
        let doc_id = DocId::new(id.as_str()).unwrap();
        let winner = match db.read(&doc_id, &options).unwrap() {
            Read::Found(doc) => text(&doc.json),
            Read::Missing => "missing".into(),
            Read::Deleted => "deleted".into(),
        };
        let leaves = db.open_revs(&doc_id, &RevSelection::All, &leaf_options);
        let leaves = leaves.unwrap().unwrap_or_default();
        let leaves = leaves.into_iter().map(|leaf| match leaf {
            Ok(doc) => leaf_of(db, &doc),
            Err(rev) => json!({ "missing": rev.to_string() }),
        });
        let leaves: Vec<Value> = leaves.collect();
        (id, json!({ "winner": winner, "leaves": leaves }))
    };
    let mut ids = ids_of(&changes(db));
    ids.sort();
    ids.into_iter().map(one).collect()
}

fn leaf_of(db: &Database, doc: &ReadDoc) -> Value {
    let attachments = doc.attachments.iter();
    let attachments: Vec<Value> = attachments
        .map(|read| attachment(db, &doc.id, &read.attachment))
        .collect();
    json!({ "json": text(&doc.json), "deleted": doc.deleted, "attachments": attachments })
}

/// Its content as it is and as it is stored.
fn attachment(db: &Database, id: &DocId, attachment: &Attachment) -> Value {
    let content = |decode| {
        let mut reader = db.attachment_reader(id, attachment, None, decode).unwrap();
        let (mut length, mut sum) = (0, crc32fast::Hasher::new());
        while let Some(piece) = reader.next_piece().unwrap() {
            length += piece.len();
            sum.update(&piece);
        }
        json!({ "length": length, "crc32": sum.finalize() })
    };
    json!({
        "name": attachment.name,
        "content_type": attachment.content_type,
        "revpos": attachment.revpos,
        "content": content(true),
        "stored": content(false),
    })
}

fn listing(db: &Database, listing: Listing, include_docs: bool) -> Value {
    let mut query = all_docs();
    query.listing = listing;
    query.include_docs = include_docs;
    query.update_seq = true;
    let mut rows = db.rows(query).unwrap();
    json!({
        "total_rows": rows.total_rows,
        "offset": rows.offset,
        "update_seq": rows.update_seq,
        "rows": rows_of(&mut rows, 100_000),
    })
}

fn purges(db: &Database) -> Vec<Value> {
    let mut all = vec![];
    let mut place = Some(PurgePlace::default());
    while let Some(from) = place {
        let mut take = |purge: PurgeInfo| {
            let revs: Vec<String> = purge.revs.iter().map(ToString::to_string).collect();
            all.push(json!({ "purge_seq": purge.purge_seq, "uuid": purge.uuid, "id": purge.id, "revs": revs }));
            // One at a time: what is read in pieces is the same.
            false
        };
        place = db.purged_infos(from, &mut take).unwrap();
    }
    all
}

/// The rows of all views, and what they reduce to. Nothing is updated before.
fn views(db: &Arc<Database>) -> Map<String, Value> {
    let mut all = Map::new();
    for id in designs(db) {
        let design = db.design(&id).unwrap();
        let index = db.view_index(&design).unwrap();
        let info = db.view_info(&design, &index).unwrap();
        all.insert(
            id.clone(),
            json!({
                "signature": info.signature,
                "update_seq": info.update_seq,
                "purge_seq": info.purge_seq,
                "external_bytes": info.external_bytes,
            }),
        );
        let mut names: Vec<(&str, ViewAt)> = design.names().collect();
        names.sort_by_key(|(name, _)| *name);
        let partitions = match design.spec.partitioned {
            true => vec![Some("p1"), Some("p2")],
            false => vec![None],
        };
        for (name, at) in names {
            for partition in &partitions {
                let name = format!("{id}/{name}/{}", partition.unwrap_or("all"));
                all.insert(name, view(db, &design, &index, at, *partition));
            }
        }
    }
    all
}

fn view(
    db: &Arc<Database>,
    design: &Design,
    index: &ViewIndex,
    at: ViewAt,
    partition: Option<&str>,
) -> Value {
    let rows = |reduce: bool, grouping: Grouping| -> Value {
        let query = ViewQuery {
            reduce: Some(reduce),
            grouping,
            update: Update::False,
            partition: partition.map(str::to_owned),
            ..ViewQuery::default()
        };
        let mut rows = db.view_rows(design, index, at, query).unwrap();
        let mut out = b"[".to_vec();
        while rows.next_chunk(&mut out, 100_000).unwrap() {}
        out.push(b']');
        json!({ "total_rows": rows.total_rows, "rows": text(&out) })
    };
    if at.reduce.is_none() {
        return rows(false, Grouping::None);
    }
    json!({
        "all": rows(false, Grouping::None)["total_rows"],
        "reduced": rows(true, Grouping::None),
        "grouped": rows(true, Grouping::By(GroupLevel::Elements(1))),
    })
}

/// Results of a query that the Mango index serves.
async fn found(db: &Arc<Database>) -> Value {
    let defaults = Defaults {
        limit: 1000,
        limits: Limits::default(),
    };
    let query = json!({
        "selector": { "n": { "$gte": 100, "$lt": 110 }, "name": { "$gt": null } },
        "sort": ["n"],
        "fields": ["_id", "n"],
        "use_index": "by-n",
        "update": false,
    });
    let query = document::normalise(query.to_string().as_bytes()).unwrap();
    let mut find = Find::parse(&query, &defaults).unwrap();
    find.partition = db.is_partitioned().then(|| "p1".to_owned());
    let limits = FindLimits {
        scan_limit: 0,
        scan_warning_threshold: 0,
        aggregate: AggregateLimits {
            groups_max: 100,
            values_max: 100,
            bytes_max: 1 << 20,
            user: None,
        },
    };
    let seen = db.seen_by(Default::default);
    let plan = seen
        .plan_find(find, &limits, &seen.find_indexes().unwrap())
        .unwrap();
    let mut answer = seen.find(plan, limits).await.unwrap();
    let mut out = b"[".to_vec();
    while answer.next_chunk(&mut out, 100_000).unwrap() {}
    out.push(b']');
    text(&out)
}

/// JSON where it is JSON, so that differences are shown by the line.
fn text(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap_or_else(|_| String::from_utf8_lossy(json).into())
}
